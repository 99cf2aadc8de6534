#include "forest/oracle.h"

#include <map>
#include <optional>
#include <vector>

namespace talweg::forest {
namespace {

using Contributions = std::map<NodeId, int>;  // how often each rank's value is in a sum

// The sum that `node` holds after all its children reported; empty on a cycle.
std::optional<Contributions> sum_at(const Tree& tree, NodeId node, int depth) {
  if (depth > 64) return std::nullopt;
  Contributions sum;
  for (const NodeId rank : tree.contributors) {
    if (rank == node) ++sum[rank];
  }
  for (const Edge& edge : tree.up) {
    if (edge.parent != node) continue;
    const auto below = sum_at(tree, edge.child, depth + 1);
    if (!below) return std::nullopt;
    for (const auto& [rank, times] : *below) sum[rank] += times;
  }
  return sum;
}

// How often the result arrives at `node`; -1 on a cycle.
int arrivals(const Tree& tree, NodeId node, int depth) {
  if (depth > 64) return -1;
  int times = node == tree.root ? 1 : 0;
  for (const Edge& edge : tree.down) {
    if (edge.child != node) continue;
    const int above = arrivals(tree, edge.parent, depth + 1);
    if (above < 0) return -1;
    times += above;
  }
  return times;
}

// The ranks whose values belong into element `element` of what `receiver` gets; empty: the element is not for
// it.
std::optional<Contributions> wanted(const Request& request, NodeId receiver, std::int64_t element) {
  Contributions everyone;
  for (NodeId rank = 0; rank < request.ranks; ++rank) everyone[rank] = 1;
  std::size_t entry = 0;  // of counts, in which the element lies
  for (std::int64_t end = request.counts[0]; element >= end; end += request.counts[++entry]) {
  }
  const auto part = static_cast<NodeId>(entry);
  const auto for_one = [&](NodeId destination, const Contributions& sum) {
    return receiver == destination ? std::optional(sum) : std::nullopt;
  };
  switch (request.op) {
    case Collective::all_reduce:
      return everyone;
    case Collective::reduce:
      return for_one(request.root, everyone);
    case Collective::broadcast:
      return Contributions{{request.root, 1}};
    case Collective::reduce_scatter:
      return for_one(part, everyone);
    case Collective::all_gather:
      return Contributions{{part, 1}};
    case Collective::gather:
      return for_one(request.root, {{part, 1}});
    case Collective::scatter:
      return for_one(part, {{request.root, 1}});
    case Collective::all_to_all:
      return for_one(part % request.ranks, {{part / request.ranks, 1}});
    case Collective::send_recv:
      return for_one(request.peer, {{request.root, 1}});
    case Collective::barrier:
      break;
  }
  return std::nullopt;
}

}  // namespace

bool computes_its_collective(const Forest& forest) {
  const Request& request = forest.request;
  std::int64_t elements = 0;
  for (const std::int64_t count : request.counts) elements += count;
  std::map<std::pair<NodeId, std::int64_t>, int> delivered;
  std::map<NodeId, int> barriers;
  for (const Tree& tree : forest.trees) {
    const auto sum = sum_at(tree, tree.root, 0);
    if (!sum) return false;
    Contributions everyone;
    for (NodeId rank = 0; rank < request.ranks; ++rank) everyone[rank] = 1;
    for (const NodeId receiver : tree.receivers) {
      const int times = arrivals(tree, receiver, 0);
      if (times < 0) return false;
      if (request.op == Collective::barrier) {
        if (*sum != everyone) return false;
        barriers[receiver] += times;
      }
      for (std::int64_t i = 0; i < tree.slice.count; ++i) {
        const std::int64_t element = tree.slice.offset + i;
        if (element < 0 || element >= elements || wanted(request, receiver, element) != sum) return false;
        delivered[{receiver, element}] += times;
      }
    }
  }
  for (NodeId rank = 0; rank < request.ranks; ++rank) {
    const bool optional = request.op == Collective::broadcast && rank == request.root;
    for (std::int64_t element = 0; element < elements; ++element) {
      const int times = delivered[{rank, element}];
      const bool due = wanted(request, rank, element).has_value();
      if (times > 1 || (due && !optional && times != 1)) return false;
    }
    if (request.op == Collective::barrier && barriers[rank] != 1) return false;
  }
  return true;
}

}  // namespace talweg::forest
