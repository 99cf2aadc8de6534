// Sums streams of rows that are each sorted by key, as sparse gradients are: rows of one key become one. No
// policy, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "talweg/types.h"

namespace talweg::kernel {

// `count` keys, strictly ascending, and as many rows of values.
struct KeyedRows {
  const std::int64_t* keys = nullptr;
  const void* rows = nullptr;
  std::size_t count = 0;
};

// Whether keys ascend strictly and are all in [0, limit): what comes from elsewhere is to be asked first.
bool are_keys(std::span<const std::int64_t> keys, std::int64_t limit);

// One stream of the sum of all, in rows of `width` elements. Rows of one key are added in the order of the
// streams, so that all who merge the same streams have the same bits; `streams` are empty afterwards. Returns
// the number of rows; `keys` and `rows` have room for those of all streams.
std::size_t merge_rows(std::span<KeyedRows> streams, DataType type, std::size_t width, std::int64_t* keys,
                       void* rows);

}  // namespace talweg::kernel
