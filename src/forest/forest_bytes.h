// The binary form of a forest: what rank 0 sends to all others, and what a forest's digest is made of.
//
//   bytes  = version 1, planner, flags, request, nodes, number of trees, trees
//   tree   = slice, root, chunk, contributors, receivers, up, down
//   nodes  = ascending node numbers as runs: how many runs, then gap and length of each
//   edges  = as the tree's other direction has them (1), or (0) how many, then runs
//   run    = 2 x length, and how child and parent of each of its edges differ from what is expected
//            or 2 x length + 1, and how the parent of each differs; the children are as expected
// Expected are the child after the one before, and the parent that this child had in the tree before.
//
// Numbers are varints of 7 bits a byte, the lowest first; what may be negative is folded as 0, -1, 1, -2, ...
// A ring among 256 ranks takes 12 KB, trees without pattern two bytes an edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "forest/forest.h"

namespace talweg::forest {

// Throws Error{invalid_argument} for a forest whose contributors or receivers are not sorted.
std::vector<std::byte> to_bytes(const Forest& forest);
void write(ByteWriter& writer, const Request& request);

// Throw Error{corrupted} that says what is wrong. What they return holds to its types, to validate(), and to
// verify()'s most basic rules: nodes are in range, slices inside the vector, lists sorted, chunks above 0.
// What trees compute is verify()'s to say.
Forest forest_from_bytes(std::span<const std::byte> bytes);
Request request_from(ByteReader& reader);

// Of to_bytes(); never 0. Forests that differ have the same one by chance in 1 of 2^32.
std::uint32_t digest(std::span<const std::byte> bytes);
std::uint32_t digest(const Forest& forest);

}  // namespace talweg::forest
