#include "protocol/aggregation/own_rows.h"

#include <algorithm>

namespace talweg::protocol {

DealtRows::DealtRows(const Rows& rows, RowUnits units, const Deal& deal)
    : rows_(rows), units_(units), deal_(deal) {
  // Of lanes first, then of columns: hand n is column n / lanes of lane n % lanes.
  const std::uint64_t hands = deal.lanes * deal.columns;
  const auto each = [&](const auto& visit) {
    std::uint64_t place = 0;
    for (const std::int64_t key : rows.keys) {
      const std::uint64_t first = static_cast<std::uint64_t>(key - rows.first) * units.per_row;
      std::uint64_t hand = first / deal.granule % hands;
      std::uint64_t left = deal.granule - first % deal.granule;  // of this granule
      for (std::size_t part = 0; part < units.per_row; ++part, ++place, --left) {
        if (left == 0) {
          left = deal.granule;
          hand = hand + 1 == hands ? 0 : hand + 1;
        }
        visit(hand, place);
      }
    }
  };
  // Each begins where the one before it ends, which is known once all have been counted.
  ends_.assign(hands + 2, 0);
  each([&](std::uint64_t hand, std::uint64_t) { ++ends_[hand + 2]; });
  for (std::size_t i = 2; i < ends_.size(); ++i) ends_[i] += ends_[i - 1];
  places_.resize(ends_.back());
  each([&](std::uint64_t hand, std::uint64_t place) { places_[ends_[hand + 1]++] = place; });
}

bool DealtRows::is(const Rows& rows, RowUnits units, const Deal& deal) const {
  return rows.keys.data() == rows_.keys.data() && rows.keys.size() == rows_.keys.size() &&
         rows.values == rows_.values && rows.width == rows_.width && rows.first == rows_.first &&
         units == units_ && deal == deal_;
}

void OwnRows::reset(const Rows& rows, RowUnits units, const DealtRows::Deal& deal, std::uint16_t lane) {
  lane_ = lane;
  dealt_ = rows.sums != nullptr ? rows.sums->dealt() : nullptr;
  if (dealt_ == nullptr || !dealt_->is(rows, units, deal))
    dealt_ = std::make_shared<const DealtRows>(rows, units, deal);
  if (rows.sums != nullptr) rows.sums->share(dealt_);
}

std::size_t OwnRows::before(std::uint64_t column, std::uint64_t unit) const {
  const std::span<const std::uint64_t> own = places(column);
  const auto less = [this](std::uint64_t place, std::uint64_t than) { return unit_at(place) < than; };
  return static_cast<std::size_t>(std::lower_bound(own.begin(), own.end(), unit, less) - own.begin());
}

std::size_t OwnRows::length_of(std::uint64_t unit) const {
  return std::min(units().length, dealt_->rows().width - unit % units().per_row * units().length);
}

}  // namespace talweg::protocol
