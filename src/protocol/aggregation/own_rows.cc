#include "protocol/aggregation/own_rows.h"

#include <algorithm>

namespace talweg::protocol {

void OwnRows::reset(const Rows& rows, RowUnits units, const Deal& deal) {
  rows_ = rows;
  units_ = units;
  const auto each = [&](const auto& visit) {
    for (std::uint64_t place = 0, all = rows.keys.size() * units.per_row; place < all; ++place) {
      const std::uint64_t granule = unit_at(place) / deal.granule;
      if (granule % deal.lanes == deal.lane) visit(granule / deal.lanes % deal.columns, place);
    }
  };
  // Each begins where the one before it ends, which is known once all have been counted.
  ends_.assign(deal.columns + 2, 0);
  each([&](std::uint64_t column, std::uint64_t) { ++ends_[column + 2]; });
  for (std::size_t i = 2; i < ends_.size(); ++i) ends_[i] += ends_[i - 1];
  places_.resize(ends_.back());
  each([&](std::uint64_t column, std::uint64_t place) { places_[ends_[column + 1]++] = place; });
}

std::size_t OwnRows::before(std::uint64_t column, std::uint64_t unit) const {
  const std::span<const std::uint64_t> own = places(column);
  const auto less = [this](std::uint64_t place, std::uint64_t than) { return unit_at(place) < than; };
  return static_cast<std::size_t>(std::lower_bound(own.begin(), own.end(), unit, less) - own.begin());
}

std::size_t OwnRows::length_of(std::uint64_t unit) const {
  return std::min(units_.length, rows_.width - unit % units_.per_row * units_.length);
}

}  // namespace talweg::protocol
