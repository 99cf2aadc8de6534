// EventHeap: a 4-ary heap over 16-byte records; equal times go by the order in which they were scheduled.
//
// The four below an event share a cache line: the top stands at the end of the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/huge_pages.h"
#include "sim/time.h"

namespace talweg::sim {

enum class EventKind : std::uint8_t {
  arrival,   // target: the link whose first packet arrives
  port,      // target: the link whose transmitter is free again
  timer,     // target: the flow whose timer may be due
  callback,  // target: a slot of the Simulation
};

struct Event {
  Picoseconds time = 0;
  std::uint64_t order = 0;  // 38 bits of sequence, 2 of kind, 24 of target

  EventKind kind() const { return static_cast<EventKind>((order >> 24) & 3); }
  std::uint32_t target() const { return static_cast<std::uint32_t>(order & 0xffffff); }
  bool operator<(const Event& other) const {
    return time != other.time ? time < other.time : order < other.order;
  }
};
static_assert(sizeof(Event) == 16);

class EventHeap {
 public:
  EventHeap() : heap_(kBefore) {}

  bool empty() const { return heap_.size() == kBefore; }
  std::size_t size() const { return heap_.size() - kBefore; }
  const Event& top() const { return heap_[kBefore]; }
  // All of them; those that stand first are the likeliest to be next.
  const Event* begin() const { return heap_.data() + kBefore; }
  const Event* end() const { return heap_.data() + heap_.size(); }

  void push(const Event& event) {
    heap_.emplace_back();
    rise(size() - 1, event);
  }
  void pop() {
    const Event last = heap_.back();
    heap_.pop_back();
    if (!empty()) replace_top(last);
  }
  // Costs one way down the heap and no way up.
  void replace_top(const Event& event) {
    const std::size_t n = size();
    std::size_t hole = 0;
    while (true) {
      const std::size_t first = hole * 4 + 1;
      if (first >= n) break;
      std::size_t least = first;
      const std::size_t end = first + 4 < n ? first + 4 : n;
      for (std::size_t child = first + 1; child < end; ++child) least = at(child) < at(least) ? child : least;
      if (!(at(least) < event)) break;
      at(hole) = at(least);
      hole = least;
    }
    at(hole) = event;
  }

 private:
  static constexpr std::size_t kBefore = 3;  // unused, so that child 4 i + 1 begins a line
  Event& at(std::size_t i) { return heap_[i + kBefore]; }

  void rise(std::size_t hole, const Event& event) {
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!(event < at(parent))) break;
      at(hole) = at(parent);
      hole = parent;
    }
    at(hole) = event;
  }

  std::vector<Event, HugePages<Event>> heap_;
};

}  // namespace talweg::sim
