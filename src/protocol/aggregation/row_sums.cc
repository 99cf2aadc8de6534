#include "protocol/aggregation/row_sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace talweg::protocol {

namespace {

constexpr std::size_t kChunkBytes = 256U << 10;

struct Come {
  std::uint64_t unit;
  std::uint64_t place;
};

// By units. Those of one column come in order, but columns are as many as a worker has slots: to merge so
// many is no less than to sort, and what takes a pass for each digit that any unit has is less than either.
void sort(std::vector<Come>& all) {
  constexpr std::size_t kFew = 4096;
  if (all.size() < kFew) {
    std::ranges::sort(all, {}, &Come::unit);
    return;
  }
  constexpr int kDigit = 11;
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kDigit) - 1;
  std::uint64_t any = 0;
  for (const Come& come : all) any |= come.unit;
  std::vector<Come> sorted(all.size());
  for (int shift = 0; shift < 64 && any >> shift != 0; shift += kDigit) {
    std::array<std::size_t, kMask + 2> ends{};
    for (const Come& come : all) ++ends[(come.unit >> shift & kMask) + 1];
    for (std::size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    for (const Come& come : all) sorted[ends[come.unit >> shift & kMask]++] = come;
    all.swap(sorted);
  }
}

}  // namespace

RowUnits units_of(std::size_t width, wire::AggregationFormat format, std::size_t block) {
  if (format == wire::AggregationFormat::pairs) return {width, 1};
  const std::size_t per_row = (width + block - 1) / block;
  return {per_row, (width + per_row - 1) / per_row};
}

void RowSums::reset(wire::AggregationFormat format, RowUnits units, std::size_t width) {
  units_ = units;
  width_ = width;
  element_ = wire::bytes_in_memory(format);
  stride_ = units.length * element_;
  in_chunk_ = std::max<std::size_t>(kChunkBytes / stride_, 1);
  numbers_.clear();
  chunks_.clear();
  dealt_.reset();
}

std::byte* RowSums::add(std::uint64_t unit) {
  const std::size_t place = numbers_.size();
  if (place / in_chunk_ == chunks_.size())
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(in_chunk_ * stride_));
  numbers_.push_back(unit);
  return at(place);
}

std::optional<RowSums::Summed> RowSums::finish(std::int64_t first_key) {
  const std::vector<std::uint64_t> numbers = std::exchange(numbers_, {});
  dealt_.reset();
  std::vector<Come> sorted;
  sorted.reserve(numbers.size());
  for (std::size_t place = 0; place < numbers.size(); ++place) sorted.push_back({numbers[place], place});
  sort(sorted);
  Summed summed;
  const std::size_t rows = sorted.size() / units_.per_row;
  summed.keys.reserve(rows);
  summed.values = std::make_unique_for_overwrite<std::byte[]>(rows * width_ * element_);
  std::byte* to = summed.values.get();
  bool whole = sorted.size() % units_.per_row == 0;
  for (std::size_t i = 0; whole && i < sorted.size(); ++i) {
    const auto [unit, place] = sorted[i];
    const std::size_t part = i % units_.per_row;
    const std::uint64_t first = sorted[i - part].unit;
    whole = first % units_.per_row == 0 && unit == first + part &&
            (part > 0 || i == 0 || sorted[i - 1].unit < unit);
    if (part == 0) summed.keys.push_back(first_key + static_cast<std::int64_t>(unit / units_.per_row));
    const std::size_t bytes = std::min(units_.length, width_ - part * units_.length) * element_;
    std::memcpy(to, at(place), bytes);
    to += bytes;
  }
  chunks_.clear();
  if (!whole) return std::nullopt;
  return summed;
}

}  // namespace talweg::protocol
