// One simulated run as the page shows it: what came of it, and when what happened. Times are virtual, from
// the beginning of the run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/frame_record.h"
#include "sim/matrix_run.h"
#include "sim/ranks.h"
#include "sim/workload_run.h"
#include "study/perf_table.h"
#include "study/plan_study.h"
#include "study/simulate_request.h"

namespace talweg::study {

struct PageRun {
  struct Card {  // a number at the top of the page
    std::string name, value, note;
  };
  struct Event {
    sim::Picoseconds at = 0;
    std::string text;
  };

  std::string title;
  std::vector<Card> cards;
  std::vector<Event> ends;  // of calls and iterations
  std::vector<sim::NetworkChange> changes;
  // What else the page's script finds under these names, where there is any: "call", "lanes", "flows".
  nlohmann::json parts = nlohmann::json::object();
};

// `study` has the bound.
void describe_call(PageRun& run, const SimulateOptions& options, const PerfRow& row,
                   const Prediction& planned, const Study& study);
void describe_ranks(PageRun& run, const SimulateOptions& options, const sim::Ranks& ranks,
                    const sim::FrameRecord& record);
void describe_flows(PageRun& run, const SimulateOptions& options, const std::vector<sim::FlowResult>& flows);
void describe_workload(PageRun& run, const SimulateOptions& options, const sim::WorkloadOutcome& outcome,
                       const std::vector<sim::StepNote>& steps);

}  // namespace talweg::study
