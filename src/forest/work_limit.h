// WorkLimit: what a search may cost, in steps that take about a nanosecond and are the same on every machine,
// so that the same searches are given up everywhere; and whether anybody still waits for its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace talweg::forest {

class WorkLimit {
 public:
  // Thrown by whoever searches: not an Error, since nothing is wrong.
  struct Reached {};

  // `unwanted` may be empty.
  explicit WorkLimit(std::int64_t most_steps = std::numeric_limits<std::int64_t>::max(),
                     std::function<bool()> unwanted = {})
      : left_(most_steps), unwanted_(std::move(unwanted)) {}

  void spend(std::int64_t steps) {
    left_ -= steps;
    if (left_ < 0 || unwanted()) throw Reached{};
  }
  bool unwanted() const { return unwanted_ && unwanted_(); }
  std::int64_t left() const { return left_; }

 private:
  std::int64_t left_;
  std::function<bool()> unwanted_;
};

}  // namespace talweg::forest
