// How many columns a sparse sum is worth.
//
// In its first round each column says where it begins: a datagram each way that mostly holds nothing. With
// few blocks these would be most of all that is sent, with few columns what is under way would not fill the
// network. So each worker says how many slots it would have for the next sum of this shape, and the largest
// number is taken. It costs nothing: it is said, coded, as the exponent of the first column's last round,
// which no other use has. The first sum of a shape has all columns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "protocol/aggregation/tensor.h"

namespace talweg::protocol {

class ColumnCount {
 public:
  // Rounds with data of each column, with fewer blocks than columns could have.
  static constexpr std::uint64_t kRounds = 8;

  // All workers find the same. With few columns there is nothing to save, and exponents of scaled floats are
  // what they are.
  static bool is_for(const Sum& sum, std::uint64_t columns) {
    return sum.sparse && sum.rows == nullptr && sum.format != wire::AggregationFormat::pairs &&
           sum.format != wire::AggregationFormat::scaled && columns >= kRounds;
  }

  // What all workers have agreed on for sums of this shape; 0: nothing yet. All that call these two do so
  // with the same sums in the same order.
  std::uint64_t slots_for(const Sum& sum) const {
    for (const Agreed& agreed : agreed_)
      if (agreed.slots > 0 && agreed.is_of(sum)) return agreed.slots;
    return 0;
  }
  void agree(const Sum& sum, std::int16_t code) {
    for (Agreed& agreed : agreed_)
      if (agreed.is_of(sum)) {
        agreed.slots = slots_of(code);
        return;
      }
    agreed_[next_] = {sum.count, sum.block, sum.format, slots_of(code)};
    next_ = (next_ + 1) % agreed_.size();
  }

  // Columns for `own` blocks that hold something: as many as keep the network busy, or give each column
  // kRounds of them, but a part of `most`, for a sum that holds more than the one before it. All of them
  // while nothing has been measured.
  std::uint64_t columns_for(std::uint64_t own, std::uint64_t most) const {
    if (rounds_per_ns_ == 0) return most;
    const double under_way = std::min(kAhead * rounds_per_ns_ * round_ns_, static_cast<double>(most));
    return std::clamp<std::uint64_t>(std::max(own / kRounds, static_cast<std::uint64_t>(under_way)),
                                     (most + kPart - 1) / kPart, most);
  }
  // A sum's rounds took `ns`, the shortest of them `round_ns`. Others may have begun later, and what is sent
  // waits for what was sent before: the shortest round and the quickest sum count, for a while.
  void ended(std::uint64_t rounds, std::int64_t ns, std::int64_t round_ns) {
    const double rate = static_cast<double>(rounds) / std::max<double>(1, static_cast<double>(ns));
    const double shortest = std::max<double>(1, static_cast<double>(round_ns));
    rounds_per_ns_ = std::max(rounds_per_ns_ / kForget, rate);
    round_ns_ = round_ns_ == 0 ? shortest : std::min(round_ns_ * kForget, shortest);
  }

  // A number of slots, or somewhat more, as an exponent that a float32 may have; and back, the same
  // everywhere.
  static std::int16_t code_of(std::uint64_t slots) {
    std::int16_t code = 0;
    while (code < wire::kMostExponent && slots_of(code) < slots) ++code;
    return code;
  }
  static std::uint64_t slots_of(std::int16_t code) {
    const auto steps = static_cast<unsigned>(std::clamp<std::int16_t>(code, 0, wire::kMostExponent));
    return (std::uint64_t{8 + steps % 8} << steps / 8) / 8;
  }

 private:
  struct Agreed {
    std::size_t count = 0;
    std::uint16_t block = 0;
    wire::AggregationFormat format = wire::AggregationFormat::f32;
    std::uint64_t slots = 0;
    bool is_of(const Sum& sum) const {
      return count == sum.count && block == sum.block && format == sum.format;
    }
  };
  // Columns do not end together, and what is measured is less than could be.
  static constexpr double kAhead = 4;
  static constexpr std::uint64_t kPart = 8;
  static constexpr double kForget = 9.0 / 8;

  std::array<Agreed, 16> agreed_{};  // shapes that a training step may have
  std::size_t next_ = 0;
  double round_ns_ = 0;
  double rounds_per_ns_ = 0;  // 0: nothing has been measured
};

}  // namespace talweg::protocol
