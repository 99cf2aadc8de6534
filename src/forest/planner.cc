#include "forest/planner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/collectives.h"
#include "base/fail.h"
#include "forest/algorithms.h"
#include "forest/cost.h"
#include "forest/packed.h"

namespace talweg::forest {
namespace {

bool serves(const Algorithm& algorithm, const Request& request) {
  return (algorithm.operations >> static_cast<unsigned>(request.op) & 1) != 0;
}

void check(const Request& request, const cluster::Cluster& cluster) {
  validate(request);
  if (cluster.workers() != request.ranks) {
    refuse("plan {}: the cluster has {} workers, expected {}", name(request.op), cluster.workers(),
           request.ranks);
  }
}

CostModel model_for(const Request& request, const cluster::Cluster& cluster) {
  check(request, cluster);
  return CostModel(cluster);
}

// `memo` and `limit` may be null.
Forest plan(const Algorithm& algorithm, const Request& request, const CostModel& model,
            PackingMemo* memo = nullptr, WorkLimit* limit = nullptr) {
  if (!serves(algorithm, request)) {
    throw_error(ErrorCode::unsupported, "{} does not serve {}", algorithm.name, name(request.op));
  }
  if (limit != nullptr && algorithm.plan == plan_sharded_star) limit->spend(sharded_star_steps(model));
  Forest forest = memo != nullptr && algorithm.plan == plan_packed
                      ? plan_from_packings(request, model, *memo, limit)
                      : algorithm.plan(request, model);
  model.choose_chunks(forest);
  return forest;
}

// Above, planners that send whole vectors to be done in few rounds may still be predicted to tie with others,
// but sum more on every rank: they stay what they are for.
constexpr std::int64_t kMostBytesInFewRounds = 256 << 10;

// Above, packing may take minutes.
constexpr int kMostRanksPacked = 256;

// While a call waits, for each planner: 20 ms on a recent server.
constexpr std::int64_t kMostStepsAtOnce = 20'000'000;

bool quick(const Algorithm& algorithm, const Request& request) {
  return algorithm.plan != plan_packed || request.ranks <= kMostRanksPacked;
}

bool suits(const Algorithm& algorithm, const Request& request) {
  const bool few_rounds = algorithm.plan == plan_one_hop || algorithm.plan == plan_recursive_doubling;
  return !few_rounds || request.counts[0] * request.element_size <= kMostBytesInFewRounds;
}

// Ranks may know different counts (see Request), so costs, which depend on counts, must not decide among
// planners.
bool counts_differ_by_rank(Collective op) {
  return facts(op).knows != Knows::all;
}

// Those that plan for a request without being named.
bool considered(const Algorithm& algorithm, const Request& request) {
  return serves(algorithm, request) && suits(algorithm, request) && quick(algorithm, request);
}

// Flows that share a port disturb each other, the more the longer they are: on eight hosts of 1 Gbit/s a ring
// of 1 MiB takes 0.92 of halving and doubling, which is predicted to take the same. Short ones end before
// that shows, and fewer rounds count for more.
constexpr std::int64_t kLongFlowBytes = 64 << 10;

bool has_long_flows(const Request& request) {
  std::int64_t elements = 0;
  for (const std::int64_t count : request.counts) elements += count;
  return elements * request.element_size / request.ranks >= kLongFlowBytes;
}

// `offer_of` is asked in the order of the table.
template <class OfferOf>
const Algorithm& choose(const Request& request, const CostModel& model, OfferOf&& offer_of) {
  std::vector<std::pair<const Algorithm*, Offer>> offers;
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm& algorithm : algorithms::kAll) {
    if (!considered(algorithm, request)) continue;
    if (counts_differ_by_rank(request.op)) return algorithm;
    if (algorithm.plan == plan_packed && !packing_may_beat(least, request, model)) continue;
    offers.emplace_back(&algorithm, offer_of(algorithm));
    least = std::min(least, offers.back().second.seconds);
  }
  const bool long_flows = has_long_flows(request);
  const auto rank = [&](const auto& offer) {
    return std::pair(offer.second.seconds, long_flows ? offer.second.flows : 0);
  };
  return *std::ranges::min_element(offers, {}, rank)->first;
}

// `plan_one` returns nothing where the planner is to be left out.
template <class PlanOne>
Forest plan_least(const Request& request, const CostModel& model, PlanOne&& plan_one) {
  std::map<const Algorithm*, Forest> forests;
  const Algorithm& chosen = choose(request, model, [&](const Algorithm& algorithm) {
    std::optional<Forest> forest = plan_one(algorithm);
    if (!forest) return Offer{.seconds = std::numeric_limits<double>::infinity()};
    return offer(forests[&algorithm] = std::move(*forest), model);
  });
  const auto found = forests.find(&chosen);
  return found != forests.end() ? std::move(found->second) : plan(chosen, request, model);
}

}  // namespace

Offer offer(const Forest& forest, const CostModel& model) {
  const auto nodes = static_cast<std::size_t>(forest.nodes);
  std::vector<bool> sends(nodes * nodes);
  const auto note = [&](NodeId from, NodeId to) {
    sends[static_cast<std::size_t>(from) * nodes + static_cast<std::size_t>(to)] = true;
  };
  for (const Tree& tree : forest.trees) {
    if (tree.slice.count == 0) continue;
    for (const Edge& edge : tree.up) note(edge.child, edge.parent);
    for (const Edge& edge : tree.down) note(edge.parent, edge.child);
  }
  return {model.seconds(forest), static_cast<int>(std::ranges::count(sends, true))};
}

const std::vector<Planner>& planners() {
  static const std::vector<Planner> table = [] {
    std::vector<Planner> result;
    for (const Algorithm& algorithm : algorithms::kAll) {
      result.push_back({algorithm.name, algorithm.description,
                        [&algorithm](const Request& request) { return serves(algorithm, request); },
                        [&algorithm](const Request& request, const cluster::Cluster& cluster) {
                          return plan(algorithm, request, model_for(request, cluster));
                        },
                        [&algorithm](const Request& request) { return suits(algorithm, request); },
                        [&algorithm](const Request& request) { return quick(algorithm, request); }});
    }
    return result;
  }();
  return table;
}

const Planner& find_planner(const std::string& name) {
  std::string known;
  for (const Planner& planner : planners()) {
    if (planner.name == name) return planner;
    known += (known.empty() ? "" : ", ") + planner.name;
  }
  refuse("algorithm \"{}\": expected one of {}", name, known);
}

Forest plan_best(const Request& request, const cluster::Cluster& cluster) {
  PackingMemo memo;
  return plan_best(request, model_for(request, cluster), memo);
}

Forest plan_best(const Request& request, const CostModel& model, PackingMemo& memo, WorkLimit* limit) {
  check(request, model.network());
  return plan_least(request, model, [&](const Algorithm& algorithm) -> std::optional<Forest> {
    return plan(algorithm, request, model, &memo, limit);
  });
}

PlanAtOnce plan_at_once(const Request& request, const CostModel& model, PackingMemo& memo,
                        const WorkLimit* limit) {
  check(request, model.network());
  PlanAtOnce result;
  bool unwanted = false;
  std::function<bool()> ask;
  if (limit != nullptr) ask = [&] { return unwanted = limit->unwanted(); };
  result.forest = plan_least(request, model, [&](const Algorithm& algorithm) -> std::optional<Forest> {
    try {
      WorkLimit steps(kMostStepsAtOnce, ask);
      steps.spend(0);
      return plan(algorithm, request, model, &memo, &steps);
    } catch (const WorkLimit::Reached&) {
      if (unwanted) throw;
      result.complete = false;
      return std::nullopt;
    }
  });
  return result;
}

Forest plan_by(const Planner& planner, const Request& request, const cluster::Cluster& cluster,
               PackingMemo& memo) {
  return plan_by(planner, request, model_for(request, cluster), memo);
}

Forest plan_by(const Planner& planner, const Request& request, const CostModel& model, PackingMemo& memo,
               WorkLimit* limit) {
  const auto* const algorithm =
      std::find_if(std::begin(algorithms::kAll), std::end(algorithms::kAll),
                   [&](const Algorithm& known) { return planner.name == known.name; });
  check(request, model.network());
  return plan(*algorithm, request, model, &memo, limit);
}

std::string best_planner(const Request& request, const CostModel& model,
                         const std::function<Offer(const std::string& planner)>& offer) {
  check(request, model.network());
  return choose(request, model, [&](const Algorithm& algorithm) { return offer(algorithm.name); }).name;
}

std::vector<std::string> aggregator_names(const Forest& forest, const cluster::Cluster& cluster) {
  std::vector<std::string> names;
  for (const NodeId node : aggregators_of(forest))
    names.push_back(cluster.nodes[static_cast<std::size_t>(node)].name);
  return names;
}

std::string plan_title(const std::string& planner, const std::vector<std::string>& through) {
  std::string title = planner;
  for (const std::string& name : through) title += (&name == &through.front() ? " through " : " and ") + name;
  return title;
}

std::vector<Candidate> rank_planners(const Request& request, const cluster::Cluster& cluster) {
  const CostModel model = model_for(request, cluster);
  std::vector<Candidate> candidates;
  for (const Algorithm& algorithm : algorithms::kAll) {
    if (!considered(algorithm, request)) continue;
    const Forest forest = plan(algorithm, request, model);
    const auto [seconds, flows] = offer(forest, model);
    candidates.push_back({algorithm.name, seconds, aggregator_names(forest, cluster), flows});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  return candidates;
}

}  // namespace talweg::forest
