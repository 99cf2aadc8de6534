#include "study/simulate_plan.h"

#include <algorithm>
#include <utility>

#include "forest/bound.h"
#include "forest/cost.h"
#include "forest/packed.h"
#include "forest/planner.h"
#include "forest/work_limit.h"

namespace talweg::study {
namespace {

forest::Request request_of_case(const PerfCase& c) {
  return forest::even_request(c.op, c.ranks, has_root(c.op) ? c.root : 0,
                              static_cast<std::int64_t>(vector_elements(c)),
                              static_cast<std::int64_t>(size_of(c.type)));
}

std::size_t planner_index(const Study& study, const std::string& planner) {
  return static_cast<std::size_t>(std::ranges::find(study.planners, planner) - study.planners.begin());
}

// Sizes come one after the other, several planners of one together.
StudyRow& row_for(Study& study, std::int64_t bytes) {
  if (study.rows.empty() || study.rows.back().bytes != bytes)
    study.rows.push_back({bytes, std::vector<Prediction>(study.planners.size()), -1});
  return study.rows.back();
}

}  // namespace

Study study_of_calls(const SimulateOptions& options) {
  Study study;
  study.op = options.perf.op;
  study.root = has_root(study.op) ? options.perf.root : 0;
  study.ranks = options.cluster.workers();
  study.no_bound = forest::has_bound(study.op) ? "no bound was asked for"
                                               : "no bound is known for " + std::string(name(study.op));
  const forest::Request any = forest::even_request(study.op, study.ranks, study.root, 0, 1);
  for (const forest::Planner& planner : forest::planners())
    if (planner.serves(any)) study.planners.push_back(planner.name);
  return study;
}

CallPlan plan_call(const cluster::Cluster& network, const PerfCase& c, const std::string& planner,
                   Study& study) {
  const forest::Request request = request_of_case(c);
  const forest::CostModel model(network);
  forest::PackingMemo memo;
  StudyRow& row = row_for(study, static_cast<std::int64_t>(vector_bytes(c)));
  const auto keep = [&](const forest::Forest& forest) -> Prediction& {
    Prediction& its = row.predictions.at(planner_index(study, forest.planner));
    its.seconds = model.seconds(forest);
    its.through = forest::aggregator_names(forest, network);
    its.breakdown = model.breakdown(forest);
    return its;
  };
  if (!planner.empty()) {
    auto forest = std::make_shared<const forest::Forest>(
        forest::plan_by(forest::find_planner(planner), request, model, memo));
    const Prediction& its = keep(*forest);
    return {std::move(forest), its};
  }
  forest::Planned planned = forest::plan_in_full(request, model, memo);
  row.choice = std::move(planned.choice);
  row.taken = static_cast<int>(planner_index(study, planned.forest.planner));
  for (const forest::NotTaken& other : row.choice.why_not) {
    if (other.reason != forest::NotTaken::Reason::no_gain) continue;
    try {
      forest::WorkLimit limit(forest::kMostStepsAtOnce);
      keep(forest::plan_by(forest::find_planner(other.planner), request, model, memo, &limit));
    } catch (const forest::WorkLimit::Reached&) {
      continue;  // it stays unknown
    }
  }
  auto forest = std::make_shared<const forest::Forest>(std::move(planned.forest));
  const Prediction& its = keep(*forest);
  return {std::move(forest), its};
}

std::optional<double> part_of_bound(const Study& study, const PerfCase& c, double seconds) {
  const auto bytes = static_cast<double>(vector_bytes(c));
  if (!study.bound || study.bound->rate.denominator == 0 || bytes <= 0 || seconds <= 0) return {};
  return 8 * bytes / study.bound->rate.value() / seconds;
}

}  // namespace talweg::study
