#include "forest/planner.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "forest/algorithms.h"
#include "forest/cost.h"
#include "forest/packed.h"

namespace talweg::forest {
namespace {

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

const Algorithm& algorithm_named(const std::string& name) {
  return *std::ranges::find_if(algorithms::kAll, [&](const Algorithm& known) { return name == known.name; });
}

}  // namespace

const std::vector<Planner>& planners() {
  static const std::vector<Planner> table = [] {
    std::vector<Planner> result;
    for (const Algorithm& algorithm : algorithms::kAll) {
      result.push_back(
          {algorithm.name, algorithm.description,
           [&algorithm](const Request& request) { return serves(algorithm, request); },
           [&algorithm](const Request& request, const cluster::Cluster& cluster) {
             return plan(algorithm, request, model_for(request, cluster));
           },
           [&algorithm](const Request& request) { return why_not_meant(algorithm, request).empty(); },
           [&algorithm](const Request& request) { return why_not_meant(algorithm, request); }});
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

// Of all forests the best one so far is kept: others may take gigabytes.
Planned plan_within(std::int64_t most_steps, const Request& request, const CostModel& model,
                    PackingMemo& memo, const WorkLimit* limit) {
  check(request, model.network());
  bool unwanted = false;
  std::function<bool()> ask;
  if (limit != nullptr) ask = [&] { return unwanted = limit->unwanted(); };
  Planned result;
  Offer best;
  result.choice = choose(request, model, [&](const std::string& planner) -> Offer {
    try {
      WorkLimit steps(most_steps, ask);
      steps.spend(0);
      Forest forest = plan(algorithm_named(planner), request, model, &memo, &steps);
      Offer offered = offer(forest, model);
      if (goes_before(offered, best, request)) {
        best = offered;
        result.forest = std::move(forest);
      }
      return offered;
    } catch (const WorkLimit::Reached&) {
      if (unwanted) throw;
      return {.none_because = too_much_work(most_steps), .may_come = most_steps < kMostSteps};
    }
  });
  if (result.forest.planner != result.choice.taken)  // nobody was asked
    result.forest = plan(algorithm_named(result.choice.taken), request, model, &memo);
  return result;
}

Planned plan_in_full(const Request& request, const CostModel& model, PackingMemo& memo,
                     const WorkLimit* limit) {
  return plan_within(kMostSteps, request, model, memo, limit);
}

Planned plan_at_once(const Request& request, const CostModel& model, PackingMemo& memo,
                     const WorkLimit* limit) {
  return plan_within(kMostStepsAtOnce, request, model, memo, limit);
}

Forest plan_best(const Request& request, const cluster::Cluster& cluster) {
  PackingMemo memo;
  return plan_best(request, model_for(request, cluster), memo);
}

Forest plan_best(const Request& request, const CostModel& model, PackingMemo& memo, const WorkLimit* limit) {
  return plan_in_full(request, model, memo, limit).forest;
}

Forest plan_by(const Planner& planner, const Request& request, const cluster::Cluster& cluster,
               PackingMemo& memo) {
  return plan_by(planner, request, model_for(request, cluster), memo);
}

Forest plan_by(const Planner& planner, const Request& request, const CostModel& model, PackingMemo& memo,
               WorkLimit* limit) {
  check(request, model.network());
  return plan(algorithm_named(planner.name), request, model, &memo, limit);
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
    if (!serves(algorithm, request) || !why_not_meant(algorithm, request).empty()) continue;
    const Forest forest = plan(algorithm, request, model);
    const Offer offered = offer(forest, model);
    candidates.push_back({algorithm.name, offered.seconds, aggregator_names(forest, cluster), offered.flows});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  return candidates;
}

}  // namespace talweg::forest
