#include "forest/forest_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "base/crc32c.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

constexpr std::uint64_t kVersion = 1;
// Far above any group, far below what would overflow a table over all pairs of nodes.
constexpr std::uint64_t kMostNodesInBytes = 1 << 16;
constexpr std::size_t kLongestName = 64;
// Of what runs may unfold to, trees, edges, nodes and counts together: what every rank of 2500 sends to each
// other.
constexpr std::uint64_t kMostEntries = 1 << 25;
constexpr std::uint64_t kSumsOnce = 1;  // flags
constexpr std::uint64_t kMostCount = std::uint64_t{1} << 62;

enum class EdgesForm : std::uint64_t { listed = 0, as_up = 1 };

// What the tree before says of this one: the parent that each node had there, by direction.
using LastParents = std::vector<NodeId>;

void write_nodes(ByteWriter& out, const std::vector<NodeId>& nodes, const char* what) {
  if (!std::is_sorted(nodes.begin(), nodes.end(), std::less_equal<>()))
    throw Error(ErrorCode::invalid_argument, fmt::format("forest to bytes: {} are not sorted", what));
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;  // first, length
  for (const NodeId node : nodes) {
    if (!runs.empty() && runs.back().first + runs.back().second == node)
      ++runs.back().second;
    else
      runs.emplace_back(node, 1);
  }
  out.number(runs.size());
  std::int64_t end = 0;
  for (const auto& [first, length] : runs) {
    out.number(static_cast<std::uint64_t>(first - end));
    out.number(static_cast<std::uint64_t>(length));
    end = first + length;
  }
}

struct Difference {
  std::int64_t child = 0;
  std::int64_t parent = 0;
  bool operator==(const Difference&) const = default;
};

void write_edges(ByteWriter& out, const std::vector<Edge>& edges, LastParents& last) {
  std::vector<Difference> differences;
  std::int64_t expected = 0;
  for (const Edge& edge : edges) {
    if (edge.child < 0 || at(edge.child) >= last.size())
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("forest to bytes: there is no node {}", edge.child));
    differences.push_back({edge.child - expected, edge.parent - last[at(edge.child)]});
    expected = edge.child + 1;
  }
  for (const Edge& edge : edges) last[at(edge.child)] = edge.parent;
  out.number(edges.size());
  const auto same_from = [&](std::size_t begin) {
    std::size_t end = begin + 1;
    while (end < differences.size() && differences[end] == differences[begin]) ++end;
    return end - begin;
  };
  for (std::size_t i = 0; i < differences.size();) {
    std::size_t length = same_from(i);
    if (length >= 3 || differences[i].child != 0) {
      out.number(2 * length);
      out.signed_number(differences[i].child);
      out.signed_number(differences[i].parent);
      i += length;
      continue;
    }
    std::size_t end = i;
    while (end < differences.size() && differences[end].child == 0 && same_from(end) < 3) ++end;
    out.number(2 * (end - i) + 1);
    for (; i < end; ++i) out.signed_number(differences[i].parent);
  }
}

// Reads a forest; keeps count of what it has unfolded.
class ForestReader {
 public:
  explicit ForestReader(ByteReader& in) : in_(in) {}

  Request request() {
    Request request;
    request.op = static_cast<Collective>(in_.number(kCollectives - 1));
    request.ranks = static_cast<int>(in_.number(kMostNodesInBytes));
    request.root = node(kMostNodesInBytes);
    request.peer = node(kMostNodesInBytes);
    request.element_size = static_cast<std::int64_t>(in_.number(kMostCount));
    for (std::uint64_t runs = in_.number(in_.left()); runs > 0; --runs) {
      const std::uint64_t length = unfolds(in_.number(kMostEntries));
      request.counts.insert(request.counts.end(), length, static_cast<std::int64_t>(in_.number(kMostCount)));
    }
    try {
      validate(request);
    } catch (const Error& error) {
      in_.fail(error.what());
    }
    return request;
  }

  Forest forest() {
    if (in_.number() != kVersion) in_.fail("another version's");
    Forest forest;
    forest.planner = in_.text(kLongestName);
    forest.sums_once = (in_.number(kSumsOnce) & kSumsOnce) != 0;
    forest.request = request();
    forest.nodes = static_cast<int>(in_.number(kMostNodesInBytes));
    if (forest.nodes < forest.request.ranks) in_.fail("fewer nodes than ranks");
    nodes_ = static_cast<std::uint64_t>(forest.nodes);
    for (const std::int64_t count : forest.request.counts) elements_ += count;
    last_up_.assign(at(forest.nodes), 0);
    last_down_ = last_up_;
    for (std::uint64_t left = unfolds(in_.number(in_.left())); left > 0; --left)
      forest.trees.push_back(tree());
    in_.expect_end();
    return forest;
  }

 private:
  Tree tree() {
    Tree tree;
    tree.slice.offset = end_ + in_.signed_number();
    tree.slice.count = static_cast<std::int64_t>(in_.number(kMostCount));
    if (tree.slice.offset < 0 || tree.slice.offset > elements_ ||
        tree.slice.count > elements_ - tree.slice.offset)
      in_.fail("a slice is not inside the vector");
    end_ = tree.slice.offset + tree.slice.count;
    tree.root = node(nodes_);
    tree.chunk = static_cast<std::int64_t>(in_.number(kMostCount));
    if (tree.chunk < 1) in_.fail("a chunk is empty");
    tree.contributors = nodes();
    tree.receivers = nodes();
    tree.up = edges(last_up_);
    if (in_.number(1) == static_cast<std::uint64_t>(EdgesForm::as_up))
      tree.down = tree.up, unfolds(tree.up.size());
    else
      tree.down = edges(last_down_);
    return tree;
  }

  std::vector<NodeId> nodes() {
    std::vector<NodeId> nodes;
    std::uint64_t end = 0;
    for (std::uint64_t runs = in_.number(in_.left()); runs > 0; --runs) {
      const std::uint64_t first = end + in_.number(nodes_ - end);
      const std::uint64_t length = unfolds(in_.number(nodes_ - first));
      end = first + length;
      for (std::uint64_t id = first; id < end; ++id) nodes.push_back(static_cast<NodeId>(id));
    }
    return nodes;
  }

  std::vector<Edge> edges(LastParents& last) {
    const std::uint64_t size = unfolds(in_.number(nodes_));
    std::vector<Edge> edges;
    std::int64_t expected = 0;
    while (edges.size() < size) {
      const std::uint64_t token = in_.number(2 * size + 1);
      const std::uint64_t length = token / 2;
      if (length == 0 || length > size - edges.size()) in_.fail("a run of edges does not fit its tree");
      const bool alike = token % 2 == 0;
      Difference difference;
      if (alike) difference = {in_.signed_number(), in_.signed_number()};
      for (std::uint64_t i = 0; i < length; ++i) {
        if (!alike) difference.parent = in_.signed_number();
        const NodeId child = in_range(expected, difference.child);
        edges.push_back({child, in_range(last[at(child)], difference.parent)});
        expected = child + 1;
      }
    }
    for (const Edge& edge : edges) last[at(edge.child)] = edge.parent;
    return edges;
  }

  NodeId in_range(std::int64_t from, std::int64_t by) {
    const auto most = static_cast<std::int64_t>(nodes_);
    if (by < -most || by > most || from + by < 0 || from + by >= most) in_.fail("an edge leads to no node");
    return static_cast<NodeId>(from + by);
  }

  NodeId node(std::uint64_t nodes) { return static_cast<NodeId>(in_.number(nodes - 1)); }

  std::uint64_t unfolds(std::uint64_t entries) {
    entries_ += entries;
    if (entries_ > kMostEntries) in_.fail(fmt::format("it unfolds to more than {} entries", kMostEntries));
    return entries;
  }

  ByteReader& in_;
  std::uint64_t nodes_ = 1;
  std::uint64_t entries_ = 0;
  std::int64_t elements_ = 0;
  std::int64_t end_ = 0;  // of the slice before
  LastParents last_up_, last_down_;
};

}  // namespace

void write(ByteWriter& out, const Request& request) {
  out.number(static_cast<std::uint64_t>(request.op));
  out.number(static_cast<std::uint64_t>(request.ranks));
  out.number(static_cast<std::uint64_t>(request.root));
  out.number(static_cast<std::uint64_t>(request.peer));
  out.number(static_cast<std::uint64_t>(request.element_size));
  std::vector<std::pair<std::uint64_t, std::int64_t>> runs;
  for (const std::int64_t count : request.counts) {
    if (runs.empty() || runs.back().second != count) runs.emplace_back(0, count);
    ++runs.back().first;
  }
  out.number(runs.size());
  for (const auto& [length, count] : runs) {
    out.number(length);
    out.number(static_cast<std::uint64_t>(count));
  }
}

Request request_from(ByteReader& in) {
  return ForestReader(in).request();
}

std::vector<std::byte> to_bytes(const Forest& forest) {
  ByteWriter out;
  out.number(kVersion);
  out.text(forest.planner);
  out.number(forest.sums_once ? kSumsOnce : 0);
  write(out, forest.request);
  out.number(static_cast<std::uint64_t>(forest.nodes));
  out.number(forest.trees.size());
  std::int64_t end = 0;
  LastParents last_up(at(forest.nodes)), last_down(at(forest.nodes));
  for (const Tree& tree : forest.trees) {
    out.signed_number(tree.slice.offset - end);
    out.number(static_cast<std::uint64_t>(tree.slice.count));
    end = tree.slice.offset + tree.slice.count;
    out.number(static_cast<std::uint64_t>(tree.root));
    out.number(static_cast<std::uint64_t>(tree.chunk));
    write_nodes(out, tree.contributors, "contributors");
    write_nodes(out, tree.receivers, "receivers");
    write_edges(out, tree.up, last_up);
    const bool as_up = !tree.up.empty() && tree.down == tree.up;
    out.number(static_cast<std::uint64_t>(as_up ? EdgesForm::as_up : EdgesForm::listed));
    if (!as_up) write_edges(out, tree.down, last_down);
  }
  return out.take();
}

Forest forest_from_bytes(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "a forest's binary form");
  return ForestReader(in).forest();
}

std::uint32_t digest(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return crc == 0 ? 1 : crc;
}

std::uint32_t digest(const Forest& forest) {
  return digest(to_bytes(forest));
}

}  // namespace talweg::forest
