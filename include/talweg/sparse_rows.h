// Sums of sparse tensors: of gradients of embeddings, say, of which each rank has some rows.
//
//   const talweg::SparseRows sum = talweg::all_reduce_rows(
//       *group, {.keys = rows, .values = gradients, .limit = 1'000'000, .width = 64, .type = DataType::f32});
//   sum.keys[i]                                // row i of the sum is row keys[i] of all that there could be
//
// The result is the rows that any rank has, also where all of their elements are zero. How many these are no
// rank knows before, so the memory is handed out with it. All ranks have the same bits. By connections each
// rank gets what all have, and adds it up in the order of ranks; by a switch, where the group has one and
// that is quicker, what comes back is the sum (docs/aggregation.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "talweg/call.h"
#include "talweg/group.h"

namespace talweg {

struct SparseRows {
  std::vector<std::int64_t> keys;       // strictly ascending
  std::unique_ptr<std::byte[]> values;  // a row of `width` elements for each, one behind the other
  bool by_switch = false;               // it has made the sum
};

// What this rank has. Its memory stays as it is until the call returns.
struct RowsCall {
  static constexpr std::size_t kMostShape = 16;
  std::span<const std::int64_t> keys{};  // strictly ascending, 0 .. limit - 1; of any number
  const void* values = nullptr;          // a row of `width` elements for each, one behind the other
  std::int64_t limit = 0;                // rows that there could be; the same on all ranks, as these two are:
  std::size_t width = 1;
  DataType type = DataType::f32;
  // Whatever else all ranks must agree on, such as the sizes of a tensor whose rows these are: up to
  // kMostShape numbers.
  std::span<const std::int64_t> shape{};
  CallOptions options{};
};

// Blocks. All ranks of the group call it in the same order as its other calls, and start no other one before
// it has returned: it is several of them. Throws Error: invalid_argument (keys out of order or range),
// mismatch (on all ranks, where they do not agree), and as Group's calls do. Where another thread of this
// rank has called it before, and that call does not end within this one's time, it throws timeout: nothing of
// it has been said to other ranks, whose calls wait until this rank makes it again, or their own time is
// over.
SparseRows all_reduce_rows(Group& group, const RowsCall& call);

}  // namespace talweg
