// WorkLimit: what a search may cost, in steps that take about a nanosecond and are the same on every machine,
// so that the same searches are given up everywhere; and whether anybody still waits for its answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace talweg::forest {

class WorkLimit {
 public:
  // Thrown by whoever searches: not an Error, since nothing is wrong.
  struct Reached {};

  // `unwanted` may be null; it may be set from any thread, and outlives the search.
  explicit WorkLimit(std::int64_t most_steps = std::numeric_limits<std::int64_t>::max(),
                     const std::atomic<bool>* unwanted = nullptr)
      : left_(most_steps), unwanted_(unwanted) {}

  void spend(std::int64_t steps) {
    left_ -= steps;
    if (left_ < 0 || (unwanted_ != nullptr && unwanted_->load(std::memory_order_relaxed))) throw Reached{};
  }
  std::int64_t left() const { return left_; }

 private:
  std::int64_t left_;
  const std::atomic<bool>* unwanted_;
};

}  // namespace talweg::forest
