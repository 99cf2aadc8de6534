#include "forest/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/at.h"
#include "forest/flow_control.h"
#include "forest/shared_sums.h"
#include "forest/trees.h"
#include "forest/walk.h"

namespace talweg::forest {

namespace {

constexpr double kPacketPayload = 1448;  // of a full packet

}  // namespace

template <class Time>
struct CostModel::Resource {
  double work = 0;  // seconds
  Time head{std::numeric_limits<double>::infinity()};
  Time tail{std::numeric_limits<double>::infinity()};

  void use(double seconds, const Time& before, const Time& after) {
    work += seconds;
    head = std::min(head, before);
    tail = std::min(tail, after);
  }
  // Nothing reaches it, but for what answers others.
  bool idle() const { return work <= 0 || !(head < Time{std::numeric_limits<double>::infinity()}); }
};

template <class Time>
struct CostModel::Most {
  Time time{};
  Limiter limiter{};
  Spent without{};  // of Spent: seconds, were there no time spent on each
};

// One forest's use of all resources.
template <class Time>
class CostModel::Pricing {
 public:
  Pricing(const CostModel& model, int most_senders)
      : model_(model),
        most_senders_(most_senders),
        links_(model.cluster_.links.size()),
        groups_(model.cluster_.groups.size()),
        processors_(model.cluster_.nodes.size()),
        batches_(model.cluster_.nodes.size()),
        frame_bytes_(model.cluster_.nodes.size()),
        heard_(model.cluster_.nodes.size() * model.cluster_.nodes.size()),
        apart_(heard_.size()),
        senders_(model.cluster_.links.size()),
        meeting_(model.cluster_.links.size()),
        ready_(model.cluster_.nodes.size()),
        remaining_(model.cluster_.nodes.size()) {}

  // `carried(child)`: whether an earlier tree sends this sum over the child's edge already.
  template <class Carried>
  void add(const Tree& tree, std::int64_t element_size, Carried&& carried) {
    chunks_ = static_cast<double>(chunk_count(tree));
    bytes_ = static_cast<double>(tree.slice.count * element_size);
    frame_ = static_cast<double>(std::min(tree.slice.count, tree.chunk) * element_size +
                                 model_.parameters_.header_bytes);
    sums_ = !tree.up.empty();
    const auto nodes = static_cast<int>(ready_.size());
    const auto up = outward(tree.up, tree.root, nodes);
    const auto down = outward(tree.down, tree.root, nodes);

    // How far it is from each node to the farthest receiver below, then on upward paths to there as well.
    std::ranges::fill(remaining_, Time{});
    for_siblings_backwards(down, [&](std::span<const Edge> siblings) {
      const Time wait = wait_among(siblings, false);
      Time& longest = remaining_[at(siblings.front().parent)];
      for (const Edge& edge : siblings)
        longest = std::max(longest, remaining_[at(edge.child)] + down_hop(edge).all() + wait);
    });
    const Time below_root = remaining_[at(tree.root)];
    most_hops_ = std::max(most_hops_, deepest(up) + deepest(down));

    std::ranges::fill(ready_, Time{});
    for_siblings_backwards(up, [&](std::span<const Edge> siblings) {
      Time first{std::numeric_limits<double>::infinity()};
      Time& sum = ready_[at(siblings.front().parent)];
      for (const Edge& edge : siblings) {
        const Time there = ready_[at(edge.child)] + up_hop(edge).all();
        first = std::min(first, there);
        sum = std::max(sum, there);
      }
      sum = std::max(sum, first + wait_among(siblings, true));
    });
    const Time at_root = ready_[at(tree.root)];
    consider_path(at_root + below_root);

    up_remaining_.assign(ready_.size(), below_root);
    for (const Edge& edge : up) {
      const FrameTimes hop = up_hop(edge);
      const Time left = up_remaining_[at(edge.parent)];
      up_remaining_[at(edge.child)] = left + hop.all();
      consider_path(ready_[at(edge.child)] + granted(edge, hop) + hop.all() + left);
      if (carried(edge.child)) continue;
      charge(edge.child, edge.parent, hop, ready_[at(edge.child)], left, true);
      charge_grants(edge);
    }
    for (const Edge& edge : down) {
      const FrameTimes hop = down_hop(edge);
      const Time sent = edge.parent == tree.root ? at_root : ready_[at(edge.parent)];
      ready_[at(edge.child)] = sent + hop.all();
      charge(edge.parent, edge.child, hop, sent, remaining_[at(edge.child)], false);
    }
  }

  // The greatest of all bounds, and what it is of.
  Most<Time> most(const Spent& blocks) const {
    Most<Time> most{longest_path_, {}, without_};
    const Time in_turn = spent(blocks.links, blocks.processors, blocks.latency);
    leave_out(in_turn, most.without);
    if (most.time < in_turn) {
      most.time = in_turn;
      most.limiter.part = Limiter::Part::blocks;
    }
    for_each_resource([&](const Limiter& limiter, const Time& work, const Resource<Time>* resource) {
      const Time bound = resource != nullptr ? resource->head + work + resource->tail : work;
      leave_out(bound, most.without);
      if (!(most.time < bound)) return;
      most.time = bound;
      most.limiter = limiter;
    });
    return most;
  }

  double busiest() const {
    double busiest = 0;
    for_each_resource([&](const Limiter&, const Time& work, const Resource<Time>*) {
      busiest = std::max(busiest, in_seconds(work));
    });
    return busiest;
  }

 private:
  // What one frame takes over one edge.
  struct FrameTimes {
    double send = 0, link = 0, latency = 0, receive = 0;
    Time all() const { return spent(link, send + receive, latency); }
  };

  static Time spent(double links, double processors, double latency) {
    if constexpr (std::is_same_v<Time, double>)
      return links + (processors + latency);
    else
      return {links, processors, latency};
  }
  static double in_seconds(double time) { return time; }
  static double in_seconds(const Spent& time) { return time.seconds(); }

  // visit(what it is, its work, when that can begin and what comes after it; none of all cores together).
  template <class Visit>
  void for_each_resource(Visit&& visit) const {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (links_[i].idle()) continue;
      const double slowdown = model_.parameters_.incast(std::min(senders_[i], most_senders_));
      const cluster::Link& link = model_.cluster_.links[i];
      const double rate = link.capacity.bytes_per_second();
      const double refilled = static_cast<double>(link.burst.value) * model_.parameters_.burst_share / rate;
      visit({Limiter::Part::link, i, links_[i].work * rate, 0, slowdown},
            spent(std::max(0.0, links_[i].work * slowdown - refilled), 0, 0), &links_[i]);
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].idle()) continue;
      const double rate = model_.cluster_.groups[i].capacity.bytes_per_second();
      visit({Limiter::Part::group, i, groups_[i].work * rate, 0}, spent(groups_[i].work, 0, 0), &groups_[i]);
    }
    double work = 0, bytes = 0, batches = 0;
    for (std::size_t i = 0; i < processors_.size(); ++i) {
      if (processors_[i].idle()) continue;
      visit({Limiter::Part::processor, i, frame_bytes_[i], batches_[i]}, spent(0, processors_[i].work, 0),
            &processors_[i]);
      work += processors_[i].work;
      bytes += frame_bytes_[i];
      batches += batches_[i];
    }
    if (const int cores = model_.cluster_.shared_cores; cores > 0)
      visit({Limiter::Part::cores, 0, bytes, batches}, spent(0, work / cores + most_hops_ * model_.turn(), 0),
            nullptr);
  }

  // Raises what is left of the greatest bounds where links, processors or latencies take no time.
  static void leave_out(const Time& bound, Spent& without) {
    if constexpr (std::is_same_v<Time, Spent>)
      without = {std::max(without.links, bound.processors + bound.latency),
                 std::max(without.processors, bound.links + bound.latency),
                 std::max(without.latency, bound.links + bound.processors)};
  }
  void consider_path(const Time& path) {
    longest_path_ = std::max(longest_path_, path);
    leave_out(path, without_);
  }

  // Edges along the longest path, of such as outward() orders.
  int deepest(const std::vector<Edge>& edges) {
    depth_.assign(ready_.size(), 0);
    int most = 0;
    for (const Edge& edge : edges)
      most = std::max(most, depth_[at(edge.child)] = depth_[at(edge.parent)] + 1);
    return most;
  }

  FrameTimes down_hop(const Edge& edge) const { return hop_times(edge.parent, edge.child, false); }
  FrameTimes up_hop(const Edge& edge) const { return hop_times(edge.child, edge.parent, true); }
  FrameTimes hop_times(NodeId from, NodeId to, bool up) const {
    const Hop& hop = model_.hop(from, to);
    const HostCosts<double> costs = costs_of(hop);
    const double packet = std::min(frame_, kPacketPayload);
    return {costs.of(1, frame_, 0), bytes_ <= hop.burst ? 0 : frame_ * hop.per_byte + packet * hop.forward,
            hop.latency, costs.of(1, frame_, up ? frame_ : 0)};
  }
  HostCosts<double> costs_of(const Hop& hop) const {
    const CostParameters::Transport& transport = model_.transport(hop);
    return {transport.per_batch, transport.per_byte, model_.parameters_.reduce_per_byte};
  }

  // Of a walk outward: siblings stand together in it.
  template <class Visit>
  static void for_siblings_backwards(const std::vector<Edge>& edges, Visit&& visit) {
    for (std::size_t end = edges.size(), begin = end; end > 0; end = begin) {
      while (begin > 0 && edges[begin - 1].parent == edges[end - 1].parent) --begin;
      visit(std::span(edges).subspan(begin, end - begin));
    }
  }

  // How much later than the first the last of the chunks is there that siblings send to their parent, or it
  // to them.
  Time wait_among(std::span<const Edge> siblings, bool up) {
    double links = 0, processor = 0, longest = 0;
    const auto hop_of = [&](const Edge& edge) -> const Hop& {
      return up ? model_.hop(edge.child, edge.parent) : model_.hop(edge.parent, edge.child);
    };
    for (const Edge& edge : siblings) {
      const Hop& hop = hop_of(edge);
      const FrameTimes times = up ? up_hop(edge) : down_hop(edge);
      const double work = up ? times.receive : times.send;
      processor += work;
      longest = std::max(longest, work);
      const int link = up ? hop.last : hop.first;
      if (hop.memory || link < 0 || bytes_ <= hop.burst) continue;
      links = std::max(links, meeting_[at(link)]);
      meeting_[at(link)] += frame_ / (model_.cluster_.links[at(link)].capacity.bytes_per_second() *
                                      model_.parameters_.tcp_payload);
    }
    for (const Edge& edge : siblings) {
      const int link = up ? hop_of(edge).last : hop_of(edge).first;
      if (link >= 0) meeting_[at(link)] = 0;
    }
    processor -= longest;
    return links > processor ? spent(links, 0, 0) : spent(0, processor, 0);
  }

  double window() const {
    const double payload = frame_ - static_cast<double>(model_.parameters_.header_bytes);
    return static_cast<double>(
        window_of(static_cast<std::int64_t>(payload), static_cast<std::int64_t>(chunks_)));
  }
  // How much later than the first the last chunk may go up an edge: it waits for grants. In shared memory
  // they take next to nothing.
  Time granted(const Edge& edge, const FrameTimes& hop) const {
    const Hop& back = model_.hop(edge.parent, edge.child);
    if (chunks_ <= 1 || back.memory) return {};
    const double message = 2 * model_.transport(back).per_batch;
    const double begun = std::max(0.0, back.latency + message - hop.link);
    const double trips = (chunks_ - 1) / window();
    return spent(trips * hop.link, trips * (hop.send + hop.receive + message),
                 trips * (hop.latency + back.latency) + begun);
  }
  void charge_grants(const Edge& edge) {
    const Hop& back = model_.hop(edge.parent, edge.child);
    if (back.memory) return;
    for (const NodeId node : {edge.parent, edge.child}) {
      processors_[at(node)].work += grants() * model_.transport(back).per_batch;
      batches_[at(node)] += grants();
    }
  }

  void charge(NodeId from, NodeId to, const FrameTimes& frame, const Time& sent, const Time& after, bool up) {
    const Hop& hop = model_.hop(from, to);
    const HostCosts<double> costs = costs_of(hop);
    const auto route = model_.routes_.path(from, to);
    if (!hop.memory && bytes_ > 0 && !heard_[at(to) * ready_.size() + at(from)]) {
      heard_[at(to) * ready_.size() + at(from)] = true;
      ++senders_[at(route.back())];
    }
    const double bytes = bytes_ + chunks_ * static_cast<double>(model_.parameters_.header_bytes);
    const double wire_bytes = hop.memory ? bytes : bytes / model_.parameters_.tcp_payload;
    const Time after_link = after + spent(0, 2 * costs.per_batch, hop.latency);
    model_.routes_.for_each_share(from, to, [&](int link, double part) {
      const auto use = [&](Resource<Time>& resource, const Bandwidth& capacity) {
        resource.use(part * wire_bytes / capacity.bytes_per_second(), sent, after_link);
      };
      use(links_[at(link)], model_.cluster_.links[at(link)].capacity);
      for (const std::size_t g : model_.groups_of_link_[at(link)]) {
        use(groups_[g], model_.cluster_.groups[g].capacity);
      }
    });
    if (const double answers = wire_bytes * model_.acknowledged(from, to); answers > 0) {
      model_.routes_.for_each_share(to, from, [&](int link, double part) {
        links_[at(link)].work += part * answers / model_.cluster_.links[at(link)].capacity.bytes_per_second();
        for (const std::size_t g : model_.groups_of_link_[at(link)])
          groups_[g].work += part * answers / model_.cluster_.groups[g].capacity.bytes_per_second();
      });
    }
    const double batches = batches_of(from, to, hop, sent) + batches_apart(from, to, hop);
    work(from, batches, bytes, costs.of(batches, bytes, 0), sent,
         after + spent(frame.link, frame.receive, frame.latency));
    work(to, batches, bytes, costs.of(batches, bytes, up ? bytes : 0),
         sent + spent(frame.link, frame.send, frame.latency), after);
  }

  // In how many batches the frames of the tree at hand travel, but for those that others begin. First chunks
  // that are ready within a batch's time of each other leave, and are read, together.
  double batches_of(NodeId from, NodeId to, const Hop& hop, const Time& sent) {
    const CostParameters::Transport& transport = model_.transport(hop);
    if (transport.per_batch <= 0) return 0;
    const auto moment = static_cast<std::int64_t>(in_seconds(sent) / transport.per_batch);
    const bool begins = begun_.insert({from, to, moment}).second;
    const auto most = static_cast<double>(transport.most_batch_bytes);
    const double batches = most > 0 ? std::clamp(std::ceil(bytes_ / most), 1.0, chunks_) : chunks_;
    return begins ? batches : batches - 1;
  }

  // What grants take apart: a sum's first chunk goes alone, then the rest of a window, then half of one at a
  // time, and results follow. Trees between the same two nodes share these batches.
  double batches_apart(NodeId from, NodeId to, const Hop& hop) {
    const auto most = static_cast<double>(model_.transport(hop).most_batch_bytes);
    if (!sums_ || most <= 0 || chunks_ <= 1) return 0;
    const double granted = std::min(chunks_, 2 + grants());
    double& apart = apart_[at(from) * ready_.size() + at(to)];
    const double more = std::max(0.0, granted - std::max(1.0, std::ceil(bytes_ / most)) - apart);
    apart += more;
    return more;
  }
  double grants() const { return std::max(0.0, 2 * (chunks_ - window()) / window()); }

  // Switches move data without a processor, but for those that sum: a process on them does.
  void work(NodeId node, double batches, double bytes, double seconds, const Time& before,
            const Time& after) {
    const cluster::Node& worked = model_.cluster_.nodes[at(node)];
    if (worked.kind == cluster::NodeKind::switch_ && !can_aggregate(worked)) return;
    processors_[at(node)].use(seconds, before, after);
    batches_[at(node)] += batches;
    frame_bytes_[at(node)] += bytes;
  }

  const CostModel& model_;
  const int most_senders_;  // that meet at once
  std::vector<Resource<Time>> links_, groups_, processors_;
  std::vector<double> batches_, frame_bytes_;                 // that a node sends and receives
  std::vector<bool> heard_;                                   // receiver by sender, over TCP
  std::vector<double> apart_;                                 // batches_apart() by sender and receiver
  std::vector<int> senders_;                                  // how many a link's end hears over it
  std::vector<double> meeting_;                               // seconds that siblings' chunks take on a link
  std::set<std::tuple<NodeId, NodeId, std::int64_t>> begun_;  // (from, to, when in batches)
  Time longest_path_{};
  Spent without_{};    // of all paths; see leave_out()
  int most_hops_ = 0;  // of a path of one tree, to its root and down again
  // Of the tree at hand.
  double chunks_ = 0, bytes_ = 0, frame_ = 0;  // frame_: of a chunk and its header
  bool sums_ = false;
  std::vector<Time> ready_;         // when a node can pass on the first chunk
  std::vector<Time> remaining_;     // from a node down to its farthest receiver
  std::vector<int> depth_;          // edges from a node to the root
  std::vector<Time> up_remaining_;  // from a node up, and down to the farthest receiver
};

template <class Time>
CostModel::Pricing<Time> CostModel::priced(const Forest& forest) const {
  Pricing<Time> pricing(*this, meeting_senders(forest));
  std::optional<SharedSums> shared;
  if (forest.sums_once) shared.emplace(forest);
  for (std::size_t i = 0; i < forest.trees.size(); ++i)
    pricing.add(forest.trees[i], forest.request.element_size,
                [&](NodeId child) { return shared && shared->first(i, child) != i; });
  return pricing;
}

double CostModel::seconds(const Forest& forest, bool begun) const {
  return (begun ? Spent{} : agreement(forest.request)).seconds() +
         priced<double>(forest).most(blocks_in_turn(forest)).time;
}

double CostModel::busiest(const Forest& forest) const {
  return priced<double>(forest).busiest();
}

Breakdown CostModel::breakdown(const Forest& forest, bool begun) const {
  auto [time, limiter, without] = priced<Spent>(forest).most(blocks_in_turn(forest));
  const Spent agreed = begun ? Spent{} : agreement(forest.request);
  time = time + agreed;
  without = without + Spent{agreed.processors + agreed.latency, agreed.links + agreed.latency,
                            agreed.links + agreed.processors};
  Breakdown result{.links = time.links, .processors = time.processors, .latency = time.latency};
  double least = without.links;
  if (without.processors < least) {
    result.limit = Breakdown::Limit::processors;
    least = without.processors;
  }
  if (without.latency < least) {
    result.limit = Breakdown::Limit::latency;
    least = without.latency;
  }
  result.without = least;
  result.reason = words(result, limiter);
  return result;
}

std::int64_t CostModel::chunk_of(const Tree& tree, int nodes, std::int64_t element_size) const {
  const std::int64_t bytes = tree.slice.count * element_size;
  if (bytes <= parameters_.least_chunk_bytes) return std::max<std::int64_t>(1, tree.slice.count);

  std::vector<int> depth(at(nodes));
  double slowest = 0, batch = 0;  // of the edges: seconds for a byte, and for a batch
  std::int64_t most_bytes = parameters_.tcp.most_chunk_bytes;
  const auto deepest = [&](const std::vector<Edge>& edges, bool upward) {
    std::ranges::fill(depth, 0);
    int most = 0;
    for (const Edge& edge : outward(edges, tree.root, nodes)) {
      most = std::max(most, depth[at(edge.child)] = depth[at(edge.parent)] + 1);
      const Hop& used = upward ? hop(edge.child, edge.parent) : hop(edge.parent, edge.child);
      if (static_cast<double>(bytes) > used.burst) slowest = std::max(slowest, used.per_byte);
      batch = std::max(batch, transport(used).per_batch);
      most_bytes = std::min(most_bytes, transport(used).most_chunk_bytes);
    }
    return most;
  };
  const int hops = deepest(tree.up, true) + deepest(tree.down, false);
  double best = static_cast<double>(most_bytes);
  if (hops > 1 && slowest > 0) {
    best = std::min(best, std::sqrt(static_cast<double>(bytes) * batch / (slowest * (hops - 1))));
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
