#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.h"
#include "kernel/gradient_block.h"
#include "kernel/scalar.h"
#include "kernel/selection.h"

namespace talweg::kernel {

std::size_t at_least_scalar(const void* values, std::size_t count, float least, std::uint32_t* indices) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (magnitude_bits(load<float>(values, i)) < magnitude_bits(least)) continue;
    if (indices != nullptr) indices[found] = static_cast<std::uint32_t>(i);
    ++found;
  }
  return found;
}

void block_norms_scalar(const void* values, std::size_t count, std::size_t block, float* norms) {
  for (std::size_t begin = 0; begin < count; begin += block) {
    float sums[16] = {};
    for (std::size_t i = begin; i < std::min(begin + block, count); ++i) {
      const auto value = load<float>(values, i);
      sums[(i - begin) % 16] += value * value;
    }
    for (std::size_t width = 8; width != 0; width /= 2)
      for (std::size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
    norms[begin / block] = sums[0];
  }
}

// Nothing here for vectors to do.
void random_k(std::size_t count, std::size_t k, std::uint64_t seed, std::uint64_t* marks,
              std::uint32_t* indices) {
  const std::size_t words = words_of_marks(count);
  std::memset(marks, 0, words * sizeof *marks);
  Random random(seed);
  for (std::size_t last = count - k; last < count; ++last) {
    const std::uint64_t drawn = random.below(last + 1);
    const bool taken = (marks[drawn / 64] >> (drawn % 64)) & 1;
    const std::uint64_t chosen = taken ? last : drawn;
    marks[chosen / 64] |= std::uint64_t{1} << (chosen % 64);
  }
  for (std::size_t word = 0; word < words; ++word)
    for (std::uint64_t left = marks[word]; left != 0; left &= left - 1)
      *indices++ = static_cast<std::uint32_t>(64 * word + static_cast<std::size_t>(std::countr_zero(left)));
}

}  // namespace talweg::kernel
