#include "study/page_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "study/flow_statistics.h"
#include "study/plan_report.h"
#include "study/rank_lanes.h"
#include "study/simulate_plan.h"

namespace talweg::study {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostEnds = 100;  // of calls and iterations: closer lines say nothing

std::string time_text(sim::Picoseconds time) {
  return duration_text(sim::seconds(time));
}

// Of many only some, evenly.
void thin(std::vector<PageRun::Event>& events) {
  if (events.size() <= kMostEnds) return;
  std::vector<PageRun::Event> kept;
  for (std::size_t i = 1; i <= kMostEnds; ++i)
    kept.push_back(std::move(events[events.size() * i / kMostEnds - 1]));
  events = std::move(kept);
}

void note_ends_of_calls(PageRun& run, const sim::Ranks& ranks, int warm_up) {
  std::map<std::uint64_t, sim::Picoseconds> ends;
  for (const sim::CollectiveResult& result : ranks.results())
    if (result.ended != sim::kNever) ends[result.call] = std::max(ends[result.call], result.ended);
  for (const auto& [call, end] : ends)
    run.ends.push_back({end, fmt::format("end of call {}{}", call + 1,
                                         call < static_cast<std::uint64_t>(warm_up) ? ", a warm-up" : "")});
  thin(run.ends);
}

}  // namespace

void describe_call(PageRun& run, const SimulateOptions& options, const PerfRow& row,
                   const Prediction& planned, const Study& study) {
  const PerfCase& c = row.what;
  const Timing& timing = *row.out_of_place;
  const double seconds = timing.time_us * 1e-6;
  const double predicted = planned.seconds.value_or(0);
  run.cards.push_back({"time of a call", duration_text(seconds),
                       fmt::format("p50 {}, p99 {}", duration_text(timing.p50_us * 1e-6),
                                   duration_text(timing.p99_us * 1e-6))});
  const double busbw = bus_bandwidth(c, timing);
  if (busbw > 0)
    run.cards.push_back({"busbw", fmt::format("{:.4g} GB/s", busbw),
                         fmt::format("algbw {:.4g} GB/s", algorithm_bandwidth(c, timing))});
  Json call = {
      {"algorithm", algorithm_of(row)}, {"bytes", vector_bytes(c)}, {"time", seconds}, {"busbw", busbw},
      {"planned", predicted},           {"bound", Json()}};
  const auto part = part_of_bound(study, c, seconds);
  if (part) call["bound"] = *part * seconds;
  run.cards.push_back({"of the bound", part ? fmt::format("{:.1f} %", 100 * *part) : "-",
                       study.bound ? to_words(*study.bound, options.cluster) : study.no_bound});
  run.cards.push_back({"planned", duration_text(predicted),
                       fmt::format("{:.2f} of the simulated time", predicted / seconds)});
  run.cards.push_back({"limit of the plan", forest::name(planned.breakdown.limit), planned.breakdown.reason});
  run.parts["call"] = std::move(call);
}

void describe_ranks(PageRun& run, const SimulateOptions& options, const sim::Ranks& ranks,
                    const sim::FrameRecord& record) {
  note_ends_of_calls(run, ranks, options.perf.warmup);
  run.parts["lanes"] = call_lanes(options.cluster, ranks, record);
}

void describe_flows(PageRun& run, const SimulateOptions& options, const std::vector<sim::FlowResult>& flows) {
  if (flows.empty()) return;
  const FlowStatistics found = statistics_of(flows, options.cluster, options.simulation.transport);
  sim::Picoseconds begin = sim::kNever, end = 0;
  std::int64_t bytes = 0;
  for (const sim::FlowResult& flow : flows) {
    begin = std::min(begin, flow.started);
    end = std::max(end, flow.ended);
    bytes += flow.connection.bytes;
  }
  const double seconds = sim::seconds(std::max<sim::Picoseconds>(1, end - begin));
  run.cards.push_back({"last flow ended", time_text(end),
                       fmt::format("{} flows, {:.4g} GB/s in all", flows.size(),
                                   static_cast<double>(bytes) / seconds * 1e-9)});
  run.cards.push_back({"a flow took, median", time_text(sim::completion_percentile(flows, 0.5)),
                       fmt::format("p99 {}, most {}", time_text(sim::completion_percentile(flows, 0.99)),
                                   time_text(sim::completion_percentile(flows, 1)))});
  run.cards.push_back({"slowdown, median", fmt::format("{:.3g}", found.p50),
                       fmt::format("p99 {:.3g}; 1 is a flow alone", found.p99)});
  Json completion = Json::array(), by_size = Json::array();
  for (const auto& [took, share] : found.completion) completion.push_back({took, share});
  for (const FlowStatistics::OfSize& size : found.by_size)
    by_size.push_back({size.bytes, size.flows, size.p50, size.p99});
  run.parts["flows"] = {{"completion", std::move(completion)}, {"by_size", std::move(by_size)}};
}

void describe_workload(PageRun& run, const SimulateOptions& options, const sim::WorkloadOutcome& outcome,
                       const std::vector<sim::StepNote>& steps) {
  for (const sim::GroupOutcome& group : outcome.groups) {
    sim::Picoseconds at = group.started, longest = 0;
    for (std::size_t i = 0; i < group.iterations.size(); ++i) {
      at += group.iterations[i];
      longest = std::max(longest, group.iterations[i]);
      run.ends.push_back({at, fmt::format("{}: end of iteration {}", group.name, i + 1)});
    }
    const auto count = static_cast<sim::Picoseconds>(std::max<std::size_t>(1, group.iterations.size()));
    const auto all = static_cast<double>(std::max<sim::Picoseconds>(1, group.ended - group.started));
    run.cards.push_back({"an iteration of " + group.name, time_text((group.ended - group.started) / count),
                         fmt::format("longest {}; {:.0f} % in collectives", time_text(longest),
                                     100 * static_cast<double>(group.communication) / all)});
  }
  std::ranges::stable_sort(run.ends, {}, &PageRun::Event::at);
  thin(run.ends);
  run.changes.insert(run.changes.end(), options.job.changes.begin(), options.job.changes.end());
  if (!steps.empty()) run.parts["lanes"] = step_lanes(options.cluster, steps);
  describe_flows(run, options, outcome.flows);
}

}  // namespace talweg::study
