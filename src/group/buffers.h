// What is asked of a caller's buffers, before anything is started.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "talweg/types.h"

namespace talweg::group {

// Throws Error{invalid_argument} for a null pointer where elements are needed; `what` names the buffer.
void check_buffer(const void* data, std::int64_t count, const char* what);

// A call reads its input while it writes its output. So the two may share memory in one way only: the smaller
// begins `offset` elements into the larger (nullopt: in no way). Counts in elements; throws
// Error{invalid_argument} else.
void check_sharing(const void* in, std::int64_t in_count, const void* out, std::int64_t out_count,
                   DataType type, std::optional<std::int64_t> offset, const char* call);

// Where a rank's part begins in a vector that has one part of `counts` for each rank, in elements.
inline std::int64_t sum_before(const std::vector<std::int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

}  // namespace talweg::group
