#include "forest/forest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/collectives.h"
#include "base/fail.h"

namespace talweg::forest {
namespace {

// A run of the logical vector, in elements.
struct Run {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

constexpr Run kNothing{0, -1};

std::int64_t sum(const Request& request, std::size_t first, std::size_t count) {
  const auto begin = request.counts.begin() + static_cast<std::ptrdiff_t>(first);
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), std::int64_t{0});
}

Run whole(const Request& request) {
  return {0, sum(request, 0, request.counts.size())};
}

Run part(const Request& request, NodeId rank) {
  const auto index = static_cast<std::size_t>(rank);
  return {sum(request, 0, index), request.counts[index]};
}

// A slice's place in a buffer that holds `run` densely; -1 when the slice sticks out of it.
std::int64_t within(const Run& run, const Slice& slice) {
  const bool inside = slice.offset >= run.begin && slice.offset + slice.count <= run.begin + run.count;
  return inside ? slice.offset - run.begin : -1;
}

// A slice's place among rank's blocks of an all_to_all: row `rank` (its input) or column `rank` (its output).
std::int64_t within_blocks(const Request& request, NodeId rank, const Slice& slice, bool row) {
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const auto own = static_cast<std::size_t>(rank);
  std::int64_t begin = 0;
  std::int64_t before = 0;
  for (std::size_t block = 0; block < ranks * ranks; ++block) {
    const std::int64_t count = request.counts[block];
    if ((row ? block / ranks : block % ranks) == own) {
      const std::int64_t inner = within({begin, count}, slice);
      if (inner >= 0) return before + inner;
      before += count;
    }
    begin += count;
  }
  return -1;
}

// What a rank's input or output is, where it is one run of the logical vector (all but all_to_all).
Run run_of(const Request& request, Extent extent, NodeId rank) {
  switch (extent) {
    case Extent::whole:
      return whole(request);
    case Extent::root:
      return rank == request.root ? whole(request) : kNothing;
    case Extent::peer:
      return rank == request.peer ? whole(request) : kNothing;
    case Extent::part:
      return part(request, rank);
    case Extent::blocks:
      break;
  }
  return kNothing;
}

// A slice's place in a rank's buffer, and how much that buffer holds.
std::int64_t offset_in(const Request& request, Extent extent, NodeId rank, const Slice& slice, bool row) {
  if (rank < 0 || rank >= request.ranks) return -1;
  if (extent == Extent::blocks) return within_blocks(request, rank, slice, row);
  return within(run_of(request, extent, rank), slice);
}

std::int64_t count_in(const Request& request, Extent extent, NodeId rank, bool row) {
  if (rank < 0 || rank >= request.ranks) return 0;
  if (extent != Extent::blocks) return std::max<std::int64_t>(0, run_of(request, extent, rank).count);
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const auto own = static_cast<std::size_t>(rank);
  if (row) return sum(request, own * ranks, ranks);
  std::int64_t total = 0;
  for (std::size_t source = 0; source < ranks; ++source) total += request.counts[source * ranks + own];
  return total;
}

bool is_rank(const Request& request, NodeId node) {
  return node >= 0 && node < request.ranks;
}

std::size_t wanted_counts(const Request& request) {
  return counts_wanted(request.op, static_cast<std::size_t>(request.ranks));
}

}  // namespace

Request even_request(Collective op, int ranks, NodeId root, std::int64_t elements,
                     std::int64_t element_size) {
  Request request;
  request.op = op;
  request.ranks = ranks;
  request.root = root;
  request.element_size = element_size;
  const std::size_t counts = counts_wanted(op, static_cast<std::size_t>(ranks));
  request.counts.assign(counts, !moves_data(op) ? 0 : has_parts(op) ? elements / ranks : elements);
  if (facts(op).output == Extent::peer) request.peer = ranks > 1 ? 1 : 0;
  return request;
}

void validate(const Request& request) {
  // Of 10,000 ranks an all_to_all has 10^8 counts: their texts are made where they are needed.
  const auto require = [&](bool holds, const auto& text) {
    if (!holds) refuse("{}: {}", name(request.op), text());
  };
  using fmt::format;
  require(request.ranks >= 1, [&] { return format("expected at least 1 rank, got {}", request.ranks); });
  require(is_rank(request, request.root),
          [&] { return format("root {}: expected a rank from 0 to {}", request.root, request.ranks - 1); });
  require(is_rank(request, request.peer),
          [&] { return format("peer {}: expected a rank from 0 to {}", request.peer, request.ranks - 1); });
  require(request.element_size >= 1,
          [&] { return format("expected an element size above 0, got {}", request.element_size); });
  require(request.counts.size() == wanted_counts(request), [&] {
    return format("expected {} counts, got {}", wanted_counts(request), request.counts.size());
  });
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
  std::int64_t left = kMostBytes / request.element_size;
  for (const std::int64_t count : request.counts) {
    require(count >= 0, [&] { return format("count {}: expected 0 or more", count); });
    require(count <= left, [&] {
      return format("expected counts of at most 2^62 bytes together, got {} too many", count - left);
    });
    left -= count;
  }
  require(moves_data(request.op) || request.counts[0] == 0, [] { return "expected the count 0"; });
}

std::vector<NodeId> aggregators_of(const Forest& forest) {
  std::set<NodeId> nodes;
  const auto note = [&](NodeId node) {
    if (node >= forest.request.ranks) nodes.insert(node);
  };
  for (const Tree& tree : forest.trees) {
    note(tree.root);
    for (const auto* edges : {&tree.up, &tree.down})
      for (const Edge& edge : *edges) {
        note(edge.child);
        note(edge.parent);
      }
  }
  return {nodes.begin(), nodes.end()};
}

std::int64_t chunk_count(const Tree& tree) {
  return tree.slice.count == 0 ? 1 : (tree.slice.count + tree.chunk - 1) / tree.chunk;
}

std::int64_t input_offset(const Request& request, NodeId rank, const Slice& slice) {
  return offset_in(request, facts(request.op).input, rank, slice, true);
}

std::int64_t output_offset(const Request& request, NodeId rank, const Slice& slice) {
  return offset_in(request, facts(request.op).output, rank, slice, false);
}

std::int64_t input_count(const Request& request, NodeId rank) {
  return count_in(request, facts(request.op).input, rank, true);
}

std::int64_t output_count(const Request& request, NodeId rank) {
  return count_in(request, facts(request.op).output, rank, false);
}

}  // namespace talweg::forest
