// Which elements of a float32 gradient are worth sending, in O(count) and without allocation. No policy: how
// many, or how large, is for the caller to say.
//
// Magnitudes compare as their bits do: NaN above infinity above all numbers, so that what must not get lost
// goes first. Pointers to values need no alignment; indices come out ascending. Results have the same bits on
// every machine. Arrays have less than 2^32 elements.
//
// Sources: Lin et al., Deep Gradient Compression, ICLR 2018 (top-k); Stich et al., Sparsified SGD with
// memory, NeurIPS 2018 (top-k and random-k with memory); Fei et al., OmniReduce, SIGCOMM 2021 (blocks by
// their norm).
#pragma once

#include <cstddef>
#include <cstdint>

namespace talweg::kernel {

// The k of largest magnitude, of equal ones the first; k <= count. `indices` has room for k.
void top_k(const void* values, std::size_t count, std::size_t k, std::uint32_t* indices);

// Those of magnitude `least` or more, which is no NaN; `indices` has room for all of them, or is null.
// Returns how many they are.
std::size_t at_least(const void* values, std::size_t count, float least, std::uint32_t* indices);

// Any k of count elements, every choice as likely as every other (Floyd's sampling: Bentley and Floyd,
// Communications of the ACM 30(9), 1987). `marks` has room for a bit for each element.
constexpr std::size_t words_of_marks(std::size_t count) {
  return (count + 63) / 64;
}
void random_k(std::size_t count, std::size_t k, std::uint64_t seed, std::uint64_t* marks,
              std::uint32_t* indices);

// norms[i] = the sum of squares of block i; the last block may be shorter. Blocks by their norm: top_k of
// these. As four times four sums: value j of a block goes to sum j modulo 16, and these are added in pairs.
void block_norms(const void* values, std::size_t count, std::size_t block, float* norms);

// residual[i] = values[i], but where that is not finite (see encode_with_feedback): there it stays.
void keep_finite(const void* values, void* residual, std::size_t count);

// The plain loops, one element at a time, same results: the reference for tests.
std::size_t at_least_scalar(const void* values, std::size_t count, float least, std::uint32_t* indices);
void block_norms_scalar(const void* values, std::size_t count, std::size_t block, float* norms);

}  // namespace talweg::kernel
