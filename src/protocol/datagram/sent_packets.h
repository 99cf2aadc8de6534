// SentPackets: the datagrams of a flow that have left, until it is known whether they have arrived; and which
// of them count as lost.
//
// Lost is what the network had time to bring while it brought something newer by the same path: kReordering
// datagrams that left later have arrived, or one has, and a quarter more than a round trip has passed (RFC
// 9002, section 6.1, from RFC 8985). Where only other paths have brought something newer since, all that
// this one has may be late; it counts as lost after as long as answers are waited for. What has no newer one
// behind it at all is not lost but late; the flow asks for it with a probe when its timer ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "protocol/datagram/round_trip.h"
#include "wire/flow_packets.h"

namespace talweg::protocol {

inline constexpr std::size_t kMostPaths = 16;  // from a node to another one

struct SentPacket {
  std::uint64_t number = 0;
  std::int64_t sent_ns = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;  // of a channel's bytes; 0: a probe
  std::uint32_t bytes = 0;   // of the whole datagram
  std::uint16_t channel = 0;
  std::uint8_t path = 0;
  bool trial = false;  // of its path: nobody waits for it
  enum class State : std::uint8_t { on_its_way, arrived, lost } state = State::on_its_way;
  std::uint64_t order = 0;  // on its path: SentPackets says so
};

class SentPackets {
 public:
  static constexpr std::uint64_t kReordering = 8;  // a card may spread a burst over its queues

  explicit SentPackets(std::size_t most);  // a power of two

  bool full() const { return end_ - begin_ >= slots_.size(); }
  // With a higher number than all before; not when full.
  void sent(const SentPacket& packet);

  // What an acknowledgement says. Calls arrived(packet, was_lost) for each that is news.
  template <class Arrived>
  void acknowledge(const wire::Acknowledgement& ack, Arrived&& arrived) {
    for (std::size_t r = 0; r < ack.n_ranges; ++r) {
      for (std::uint64_t i = first_from(ack.ranges[r].begin); i < end_ && at(i).number < ack.ranges[r].end;
           ++i) {
        SentPacket& packet = at(i);
        if (packet.state == SentPacket::State::arrived) continue;
        const bool was_lost = packet.state == SentPacket::State::lost;
        if (!was_lost) leave(packet);
        packet.state = SentPacket::State::arrived;
        if (i + 1 > newest_arrived_) newest_arrived_ = i + 1;
        Path& path = paths_[packet.path];
        if (packet.order + 1 > path.newest_arrived) path.newest_arrived = packet.order + 1;
        arrived(packet, was_lost);
      }
    }
    forget();
  }
  // Calls lost(packet) for each that counts as lost now.
  template <class Lost>
  void find_lost(const RoundTrip& rtt, std::int64_t now_ns, Lost&& lost) {
    find_lost([&](std::size_t) -> const RoundTrip& { return rtt; }, 0, now_ns, lost);
  }
  // The same by trip_of(path). `held_ns`: for which the other side may keep an answer.
  template <class TripOf, class Lost>
  void find_lost(TripOf&& trip_of, std::int64_t held_ns, std::int64_t now_ns, Lost&& lost) {
    lost_at_ns_ = kNever;
    for (std::uint64_t i = oldest_; i < newest_arrived_; ++i) {
      SentPacket& packet = at(i);
      if (packet.state != SentPacket::State::on_its_way) continue;
      const RoundTrip& trip = trip_of(packet.path);
      const std::uint64_t newest = paths_[packet.path].newest_arrived;
      const std::int64_t late_ns =
          packet.sent_ns + (overtaken(packet) ? patience_ns(trip) : trip.timeout_ns(0, held_ns));
      if (newest < packet.order + 1 + kReordering && now_ns < late_ns) {
        if (late_ns < lost_at_ns_) lost_at_ns_ = late_ns;
        continue;
      }
      declare_lost(packet);
      lost(packet);
    }
    forget();
  }
  // Something newer has arrived by its path.
  bool overtaken(const SentPacket& packet) const { return packet.order < paths_[packet.path].newest_arrived; }
  // The kernel or a shorter path did not take it.
  template <class Lost>
  void refused(std::uint64_t number, Lost&& lost) {
    const std::uint64_t i = first_from(number);
    if (i >= end_ || at(i).number != number || at(i).state != SentPacket::State::on_its_way) return;
    declare_lost(at(i));
    lost(at(i));
    forget();
  }
  // Makes room when full(): the oldest one is given up.
  template <class Lost>
  void give_up_oldest(Lost&& lost) {
    if (at(begin_).state == SentPacket::State::on_its_way) {
      declare_lost(at(begin_));
      lost(at(begin_));
    }
    ++begin_;
    forget();
  }

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // When find_lost() should be called again though nothing has come.
  std::int64_t lost_at_ns() const { return lost_at_ns_; }
  std::size_t on_their_way() const { return on_their_way_; }
  bool any_awaited() const { return on_their_way_ > trials_; }
  // Of all but trials, which no window is for; by one path, with them.
  std::uint64_t bytes_on_their_way() const { return bytes_; }
  std::uint64_t bytes_on_their_way(std::size_t path) const { return paths_[path].bytes; }
  std::int64_t last_sent_ns() const { return last_sent_ns_; }
  // The oldest that is on its way; null when none is.
  const SentPacket* oldest() const;
  // One past the highest number that was ever sent.
  std::uint64_t next_number() const { return next_number_; }

 private:
  struct Path {
    std::uint64_t sent = 0;            // datagrams
    std::uint64_t newest_arrived = 0;  // one past its order
    std::uint64_t bytes = 0;           // on their way
  };
  static std::int64_t patience_ns(const RoundTrip& rtt);
  SentPacket& at(std::uint64_t i) { return slots_[i & (slots_.size() - 1)]; }
  const SentPacket& at(std::uint64_t i) const { return slots_[i & (slots_.size() - 1)]; }
  // The first slot of this number or a higher one.
  std::uint64_t first_from(std::uint64_t number) const;
  void declare_lost(SentPacket& packet);
  void leave(const SentPacket& packet);
  void forget();

  std::vector<SentPacket> slots_;
  std::array<Path, kMostPaths> paths_{};
  std::uint64_t begin_ = 0, end_ = 0;  // which of all that were ever sent are here
  std::uint64_t oldest_ = 0;           // before it nothing is on its way
  std::uint64_t newest_arrived_ = 0;   // one past it; begin_ or less: it is not here any more
  std::size_t on_their_way_ = 0, trials_ = 0;
  std::uint64_t bytes_ = 0;
  std::int64_t last_sent_ns_ = 0;
  std::int64_t lost_at_ns_ = kNever;
  std::uint64_t next_number_ = 0;
};

}  // namespace talweg::protocol
