#include "steer/bounded_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "forest/choice.h"
#include "forest/planner.h"
#include "protocol/bounded/shape.h"

namespace talweg::steer {

BoundedPlan plan_bounded(const forest::Request& request, const forest::CostModel& model,
                         const std::vector<int>& servers, forest::PackingMemo& memo) {
  const auto direct = [&](const forest::Request& what) {
    return forest::plan_by(forest::find_planner("direct"), what, model, memo);
  };
  std::vector<int> ascending = servers;
  std::ranges::sort(ascending);
  const auto count = static_cast<std::size_t>(
      std::accumulate(request.counts.begin(), request.counts.end(), std::int64_t{0}));
  forest::Request half = request;
  half.counts.clear();
  for (const std::size_t part :
       protocol::bounded_parts(count, static_cast<std::size_t>(request.ranks), ascending))
    half.counts.push_back(static_cast<std::int64_t>(part));
  half.op = Collective::reduce_scatter;
  BoundedPlan plan;
  plan.push = direct(half);
  half.op = Collective::all_gather;
  plan.pull = direct(half);
  half.counts.assign(half.counts.size(), 1);
  plan.words = direct(half);
  return plan;
}

}  // namespace talweg::steer
