// What is planned for simulated calls, and what is to be said of it beside their simulated times: what plans
// are predicted to take and what limits them, the bound, and why planners that are quicker are not taken.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "study/perf_case.h"
#include "study/plan_study.h"
#include "study/simulate_request.h"

namespace talweg::study {

// A study of what is simulated, in which no row is known yet. Its rows come from plan_call().
Study study_of_calls(const SimulateOptions& options);

struct CallPlan {
  std::shared_ptr<const forest::Forest> forest;
  Prediction prediction;
};

// By this planner; "": by the one that a group takes. Notes in the study's row of this size what is predicted
// of it, and, where no planner was named, who was passed over and why. What those would take is predicted
// only where planning them is quick, by the steps that it takes.
CallPlan plan_call(const cluster::Cluster& network, const PerfCase& c, const std::string& planner,
                   Study& study);

// What part of the bound a call reaches that took so long; nothing where there is no bound.
std::optional<double> part_of_bound(const Study& study, const PerfCase& c, double seconds);

}  // namespace talweg::study
