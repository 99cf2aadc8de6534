#include "study/perf_check.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/reduce.h"

namespace talweg::study {
namespace {

// Stafford's variant 13 of the 64-bit finaliser, as in splitmix64.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Up to here every integer is exact in the type (and does not wrap).
int largest_exact(DataType type) {
  constexpr int kEnough = 30000;
  const DataTypeFacts& t = facts(type);
  if (t.fraction_bits > 0) return std::min(kEnough, 2 << std::min(t.fraction_bits, 20));
  const bool is_signed = t.kind == NumberKind::signed_integer;
  return t.bytes > 1 ? kEnough : is_signed ? 127 : 255;
}

// What each value of a pattern depends on.
struct Draw {
  int rank;
  int ranks;
  std::size_t index;
  std::uint64_t seed;
  std::uint64_t bits;  // random, differs between ranks and elements
};

// Products stay in -6 .. 6: for each element one rank holds a 2, one a 3, and the others hold 1 or -1.
int product_value(const Draw& d, bool negative_too) {
  const std::uint64_t ranks = static_cast<std::uint64_t>(d.ranks);
  const std::uint64_t rank = static_cast<std::uint64_t>(d.rank);
  int value = 1;
  if (mix(d.index + d.seed * 3) % ranks == rank) value *= 2;
  if (mix(d.index + d.seed * 3 + 1) % ranks == rank) value *= 3;
  return negative_too && (d.bits & 1) ? -value : value;
}

// Sums of all ranks stay exact. Past `exact` ranks the further ones hold zeros.
int sum_value(const Draw& d, int exact, bool negative_too) {
  const int bound = std::clamp(exact / d.ranks, 1, 127);
  if (d.rank >= exact) return 0;
  const int value = static_cast<int>(d.bits % static_cast<std::uint64_t>(bound + 1));
  return negative_too && ((d.bits >> 40) & 1) ? -value : value;
}

int boolean_value(const Draw& d, ReduceOp op) {
  const bool rare = d.bits % static_cast<std::uint64_t>(d.ranks) == 0;
  const bool is_and = op == ReduceOp::product || op == ReduceOp::min || op == ReduceOp::bit_and;
  return d.ranks == 1 ? static_cast<int>(d.bits >> 20 & 1) : (is_and ? !rare : rare);
}

int small_value(const PerfCase& c, const Draw& d) {
  if (c.type == DataType::boolean) return boolean_value(d, c.reduce);
  const NumberKind kind = facts(c.type).kind;
  const bool negative_too = kind != NumberKind::unsigned_integer && kind != NumberKind::boolean;
  if (has_reduction(c.op) && c.reduce == ReduceOp::product) return product_value(d, negative_too);
  const bool summed = has_reduction(c.op) && (c.reduce == ReduceOp::sum || c.reduce == ReduceOp::avg);
  if (summed) return sum_value(d, largest_exact(c.type), negative_too);
  return static_cast<int>(d.bits % 128) * (negative_too && ((d.bits >> 40) & 1) ? -1 : 1);
}

// The nearest floating number not further from 0 than `value`: exact with up to fraction_bits + 1 bits, and
// never subnormal. `bits` wide, sign and exponent as IEEE 754 has them.
std::uint64_t floating(int value, std::size_t bits, int fraction_bits) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  const int exponent = static_cast<int>(std::bit_width(magnitude)) - 1;
  const int exponent_bits = static_cast<int>(bits) - 1 - fraction_bits;
  const auto biased = static_cast<std::uint64_t>(exponent + (1 << (exponent_bits - 1)) - 1);
  const std::uint64_t fraction = (magnitude << fraction_bits >> exponent) & ((1ULL << fraction_bits) - 1);
  return std::uint64_t{value < 0} << (bits - 1) | biased << fraction_bits | fraction;
}

// The lowest bytes come first (wire/frame.h).
void store(DataType type, std::byte* to, int value) {
  const DataTypeFacts& what = facts(type);
  const int parts[] = {value, -value / 2};  // the second of complex types only
  const std::size_t bytes = what.kind == NumberKind::complex ? what.bytes / 2 : what.bytes;
  for (std::size_t at = 0; at < what.bytes; at += bytes) {
    const int part = parts[at / bytes];
    const std::uint64_t whole = what.fraction_bits > 0 ? floating(part, 8 * bytes, what.fraction_bits)
                                                       : static_cast<std::uint64_t>(std::int64_t{part});
    std::memcpy(to + at, &whole, bytes);
  }
}

bool is_bitwise(const PerfCase& c) {
  return has_reduction(c.op) && c.type != DataType::boolean &&
         (c.reduce == ReduceOp::bit_and || c.reduce == ReduceOp::bit_or || c.reduce == ReduceOp::bit_xor);
}

// Where a piece of an output comes from: `from` contributed it (or all ranks, reduced), and it is elements
// `first` .. of that pattern.
struct OutputPiece {
  bool reduced;
  int from;
  std::size_t first;
};

// The pieces of this rank's output, c.count elements each, in order.
std::vector<OutputPiece> output_pieces(const PerfCase& c, int rank) {
  const CollectiveFacts& what = facts(c.op);
  const std::size_t own_part = static_cast<std::size_t>(rank) * c.count;
  const std::size_t first = what.output == Extent::part || what.output == Extent::blocks ? own_part : 0;
  if (!moves_data(c.op)) return {};
  if (what.sums) return {{true, 0, first}};
  if (what.output == Extent::peer) return {{false, (rank + c.ranks - 1) % c.ranks, 0}};
  if (what.input == Extent::root) return {{false, c.root, first}};
  std::vector<OutputPiece> pieces;
  for (int from = 0; from < c.ranks; ++from) pieces.push_back({false, from, first});
  return pieces;
}

}  // namespace

Pattern Pattern::of_rank(const PerfCase& c, int rank, std::uint64_t seed) {
  Pattern pattern(c.type);
  const std::uint64_t stream = mix(seed * 1000003 + static_cast<std::uint64_t>(rank) + 1);
  const bool bitwise = is_bitwise(c);
  for (std::size_t i = 0; i < kPatternPeriod; ++i) {
    std::byte* to = pattern.values_.data() + i * pattern.element_;
    const std::uint64_t bits = mix(stream + i);
    if (bitwise)
      std::memcpy(to, &bits, pattern.element_);
    else
      store(c.type, to, small_value(c, {rank, c.ranks, i, seed, bits}));
  }
  return pattern;
}

Pattern Pattern::reduced(const PerfCase& c, std::uint64_t seed) {
  Pattern sum = of_rank(c, 0, seed);
  for (int rank = 1; rank < c.ranks; ++rank)
    kernel::reduce_scalar(c.type, c.reduce, sum.values_.data(), sum.values_.data(),
                          of_rank(c, rank, seed).values_.data(), kPatternPeriod);
  if (c.reduce == ReduceOp::avg) kernel::divide(c.type, sum.values_.data(), kPatternPeriod, c.ranks);
  return sum;
}

void Pattern::write(void* data, std::size_t first, std::size_t count) const {
  auto* to = static_cast<std::byte*>(data);
  for (std::size_t at = first % kPatternPeriod; count > 0; at = 0) {
    const std::size_t run = std::min(count, kPatternPeriod - at);
    std::memcpy(to, values_.data() + at * element_, run * element_);
    to += run * element_;
    count -= run;
  }
}

std::size_t Pattern::count_wrong(const void* data, std::size_t first, std::size_t count) const {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t wrong = 0;
  for (std::size_t at = first % kPatternPeriod; count > 0; at = 0) {
    const std::size_t run = std::min(count, kPatternPeriod - at);
    const std::byte* expected = values_.data() + at * element_;
    if (std::memcmp(from, expected, run * element_) != 0)
      for (std::size_t i = 0; i < run; ++i)
        wrong += std::memcmp(from + i * element_, expected + i * element_, element_) != 0;
    from += run * element_;
    count -= run;
  }
  return wrong;
}

void write_input(const PerfCase& c, int rank, std::uint64_t seed, void* input) {
  Pattern::of_rank(c, rank, seed).write(input, 0, input_elements(c, rank));
}

std::size_t count_wrong_input(const PerfCase& c, int rank, std::uint64_t seed, const void* input) {
  return Pattern::of_rank(c, rank, seed).count_wrong(input, 0, input_elements(c, rank));
}

std::size_t count_wrong_output(const PerfCase& c, int rank, std::uint64_t seed, const void* output) {
  if (output_elements(c, rank) == 0) return 0;
  const auto* at = static_cast<const std::byte*>(output);
  std::size_t wrong = 0;
  for (const OutputPiece& piece : output_pieces(c, rank)) {
    const Pattern expected =
        piece.reduced ? Pattern::reduced(c, seed) : Pattern::of_rank(c, piece.from, seed);
    wrong += expected.count_wrong(at, piece.first, c.count);
    at += c.count * size_of(c.type);
  }
  return wrong;
}

}  // namespace talweg::study
