// Packets: one cache line each, from a pool that grows by huge pages and never moves what it has handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/huge_pages.h"
#include "sim/time.h"

namespace talweg::sim {

enum class PacketKind : std::uint8_t { data, acknowledgement, datagram, pull };

// Flags.
inline constexpr std::uint8_t kMarked = 1;       // congestion experienced
inline constexpr std::uint8_t kTrimmed = 2;      // the payload was cut off on the way
inline constexpr std::uint8_t kMulticast = 4;    // `destination` is a multicast group
inline constexpr std::uint8_t kDamaged = 8;      // bits were flipped on the way; whoever checks must drop it
inline constexpr std::uint8_t kAsked = 16;       // its receiver has asked for it
inline constexpr std::uint8_t kUnmarkable = 32;  // not ECN-capable: dropped where others are marked

inline constexpr std::uint32_t kNoRoute = ~0U;

struct alignas(64) Packet {
  Packet* next = nullptr;        // behind it on the same link or in the same queue
  Picoseconds next_arrival = 0;  // of that one, at the link's end: known without touching its memory
  Picoseconds sent = 0;          // by its sender; an acknowledgement carries it back
  std::uint32_t flow = 0;        // datagrams: the port
  std::uint32_t number = 0;      // data: the segment. Acknowledgement: the first segment not received
  std::uint32_t echo = 0;        // acknowledgement: the segment it answers. Datagrams: the sender's to use
  std::int32_t source = 0;       // node
  std::int32_t destination = 0;
  std::uint32_t spread = 0;  // chooses among equal paths; every choice takes its share of it
  std::uint32_t route = kNoRoute;
  // Pulled flows: segments to be asked for in all; of answers: asked for so far. Where queues go by it
  // (QueuePolicy::least_left_first): bytes that the flow has left.
  std::uint32_t credit = 0;
  std::uint16_t bytes = 0;    // on the wire
  std::uint8_t hop = 0;       // links left behind
  std::uint8_t priority = 0;  // 0 is the most urgent
  PacketKind kind = PacketKind::data;
  std::uint8_t flags = 0;
};
static_assert(sizeof(Packet) == 64);

class PacketPool {
 public:
  // Contents are what the last user left.
  Packet* take() {
    ++in_use_;
    if (free_ != nullptr) {
      Packet* packet = free_;
      free_ = packet->next;
      return packet;
    }
    if (untouched_ == 0) grow();
    return &blocks_.back()[kBlock - untouched_--];
  }
  void give_back(Packet* packet) {
    packet->next = free_;
    free_ = packet;
    --in_use_;
  }
  std::size_t in_use() const { return in_use_; }
  std::size_t bytes() const { return blocks_.size() * kBlock * sizeof(Packet); }

 private:
  static constexpr std::size_t kBlock = HugePages<Packet>::kPage / sizeof(Packet);
  void grow() {
    blocks_.emplace_back(kBlock);
    untouched_ = kBlock;
  }
  std::vector<std::vector<Packet, HugePages<Packet>>> blocks_;
  std::size_t untouched_ = 0;  // at the end of the last block
  Packet* free_ = nullptr;
  std::size_t in_use_ = 0;
};

}  // namespace talweg::sim
