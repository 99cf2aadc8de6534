// Packings: trees that together carry as much as the network does; behind the planner "packed".
//
//   for (const Packing& packing : pack(request, model)) packing.rate, packing.trees.size();
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "forest/cost.h"
#include "forest/forest.h"
#include "forest/tree_packer.h"
#include "forest/work_limit.h"

namespace talweg::forest {

struct Packing {
  std::vector<PackedTree> trees;  // of nodes of the cluster
  double rate = 0;                // bit/s, of all of them together
  double upper = 0;               // that no trees over these routes can pass
};

// The first has at least 99 % of the upper bound; each next one has fewer trees and less of the rate. For
// all_reduce, reduce, broadcast, reduce_scatter and all_gather of two ranks or more. Depends on the request
// only by operation, root, and how counts relate. To make the trees few takes most of the time.
// Throws WorkLimit::Reached, if there is a limit. `rate_of_data`: for hosts, the rate that trees for data
// have.
enum class Trees { few, any };
// What links are charged for: the data alone; acknowledgements as well where links are quicker one way than
// the other; or `hosts`, what many that send to one host at once, and its processor, cost besides. Then links
// that are hardly quicker than all trees for data together have room for no more than one edge of each, and
// rate and bound are those of what hosts leave of the network.
enum class Charge { all, data, hosts };
std::vector<Packing> pack(const Request& request, const CostModel& model, Trees trees = Trees::few,
                          WorkLimit* limit = nullptr, Charge charge = Charge::all, double rate_of_data = 0);

// The packings of one network, each made once. Not for two threads at once.
class PackingMemo {
 public:
  explicit PackingMemo(Trees trees = Trees::few) : trees_(trees) {}
  // Throws WorkLimit::Reached, if there is a limit; at once where it was reached before.
  const std::vector<Packing>& find(const Request& request, const CostModel& model, WorkLimit* limit = nullptr,
                                   Charge charge = Charge::all);

 private:
  using Key = std::tuple<Collective, NodeId, Charge, std::vector<double>>;  // all that a packing depends on
  // Where a program gathers parts of ever new proportions, the oldest are not worth their memory.
  static constexpr std::size_t kMost = 64;
  std::map<Key, std::vector<Packing>> known_;  // none: it took too long
  Trees trees_;
};

// The planner, with packings that are made already where they are.
Forest plan_from_packings(const Request& request, const CostModel& model, PackingMemo& memo,
                          WorkLimit* limit = nullptr);

// Planning takes milliseconds where other planners take microseconds: not where a plan reaches these parts of
// what no plan can pass. Little is left to be won then: on links what headers of chunks take, else what each
// message costs.
inline constexpr double kWorthOfLinks = 0.994;
inline constexpr double kWorthOtherwise = 0.95;
// Whether the planner could beat a forest that takes `seconds` by more than that: what the links of each
// worker, and of all workers together, and their processors allow is not reached yet. Quick, and never wrong
// about a no.
bool packing_may_beat(double seconds, const Request& request, const CostModel& model);

}  // namespace talweg::forest
