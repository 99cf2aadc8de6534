// EventQueue: what happens next. Equal times go by the order in which they were scheduled, so a run depends
// on nothing but its inputs.
//
// Few things wait at a time: one event for each link with packets on it, one timer for each flow. But in a
// large network these are tens of thousands within a microsecond or two, and a heap of them would be deep. So
// time is cut into slots (a calendar queue, Brown 1988): those of the next kSlots slots lie unsorted, each in
// its slot's list, and are sorted when the slot is at hand; what is scheduled within that is in a heap of its
// own, which is small; what is later is in another heap, and is looked at when its slot comes into reach. How
// long a slot is follows from how many events there are in one. None of that decides the order: all events of
// a slot come before all of the next.
//
// An event that leads to the next one of its kind (the packet behind on the same link) replaces the top. The
// next slot is looked for when it is asked for, not when the last event of a slot is done: what that leads to
// may come before all that is known so far, and a slot once at hand is not put back.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/event_heap.h"

namespace talweg::sim {

class EventQueue {
 public:
  static constexpr std::uint32_t kMaxTargets = 1U << 24;  // of a kind; a run has at most 2^38 events

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const Event& top() {
    if (none_at_hand()) turn();
    return late_is_next() ? late_.top() : near_.back();
  }
  // Number of events scheduled so far.
  std::uint64_t scheduled() const { return next_; }

  void push(Picoseconds time, EventKind kind, std::uint32_t target) {
    ++size_;
    place(make(time, kind, target));
  }
  void pop() {
    --size_;
    drop_top();
  }
  void replace_top(Picoseconds time, EventKind kind, std::uint32_t target) {
    drop_top();
    place(make(time, kind, target));
  }

  // For whoever fetches ahead what events are about: those that the slot at hand began with and that are
  // left, the next one last, and how often the slot has changed.
  const std::vector<Event>& near() const { return near_; }
  std::uint64_t turns() const { return turns_; }
  // Those of the next slot after it that has any, or of the one after that, ...
  template <class Call>
  void following(int ahead, Call&& call) const {
    std::size_t index = current_ % kSlots;
    for (; ahead > 0; --ahead)
      if ((index = index_after(index)) == kSlots) return;
    for (std::uint32_t b = lists_[index]; b != kNone; b = blocks_[b].next)
      for (std::uint32_t i = 0; i < blocks_[b].count; ++i) call(blocks_[b].events[i]);
  }

 private:
  static constexpr std::size_t kSlots = 1 << 13;
  static constexpr std::size_t kWords = kSlots / 64;
  static constexpr std::uint32_t kNone = ~0U;
  static constexpr std::uint64_t kReview = 1 << 14;  // events between two looks at the length of slots
  static constexpr std::uint64_t kWanted = 12;       // events in a slot
  static constexpr int kLongest = 40;                // of shift_: a second
  static constexpr std::size_t kFew = 40;            // events that are sorted by insertion

  // A piece of a slot's list. Those that are free are used again soon, while they are still in the cache.
  struct alignas(64) Block {
    std::array<Event, 7> events;
    std::uint32_t count = 0;
    std::uint32_t next = kNone;
  };
  static_assert(sizeof(Block) == 128);

  Event make(Picoseconds time, EventKind kind, std::uint32_t target) {
    assert(target < kMaxTargets && next_ < (std::uint64_t{1} << 38));
    return {time, next_++ << 26 | static_cast<std::uint64_t>(kind) << 24 | target};
  }
  bool none_at_hand() const { return near_.empty() && late_.empty(); }
  bool late_is_next() const { return !late_.empty() && (near_.empty() || late_.top() < near_.back()); }
  void drop_top() {
    if (none_at_hand()) turn();
    if (late_is_next()) [[unlikely]]
      late_.pop();
    else
      near_.pop_back();
  }
  std::uint64_t slot(const Event& event) const { return static_cast<std::uint64_t>(event.time) >> shift_; }

  void place(const Event& event) {
    const std::uint64_t s = slot(event);
    if (s <= current_) {
      late_.push(event);
    } else if (s - current_ < kSlots) {
      append(s % kSlots, event);
    } else {
      far_.push(event);
      ++far_pushes_;
    }
  }

  void append(std::size_t index, const Event& event) {
    std::uint32_t b = lists_[index];
    if (b == kNone || blocks_[b].count == blocks_[b].events.size()) {
      const std::uint32_t fresh = take_block();
      blocks_[fresh].next = b;
      lists_[index] = b = fresh;
      words_[index / 64] |= std::uint64_t{1} << (index % 64);
      summary_[index / 4096] |= std::uint64_t{1} << (index / 64 % 64);
    }
    blocks_[b].events[blocks_[b].count++] = event;
  }
  std::uint32_t take_block() {
    if (free_ == kNone) {
      blocks_.emplace_back();
      return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const std::uint32_t b = free_;
    free_ = blocks_[b].next;
    blocks_[b].count = 0;
    return b;
  }
  // Hands over what a slot's list holds, the last first, and empties it.
  template <class Call>
  void drain(std::size_t index, Call&& call) {
    std::uint32_t b = lists_[index];
    if (b == kNone) return;
    lists_[index] = kNone;
    words_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
    if (words_[index / 64] == 0) summary_[index / 4096] &= ~(std::uint64_t{1} << (index / 64 % 64));
    while (b != kNone) {
      Block& block = blocks_[b];
      for (std::uint32_t i = block.count; i-- > 0;) call(block.events[i]);
      const std::uint32_t next = block.next;
      block.next = free_;
      free_ = b;
      b = next;
    }
  }

  // The first index from `from` on whose list is not empty; kSlots: none up to the end.
  std::size_t index_from(std::size_t from) const {
    if (from >= kSlots) return kSlots;
    std::size_t word = from / 64;
    if (const std::uint64_t rest = words_[word] >> (from % 64); rest != 0)
      return from + static_cast<std::size_t>(std::countr_zero(rest));
    for (++word; word < kWords; word = (word / 64 + 1) * 64)
      if (const std::uint64_t rest = summary_[word / 64] >> (word % 64); rest != 0) {
        word += static_cast<std::size_t>(std::countr_zero(rest));
        return word * 64 + static_cast<std::size_t>(std::countr_zero(words_[word]));
      }
    return kSlots;
  }
  // Likewise, from the one after `here`, all around.
  std::size_t index_after(std::size_t here) const {
    const std::size_t index = index_from(here + 1);
    return index != kSlots ? index : index_from(0);
  }

  // The slot at hand has no more events: goes on to the next that has.
  void turn() {
    const std::size_t here = current_ % kSlots;
    const std::size_t index = index_after(here);
    std::uint64_t next = index == kSlots ? ~std::uint64_t{0} : current_ + (index + kSlots - here) % kSlots;
    if (!far_.empty() && slot(far_.top()) < next) next = slot(far_.top());
    current_ = next;
    drain(next % kSlots, [&](const Event& event) { near_.push_back(event); });
    sort_near();
    reach();
    ++turns_;
    ++turns_reviewed_;
    turned_ += near_.size() + late_.size();
    if (turned_ >= kReview) review();
  }
  // The next one last. Few events are out of order where all links are alike: they come as they were
  // scheduled.
  void sort_near() {
    if (near_.size() > kFew) {
      std::sort(near_.begin(), near_.end(), [](const Event& a, const Event& b) { return b < a; });
      return;
    }
    for (std::size_t i = 1; i < near_.size(); ++i) {
      const Event event = near_[i];
      std::size_t hole = i;
      for (; hole > 0 && near_[hole - 1] < event; --hole) near_[hole] = near_[hole - 1];
      near_[hole] = event;
    }
  }
  void reach() {
    while (!far_.empty() && slot(far_.top()) < current_ + kSlots) {
      const Event event = far_.top();
      far_.pop();
      place(event);
    }
  }

  // Too many events in a slot make the heap deep, too few make many turns; and most should be within reach.
  void review() {
    const std::uint64_t mean = turned_ / turns_reviewed_;
    int shift = shift_;
    if (4 * far_pushes_ > turned_ || mean < kWanted / 2) {
      ++shift;
    } else if (mean > 2 * kWanted && 32 * far_pushes_ < turned_) {
      shift -= static_cast<int>(std::bit_width(mean / kWanted)) - 1;
    }
    turned_ = turns_reviewed_ = far_pushes_ = 0;
    shift = shift < 0 ? 0 : shift > kLongest ? kLongest : shift;
    if (shift != shift_) cut_anew(shift);
  }
  void cut_anew(int shift) {
    const Event first = top();
    std::vector<Event> all(near_.begin(), near_.end());
    all.insert(all.end(), late_.begin(), late_.end());
    for (std::size_t i = 0; i < kSlots; ++i) drain(i, [&](const Event& event) { all.push_back(event); });
    near_.clear();
    late_ = {};
    shift_ = shift;
    current_ = slot(first);
    for (const Event& event : all) place(event);
    reach();
    far_pushes_ = 0;
  }

  // Of all slots up to current_.
  std::vector<Event> near_;  // sorted, the next one last
  EventHeap late_;           // what was scheduled when these had been sorted
  EventHeap far_;            // of slots out of reach
  std::vector<Block, HugePages<Block>> blocks_;
  std::uint32_t free_ = kNone;
  std::vector<std::uint32_t> lists_ =
      std::vector<std::uint32_t>(kSlots, kNone);      // a slot's is at slot % kSlots
  std::array<std::uint64_t, kWords> words_{};         // which lists are not empty
  std::array<std::uint64_t, kWords / 64> summary_{};  // and which words
  int shift_ = 16;                                    // a slot lasts 2^shift_ ps
  std::uint64_t current_ = 0;
  std::size_t size_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t turned_ = 0, turns_reviewed_ = 0, far_pushes_ = 0;  // since the last look
};

}  // namespace talweg::sim
