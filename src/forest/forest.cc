#include "forest/forest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "talweg/error.h"

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
Run input_run(const Request& request, NodeId rank) {
  switch (request.op) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::barrier:
      return whole(request);
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::send_recv:
      return rank == request.root ? whole(request) : kNothing;
    case Collective::all_gather:
    case Collective::gather:
      return part(request, rank);
    case Collective::all_to_all:
      break;
  }
  return kNothing;
}

Run output_run(const Request& request, NodeId rank) {
  switch (request.op) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::barrier:
      return whole(request);
    case Collective::reduce:
    case Collective::gather:
      return rank == request.root ? whole(request) : kNothing;
    case Collective::send_recv:
      return rank == request.peer ? whole(request) : kNothing;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return part(request, rank);
    case Collective::all_to_all:
      break;
  }
  return kNothing;
}

bool is_rank(const Request& request, NodeId node) {
  return node >= 0 && node < request.ranks;
}

std::size_t wanted_counts(const Request& request) {
  const auto ranks = static_cast<std::size_t>(request.ranks);
  switch (request.op) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::send_recv:
    case Collective::barrier:
      return 1;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
      return ranks;
    case Collective::all_to_all:
      break;
  }
  return ranks * ranks;
}

}  // namespace

Request even_request(Collective op, int ranks, NodeId root, std::int64_t elements,
                     std::int64_t element_size) {
  Request request;
  request.op = op;
  request.ranks = ranks;
  request.root = root;
  request.element_size = element_size;
  const auto n = static_cast<std::size_t>(ranks);
  switch (op) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
      request.counts.assign(n, elements / ranks);
      break;
    case Collective::all_to_all:
      request.counts.assign(n * n, elements / ranks);
      break;
    case Collective::barrier:
      request.counts = {0};
      break;
    case Collective::send_recv:
      request.peer = ranks > 1 ? 1 : 0;
      request.counts = {elements};
      break;
    default:
      request.counts = {elements};
  }
  return request;
}

void validate(const Request& request) {
  const auto require = [&](bool holds, const std::string& text) {
    if (!holds) throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name(request.op), text));
  };
  require(request.ranks >= 1, fmt::format("expected at least 1 rank, got {}", request.ranks));
  require(is_rank(request, request.root),
          fmt::format("root {}: expected a rank from 0 to {}", request.root, request.ranks - 1));
  require(is_rank(request, request.peer),
          fmt::format("peer {}: expected a rank from 0 to {}", request.peer, request.ranks - 1));
  require(request.element_size >= 1,
          fmt::format("expected an element size above 0, got {}", request.element_size));
  require(request.counts.size() == wanted_counts(request),
          fmt::format("expected {} counts, got {}", wanted_counts(request), request.counts.size()));
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
  std::int64_t left = kMostBytes / request.element_size;
  for (const std::int64_t count : request.counts) {
    require(count >= 0, fmt::format("count {}: expected 0 or more", count));
    require(count <= left,
            fmt::format("expected counts of at most 2^62 bytes together, got {} too many", count - left));
    left -= count;
  }
  require(request.op != Collective::barrier || request.counts[0] == 0, "expected the count 0");
}

std::int64_t chunk_count(const Tree& tree) {
  return tree.slice.count == 0 ? 1 : (tree.slice.count + tree.chunk - 1) / tree.chunk;
}

std::int64_t input_offset(const Request& request, NodeId rank, const Slice& slice) {
  if (!is_rank(request, rank)) return -1;
  if (request.op == Collective::all_to_all) return within_blocks(request, rank, slice, true);
  return within(input_run(request, rank), slice);
}

std::int64_t output_offset(const Request& request, NodeId rank, const Slice& slice) {
  if (!is_rank(request, rank)) return -1;
  if (request.op == Collective::all_to_all) return within_blocks(request, rank, slice, false);
  return within(output_run(request, rank), slice);
}

std::int64_t input_count(const Request& request, NodeId rank) {
  if (!is_rank(request, rank)) return 0;
  if (request.op != Collective::all_to_all) return std::max<std::int64_t>(0, input_run(request, rank).count);
  const auto ranks = static_cast<std::size_t>(request.ranks);
  return sum(request, static_cast<std::size_t>(rank) * ranks, ranks);
}

std::int64_t output_count(const Request& request, NodeId rank) {
  if (!is_rank(request, rank)) return 0;
  if (request.op != Collective::all_to_all) return std::max<std::int64_t>(0, output_run(request, rank).count);
  std::int64_t total = 0;
  for (int source = 0; source < request.ranks; ++source) {
    total += request.counts[static_cast<std::size_t>(source) * static_cast<std::size_t>(request.ranks) +
                            static_cast<std::size_t>(rank)];
  }
  return total;
}

}  // namespace talweg::forest
