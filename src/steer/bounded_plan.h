// What sums of which a bounded part may be lost (talweg/bounded_loss.h) send where nothing is, as forests:
// for predictions. Not how they are run.
#pragma once

#include <vector>

#include "forest/cost.h"
#include "forest/forest.h"
#include "forest/packed.h"

namespace talweg::steer {

struct BoundedPlan {
  forest::Forest words;  // what each rank tells each other one of the call, before both halves
  forest::Forest push;
  forest::Forest pull;  // after it, as a server gives its part when it has all of it
};
// `request`: of an even all_reduce. `servers`: the ranks that sum; empty: all.
BoundedPlan plan_bounded(const forest::Request& request, const forest::CostModel& model,
                         const std::vector<int>& servers, forest::PackingMemo& memo);

}  // namespace talweg::steer
