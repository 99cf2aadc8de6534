// A worker's rows (row_sums.h), dealt out to lanes and the columns of each: which units it has there, and
// where they are.
//
// Units are dealt out to lanes and columns in granules, in turn. What a worker has of a column is found by
// halving, so that it takes memory for its own units alone, however many keys there could be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocol/aggregation/row_sums.h"

namespace talweg::protocol {

// Of all lanes.
class DealtRows {
 public:
  struct Deal {
    std::uint64_t granule = 1;  // units
    std::uint16_t lanes = 1;
    std::uint64_t columns = 1;  // of each lane
    bool operator==(const Deal&) const = default;
  };
  // `rows` and what it points to stay as they are.
  DealtRows(const Rows& rows, RowUnits units, const Deal& deal);
  bool is(const Rows& rows, RowUnits units, const Deal& deal) const;

  const Rows& rows() const { return rows_; }
  const RowUnits& units() const { return units_; }
  // Ascending.
  std::span<const std::uint64_t> places(std::uint16_t lane, std::uint64_t column) const {
    const std::size_t hand = column * deal_.lanes + lane;
    return std::span(places_).subspan(ends_[hand], ends_[hand + 1] - ends_[hand]);
  }

 private:
  const Rows rows_;
  const RowUnits units_;
  const Deal deal_;
  std::vector<std::size_t> ends_;      // of what has been dealt out to each column of each lane, behind a 0
  std::vector<std::uint64_t> places_;  // of one after the other
};

// Of one lane.
class OwnRows {
 public:
  // The lanes of a sum share what the first of them has dealt out, by rows.sums, where that is not null.
  void reset(const Rows& rows, RowUnits units, const DealtRows::Deal& deal, std::uint16_t lane);

  // What it keeps of a sum that has ended.
  void let_go() { dealt_.reset(); }

  const RowUnits& units() const { return dealt_->units(); }
  // This worker's of the column, ascending: for unit_at() and elements_at().
  std::span<const std::uint64_t> places(std::uint64_t column) const { return dealt_->places(lane_, column); }
  std::uint64_t unit_at(std::uint64_t place) const {
    const Rows& rows = dealt_->rows();
    const auto row = static_cast<std::uint64_t>(rows.keys[place / units().per_row] - rows.first);
    return row * units().per_row + place % units().per_row;
  }
  std::size_t element_at(std::uint64_t place) const {  // of `values`
    return place / units().per_row * dealt_->rows().width + place % units().per_row * units().length;
  }
  // How many of its places in the column are before this unit.
  std::size_t before(std::uint64_t column, std::uint64_t unit) const;
  std::size_t length_of(std::uint64_t unit) const;

 private:
  std::shared_ptr<const DealtRows> dealt_;
  std::uint16_t lane_ = 0;
};

}  // namespace talweg::protocol
