// A worker's rows (row_sums.h), dealt out to the columns of a lane: which units it has, and where they are.
//
// Units are dealt out to lanes and columns in granules, in turn. What a worker has of a column is found by
// halving, so that it takes memory for its own units alone, however many keys there could be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/aggregation/row_sums.h"

namespace talweg::protocol {

class OwnRows {
 public:
  struct Deal {
    std::uint64_t granule = 1;  // units
    std::uint16_t lane = 0, lanes = 1;
    std::uint64_t columns = 1;
  };
  // `rows` and what it points to stay as they are.
  void reset(const Rows& rows, RowUnits units, const Deal& deal);

  const RowUnits& units() const { return units_; }
  // This worker's of the column, ascending: for unit_at() and elements_at().
  std::span<const std::uint64_t> places(std::uint64_t column) const {
    return std::span(places_).subspan(ends_[column], ends_[column + 1] - ends_[column]);
  }
  std::uint64_t unit_at(std::uint64_t place) const {
    const auto row = static_cast<std::uint64_t>(rows_.keys[place / units_.per_row] - rows_.first);
    return row * units_.per_row + place % units_.per_row;
  }
  std::size_t element_at(std::uint64_t place) const {  // of `values`
    return place / units_.per_row * rows_.width + place % units_.per_row * units_.length;
  }
  // How many of its places in the column are before this unit.
  std::size_t before(std::uint64_t column, std::uint64_t unit) const;
  std::size_t length_of(std::uint64_t unit) const;

 private:
  Rows rows_;
  RowUnits units_;
  std::vector<std::size_t> ends_;      // of columns, behind a 0
  std::vector<std::uint64_t> places_;  // column by column
};

}  // namespace talweg::protocol
