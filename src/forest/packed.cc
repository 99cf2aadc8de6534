// Packed: as many trees as the network carries together, each with the rate that the packing gives it, shares
// of the vector by rate and depth. For networks whose links differ, where one ring or one tree leaves most of
// them idle.
//
// What is promised: over the routes that messages take, the rates of the trees add up to at least 99 % of
// what any trees reach together; where there is one route between any two workers (stars, trees of switches,
// direct links) that is 99 % of best_rate() (bound.h). There is less only where a search among hundreds of
// workers would take minutes. For vectors so long that filling the pipelines does not matter, the busiest
// link then works at most 1 / 0.99 as long as on the best forest there is.
//
// Where links are quicker one way than the other, acknowledgements may fill the slow ones that lead back, and
// the trees with the most data are predicted to take longer than they carry it in. Then trees are packed that
// are charged for acknowledgements as well, and whichever are predicted to be quickest are taken.
//
// Shares: in proportion to rates (as Zhang, Wu, Li, INFOCOM 2021), but for the time that filling takes. Tree
// t with rate w_t, whose first chunk takes f_t to get through, ends at f_t + M_t / w_t. The shares M_t that
// add up to M and make all trees end together are M_t = w_t (T - f_t), with T as the level to which M fills
// up; trees that are too deep for that stay dry. In all_gather and reduce_scatter each rank's part is shared
// out so among the trees of that root.
#include "forest/packed.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "forest/algorithms.h"
#include "forest/trees.h"
#include "forest/untangle.h"
#include "talweg/error.h"

namespace talweg::forest {
namespace {

constexpr double kDepthPenalty = 0.004;  // of the rate, for a depth of all workers
constexpr double kGap = 0.003;           // where the search for better trees ends
constexpr double kGapAmongMany = 0.008;  // where each step of it takes long
// Some tens of seconds; only for a thousand workers whose routes meet on links that differ without pattern.
constexpr std::int64_t kMostEffortToPack = 20'000'000'000;
constexpr double kPromised = 0.991;          // of the most possible, with the few trees that are kept
constexpr double kPromisedWithFew = 0.9905;  // and where they are made as few as the workers
constexpr int kMostToReshape = 128;          // workers; with more it would take seconds
// Fewer trees and hops for vectors that the fill matters to: what is left of the rate.
constexpr double kFewer[] = {0.9, 0.75, 0.5, 0.25};
constexpr double kFillMatters = 0.05;  // of the time
// Times what its packing promises: where the first forest is predicted to take longer, others may be quicker;
// and no longer vector gets a worse share of the bound than 0.97 of a shorter one's.
constexpr double kAsPacked = 1.03;
// By so much hosts hold it up, so that trees for hosts may be quicker; among few, as it packs a second time.
constexpr double kHeldUp = 1.1;
constexpr int kMostForHosts = 64;
constexpr double kKept = 0.97;  // what these must reach of the rate over links
// What plans of further packings must be predicted to take at most: many trees that meet do not keep their
// shares quite as they are predicted to.
constexpr double kQuicker = 0.93;
// Of a processor's time, what trees for hosts are to fill: it also waits, and small batches cost it more.
constexpr double kProcessors = 0.6;
// A link that is quicker by so much than all trees together has room for more than one edge of each.
constexpr double kRoomForMore = 1.25;
// A slice below this is more message than data.
constexpr double kLeastSliceBytes = 4096;

std::int64_t total_count(const Request& request) {
  return std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0});
}

// Of each root, what part of the vector its trees carry; empty where they are equal, or any may carry any.
std::vector<double> parts_of_roots(const Request& request) {
  const auto& counts = request.counts;
  if (!has_parts(request.op) || std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end())
    return {};
  // A part that is tiny is still to have a tree.
  constexpr double kLeastPart = 1e-4;
  const auto all = static_cast<double>(total_count(request));
  std::vector<double> parts;
  for (const std::int64_t count : counts)
    parts.push_back(count > 0 ? std::max(kLeastPart, static_cast<double>(count) / all) : 0);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

Tree tree_of(const Request& request, const TreePair& trees, const Slice& slice) {
  Tree tree = collective_tree(request, slice, trees.root, goes_up(request.op) ? trees.up : trees.down);
  if (goes_up(request.op) && goes_down(request.op))
    tree.down = collective_tree(request, slice, trees.root, trees.down).down;
  return tree;
}

// The shares of `bytes` that end together: trees have rates (bytes/s) and fills (s).
std::vector<double> water_fill(const std::vector<double>& rates, const std::vector<double>& fills,
                               double bytes) {
  std::vector<std::size_t> order(rates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return fills[a] < fills[b]; });
  double rate = 0, head_start = 0, level = 0;
  for (const std::size_t tree : order) {
    if (rate > 0 && level <= fills[tree]) break;
    rate += rates[tree];
    head_start += rates[tree] * fills[tree];
    level = (bytes + head_start) / rate;
  }
  std::vector<double> shares;
  for (std::size_t tree = 0; tree < rates.size(); ++tree)
    shares.push_back(rates[tree] * std::max(0.0, level - fills[tree]));
  return shares;
}

// The trees of one part of the vector, from `offset` on.
class Sharing {
 public:
  Sharing(const Request& request, const CostModel& model, const Slice& slice, WorkLimit* limit)
      : request_(request), model_(model), slice_(slice), limit_(limit) {}

  void add(const PackedTree& tree) { trees_.push_back(tree); }

  // Appends the trees of this part, and raises `longest_fill` to theirs.
  void share_out(std::vector<Tree>& result, double& longest_fill) {
    if (trees_.empty()) return;
    const double bytes = static_cast<double>(slice_.count * request_.element_size);
    std::vector<double> rates, fills;
    for (const PackedTree& tree : trees_) {
      rates.push_back(tree.rate / 8);
      fills.push_back(fill(tree, 1));
    }
    auto shares = water_fill(rates, fills, bytes);
    // Now that sizes are known, so are the chunks that have to get through.
    for (std::size_t i = 0; i < trees_.size(); ++i)
      fills[i] = fill(trees_[i], static_cast<std::int64_t>(shares[i]) / request_.element_size);
    for (;;) {
      shares = water_fill(rates, fills, bytes);
      const auto least = std::ranges::min_element(shares);
      if (trees_.size() == 1 || *least >= kLeastSliceBytes) break;
      const auto dropped = least - shares.begin();
      trees_.erase(trees_.begin() + dropped);
      rates.erase(rates.begin() + dropped);
      fills.erase(fills.begin() + dropped);
    }
    if (trees_.size() == 1) shares = {1};
    Request part = request_;
    part.counts = {slice_.count};
    const auto slices = split_by_weight(part, shares);
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      result.push_back(
          tree_of(request_, trees_[i].trees, {slice_.offset + slices[i].offset, slices[i].count}));
      longest_fill = std::max(longest_fill, fills[i]);
    }
  }

 private:
  // How long the first chunk of a slice takes from the farthest leaf to the root and down again, beyond the
  // time it takes at the tree's rate.
  double fill(const PackedTree& tree, std::int64_t count) const {
    const std::size_t nodes = model_.network().nodes.size();
    if (limit_ != nullptr) limit_->spend(static_cast<std::int64_t>(nodes * (nodes + 256)));
    Forest one =
        useful_forest({}, request_, {tree_of(request_, tree.trees, {0, std::max<std::int64_t>(1, count)})});
    model_.choose_chunks(one);
    one.trees[0].slice.count = std::min(one.trees[0].slice.count, one.trees[0].chunk);
    const double chunk_bytes = static_cast<double>(one.trees[0].slice.count * request_.element_size);
    return std::max(0.0, model_.seconds(one) - chunk_bytes / (tree.rate / 8));
  }

  const Request& request_;
  const CostModel& model_;
  Slice slice_;
  WorkLimit* limit_;
  std::vector<PackedTree> trees_;
};

// The forest of a packing, and how much of its time goes by until data flows everywhere.
struct Plan {
  Forest forest;
  double seconds = 0;
  double fill = 0;
};

Plan share_out(const Request& request, const CostModel& model, const std::vector<PackedTree>& packed,
               WorkLimit* limit) {
  std::vector<Sharing> parts;
  if (has_parts(request.op)) {
    for (const Slice& slice : split_by_count(request)) parts.emplace_back(request, model, slice, limit);
  } else {
    parts.emplace_back(request, model, Slice{0, request.counts[0]}, limit);
  }
  for (const PackedTree& tree : packed) parts[has_parts(request.op) ? at(tree.trees.root) : 0].add(tree);
  Plan plan;
  std::vector<Tree> trees;
  for (Sharing& part : parts) part.share_out(trees, plan.fill);
  plan.forest = useful_forest("packed", request, std::move(trees));
  model.choose_chunks(plan.forest);
  plan.seconds = model.seconds(plan.forest);
  return plan;
}

// What no forest of workers can beat, in the cost model's terms: everything that a tree carries leaves a
// worker and enters another one, over their links and by the work of their processors.
struct Least {
  double over_links = 0;  // seconds; headers of chunks are not counted
  double otherwise = 0;   // by latencies and processors; what each message costs is not counted
};

Least least_seconds(const Request& request, const CostModel& model) {
  const cluster::Cluster& cluster = model.network();
  const CostParameters& parameters = model.parameters();
  const auto workers = at(cluster.workers());
  // What can pass in a time: rate times time, and bursts at once. In bits of payload.
  struct Port {
    double rate = 0, burst = 0;
    void add(const Port& port) {
      rate += port.rate;
      burst += port.burst;
    }
  };
  std::vector<Port> in(workers), out(workers);
  Port in_all, out_all;
  // What is acknowledged goes back over the other port, unless memory carries it.
  std::vector<double> answers(workers, parameters.tcp_acknowledgements);
  double answers_of_all = parameters.tcp_acknowledgements;
  double latency = std::numeric_limits<double>::infinity();
  for (const cluster::Link& link : cluster.links) {
    latency = std::min(latency, static_cast<double>(link.latency.value) * 1e-9);
    const bool from_worker = at(link.from) < workers, to_worker = at(link.to) < workers;
    const bool memory = from_worker && to_worker && link.latency < parameters.memory_latency;
    if (memory) answers[at(link.from)] = answers[at(link.to)] = answers_of_all = 0;
    const double payload = memory ? 1 : parameters.tcp_payload;
    const Port port{payload * link.capacity.bits_per_second,
                    8 * payload * parameters.burst_share * static_cast<double>(link.burst.value)};
    if (from_worker) {
      out[at(link.from)].add(port);
      out_all.add(port);
    }
    if (to_worker) {
      in[at(link.to)].add(port);
      in_all.add(port);
    }
  }
  const double bits = 8 * static_cast<double>(total_count(request) * request.element_size);
  const bool up = goes_up(request.op), both = up && goes_down(request.op);
  // An aggregator takes in what workers put out once, and the other way round: workers exchange nothing.
  const bool aggregated = model.servers().size() > workers;
  const auto others = static_cast<double>(workers - 1);
  const double into_all = aggregated && !goes_down(request.op) ? 1
                          : both && !aggregated                ? 2 * others
                                                               : others;
  const double out_of_all = aggregated && !up ? 1 : both && !aggregated ? 2 * others : others;
  double seconds = 0;
  const auto hold = [&](double carried, const Port& port) {
    seconds = std::max(seconds, (carried - port.burst) / port.rate);
  };
  hold(bits * (into_all + answers_of_all * out_of_all), in_all);
  hold(bits * (out_of_all + answers_of_all * into_all), out_all);
  for (NodeId worker = 0; at(worker) < workers; ++worker) {
    // What the worker takes in, and puts out, of what goes down; of what goes up it is the other way round.
    double all = bits, own = both ? bits : 0;
    if (has_parts(request.op)) {
      own = 8 * static_cast<double>(request.counts[at(worker)] * request.element_size);
      all -= own;
    } else if (!both && worker == request.root) {
      std::swap(all, own);
    }
    hold(all + answers[at(worker)] * own, up ? out[at(worker)] : in[at(worker)]);
    hold(own + answers[at(worker)] * all, up ? in[at(worker)] : out[at(worker)]);
  }
  if (!both && !aggregated && !has_parts(request.op)) {
    // What the root does not send to others, or hear from them, they pass on and have acknowledged.
    Port rest;
    for (NodeId worker = 0; at(worker) < workers; ++worker) {
      const bool root = worker == request.root;
      const Port& port = (up != root ? out : in)[at(worker)];
      const double part = root ? answers_of_all : 1;
      rest.add({part * port.rate, part * port.burst});
    }
    hold(bits * others * (1 + answers_of_all), rest);
  }
  const double hop = 2 * parameters.memory.per_batch + latency;
  const double byte = std::min(parameters.tcp.per_byte, parameters.memory.per_byte);
  const double work =
      bits / 8 *
      ((into_all + out_of_all) * byte + (up && !aggregated ? others * parameters.reduce_per_byte : 0));
  const double processors = cluster.shared_cores > 0
                                ? std::min<double>(cluster.shared_cores, static_cast<double>(workers))
                                : static_cast<double>(workers);
  return {seconds + hop, std::max((both ? 2 : 1) * hop, work / processors)};
}

// What the processor of each worker can send and receive together, in bit/s as links count them: where that
// is less than its links carry, trees must not meet at it as if it were nothing but them. Workers that share
// memory with another one are left out: most of what they move costs them little.
std::vector<double> processor_rates(const Request& request, const CostModel& model) {
  const CostParameters& parameters = model.parameters();
  const double batch = static_cast<double>(parameters.tcp.most_chunk_bytes) / 2;
  // What is summed is half of what a worker moves on which much meets.
  const double byte = parameters.tcp.per_byte + parameters.tcp.per_batch / batch +
                      (goes_up(request.op) ? parameters.reduce_per_byte / 2 : 0);
  const auto workers = at(model.network().workers());
  std::vector<double> rates(workers, byte > 0 ? kProcessors * 8 / (byte * parameters.tcp_payload)
                                              : std::numeric_limits<double>::infinity());
  for (const cluster::Link& link : model.network().links)
    if (at(link.from) < workers && at(link.to) < workers && link.latency < parameters.memory_latency)
      rates[at(link.from)] = rates[at(link.to)] = std::numeric_limits<double>::infinity();
  return rates;
}

// The network, with those links of workers slowed that many may send to one over; `rate` is that of all
// trees.
cluster::Cluster with_incast(const CostModel& model, double rate) {
  cluster::Cluster network = model.network();
  const auto workers = at(network.workers());
  const double slowdown = model.parameters().incast(network.workers() - 1);
  for (cluster::Link& link : network.links)
    if ((at(link.from) < workers || at(link.to) < workers) &&
        link.capacity.bits_per_second > kRoomForMore * rate)
      link.capacity.bits_per_second /= slowdown;
  return network;
}

TreeMarket market_for(const Request& request, const CostModel& model, const cluster::Cluster& network,
                      Charge charge) {
  TreeMarket::Acknowledged acknowledged;
  if (charge != Charge::data)
    acknowledged = [&](NodeId from, NodeId to) { return model.acknowledged(from, to); };
  return {network,      request.op,
          request.root, TreeMarket::Paths::routes,
          acknowledged, charge == Charge::hosts ? processor_rates(request, model) : std::vector<double>()};
}

// Whether trees that are packed for data and acknowledgements may differ from those packed for data alone.
bool acknowledgements_count(const Request& request, const CostModel& model) {
  return market_for(request, model, model.network(), Charge::all).acknowledges();
}

std::vector<Packing> pack(TreeMarket& market, const Request& request, Trees trees, WorkLimit* limit) {
  TreePacker packer(market, request.op, kDepthPenalty, parts_of_roots(request), TreePacker::kMostSeeds,
                    limit);
  const bool many = market.workers() > TreePacker::kFewWorkers;
  packer.run(many ? kGapAmongMany : kGap, std::numeric_limits<double>::infinity(), kMostEffortToPack);
  packer.prune(std::min(packer.rate(), packer.upper() * kPromised));
  TreePacker few = packer;
  if (trees == Trees::few && market.workers() <= kMostToReshape)
    few.reshape(at(market.workers()), std::min(packer.rate(), packer.upper() * kPromisedWithFew));
  const auto of_nodes = [&](const TreePacker& packed) {
    auto result = packed.trees();
    if (market.aggregates())
      for (PackedTree& tree : result) tree.trees = market.in_nodes(tree.trees);
    else if (market.workers() <= kMostToReshape)
      untangle(market, result, limit);
    return result;
  };
  std::vector<Packing> packings{{of_nodes(few), few.rate(), few.upper()}};
  for (const double less : kFewer) {
    packer.prune(packings.front().rate * less);
    if (packer.trees().size() < packings.back().trees.size())
      packings.push_back({of_nodes(packer), packer.rate(), packer.upper()});
  }
  return packings;
}

}  // namespace

std::vector<Packing> pack(const Request& request, const CostModel& model, Trees trees, WorkLimit* limit,
                          Charge charge, double rate_of_data) {
  cluster::validate(model.network());  // trees hang together only if the network does
  if (charge == Charge::hosts) {
    const cluster::Cluster network = with_incast(model, rate_of_data);
    TreeMarket market = market_for(request, model, network, charge);
    return pack(market, request, trees, limit);
  }
  TreeMarket market = market_for(request, model, model.network(), charge);
  return pack(market, request, trees, limit);
}

bool packing_may_beat(double seconds, const Request& request, const CostModel& model) {
  if (request.ranks == 1) return false;
  const Least least = least_seconds(request, model);
  return least.over_links < kWorthOfLinks * seconds && least.otherwise < kWorthOtherwise * seconds;
}

const std::vector<Packing>& PackingMemo::find(const Request& request, const CostModel& model,
                                              WorkLimit* limit, Charge charge) {
  Key key{request.op, request.root, charge, parts_of_roots(request)};
  // First, since it may forget others.
  double rate_of_data = 0;
  if (charge == Charge::hosts && !known_.contains(key))
    rate_of_data = find(request, model, limit, Charge::data).front().rate;
  if (known_.size() >= kMost && !known_.contains(key)) known_.clear();
  const auto [entry, made] = known_.try_emplace(std::move(key));
  if (made) try {
      entry->second = pack(request, model, trees_, limit, charge, rate_of_data);
    } catch (const Error&) {
      known_.erase(entry);
      throw;
    }
  if (entry->second.empty()) throw WorkLimit::Reached();
  return entry->second;
}

Forest plan_packed(const Request& request, const CostModel& model) {
  PackingMemo memo;
  return plan_from_packings(request, model, memo);
}

Forest plan_from_packings(const Request& request, const CostModel& model, PackingMemo& memo,
                          WorkLimit* limit) {
  if (request.ranks == 1)
    return useful_forest("packed", request, {collective_tree(request, {0, request.counts[0]}, 0, {0})});
  const auto& packings = memo.find(request, model, limit, Charge::data);
  Plan best = share_out(request, model, packings.front().trees, limit);
  // At the packing's rate, with headers and acknowledgements where these limit nothing.
  const double packed = 8 * static_cast<double>(total_count(request) * request.element_size) /
                        (packings.front().rate * model.parameters().tcp_payload) *
                        (1 + model.parameters().tcp_acknowledgements);
  const bool as_packed =
      best.seconds <= kAsPacked * packed || model.breakdown(best.forest).limit != Breakdown::Limit::links;
  const auto seek = [&](const Packing& packing, double at_most) {
    Plan plan = share_out(request, model, packing.trees, limit);
    if (plan.seconds < std::min(best.seconds, at_most)) best = std::move(plan);
  };
  for (std::size_t i = 1; i < packings.size(); ++i) {
    if (as_packed && best.fill <= kFillMatters * best.seconds) break;
    seek(packings[i], best.seconds);
  }
  // Further searches may forget the packings.
  const double least_for_hosts = kKept * packings.front().rate, enough = kQuicker * best.seconds;
  const auto consider = [&](const std::vector<Packing>& others, double least_rate) {
    for (const Packing& packing : others)
      if (packing.rate >= least_rate) seek(packing, enough);
  };
  // Who has a plan does not lose it to the search for a better one.
  const auto search = [&](const auto& others) {
    try {
      others();
    } catch (const WorkLimit::Reached&) {
      if (limit != nullptr && limit->unwanted()) throw;
    }
  };
  if (!as_packed && best.seconds > kAsPacked * packed && acknowledgements_count(request, model))
    search([&] { consider(memo.find(request, model, limit, Charge::all), 0); });
  if (best.seconds - best.fill > kHeldUp * packed && request.ranks <= kMostForHosts) {
    search([&] { consider(memo.find(request, model, limit, Charge::hosts), least_for_hosts); });
  }
  return std::move(best.forest);
}

}  // namespace talweg::forest
