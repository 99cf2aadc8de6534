// Arrivals: which numbers of another node's datagrams have come, and when that is to be said.
//
//   arrivals.came(number, asks, came_ns, now_ns); // of a datagram that is to be acknowledged
//   arrivals.passed(number);                      // of any other: so that its number makes no gap
//   arrivals.end_of_batch();                      // nothing more is there to be received right now
//   if (arrivals.due(now_ns)) arrivals.tell(now_ns, acknowledgement);     // all but window and limits
//
// Several are acknowledged at once, as far as none of them asks: an acknowledgement takes a tenth of the way
// that a datagram takes, and data go both ways. Datagrams may come by several paths: what is older than one
// that asked is waited for as well, wherever it comes from.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "protocol/datagram/range_set.h"
#include "protocol/datagram/sent_packets.h"
#include "wire/flow_packets.h"

namespace talweg::protocol {

class Arrivals {
 public:
  // Datagrams that may come before they are acknowledged: at most, and when no more is there; and for how
  // long.
  static constexpr std::size_t kMostHeld = 16, kSomeHeld = 4;
  static constexpr std::int64_t kHoldNs = 1'000'000;
  // Datagrams: in a window of fewer each one asks. If only the last did, and were lost, nothing would be
  // answered before that time.
  static constexpr double kSmallWindow = 2.0 * kSomeHeld;

  // `asks`: its sender waits for it. `came_ns`: when it came to this machine.
  void came(std::uint64_t number, bool asks, std::int64_t came_ns, std::int64_t now_ns) {
    // The oldest are forgotten first, which costs no more than that what came is sent again.
    while (!numbers_.add(number, number + 1)) numbers_.remove_first();
    any_ = true;
    if (asks) asked_before_ = std::max(asked_before_, number + 1);
    asked_ = asked_ || number < asked_before_;
    note_lateness(number, came_ns);
    if (number >= highest_ || held_ == 0) highest_came_ns_ = came_ns;
    news_[told_ % kTold] = std::min(news_[told_ % kTold], number);
    highest_ = std::max(highest_, number);
    if (held_++ == 0) due_ns_ = now_ns + kHoldNs;
  }
  // In no other's place.
  void passed(std::uint64_t number) { numbers_.add(number, number + 1); }
  void marked() { ++marked_; }  // one of them, by the network

  void end_of_batch() { now_ = now_ || asked_ || held_ >= kSomeHeld; }
  void tell_now() { now_ = true; }
  bool any() const { return any_; }  // that is to be acknowledged
  bool due(std::int64_t now_ns) const { return now_ || held_ >= kMostHeld || now_ns >= due_ns_; }
  std::int64_t due_ns() const { return due_ns_; }  // SentPackets::kNever: nothing is held

  // About how much later than newer ones some have come of late.
  std::int64_t lateness_ns() const { return lateness_ns_; }

  void tell(std::int64_t now_ns, wire::Acknowledgement& ack) {
    const std::int64_t held_us = (now_ns - highest_came_ns_) / 1000;
    ack.held_us = static_cast<std::uint32_t>(std::clamp<std::int64_t>(held_us, 0, 0xffffffff));
    ack.marked = marked_;
    // From the newest that asks for an acknowledgement down: it says how long the way took. What has been
    // told often enough need not be said again: what a lost datagram leaves is a gap for ever.
    const std::uint64_t oldest_news = *std::ranges::min_element(news_);
    const auto ranges = numbers_.ranges();
    std::size_t end = ranges.size();
    while (end > 0 && ranges[end - 1].begin > highest_) --end;
    std::size_t begin = end;
    while (begin > 0 && (begin == end || ranges[begin - 1].end > oldest_news)) --begin;
    // Where they are too many, others are left out each time: each path's news are somewhere else.
    const std::size_t first = 4 + told_ % 4 * (wire::kAckRanges / 4);
    const std::size_t skipped = end - begin > wire::kAckRanges ? end - begin - wire::kAckRanges : 0;
    for (std::size_t i = end; i > begin; --i) {
      const RangeSet::Range& range = ranges[i - 1];
      ack.ranges[ack.n_ranges++] = {range.begin, std::min(range.end, highest_ + 1)};
      if (ack.n_ranges == first) i -= skipped;
    }
    news_[++told_ % kTold] = kNone;
    if (ack.n_ranges == 0) ack.ranges[ack.n_ranges++] = {highest_, highest_ + 1};
    held_ = 0;
    now_ = asked_ = false;
    due_ns_ = SentPackets::kNever;
  }

 private:
  // By blocks of numbers, as bursts go: when the first of a block or a newer one came. What comes after one
  // of a later block is late by the time that has passed since.
  void note_lateness(std::uint64_t number, std::int64_t came_ns) {
    const std::uint64_t block = number / kBlock;
    lateness_ns_ -= lateness_ns_ / kForgotten;
    if (block >= blocks_) {
      for (blocks_ = std::max(blocks_, block + 1 > kBlocks ? block + 1 - kBlocks : 0); blocks_ <= block;
           ++blocks_)
        block_ns_[blocks_ % kBlocks] = came_ns;
      return;
    }
    if (block + 1 == blocks_ || blocks_ - block > kBlocks) return;
    lateness_ns_ = std::max(lateness_ns_, came_ns - block_ns_[(block + 1) % kBlocks]);
  }

  static constexpr std::size_t kBlock = 16, kBlocks = 64;
  static constexpr std::int64_t kForgotten = 4096;  // datagrams after which little is left of a lateness
  static constexpr std::size_t kRanges = 256;       // bursts of a slow path may leave so many holes
  static constexpr std::size_t kTold = 16;          // acknowledgements that say the same: not all are lost
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  static constexpr std::array<std::uint64_t, kTold> filled() {
    std::array<std::uint64_t, kTold> none{};
    none.fill(kNone);
    return none;
  }

  RangeSet numbers_{kRanges};
  bool any_ = false;
  // By acknowledgement, the last kTold: the lowest number that had come since the one before.
  std::array<std::uint64_t, kTold> news_ = filled();
  std::size_t told_ = 0;
  std::uint64_t highest_ = 0;  // of those that are to be acknowledged
  std::int64_t highest_came_ns_ = 0;
  std::uint64_t asked_before_ = 0;  // one past the newest that asked
  std::array<std::int64_t, kBlocks> block_ns_{};
  std::uint64_t blocks_ = 0;  // one past the newest that anything has come of
  std::int64_t lateness_ns_ = 0;
  std::uint32_t marked_ = 0;
  std::size_t held_ = 0;
  bool asked_ = false, now_ = false;
  std::int64_t due_ns_ = SentPackets::kNever;
};

}  // namespace talweg::protocol
