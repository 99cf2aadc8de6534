#include "forest/paces.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "base/collectives.h"
#include "forest/walk.h"

namespace talweg::forest {
namespace {

struct NodeFlow {
  NodeId from = 0;
  NodeId to = 0;
  double bytes = 0;
  double pipelined = 0;  // bytes of each tree times (m + H - 1) / m
};

// Flows by pairs of nodes.
class FlowTable {
 public:
  explicit FlowTable(int nodes) : nodes_(at(nodes)), flows_(nodes_ * nodes_) {}

  void add(NodeId from, NodeId to, double bytes, double pipelined) {
    NodeFlow& flow = flows_[at(from) * nodes_ + at(to)];
    flow.from = from;
    flow.to = to;
    flow.bytes += bytes;
    flow.pipelined += pipelined;
  }
  // Those that there are, by `from`, then `to`.
  std::vector<NodeFlow> take() {
    std::erase_if(flows_, [](const NodeFlow& flow) { return flow.bytes == 0; });
    return std::move(flows_);
  }

 private:
  std::size_t nodes_;
  std::vector<NodeFlow> flows_;
};

// What flows load links and groups with, in bytes of payload.
class FlowLoads {
 public:
  FlowLoads(const CostModel& model, const std::vector<NodeFlow>& flows)
      : routes_(model.routes()), groups_of_link_(model.network().links.size()) {
    const cluster::Cluster& network = model.network();
    const double payload = model.parameters().tcp_payload;
    for (const cluster::Link& link : network.links)
      loads_.push_back(
          {0, payload * link.capacity.bytes_per_second(), payload * static_cast<double>(link.burst.value)});
    for (const cluster::CapacityGroup& group : network.groups) {
      for (const int link : group.links) groups_of_link_[at(link)].push_back(loads_.size());
      loads_.push_back({0, payload * group.capacity.bytes_per_second(), 0});
    }
    for (const NodeFlow& flow : flows)
      for_each_load(flow, [&](std::size_t load, double part) { loads_[load].bytes += part * flow.bytes; });
  }

  // How long the busiest works.
  double seconds() const {
    double most = 0;
    for (const Load& load : loads_) most = std::max(most, (load.bytes - load.burst) / load.bytes_per_second);
    return most;
  }
  // The least C / B on the flow's way; infinite where nothing holds it back.
  double least_share_of_a_byte(const NodeFlow& flow) const {
    double least = std::numeric_limits<double>::infinity();
    for_each_load(flow, [&](std::size_t i, double) {
      const Load& load = loads_[i];
      if (load.bytes > load.burst) least = std::min(least, load.bytes_per_second / load.bytes);
    });
    return least;
  }

 private:
  // Of a link or, behind them, of a group.
  struct Load {
    double bytes = 0;
    double bytes_per_second = 0;
    double burst = 0;
  };
  template <class Visit>
  void for_each_load(const NodeFlow& flow, Visit&& visit) const {
    routes_.for_each_share(flow.from, flow.to, [&](int link, double part) {
      visit(at(link), part);
      for (const std::size_t group : groups_of_link_[at(link)]) visit(group, part);
    });
  }

  const cluster::Routes& routes_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<Load> loads_;
};

bool is_paced(const Forest& forest) {
  const Request& request = forest.request;
  if (forest.sums_once || !(goes_up(request.op) || goes_down(request.op))) return false;
  const auto elements = std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0});
  return elements * request.element_size >= kLeastPacedBytes;
}

double bytes_of_slice(const Forest& forest, const Tree& tree) {
  return static_cast<double>(tree.slice.count * forest.request.element_size);
}

int hops_of(const std::vector<Edge>& edges, NodeId root, int nodes) {
  std::vector<int> hops(at(nodes));
  int most = 0;
  for (const Edge& edge : outward(edges, root, nodes)) {
    hops[at(edge.child)] = hops[at(edge.parent)] + 1;
    most = std::max(most, hops[at(edge.child)]);
  }
  return most;
}

}  // namespace

std::vector<Pace> paces_of(const Forest& forest, const CostModel& model) {
  if (!is_paced(forest)) return {};
  FlowTable table(forest.nodes);
  for (const Tree& tree : forest.trees) {
    const double bytes = bytes_of_slice(forest, tree);
    const auto chunks = static_cast<double>(chunk_count(tree));
    const int hops = hops_of(tree.up, tree.root, forest.nodes) + hops_of(tree.down, tree.root, forest.nodes);
    const double pipelined = bytes * (chunks + hops - 1) / chunks;
    for (const Edge& edge : tree.up) table.add(edge.child, edge.parent, bytes, pipelined);
    for (const Edge& edge : tree.down) table.add(edge.parent, edge.child, bytes, pipelined);
  }
  const std::vector<NodeFlow> flows = table.take();
  const FlowLoads loads(model, flows);
  std::vector<Pace> paces;
  for (const NodeFlow& flow : flows) {
    const double rate = kPaceHeadRoom * flow.pipelined * loads.least_share_of_a_byte(flow);
    const double alone =
        model.parameters().tcp_payload * model.routes().rate(flow.from, flow.to).bytes_per_second();
    paces.push_back({flow.from, flow.to, rate < alone ? rate : 0});
  }
  return paces;
}

std::span<const Pace> paces_from(std::span<const Pace> paces, NodeId node) {
  const auto begin = std::ranges::lower_bound(paces, node, {}, &Pace::from);
  return {begin, std::ranges::upper_bound(paces, node, {}, &Pace::from)};
}

// Who receives a tree's result waits for all its sums, and for the way down. Who does not waits for what is
// summed below it.
double seconds_needed(const Forest& forest, const CostModel& model, NodeId node) {
  FlowTable table(forest.nodes);
  std::vector<NodeId> above(at(forest.nodes));
  std::vector<bool> below(at(forest.nodes));
  for (const Tree& tree : forest.trees) {
    const double bytes = bytes_of_slice(forest, tree);
    const bool receives = std::ranges::binary_search(tree.receivers, node);
    below.assign(below.size(), receives);
    below[at(node)] = true;
    for (const Edge& edge : outward(tree.up, tree.root, forest.nodes)) {
      if (!below[at(edge.parent)]) continue;
      below[at(edge.child)] = true;
      table.add(edge.child, edge.parent, bytes, 0);
    }
    if (!receives) continue;
    for (const Edge& edge : tree.down) above[at(edge.child)] = edge.parent;
    for (NodeId here = node; here != tree.root; here = above[at(here)])
      table.add(above[at(here)], here, bytes, 0);
  }
  return FlowLoads(model, table.take()).seconds();
}

}  // namespace talweg::forest
