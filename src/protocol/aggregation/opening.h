// How many columns a sparse sum is worth.
//
// In its first round each column says where it begins: a datagram each way that holds nothing. With few
// blocks these would be most of all that is sent, with few columns what is under way would not fill the
// network. So each worker says how many slots it would have, and the largest number is taken: as its sum
// opens, in a round without a block (wire::kNoBlock) of the first column alone, of which all say that block 0
// is next. What the result then has as the largest exponent is that number, coded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/aggregation/tensor.h"

namespace talweg::protocol {

// What has been measured of sums that were opened so; of one worker.
class Opening {
 public:
  // Rounds with data of each column, with fewer blocks than columns could have.
  static constexpr std::uint64_t kRounds = 8;

  // All workers find the same. With few columns there is nothing to save, and a sum of few blocks ends sooner
  // without. Columns of scaled floats have a round without a block of their own.
  static bool is_worth(const Sum& sum, std::uint64_t blocks, std::uint64_t columns) {
    return sum.sparse && sum.rows == nullptr && sum.format != wire::AggregationFormat::pairs &&
           sum.format != wire::AggregationFormat::scaled && columns >= kRounds && blocks > 2 * columns;
  }
  // Columns for `own` blocks that hold something: as many as keep the network busy, or give each column
  // kRounds of them. `most` while nothing has been measured.
  std::uint64_t columns_for(std::uint64_t own, std::uint64_t most) const {
    if (rounds_per_ns_ == 0) return most;
    const auto under_way = static_cast<std::uint64_t>(kAhead * rounds_per_ns_ * round_ns_);
    return std::clamp<std::uint64_t>(std::max(own / kRounds, under_way), 1, most);
  }
  // The round that opened a sum took so long. Others may have begun later: the shortest counts, for a while.
  void opened(std::int64_t round_ns) {
    const double now = std::max<double>(1, static_cast<double>(round_ns));
    round_ns_ = round_ns_ == 0 ? now : std::min(round_ns_ * kForget, now);
  }
  // All rounds behind it took so long: the quickest count, for a while.
  void ended(std::uint64_t rounds, std::int64_t ns) {
    const double now = static_cast<double>(rounds) / std::max<double>(1, static_cast<double>(ns));
    rounds_per_ns_ = std::max(rounds_per_ns_ / kForget, now);
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
  static constexpr double kAhead =
      4;  // columns do not end together, and what is measured is less than could be
  static constexpr double kForget = 9.0 / 8;

  double round_ns_ = 0;  // 0: nothing has been measured
  double rounds_per_ns_ = 0;
};

}  // namespace talweg::protocol
