// Sums of sparse tensors by rows. Each worker has some rows of many, by their keys; what comes back are those
// that any worker has, also where all elements are zero, in the order of their keys. How many these are is
// known when the sum is done; memory is what they take.
//
//   RowSums sums;
//   const Rows rows{keys, values, limit, width, in_all, &sums};
//   sums.reset(format, units_of(width, format, block), width);
//   worker.start(sum, ...);                    // Sum::rows: &rows. It calls sums.add()
//   const auto summed = sums.finish();         // once all workers of a job, one for each lane, are done
//
// A row is cut into units: parts that have room in a block, or single elements where these travel as pairs.
// Units are numbered: those of the k-th row that there could be are k * per_row and those behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "wire/aggregation.h"

namespace talweg::protocol {

class RowSums;
class DealtRows;

// One worker's rows. All workers say the same of all but keys and values.
struct Rows {
  static constexpr std::uint64_t kMostKeys = std::uint64_t{1} << 31;
  std::span<const std::int64_t> keys = {};  // strictly ascending, from `first` on, below `first` + `limit`
  const std::byte* values = nullptr;        // a row for each, one behind the other
  std::uint64_t limit = 0;                  // rows that there could be, up to kMostKeys
  std::size_t width = 1;                    // elements of a row
  std::uint64_t in_all = 0;                 // rows of all workers together: how many columns these are worth
  RowSums* sums = nullptr;
  std::int64_t first = 0;  // key: others have those before it
  // Elements of all rows that there could be.
  std::uint64_t elements() const { return limit * width; }
};

struct RowUnits {
  std::size_t per_row = 1;
  std::size_t length = 1;  // elements of each but the last one of a row, which may have fewer
  bool operator==(const RowUnits&) const = default;
};
// As long as each other, where the last one is not shorter: so a row of few more elements than a block has
// none that is nearly empty.
RowUnits units_of(std::size_t width, wire::AggregationFormat format, std::size_t block);

class RowSums {
 public:
  struct Summed {
    std::vector<std::int64_t> keys;  // ascending
    std::unique_ptr<std::byte[]> values;
  };

  void reset(wire::AggregationFormat format, RowUnits units, std::size_t width);
  // Memory for its elements, as they are in memory. In any order, each unit once.
  std::byte* add(std::uint64_t unit);
  // How the rows of this sum are dealt out, which its lanes share until it is finished; null: not so far.
  const std::shared_ptr<const DealtRows>& dealt() const { return dealt_; }
  void share(std::shared_ptr<const DealtRows> dealt) { dealt_ = std::move(dealt); }
  // Empty: what was added is not whole rows, each once. Nothing is left here. `first`: as Rows::first.
  std::optional<Summed> finish(std::int64_t first = 0);

 private:
  std::byte* at(std::size_t place) const {
    return chunks_[place / in_chunk_].get() + place % in_chunk_ * stride_;
  }

  RowUnits units_;
  std::size_t width_ = 1;
  std::size_t element_ = 4;  // bytes
  std::size_t stride_ = 4;   // of units in chunks
  std::size_t in_chunk_ = 1;
  std::vector<std::uint64_t> numbers_;  // of units, in the order in which they have come
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::shared_ptr<const DealtRows> dealt_;
};

}  // namespace talweg::protocol
