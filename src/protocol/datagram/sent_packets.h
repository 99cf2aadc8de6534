// SentPackets: the datagrams of a flow that have left, until it is known whether they have arrived; and which
// of them count as lost.
//
// Lost is what the network had time to bring while it brought something newer: kReordering datagrams that
// left later have arrived, or one has, and a quarter more than a round trip has passed (RFC 9002,
// section 6.1, from RFC 8985). What has no newer one behind it is not lost but late; the flow asks for it
// with a probe when its timer ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "protocol/datagram/round_trip.h"
#include "wire/flow_packets.h"

namespace talweg::protocol {

struct SentPacket {
  std::uint64_t number = 0;
  std::int64_t sent_ns = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;  // of a channel's bytes; 0: a probe
  std::uint32_t bytes = 0;   // of the whole datagram
  std::uint16_t channel = 0;
  enum class State : std::uint8_t { on_its_way, arrived, lost } state = State::on_its_way;
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
        arrived(packet, was_lost);
      }
    }
    forget();
  }
  // Calls lost(packet) for each that counts as lost now.
  template <class Lost>
  void find_lost(const RoundTrip& rtt, std::int64_t now_ns, Lost&& lost) {
    lost_at_ns_ = kNever;
    for (std::uint64_t i = oldest_; i < newest_arrived_; ++i) {
      SentPacket& packet = at(i);
      if (packet.state != SentPacket::State::on_its_way) continue;
      const std::int64_t late_ns = packet.sent_ns + patience_ns(rtt);
      if (newest_arrived_ - 1 - i < kReordering && now_ns < late_ns) {
        if (late_ns < lost_at_ns_) lost_at_ns_ = late_ns;
        continue;
      }
      declare_lost(packet);
      lost(packet);
    }
    forget();
  }
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
  std::uint64_t bytes_on_their_way() const { return bytes_; }
  std::int64_t last_sent_ns() const { return last_sent_ns_; }
  // The oldest that is on its way; null when none is.
  const SentPacket* oldest() const;
  // One past the highest number that was ever sent.
  std::uint64_t next_number() const { return next_number_; }

 private:
  static std::int64_t patience_ns(const RoundTrip& rtt);
  SentPacket& at(std::uint64_t i) { return slots_[i & (slots_.size() - 1)]; }
  const SentPacket& at(std::uint64_t i) const { return slots_[i & (slots_.size() - 1)]; }
  // The first slot of this number or a higher one.
  std::uint64_t first_from(std::uint64_t number) const;
  void declare_lost(SentPacket& packet);
  void leave(const SentPacket& packet);
  void forget();

  std::vector<SentPacket> slots_;
  std::uint64_t begin_ = 0, end_ = 0;  // which of all that were ever sent are here
  std::uint64_t oldest_ = 0;           // before it nothing is on its way
  std::uint64_t newest_arrived_ = 0;   // one past it; begin_ or less: it is not here any more
  std::size_t on_their_way_ = 0;
  std::uint64_t bytes_ = 0;
  std::int64_t last_sent_ns_ = 0;
  std::int64_t lost_at_ns_ = kNever;
  std::uint64_t next_number_ = 0;
};

}  // namespace talweg::protocol
