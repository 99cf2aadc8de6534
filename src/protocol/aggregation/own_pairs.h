// A worker's vector of float32 as pairs of keys and values, of those elements that are not zero; and what its
// sum is written to.
//
// Elements are dealt out to columns in granules, in turn, so that where many are close together (the head of
// a Zipf distribution) no column has them all. A column's keys are its elements: 0, 1, ..., whichever they
// are in the vector. So keys of one round are close to each other, two bytes say how far, and there are none
// that are another column's.
//
//   OwnPairs pairs;
//   pairs.reset(sum, columns);
//   next = pairs.advance(column, block);          // what goes into a round from this key on
//   pairs.write(column, data);                    // count(column) pairs, as they travel
//   pairs.accept(column, block, next, data);      // their sum, for keys from `block` to `next`
//
// A column keeps what it says in a round until it is told to go on, so that each element is read once,
// however little of what a worker says has room in a round. `in` may be `out`: elements are written once
// they, and all before them in their column, have been read.
//
// Of a sum by rows (row_sums.h) a worker's elements are those of its rows, also where they are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/aggregation/own_rows.h"
#include "protocol/aggregation/tensor.h"

namespace talweg::protocol {

class OwnPairs {
 public:
  static constexpr std::uint16_t kGranule = 64;  // elements

  // `sum.block` and `sum.sparse` say nothing here but how many pairs an entry has room for.
  void reset(const Sum& sum, std::uint64_t columns);
  void let_go() { rows_.let_go(); }  // as OwnRows

  std::uint64_t keys(std::uint64_t column) const;
  // The round goes on at this key, which is no further than the last next one. Returns the first own key that
  // is not in what is said in this round; kNeverNext: there is none.
  std::uint64_t advance(std::size_t column, std::uint64_t block);
  std::uint16_t count(std::size_t column) const { return windows_[column].count; }
  void write(std::size_t column, std::byte* data) const;
  // Keys from `block` to `next` that are not among the data are zero on all workers. The data's are below
  // keys(column).
  void accept(std::size_t column, std::uint64_t block, std::uint64_t next,
              std::span<const std::byte> data) const;

 private:
  // What is said in a round: its values and distances are at the column's place in memory_.
  struct Window {
    std::uint64_t block = 0;
    std::uint64_t next = 0;  // nothing has been read from here on, and nothing else lies before it
    std::uint16_t count = 0;
  };
  std::size_t element(std::uint64_t column, std::uint64_t key) const {
    const std::uint64_t granule = column + key / kGranule * columns_;
    return static_cast<std::size_t>((sum_.lane + granule * sum_.lanes) * kGranule + key % kGranule);
  }
  float* values(std::size_t column) { return values_.data() + column * most_; }
  std::uint16_t* distances(std::size_t column) { return distances_.data() + column * most_; }
  // What element() says of this key is `unit`.
  std::uint64_t key_of(std::uint64_t unit) const {
    return unit / kGranule / sum_.lanes / columns_ * kGranule + unit % kGranule;
  }
  void drop(std::size_t column, std::uint64_t block);
  void take(std::size_t column);
  void take_rows(std::size_t column);
  // Whether there is room for the next one; it is in then.
  bool keep(std::size_t column, std::uint64_t key, const std::byte* value);

  Sum sum_;
  std::uint64_t columns_ = 1;
  std::size_t most_ = 0;
  std::vector<Window> windows_;
  std::vector<float> values_;
  std::vector<std::uint16_t> distances_;
  OwnRows rows_;
  std::vector<std::size_t> taken_;  // of each column's places
};

}  // namespace talweg::protocol
