// Planners: each answers a Request with a Forest, one file per algorithm. A planner that cannot serve a
// request (ring for a broadcast, say) throws Error{unsupported}. None reads a clock or a random stream: ranks
// that ask the same get the same forest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/choice.h"
#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::forest {

struct Planner {
  std::string name;         // such as "ring"
  std::string description;  // one line
  std::function<bool(const Request&)> serves;
  std::function<Forest(const Request&, const cluster::Cluster&)> plan;
  // Whether it is meant for a request of this size. Others it plans as well, if asked by name, but the forest
  // may then take gigabytes.
  std::function<bool(const Request&)> suits;
  // Why not; empty where it suits.
  std::function<std::string(const Request&)> why_not;
};

// All of them, in the order in which tables list them.
const std::vector<Planner>& planners();
// Throws Error{invalid_argument} that lists the names there are.
const Planner& find_planner(const std::string& name);

// The forest of the planner that choose() takes, with the chunk sizes that the cost model likes best, and
// what is to be said of the others.
struct Planned {
  Forest forest;
  Choice choice;
  // No planner is missing, for which there might be time later.
  bool complete() const { return choice.missing.empty(); }
};

class PackingMemo;  // packed.h
class WorkLimit;    // work_limit.h

// What a choice comes to where each planner may work for so many steps: those that would take more are left
// out, and are missing where kMostSteps might do. Deterministic. The network needs workers() ==
// request.ranks. `memo`: of packings that were made before for this network, most of what planning takes.
// `limit`: whether the plan is still wanted; where it is not, planning throws WorkLimit::Reached.
Planned plan_within(std::int64_t most_steps, const Request& request, const CostModel& model,
                    PackingMemo& memo, const WorkLimit* limit = nullptr);
// With kMostSteps: what a group comes to.
Planned plan_in_full(const Request& request, const CostModel& model, PackingMemo& memo,
                     const WorkLimit* limit = nullptr);
// While a call waits, with kMostStepsAtOnce.
Planned plan_at_once(const Request& request, const CostModel& model, PackingMemo& memo,
                     const WorkLimit* limit = nullptr);
// The forest of plan_in_full().
Forest plan_best(const Request& request, const cluster::Cluster& cluster);
Forest plan_best(const Request& request, const CostModel& model, PackingMemo& memo,
                 const WorkLimit* limit = nullptr);

// That of one planner, however long it takes; with a `limit`, planning throws WorkLimit::Reached where it
// would pass it.
Forest plan_by(const Planner& planner, const Request& request, const cluster::Cluster& cluster,
               PackingMemo& memo);
Forest plan_by(const Planner& planner, const Request& request, const CostModel& model, PackingMemo& memo,
               WorkLimit* limit = nullptr);

// The aggregators that its trees lead through, by name; and what tables and logs call a plan: "ring", "packed
// through agg and agg2".
std::vector<std::string> aggregator_names(const Forest& forest, const cluster::Cluster& cluster);
std::string plan_title(const std::string& planner, const std::vector<std::string>& through);

// What each planner that serves and suits the request is predicted to take, cheapest first.
struct Candidate {
  std::string planner;
  double seconds = 0;
  std::vector<std::string> through{};  // aggregators
  int flows = 0;                       // see Offer
};
std::vector<Candidate> rank_planners(const Request& request, const cluster::Cluster& cluster);

}  // namespace talweg::forest
