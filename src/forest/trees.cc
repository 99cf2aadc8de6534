#include "forest/trees.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "talweg/error.h"

namespace talweg::forest {
namespace {

// Below this many bytes a slice, an uneven split costs more than shared cache lines do.
constexpr std::int64_t kLongSlice = 4096;

std::int64_t total(const Request& request) {
  return std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0});
}

// Elements between two boundaries that a slice may have.
std::int64_t grain(const Request& request, std::int64_t pieces) {
  const bool is_long = total(request) / pieces * request.element_size >= kLongSlice;
  return is_long && kCacheLineBytes % request.element_size == 0 ? kCacheLineBytes / request.element_size : 1;
}

std::vector<Edge> edges_of(const Shape& shape) {
  std::vector<Edge> edges;
  edges.reserve(shape.size());
  for (std::size_t child = 0; child < shape.size(); ++child) {
    const auto id = static_cast<NodeId>(child);
    if (shape[child] >= 0 && shape[child] != id) edges.push_back({id, shape[child]});
  }
  return edges;
}

}  // namespace

Shape path_shape(std::span<const NodeId> order) {
  Shape shape(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    shape[static_cast<std::size_t>(order[i])] = order[i == 0 ? 0 : i - 1];
  }
  return shape;
}

Shape star_shape(int ranks, NodeId root) {
  return Shape(static_cast<std::size_t>(ranks), root);
}

std::vector<Slice> split_evenly(const Request& request, int pieces) {
  const std::int64_t unit = grain(request, pieces);
  const std::int64_t units = total(request) / unit;
  std::vector<Slice> slices;
  std::int64_t offset = 0;
  for (int i = 0; i < pieces; ++i) {
    std::int64_t count = (units / pieces + (i < units % pieces ? 1 : 0)) * unit;
    if (i == pieces - 1) count = total(request) - offset;
    slices.push_back({offset, count});
    offset += count;
  }
  return slices;
}

std::vector<Slice> split_by_weight(const Request& request, std::span<const double> weights) {
  const std::int64_t unit = grain(request, std::ssize(weights));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<Slice> slices;
  double before = 0;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    before += weights[i];
    const double share = before / sum * static_cast<double>(total(request));
    std::int64_t end = std::min(total(request), static_cast<std::int64_t>(share) / unit * unit);
    if (i + 1 == weights.size()) end = total(request);
    slices.push_back({offset, end - offset});
    offset = end;
  }
  return slices;
}

std::vector<Slice> split_by_count(const Request& request) {
  std::vector<Slice> slices;
  std::int64_t offset = 0;
  for (const std::int64_t count : request.counts) {
    slices.push_back({offset, count});
    offset += count;
  }
  return slices;
}

Tree collective_tree(const Request& request, const Slice& slice, NodeId root, const Shape& shape) {
  Tree tree{.slice = slice, .root = root, .contributors = {root}, .receivers = {root}, .up = {}, .down = {}};
  const CollectiveFacts& op = facts(request.op);
  const bool to_all = op.output == Extent::whole;
  if (!op.sums && !to_all)
    throw Error(ErrorCode::unsupported, std::string(op.name) + " is not made of rooted trees");
  if (op.sums) {
    tree.contributors = everyone(request);
    tree.up = edges_of(shape);
  }
  if (to_all) {
    tree.receivers = everyone(request);
    if (op.one_buffer && request.ranks > 1) std::erase(tree.receivers, root);  // which has it
    tree.down = edges_of(shape);
  }
  return tree;
}

Forest useful_forest(const std::string& planner, const Request& request, std::vector<Tree> trees) {
  const auto empty = [](const Tree& tree) { return tree.slice.count == 0; };
  if (std::ranges::all_of(trees, empty)) {
    trees.erase(trees.begin() + 1, trees.end());
  } else {
    std::erase_if(trees, empty);
  }
  Forest forest{.planner = planner, .request = request, .nodes = request.ranks, .trees = std::move(trees)};
  if (const auto inner = aggregators_of(forest); !inner.empty()) forest.nodes = inner.back() + 1;
  return forest;
}

std::vector<NodeId> everyone(const Request& request) {
  std::vector<NodeId> ranks(static_cast<std::size_t>(request.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace talweg::forest
