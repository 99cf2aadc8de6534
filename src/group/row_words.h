// What ranks tell each other of a sum of sparse tensors (include/talweg/sparse_rows.h) before anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "talweg/sparse_rows.h"

namespace talweg::group {

// Sent as numbers of 8 bytes.
struct RowWords {
  std::array<std::int64_t, RowsCall::kMostShape> shape{};
  std::int64_t dimensions = 0;  // of `shape`
  std::int64_t limit = 0, width = 0, type = 0;
  std::int64_t count = 0;
  // For switches: 0, or what all ranks have to say alike.
  std::uint64_t in_line = 0;  // the job's life
  std::uint64_t prices = 0;
  std::uint32_t links = 0;
  std::uint32_t learnt = 0;
  std::uint64_t merging = 0;  // MergePrices of this rank

  bool fits(const RowWords& other) const {
    return shape == other.shape && dimensions == other.dimensions && limit == other.limit &&
           width == other.width && type == other.type;
  }
  bool same_line(const RowWords& other) const {
    return in_line == other.in_line && prices == other.prices && links == other.links &&
           learnt == other.learnt;
  }
};
inline constexpr std::size_t kRowWords = sizeof(RowWords) / sizeof(std::int64_t);
static_assert(std::has_unique_object_representations_v<RowWords> && std::is_trivially_copyable_v<RowWords> &&
              sizeof(RowWords) == kRowWords * sizeof(std::int64_t));

}  // namespace talweg::group
