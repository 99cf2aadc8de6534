// The runs behind `talweg simulate` and `talweg perf --sim`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/matrix_run.h"
#include "sim/report.h"
#include "sim/trace.h"
#include "sim/workload_run.h"
#include "study/perf_table.h"
#include "study/plan_study.h"
#include "study/simulate_html.h"
#include "study/simulate_progress.h"
#include "study/simulate_request.h"

namespace talweg::study {

struct SimulateResult {
  std::vector<PerfRow> rows;           // of collectives
  std::vector<Prediction> plans;       // of each of these
  Study planned;                       // their bound, and what is known of planners that are not taken
  std::vector<sim::FlowResult> flows;  // of a matrix
  sim::WorkloadOutcome workload;
  sim::RunReport report;
};

// What watches the runs; all may be missing.
struct Watchers {
  std::unique_ptr<sim::Trace> trace;
  std::unique_ptr<SimulatePage> page;
  Progress* progress = nullptr;
  std::function<void()> look;   // now and then, where there is no progress; what it throws ends the run
  sim::Picoseconds traced = 0;  // where in the trace the next run begins
};

// One line of the table: a simulation of its own. `algorithm` "": the one that is predicted to be cheapest.
// Adds to all of the result but its bound; `result.planned` comes from study_of_calls().
void simulate_case(const SimulateOptions& options, const PerfCase& c, const std::string& algorithm,
                   Watchers& watchers, SimulateResult& result);

// All that the options ask for. `on_row` hears of each line as soon as it is there.
SimulateResult simulate_all(const SimulateOptions& options, Watchers& watchers,
                            const std::function<void(const PerfRow&)>& on_row);

// What talweg perf would run, on a network that is a file: with the processors' costs and Linux's timers.
// Throws Error{invalid_argument} where the network is too small for it.
SimulateOptions options_of_perf(const PerfOptions& perf, const std::string& network);

}  // namespace talweg::study
