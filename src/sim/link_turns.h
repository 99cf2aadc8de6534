// LinkTurns: what waits for a link in front of it, by flow: of the most urgent class something of each flow
// in turn, as Linux has it with fair queueing.
//
//   turns.push(flow, urgency, item);   // of one flow they leave in the order in which they came
//   while (!turns.empty() && the link is free) send(turns.pop());
//
// A flow is whatever has a number of its own; what it has in two classes takes two turns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/ring_queue.h"
#include "sim/queue_policy.h"

namespace talweg::sim {

template <class Item>
class LinkTurns {
 public:
  // `urgency`: 0 .. kPriorities - 1, 0 first.
  void push(std::uint64_t flow, std::uint8_t urgency, Item item) {
    const auto [at, is_new] = by_flow_.try_emplace({flow, urgency}, waiting_.size());
    if (is_new) waiting_.emplace_back();
    RingQueue<Item>& its = waiting_[at->second];
    if (its.empty()) ready_[urgency].push(at->second);
    its.push(std::move(item));
    ++size_;
  }
  bool empty() const { return size_ == 0; }
  Item pop() {
    std::size_t urgency = 0;
    while (ready_[urgency].empty()) ++urgency;
    const std::size_t flow = ready_[urgency].pop();
    Item item = waiting_[flow].pop();
    if (!waiting_[flow].empty()) ready_[urgency].push(flow);
    --size_;
    return item;
  }

 private:
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::size_t> by_flow_;  // its place in waiting_
  std::vector<RingQueue<Item>> waiting_;
  std::array<RingQueue<std::size_t>, kPriorities> ready_;  // flows that have something, by class
  std::size_t size_ = 0;
};

}  // namespace talweg::sim
