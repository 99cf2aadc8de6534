#include "protocol/aggregation/own_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/blocks.h"

namespace talweg::protocol {

void OwnPairs::reset(const Sum& sum, std::uint64_t columns) {
  sum_ = sum;
  columns_ = columns;
  most_ = wire::most_elements(wire::AggregationFormat::pairs, sum.block);
  windows_.assign(columns, {});
  values_.resize(columns * most_);
  distances_.resize(columns * most_);
  if (sum.rows == nullptr) return;
  rows_.reset(*sum.rows, units_of(sum.rows->width, sum.format, sum.block), {kGranule, sum.lanes, columns},
              sum.lane);
  taken_.assign(columns, 0);
}

std::uint64_t OwnPairs::keys(std::uint64_t column) const {
  const std::uint64_t all = (sum_.count + kGranule - 1) / kGranule;
  const std::uint64_t of_lane = all > sum_.lane ? (all - sum_.lane + sum_.lanes - 1) / sum_.lanes : 0;
  if (column >= of_lane) return 0;
  const std::uint64_t granules = (of_lane - column + columns_ - 1) / columns_;
  const std::size_t last = element(column, (granules - 1) * kGranule);
  return (granules - 1) * kGranule + std::min<std::size_t>(kGranule, sum_.count - last);
}

std::uint64_t OwnPairs::advance(std::size_t column, std::uint64_t block) {
  drop(column, block);
  take(column);
  return windows_[column].next;
}

void OwnPairs::drop(std::size_t column, std::uint64_t block) {
  Window& window = windows_[column];
  std::uint16_t* const d = distances(column);
  const std::uint64_t ahead = block - window.block;
  const auto gone = static_cast<std::size_t>(std::lower_bound(d, d + window.count, ahead) - d);
  window.block = block;
  window.count = static_cast<std::uint16_t>(window.count - gone);
  std::memmove(values(column), values(column) + gone, window.count * sizeof(float));
  for (std::size_t i = 0; i < window.count; ++i) d[i] = static_cast<std::uint16_t>(d[i + gone] - ahead);
}

void OwnPairs::take(std::size_t column) {
  Window& window = windows_[column];
  if (window.next == wire::kNeverNext) return;
  if (sum_.rows != nullptr) return take_rows(column);
  const std::uint64_t end = keys(column);
  for (std::uint64_t key = window.next; key < end; key = (key / kGranule + 1) * kGranule) {
    const std::uint64_t first = key / kGranule * kGranule;
    const std::byte* const in = sum_.in + element(column, first) * sizeof(float);
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(kGranule, end - first));
    std::uint64_t held = kernel::nonzero_elements(in, length) & ~std::uint64_t{0} << (key - first);
    for (; held != 0; held &= held - 1) {
      const auto i = static_cast<std::uint64_t>(std::countr_zero(held));
      if (!keep(column, first + i, in + i * sizeof(float))) return;
    }
  }
  window.next = wire::kNeverNext;
}

void OwnPairs::take_rows(std::size_t column) {
  const std::span<const std::uint64_t> places = rows_.places(column);
  for (std::size_t& taken = taken_[column]; taken < places.size(); ++taken) {
    const std::uint64_t place = places[taken];
    if (!keep(column, key_of(rows_.unit_at(place)),
              sum_.rows->values + rows_.element_at(place) * sizeof(float)))
      return;
  }
  windows_[column].next = wire::kNeverNext;
}

bool OwnPairs::keep(std::size_t column, std::uint64_t key, const std::byte* value) {
  Window& window = windows_[column];
  const std::uint64_t distance = key - window.block;
  if (window.count == most_ || distance > wire::kFarthestKey) {
    window.next = key;
    return false;
  }
  std::memcpy(values(column) + window.count, value, sizeof(float));
  distances(column)[window.count++] = static_cast<std::uint16_t>(distance);
  return true;
}

void OwnPairs::write(std::size_t column, std::byte* data) const {
  const std::size_t count = windows_[column].count;
  std::memcpy(data, values_.data() + column * most_, count * sizeof(float));
  std::memcpy(data + count * sizeof(float), distances_.data() + column * most_,
              count * sizeof(std::uint16_t));
}

void OwnPairs::accept(std::size_t column, std::uint64_t block, std::uint64_t next,
                      std::span<const std::byte> data) const {
  const wire::PairsOnWire pairs(data);
  if (sum_.rows != nullptr) {
    for (std::size_t i = 0; i < pairs.count; ++i)
      std::memcpy(sum_.rows->sums->add(element(column, block + pairs.distance(i))),
                  pairs.values + i * sizeof(float), sizeof(float));
    return;
  }
  const std::uint64_t end = std::min(next, keys(column));
  for (std::uint64_t key = block; key < end;) {
    const std::uint64_t stop = std::min((key / kGranule + 1) * kGranule, end);
    const std::size_t offset = element(column, key) * sizeof(float), bytes = (stop - key) * sizeof(float);
    if (sum_.kept != nullptr) sum_.kept->keep(offset, bytes);
    std::memset(sum_.out + offset, 0, bytes);
    key = stop;
  }
  for (std::size_t i = 0; i < pairs.count; ++i)
    std::memcpy(sum_.out + element(column, block + pairs.distance(i)) * sizeof(float),
                pairs.values + i * sizeof(float), sizeof(float));
}

}  // namespace talweg::protocol
