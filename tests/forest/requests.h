// Requests of every kind, for tests that sweep.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "forest/planner.h"

namespace talweg::forest {

inline std::vector<Collective> all_operations() {
  std::vector<Collective> result;
  for (int i = 0; i < kCollectives; ++i) result.push_back(static_cast<Collective>(i));
  return result;
}

// How many counts the operation wants.
inline std::size_t counts_of(Collective op, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  switch (op) {
    case Collective::all_to_all:
      return n * n;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
      return n;
    default:
      return 1;
  }
}

// Counts of `base` each; uneven: every third is 0 and the others differ. Barriers always have the count 0.
inline Request make_request(Collective op, int ranks, std::int64_t base, bool uneven = false, NodeId root = 0,
                            std::int64_t element_size = 4) {
  Request request{.op = op, .ranks = ranks, .root = root, .peer = (root + 1) % ranks, .counts = {}};
  request.element_size = element_size;
  for (std::size_t i = 0; i < counts_of(op, ranks); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t count = !uneven ? base : index % 3 == 1 ? 0 : base + 5 * index;
    request.counts.push_back(op == Collective::barrier ? 0 : count);
  }
  return request;
}

inline std::string describe(const std::string& planner, const Request& request) {
  return fmt::format("{} {} ranks={} root={} counts[0]={} of {}", planner, name(request.op), request.ranks,
                     request.root, request.counts.empty() ? -1 : request.counts[0], request.counts.size());
}

inline cluster::Cluster gigabit_star(int ranks) {
  return cluster::uniform_star(ranks, {1e9}, {30000});
}

}  // namespace talweg::forest
