// The algorithms behind the planners, one file each (ring.cc, chain.cc, ...); planner.cc makes the table of
// them. Each makes the trees of a valid request that it serves and leaves the chunk sizes to the cost model.
#pragma once

#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::forest {

Forest plan_ring(const Request& request, const CostModel& model);
Forest plan_chain(const Request& request, const CostModel& model);
Forest plan_double_binary_tree(const Request& request, const CostModel& model);
Forest plan_halving_doubling(const Request& request, const CostModel& model);
Forest plan_binomial(const Request& request, const CostModel& model);
Forest plan_star(const Request& request, const CostModel& model);
Forest plan_sharded_star(const Request& request, const CostModel& model);
// What that takes, in steps of about a nanosecond.
std::int64_t sharded_star_steps(const CostModel& model);
Forest plan_direct(const Request& request, const CostModel& model);
Forest plan_one_hop(const Request& request, const CostModel& model);
Forest plan_recursive_doubling(const Request& request, const CostModel& model);
Forest plan_packed(const Request& request, const CostModel& model);

}  // namespace talweg::forest
