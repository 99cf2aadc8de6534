// Calls as a program makes them on one rank, giving only the counts that it must, and the operations that a
// group makes of them.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/collectives.h"
#include "protocol/operation.h"

namespace talweg::protocol {

// Parts, where there are parts, of which no two are the same.
inline forest::Request uneven_request(Collective op, int ranks) {
  forest::Request q = forest::even_request(op, ranks, facts(op).rooted ? 2 : 0, 100, 4);
  if (has_parts(op)) std::iota(q.counts.begin(), q.counts.end(), 1);
  return q;
}

// `q`: with all counts.
inline Operation as_called(const forest::Request& q, int rank) {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> out_counts;
  const auto n = static_cast<std::size_t>(q.ranks);
  const auto me = static_cast<std::size_t>(rank);
  const bool knows_all = facts(q.op).knows == Knows::all || rank == q.root;
  for (std::size_t r = 0; r < n && has_parts(q.op); ++r) {
    const bool pairs = facts(q.op).counts == Counts::per_pair;
    const std::int64_t count = pairs ? q.counts[me * n + r] : knows_all || r == me ? q.counts[r] : 0;
    counts.push_back(static_cast<std::size_t>(count));
    if (pairs) out_counts.push_back(static_cast<std::size_t>(q.counts[r * n + me]));
  }
  const Call call{.op = q.op,
                  .type = DataType::f32,
                  .count = has_parts(q.op) ? 0 : static_cast<std::size_t>(q.counts[0]),
                  .counts = counts,
                  .out_counts = out_counts,
                  .root = q.root};
  const forest::Request asked = request_of(call, rank, q.ranks);
  EXPECT_EQ(asked, known_to(q, rank));
  return make_operation(call, rank, asked);
}

}  // namespace talweg::protocol
