#include "forest/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "base/at.h"
#include "forest/shared_sums.h"
#include "forest/trees.h"
#include "forest/walk.h"

namespace talweg::forest {

CostParameters parameters_for(const cluster::Cluster& cluster, const CostParameters& parameters) {
  const cluster::Processor& known = cluster.processor;
  CostParameters result = parameters;
  if (known.message.value > 0) result.tcp.per_frame = static_cast<double>(known.message.value) * 1e-9;
  if (known.copy.bits_per_second > 0) result.tcp.per_byte = 1 / known.copy.bytes_per_second();
  if (known.sum.bits_per_second > 0) result.reduce_per_byte = 1 / known.sum.bytes_per_second();
  return result;
}

CostModel::CostModel(const cluster::Cluster& cluster, const CostParameters& parameters)
    : cluster_(cluster),
      parameters_(parameters_for(cluster, parameters)),
      routes_(cluster_),
      groups_of_link_(cluster_.links.size()) {
  for (std::size_t g = 0; g < cluster_.groups.size(); ++g) {
    for (const int link : cluster_.groups[g].links) groups_of_link_[at(link)].push_back(g);
  }
  measure_hops();
  measure_nodes();
}

void CostModel::measure_hops() {
  const auto nodes = static_cast<NodeId>(cluster_.nodes.size());
  const int workers = cluster_.workers();
  hops_.resize(at(nodes) * at(nodes));
  for (NodeId from = 0; from < nodes; ++from) {
    for (NodeId to = 0; to < nodes; ++to) {
      const bool memory = from < workers && to < workers && routes_.path(from, to).size() == 1 &&
                          routes_.latency(from, to) < parameters_.memory_latency;
      const auto& transport = memory ? parameters_.memory : parameters_.tcp;
      Hop& hop = hops_[at(from) * at(nodes) + at(to)];
      hop.memory = memory;
      hop.frame = transport.per_frame;
      hop.work_per_byte = transport.per_byte;
      hop.payload = memory ? 1 : parameters_.tcp_payload;
      hop.most_chunk_bytes = transport.most_chunk_bytes;
      hop.overhead = 2 * hop.frame + static_cast<double>(routes_.latency(from, to).value) * 1e-9;
      hop.burst = std::numeric_limits<double>::infinity();
      routes_.for_each_share(from, to, [&](int link, double) {
        hop.burst = std::min(hop.burst, static_cast<double>(cluster_.links[at(link)].burst.value));
      });
      hop.per_byte = 1 / (routes_.rate(from, to).bytes_per_second() * hop.payload);
    }
  }
}

void CostModel::measure_nodes() {
  const int workers = cluster_.workers();
  // Links of one group count for no more than the group; a link in several counts for the first.
  const auto sum = [&](int node, bool outgoing) {
    double total = 0;
    std::vector<double> in_group(cluster_.groups.size());
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const auto& link = cluster_.links[i];
      if ((outgoing ? link.from : link.to) != node) continue;
      (groups_of_link_[i].empty() ? total : in_group[groups_of_link_[i].front()]) +=
          link.capacity.bytes_per_second();
    }
    for (std::size_t g = 0; g < in_group.size(); ++g) {
      total += std::min(in_group[g], cluster_.groups[g].capacity.bytes_per_second());
    }
    return total;
  };
  for (int node = 0; at(node) < cluster_.nodes.size(); ++node)
    capacities_.push_back(workers == 1 ? 1 : std::min(sum(node, true), sum(node, false)));
  best_connected_.resize(at(workers));
  std::iota(best_connected_.begin(), best_connected_.end(), 0);
  servers_ = best_connected_;
  for (const NodeId node : aggregators(cluster_))
    if (can_multicast(cluster_.nodes[at(node)])) servers_.push_back(node);
  for (auto* const nodes : {&best_connected_, &servers_})
    std::ranges::stable_sort(*nodes, [&](NodeId a, NodeId b) { return capacity(a) > capacity(b); });
}

struct CostModel::Resource {
  double work = 0;
  double head = std::numeric_limits<double>::infinity();
  double tail = std::numeric_limits<double>::infinity();

  void use(double seconds, double before, double after) {
    work += seconds;
    head = std::min(head, before);
    tail = std::min(tail, after);
  }
  // `free`: seconds of the work that cost no time.
  double bound(double slowdown = 1, double free = 0) const {
    return work > 0 ? head + std::max(0.0, work * slowdown - free) + tail : 0;
  }
};

// One forest's use of all resources.
class CostModel::Pricing {
 public:
  explicit Pricing(const CostModel& model)
      : model_(model),
        links_(model.cluster_.links.size()),
        groups_(model.cluster_.groups.size()),
        processors_(model.cluster_.nodes.size()),
        heard_(model.cluster_.nodes.size() * model.cluster_.nodes.size()),
        senders_(model.cluster_.links.size()),
        ready_(model.cluster_.nodes.size()),
        remaining_(model.cluster_.nodes.size()) {}

  // `carried(child)`: whether an earlier tree sends this sum over the child's edge already.
  template <class Carried>
  void add(const Tree& tree, std::int64_t element_size, Carried&& carried) {
    chunks_ = static_cast<double>(chunk_count(tree));
    bytes_ = static_cast<double>(tree.slice.count * element_size);
    chunk_bytes_ = static_cast<double>(std::min(tree.slice.count, tree.chunk) * element_size);
    const auto nodes = static_cast<int>(ready_.size());
    const auto up = outward(tree.up, tree.root, nodes);
    const auto down = outward(tree.down, tree.root, nodes);

    // How far it is from each node to the farthest receiver below, then on upward paths to there as well.
    std::ranges::fill(remaining_, 0.0);
    for (auto edge = down.rbegin(); edge != down.rend(); ++edge) {
      remaining_[at(edge->parent)] =
          std::max(remaining_[at(edge->parent)], remaining_[at(edge->child)] + down_hop(*edge));
    }
    const double below_root = remaining_[at(tree.root)];

    std::ranges::fill(ready_, 0.0);
    for (auto edge = up.rbegin(); edge != up.rend(); ++edge) {
      ready_[at(edge->parent)] = std::max(ready_[at(edge->parent)], ready_[at(edge->child)] + up_hop(*edge));
    }
    const double at_root = ready_[at(tree.root)];
    longest_path_ = std::max(longest_path_, at_root + below_root);

    up_remaining_.assign(ready_.size(), below_root);
    for (const Edge& edge : up) {
      up_remaining_[at(edge.child)] = up_remaining_[at(edge.parent)] + up_hop(edge);
      if (!carried(edge.child))
        charge(edge.child, edge.parent, up_hop(edge), ready_[at(edge.child)], up_remaining_[at(edge.parent)],
               model_.parameters_.reduce_per_byte);
    }
    for (const Edge& edge : down) {
      const double sent = edge.parent == tree.root ? at_root : ready_[at(edge.parent)];
      ready_[at(edge.child)] = sent + down_hop(edge);
      charge(edge.parent, edge.child, down_hop(edge), sent, remaining_[at(edge.child)], 0);
    }
  }

  double seconds() const {
    double result = longest_path_;
    double work = 0;
    for (std::size_t link = 0; link < links_.size(); ++link) {
      const int over = senders_[link] - model_.parameters_.incast_free;
      const cluster::Link& properties = model_.cluster_.links[link];
      const double refilled = static_cast<double>(properties.burst.value) * model_.parameters_.burst_share /
                              properties.capacity.bytes_per_second();
      result = std::max(result,
                        links_[link].bound(1 + model_.parameters_.incast_loss * std::max(0, over), refilled));
    }
    for (const auto* resources : {&groups_, &processors_}) {
      for (const Resource& resource : *resources) result = std::max(result, resource.bound());
    }
    for (const Resource& processor : processors_) work += processor.work;
    const int cores = model_.cluster_.shared_cores;
    return cores > 0 ? std::max(result, work / cores) : result;
  }

 private:
  double down_hop(const Edge& edge) const { return hop_seconds(model_.hop(edge.parent, edge.child), 0); }
  double up_hop(const Edge& edge) const {
    return hop_seconds(model_.hop(edge.child, edge.parent), model_.parameters_.reduce_per_byte);
  }
  double hop_seconds(const Hop& hop, double reduce_per_byte) const {
    const double header = static_cast<double>(model_.parameters_.header_bytes);
    const double on_the_wire = bytes_ <= hop.burst ? 0 : (chunk_bytes_ + header) * hop.per_byte;
    return hop.overhead + on_the_wire + chunk_bytes_ * (2 * hop.work_per_byte + reduce_per_byte);
  }

  void charge(NodeId from, NodeId to, double hop_time, double sent, double after, double reduce_per_byte) {
    const Hop& hop = model_.hop(from, to);
    const double header = static_cast<double>(model_.parameters_.header_bytes);
    const auto route = model_.routes_.path(from, to);
    if (!hop.memory && bytes_ > 0 && !heard_[at(to) * ready_.size() + at(from)]) {
      heard_[at(to) * ready_.size() + at(from)] = true;
      ++senders_[at(route.back())];
    }
    const double wire_bytes = (bytes_ + chunks_ * header) / hop.payload;
    model_.routes_.for_each_share(from, to, [&](int link, double part) {
      const auto use = [&](Resource& resource, const Bandwidth& capacity) {
        resource.use(part * wire_bytes / capacity.bytes_per_second(), sent, after + hop.overhead);
      };
      use(links_[at(link)], model_.cluster_.links[at(link)].capacity);
      for (const std::size_t g : model_.groups_of_link_[at(link)]) {
        use(groups_[g], model_.cluster_.groups[g].capacity);
      }
    });
    // Those that are ready within a frame's time of each other go out, and are read, together.
    const auto moment = static_cast<std::int64_t>(sent / hop.frame);
    const bool alone = batches_.insert({from, to, moment}).second;
    work(from, hop, alone, 0, sent, after + hop_time - hop.frame - chunk_bytes_ * hop.work_per_byte);
    const double received = hop.frame + chunk_bytes_ * (hop.work_per_byte + reduce_per_byte);
    work(to, hop, alone, reduce_per_byte, sent + hop_time - received, after);
  }

  // Switches move data without a processor, but for those that sum: a process on them does.
  void work(NodeId node, const Hop& hop, bool alone, double reduce_per_byte, double before, double after) {
    const cluster::Node& worked = model_.cluster_.nodes[at(node)];
    if (worked.kind == cluster::NodeKind::switch_ && !can_aggregate(worked)) return;
    const double frames = alone ? chunks_ * hop.frame : 0;
    processors_[at(node)].use(frames + bytes_ * (hop.work_per_byte + reduce_per_byte), before, after);
  }

  const CostModel& model_;
  std::vector<Resource> links_, groups_, processors_;
  std::vector<bool> heard_;                                     // receiver by sender, over TCP
  std::vector<int> senders_;                                    // how many a link's end hears over it
  std::set<std::tuple<NodeId, NodeId, std::int64_t>> batches_;  // (from, to, when in frames)
  double longest_path_ = 0;
  // Of the tree at hand.
  double chunks_ = 0, bytes_ = 0, chunk_bytes_ = 0;
  std::vector<double> ready_;         // when a node can pass on the first chunk
  std::vector<double> remaining_;     // from a node down to its farthest receiver
  std::vector<double> up_remaining_;  // from a node up to the root and down to the farthest receiver
};

double CostModel::seconds(const Forest& forest) const {
  Pricing pricing(*this);
  std::optional<SharedSums> shared;
  if (forest.sums_once) shared.emplace(forest);
  for (std::size_t i = 0; i < forest.trees.size(); ++i)
    pricing.add(forest.trees[i], forest.request.element_size,
                [&](NodeId child) { return shared && shared->first(i, child) != i; });
  return pricing.seconds();
}

std::int64_t CostModel::chunk_of(const Tree& tree, int nodes, std::int64_t element_size) const {
  const std::int64_t bytes = tree.slice.count * element_size;
  if (bytes <= parameters_.least_chunk_bytes) return std::max<std::int64_t>(1, tree.slice.count);

  std::vector<int> depth(at(nodes));
  double slowest = 0, frame = 0;  // of the edges: seconds for a byte, and for a message
  std::int64_t most_bytes = parameters_.tcp.most_chunk_bytes;
  const auto deepest = [&](const std::vector<Edge>& edges, bool upward) {
    std::ranges::fill(depth, 0);
    int most = 0;
    for (const Edge& edge : outward(edges, tree.root, nodes)) {
      most = std::max(most, depth[at(edge.child)] = depth[at(edge.parent)] + 1);
      const Hop& used = upward ? hop(edge.child, edge.parent) : hop(edge.parent, edge.child);
      if (static_cast<double>(bytes) > used.burst) slowest = std::max(slowest, used.per_byte);
      frame = std::max(frame, used.frame);
      most_bytes = std::min(most_bytes, used.most_chunk_bytes);
    }
    return most;
  };
  const int hops = deepest(tree.up, true) + deepest(tree.down, false);
  double best = static_cast<double>(most_bytes);
  if (hops > 1 && slowest > 0) {
    best = std::min(best, std::sqrt(static_cast<double>(bytes) * frame / (slowest * (hops - 1))));
  }
  const auto wanted = std::max(parameters_.least_chunk_bytes, static_cast<std::int64_t>(best));
  const std::int64_t chunks = (bytes + wanted - 1) / wanted;
  const std::int64_t even = (bytes + chunks - 1) / chunks;
  // Rounding up never makes more chunks; the upper bound is itself a multiple of 64.
  const std::int64_t rounded = (even + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  return std::clamp<std::int64_t>(rounded / element_size, 1, tree.slice.count);
}

void CostModel::choose_chunks(Forest& forest) const {
  for (Tree& tree : forest.trees)
    tree.chunk = forest.sums_once ? std::max<std::int64_t>(1, tree.slice.count)
                                  : chunk_of(tree, forest.nodes, forest.request.element_size);
}

double predict_seconds(const Forest& forest, const cluster::Cluster& cluster,
                       const CostParameters& parameters) {
  return CostModel(cluster, parameters).seconds(forest);
}

void choose_chunks(Forest& forest, const cluster::Cluster& cluster, const CostParameters& parameters) {
  CostModel(cluster, parameters).choose_chunks(forest);
}

}  // namespace talweg::forest
