// The blocks of a tensor that is being summed: which hold anything, what goes into a datagram for one, and
// what comes out of a result into its place.
//
//   SummedTensor tensor;
//   tensor.reset(sum, workers, seed);      // finds its blocks
//   tensor.write(b, exponent, data);       // a block as it travels
//   tensor.accept(b, exponent, data);      // its sum
//
// `in` may be `out`: a block is overwritten when its sum is accepted, and is not read from then on. Of a sum
// by rows (row_sums.h) a block is a unit of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocol/aggregation/coded_blocks.h"
#include "protocol/aggregation/kept_input.h"
#include "protocol/aggregation/own_rows.h"
#include "protocol/aggregation/row_sums.h"
#include "protocol/aggregation/scaling.h"
#include "wire/aggregation.h"

namespace talweg::protocol {

// What is missing of a sum. Elements are those of the whole vector, whatever lane they are of.
struct SumLosses {
  struct Range {
    std::size_t first = 0, count = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> own;                // of this worker's elements, in any order
  std::vector<std::uint64_t> of_worker;  // elements of each worker's; shorter: of the others none
  std::uint64_t allowance = 0;           // of each worker's that may be missing; 0: nothing may be
  std::uint64_t again = 0;               // blocks that this worker has sent again
};
// Adds those of a part that begins at the vector's element `first`.
void add_losses(SumLosses& to, const SumLosses& part, std::size_t first);

// What may be missing of a sum: of each worker's elements so many millionths, rounded down to whole blocks,
// in each lane. Not of sparse tensors, nor of the formats `pairs` and `scaled`: all agree on what comes next,
// and its exponent.
struct Tolerance {
  static constexpr std::uint32_t kMostPpm = 500'000;
  std::uint32_t ppm = 0;  // the same for all workers
  // sum.count elements, or null: what was missing is gone. They are added to the input; afterwards they are
  // what was missing of this worker's, and zero elsewhere; of coded formats (coded_blocks.h), of which also
  // sparse sums have them, what its code has lost, to the bit: what they stood for is input + before - after.
  // There an element that is no finite number, as input + before or as its code, keeps what it was, and zero
  // if that was not finite, either: it would spoil all that it has a scale with in all sums to come.
  // After a failure they may be of neither.
  std::byte* residual = nullptr;
  bool rescale = false;  // what is missing counts as the mean of those that came. Not of i32
  // All lanes' losses are added to it while the sum runs; or null.
  SumLosses* losses = nullptr;
};

// One worker's part of one sum. All workers say the same of everything but pointers; those that say `sparse`
// send only blocks that hold something. The format `pairs` sends only elements that are not zero, whatever
// blocks they are in (own_pairs.h).
struct Sum {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  std::uint16_t block = 256;  // elements
  bool sparse = false;
  // Where a switch has several threads: this is thread `lane`'s part, every lanes'th block from block `lane`
  // on. So which elements are summed together does not depend on their number, should workers disagree on it.
  std::uint16_t lane = 0;
  std::uint16_t lanes = 1;
  Tolerance tolerance = {};
  // Of a sparse tensor by rows: `in` and `out` are not looked at, `count` is rows->elements(), and it is
  // `sparse`. Not of coded formats. What all lanes come to is added to
  // rows->sums, which have been reset. Else null.
  const Rows* rows = nullptr;
  // Has what `in` was before it is overwritten, where that is `out`; all lanes' is the same. Or null.
  KeptInput* kept = nullptr;
};

// What is wrong with what may be missing of it; empty: nothing.
std::string wrong_tolerance(const Sum& sum);
// What is wrong with its rows; empty: nothing, or it has none.
std::string wrong_rows(const Sum& sum);
// So many blocks of each worker's, of its lane. The last block may be shorter than the others: whichever are
// missing, their elements are no more than may be.
std::uint64_t blocks_that_may_be_missing(const Sum& sum);

class SummedTensor {
 public:
  // `seed`: of what is rounded at random (coding_seed). `columns`: of a sum by rows, among which its blocks
  // are dealt out in turn.
  void reset(const Sum& sum, std::uint32_t workers, std::uint64_t seed = 0, std::uint64_t columns = 1);

  void let_go() { rows_.let_go(); }  // as OwnRows

  const Sum& sum() const { return sum_; }
  std::uint64_t blocks() const { return blocks_; }  // of its lane, by whose numbers all others are
  std::uint16_t count_of(std::uint64_t block) const;
  std::size_t first_element(std::uint64_t block) const {  // of the whole vector's
    return static_cast<std::size_t>(sum_.lane + block * sum_.lanes) * sum_.block;
  }
  // Whether this worker has data for the block: all of a dense tensor, also where they are zero.
  bool owns(std::uint64_t block) const;
  // How many that is, of a sum that is not by rows.
  std::uint64_t owned() const;
  // This worker's first block from `block` on in steps of `step`, of a sum by rows as many as there are
  // columns; kNeverNext: none.
  std::uint64_t owned_from(std::uint64_t block, std::uint64_t step) const;
  // What is said of the block beforehand; kZeroExponent in formats that say nothing.
  std::int16_t exponent(std::uint64_t block) const;
  // Whether data of this exponent travel at all. They do in formats that have none.
  bool travels(std::int16_t exponent) const;
  // count_of(block) elements, as they travel.
  void write(std::uint64_t block, std::int16_t exponent, std::byte* data);
  // The sum of a block. `data` are empty where nobody had any, or, of an exponent, all had zeros.
  void accept(std::uint64_t block, std::int16_t exponent, std::span<const std::byte> data);
  // Before that, of a block in whose sum this worker's part is, or is missing.
  void remember(std::uint64_t block, bool missing);
  // After it, of one that `absent` workers are missing in.
  void rescale(std::uint64_t block, std::size_t absent);

 private:
  bool holds(std::uint64_t block) const;
  kernel::Rounding rounding(std::uint64_t block) const;
  bool is_scaled() const { return sum_.format == wire::AggregationFormat::scaled; }
  std::size_t offset(std::uint64_t block) const {
    return first_element(block) * wire::bytes_in_memory(sum_.format);
  }
  std::uint64_t unit_of(std::uint64_t block) const { return sum_.lane + block * sum_.lanes; }
  // Of a sum by rows: the place of this worker's first block from `block` on in its column; empty: none.
  std::optional<std::uint64_t> place_from(std::uint64_t block) const;
  const std::byte* in(std::uint64_t block) const;

  Sum sum_;
  std::uint32_t workers_ = 1;
  std::uint64_t blocks_ = 0;
  std::vector<std::uint64_t> holds_;  // a bit per block, of sparse ones
  std::uint64_t seed_ = 0;
  std::vector<std::byte> scratch_;  // of coded formats: a block with its residual, or as it travels
  OwnRows rows_;
  std::uint64_t columns_ = 1;
};

}  // namespace talweg::protocol
