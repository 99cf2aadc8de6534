// Planners: each answers a Request with a Forest, one file per algorithm. A planner that cannot serve a
// request (ring for a broadcast, say) throws Error{unsupported}. None reads a clock or a random stream: ranks
// that ask the same get the same forest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
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
  // Whether to plan for so many ranks takes no more than seconds. Where it may, it is done if asked by name.
  std::function<bool(const Request&)> quick;
};

// All of them, in the order in which tables list them.
const std::vector<Planner>& planners();
// Throws Error{invalid_argument} that lists the names there are.
const Planner& find_planner(const std::string& name);

// What choosing asks of a plan.
struct Offer {
  double seconds = 0;  // predicted; infinity: there is no plan
  int flows = 0;       // pairs of nodes of which the one sends to the other
};
Offer offer(const Forest& forest, const CostModel& model);

// The forest with the least predicted time among all planners that serve and suit the request and are quick,
// with the chunk sizes that the cost model likes best (ties: where flows are long, the fewest, as they
// disturb each other; then the first in `planners()`). Deterministic. The cluster needs workers() ==
// request.ranks. "packed" is left out where it can win no more than a few percent.
Forest plan_best(const Request& request, const cluster::Cluster& cluster);

// The same, and that of one planner, with the packings that were made before for this network: most of what
// planning takes. `limit`: planning may throw WorkLimit::Reached.
class PackingMemo;  // packed.h
class WorkLimit;    // work_limit.h
Forest plan_best(const Request& request, const CostModel& model, PackingMemo& memo,
                 WorkLimit* limit = nullptr);
Forest plan_by(const Planner& planner, const Request& request, const cluster::Cluster& cluster,
               PackingMemo& memo);
Forest plan_by(const Planner& planner, const Request& request, const CostModel& model, PackingMemo& memo,
               WorkLimit* limit = nullptr);

// The same choice among what can be planned while a call waits, which is decided by counted steps and not by
// a clock: planners that would take longer than some 20 ms are left out. `complete`: none was, so that
// plan_best() would return the same. `limit`: whether the plan is still wanted; if not, planning throws
// WorkLimit::Reached.
struct PlanAtOnce {
  Forest forest;
  bool complete = true;
};
PlanAtOnce plan_at_once(const Request& request, const CostModel& model, PackingMemo& memo,
                        const WorkLimit* limit = nullptr);

// Whose forest plan_best() returns, where `offer` knows what each planner's forest takes; it is asked only
// of those that the choice is among.
std::string best_planner(const Request& request, const CostModel& model,
                         const std::function<Offer(const std::string& planner)>& offer);

// The aggregators that its trees lead through, by name; and what tables and logs call a plan: "ring", "packed
// through agg and agg2".
std::vector<std::string> aggregator_names(const Forest& forest, const cluster::Cluster& cluster);
std::string plan_title(const std::string& planner, const std::vector<std::string>& through);

// The table behind that choice, cheapest first.
struct Candidate {
  std::string planner;
  double seconds = 0;
  std::vector<std::string> through{};  // aggregators
  int flows = 0;                       // see Offer
};
std::vector<Candidate> rank_planners(const Request& request, const cluster::Cluster& cluster);

}  // namespace talweg::forest
