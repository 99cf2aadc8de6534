#include "protocol/aggregation/pair_sums.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "wire/aggregation.h"

namespace talweg::protocol {

namespace {

// Of those that ascend, how many are before `end`.
template <class Distance>
std::size_t count_before(std::size_t count, std::uint64_t end, Distance distance) {
  if (count == 0 || distance(count - 1) < end) return count;
  std::size_t low = 0, high = count - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (distance(middle) < end)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

float value_if(bool is, float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & -std::uint32_t{is});
}

}  // namespace

// From the last to the first, so that nothing is written over before it has been read.
template <class Pairs>
std::uint16_t PairSums::merge(std::size_t count, const Pairs& pairs, std::size_t more, std::uint64_t& end) {
  std::size_t own = before(count, end);
  std::size_t theirs = count_before(more, end, [&](std::size_t i) { return pairs.distance(i); });
  std::size_t both = 0;
  for (std::size_t i = 0, j = 0; i < own && j < theirs;) {
    const std::uint16_t a = distances_[i], b = pairs.distance(j);
    both += a == b ? 1 : 0;
    i += a <= b ? 1 : 0;
    j += b <= a ? 1 : 0;
  }
  std::size_t at = own + theirs - both;
  const std::size_t all = std::min(at, most_);
  // Whose key is next cannot be foreseen: nothing here branches on it.
  while (own > 0 && theirs > 0) {
    const std::uint16_t a = distances_[own - 1], b = pairs.distance(theirs - 1);
    const bool is_own = a >= b, is_theirs = b >= a;
    const float value = value_if(is_own, values_[own - 1]) + value_if(is_theirs, pairs.value(theirs - 1));
    const std::uint16_t key = std::max(a, b);
    --at;
    if (at < most_) {
      values_[at] = value;
      distances_[at] = key;
    } else if (at == most_) {
      end = key;
    }
    own -= is_own ? 1 : 0;
    theirs -= is_theirs ? 1 : 0;
  }
  // No more than an entry holds are left.
  for (; theirs > 0; --theirs) {
    values_[theirs - 1] = pairs.value(theirs - 1);
    distances_[theirs - 1] = pairs.distance(theirs - 1);
  }
  return static_cast<std::uint16_t>(all);
}

std::uint16_t PairSums::add(std::size_t count, std::span<const std::byte> data, std::uint64_t& end) {
  const wire::PairsOnWire pairs(data);
  return merge(count, pairs, pairs.count, end);
}

std::uint16_t PairSums::add(std::size_t count, const PairSums& kept, std::uint64_t& end) {
  struct {
    const PairSums& sums;
    std::uint16_t distance(std::size_t i) const { return sums.distances_[i]; }
    float value(std::size_t i) const { return sums.values_[i]; }
  } const pairs{kept};
  return merge(count, pairs, kept.kept(), end);
}

std::uint16_t PairSums::before(std::size_t count, std::uint64_t end) const {
  return static_cast<std::uint16_t>(count_before(count, end, [&](std::size_t i) { return distances_[i]; }));
}

// Distances ascend: a zero behind the first one is none.
void PairSums::keep(std::span<const std::byte> data) {
  const wire::PairsOnWire pairs(data);
  std::memcpy(values_, pairs.values, pairs.count * sizeof *values_);
  std::memcpy(distances_, pairs.distances, pairs.count * sizeof *distances_);
  if (pairs.count < most_) distances_[pairs.count] = 0;
}

std::size_t PairSums::kept() const {
  std::size_t count = 1;
  while (count < most_ && distances_[count] != 0) ++count;
  return count;
}

void PairSums::write(std::size_t count, std::byte* data) const {
  std::memcpy(data, values_, count * sizeof *values_);
  std::memcpy(data + count * sizeof *values_, distances_, count * sizeof *distances_);
}

}  // namespace talweg::protocol
