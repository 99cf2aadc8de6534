#include "protocol/plans.h"

#include "protocol/forest/local_plan.h"

namespace talweg::protocol {

std::shared_ptr<const Plan> make_plan(std::shared_ptr<const forest::Forest> forest, NodeId self,
                                      const PlanLimits& limits) {
  return make_local_plan(std::move(forest), self, limits);
}

std::vector<std::shared_ptr<const Plan>> make_plans(const std::shared_ptr<const forest::Forest>& forest,
                                                    std::uint32_t digest, const forest::LookAhead& ahead) {
  const auto plans = make_local_plans(forest, digest, ahead);
  return {plans.begin(), plans.end()};
}

}  // namespace talweg::protocol
