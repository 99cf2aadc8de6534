// talweg simulate: collectives, flows and workloads on a network that need not exist.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "study/simulate_run.h"
#include "study/simulate_sweep.h"
#include "study/simulate_text.h"
#include "study/why_not.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/table.h"

namespace talweg::cli {
namespace {

using study::SimulateRequest;
using text::OutputFile;

constexpr const char* kSimulateExamples = R"(
Examples:
  talweg simulate cluster.yaml --bytes 1M..64M
  talweg simulate --topology leaf-spine:leaves=4,hosts=8,spines=2 --op all_to_all --algo all --html run.html
  talweg simulate --topology fat-tree:hosts=1024,rate=100G --flows permutation:size=2MB --transport ndp
  talweg simulate cluster.yaml --workload two_jobs.yaml --priorities 8 --trace run.json
  talweg simulate cluster.yaml --fail "leaf0->spine1@1ms..2ms" --loss 0.001
  talweg simulate cluster.yaml --sweep algo=ring,halving_doubling --sweep loss=0,0.001,0.01 --csv sweep.csv
  mpirun -np 64 talweg simulate cluster.yaml --sweep seed=1,2,3,4 --sweep-folder results

Ranks run the protocol objects that talweg runs on real sockets, over a transport like DCTCP, NDP, EQDS, pFabric or
PIAS. What is printed on standard output depends on the input and the seed alone; how fast the simulation was goes to
standard error.)";

struct SimulateOutputs {
  std::string json, csv, trace, html;
  bool progress = false;
  bool wide = false;

  bool takes_standard_output() const { return json == "-" || csv == "-"; }
  void check(const SimulateRequest& request) const {
    if (json == "-" && csv == "-") refuse("--json - and --csv -: only one can have standard output");
    text::check_outputs({json, csv, trace, html}, {request.network, request.matrix, request.workload});
  }
};

void say_speed(const sim::RunReport& report, double seconds) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  say("talweg simulate: {} in {}: {} events, {} link-hops, {:.1f} M link-hops/s, peak memory {} MiB\n",
      fmt::format("{:.3f} us", static_cast<double>(report.duration) * 1e-6), study::wait_text(seconds),
      report.events, report.link_hops,
      seconds > 0 ? static_cast<double>(report.link_hops) / seconds / 1e6 : 0, usage.ru_maxrss / 1024);
}

int simulate(const SimulateRequest& request, const SimulateOutputs& outputs) {
  const auto begun = std::chrono::steady_clock::now();
  study::SimulateOptions options = checked(request);
  options.perf.columns = outputs.wide ? study::PerfColumns::all : study::PerfColumns::once;
  for (const std::string& note : options.notes) say("talweg simulate: note: {}\n", note);
  const OutputFile json("--json", outputs.json), csv("--csv", outputs.csv), html("--html", outputs.html);
  study::Watchers watchers;
  study::Progress progress(outputs.progress);
  watchers.progress = &progress;
  if (!outputs.trace.empty()) watchers.trace = std::make_unique<sim::Trace>(outputs.trace, options.cluster);
  if (html.wanted()) watchers.page = std::make_unique<study::SimulatePage>();

  std::FILE* const table = outputs.takes_standard_output() ? stderr : stdout;
  std::string page;
  const auto show = [&](const std::string& text) {
    std::fputs(text.c_str(), table);
    std::fflush(table);
    page += text;
  };
  show(simulate_header(options));
  const study::SimulateResult result =
      simulate_all(options, watchers, [&](const study::PerfRow& row) { show(row_text(options.perf, row)); });
  show(simulate_body(options, result));
  if (json.wanted()) json.write(text::json_document(simulate_json(options, result)));
  if (csv.wanted()) csv.write(simulate_csv(options, result));
  if (watchers.trace) watchers.trace->close();
  if (watchers.page) html.write(watchers.page->text(options.network, page, why_not(result.planned)));
  say_speed(result.report, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  return 0;
}

int sweep(const study::SweepRequest& request, const SimulateOutputs& outputs) {
  for (const auto& [flag, path] : {std::pair{"--trace", outputs.trace}, {"--html", outputs.html}})
    if (!path.empty()) refuse("{}: not with --sweep", flag);
  const OutputFile json("--json", outputs.json), csv("--csv", outputs.csv);
  const auto result = run_sweep(request);
  if (!result) return 0;
  if (!outputs.takes_standard_output()) text::print(to_text(*result, outputs.wide));
  if (csv.wanted()) csv.write(text::csv(result->rows));
  if (json.wanted())
    json.write(text::json_document(
        {{"format", "talweg simulate sweep"}, {"format_version", 1}, {"points", result->points}}));
  return result->failed ? kFailureExitCode : 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action* action) {
  auto* sub =
      app.add_subcommand("simulate", "collectives, flows and workloads on a network, packet by packet");
  sub->footer(kSimulateExamples);
  auto request = std::make_shared<SimulateRequest>();
  add_fields(*sub, study::simulate_fields(), request);
  auto outputs = std::make_shared<SimulateOutputs>();
  const char* group = "Output";
  sub->add_option("-J,--json", outputs->json, "results as JSON to this file; - for standard output")
      ->group(group);
  sub->add_option("--csv", outputs->csv, "results as CSV; likewise")->group(group);
  sub->add_option("--trace", outputs->trace, "what moved when, for ui.perfetto.dev")->group(group);
  sub->add_option("--html", outputs->html,
                  "a page: the numbers, the network and the ranks or flows over time")
      ->group(group);
  add_wide(*sub, outputs->wide)->group(group);
  sub->add_flag("--progress", outputs->progress, "say how far it is, even to a file")->group(group);
  sub->add_option_function<std::string>(
         "--sparse-rows",
         [](const std::string&) {
           refuse(
               "--sparse-rows: simulate has no sums of sparse tensors by rows: talweg perf measures them; "
               "--sparse-density and --algo switch have sparse vectors");
         },
         "not simulated")
      ->group("");
  auto points = std::make_shared<study::SweepRequest>();
  group = "Sweeps";
  sub->add_option("--sweep", points->sweeps,
                  "option=value,value: a run for each, as for bytes=4K..1M and algo=all; several: for each "
                  "combination")
      ->allow_extra_args(false)
      ->group(group);
  sub->add_option("--sweep-folder", points->folder, "keep what each run gave here, and go on from there")
      ->group(group);
  sub->add_option("--jobs", points->jobs, "runs at once (as many as there are cores)")
      ->check(whole_number(1, 4096))
      ->group(group);
  sub->callback([=] {
    std::string idle;
    for (const char* name : {"--jobs", "--sweep-folder"})
      if (points->sweeps.empty() && sub->count(name) > 0) idle = name;
    *action = [=] {
      if (!idle.empty()) refuse("{}: it needs --sweep", idle);
      outputs->check(*request);
      points->base = *request;
      return points->sweeps.empty() ? simulate(*request, *outputs) : sweep(*points, *outputs);
    };
  });
}

}  // namespace talweg::cli
