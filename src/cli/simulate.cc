// talweg simulate: collectives, flows and workloads on a network that need not exist.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/number_checks.h"
#include "cli/output.h"
#include "cli/simulate_options.h"
#include "cli/simulate_run.h"
#include "cli/simulate_sweep.h"
#include "cli/simulate_text.h"
#include "talweg/error.h"

namespace talweg::cli {
namespace {

constexpr const char* kSimulateExamples = R"(
Examples:
  talweg simulate cluster.yaml --bytes 1M..64M
  talweg simulate --topology leaf-spine:leaves=4,hosts=8,spines=2 --op all_to_all --algo all --html run.html
  talweg simulate --topology fat-tree:hosts=1024,rate=100G --cm permutation.cm --routing spray
  talweg simulate cluster.yaml --workload two_jobs.yaml --priorities 8 --trace run.json
  talweg simulate cluster.yaml --fail "leaf0->spine1@1ms..2ms" --loss 0.001
  talweg simulate cluster.yaml --sweep algo=ring,halving_doubling --sweep loss=0,0.001,0.01 --csv sweep.csv
  mpirun -np 64 talweg simulate cluster.yaml --sweep seed=1,2,3,4 --sweep-folder results

Ranks run the protocol objects that talweg runs on real sockets, over a DCTCP-like transport. What is printed on
standard output depends on the input and the seed alone; how fast the simulation was goes to standard error.)";

class File {
 public:
  File(const char* flag, const std::string& path) : flag_(flag), path_(path) {
    if (path.empty() || path == "-") return;
    file_.open(path, std::ios::binary);
    if (!file_) throw Error(ErrorCode::invalid_argument, fmt::format("{}: cannot write {}", flag, path));
  }
  void write(const std::string& text) {
    if (path_ == "-") fmt::print("{}", text);
    if (!file_.is_open()) return;
    file_ << text;
    file_.close();
    if (!file_) throw Error(ErrorCode::system, fmt::format("{}: cannot write {}", flag_, path_));
  }

 private:
  const char* flag_;
  const std::string path_;
  std::ofstream file_;
};

void say_speed(const sim::RunReport& report, double seconds) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print(stderr,
             "talweg simulate: {} in {}: {} events, {} link-hops, {:.1f} M link-hops/s, peak memory {} MiB\n",
             to_string(Nanoseconds{report.duration / 1000}), wait_text(seconds), report.events,
             report.link_hops, seconds > 0 ? static_cast<double>(report.link_hops) / seconds / 1e6 : 0,
             usage.ru_maxrss / 1024);
}

int simulate(const SimulateOptions& options) {
  const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  File json("--json", options.json);
  File csv("--csv", options.csv);
  Watchers watchers;
  Progress progress(options.progress);
  watchers.progress = &progress;
  if (!options.trace.empty()) watchers.trace = std::make_unique<sim::Trace>(options.trace, options.cluster);
  if (!options.html.empty()) check_writable(options.html);
  if (!options.html.empty()) watchers.page = std::make_unique<SimulatePage>();

  std::FILE* const table = options.json == "-" || options.csv == "-" ? stderr : stdout;
  std::string page;
  const auto show = [&](const std::string& text) {
    std::fputs(text.c_str(), table);
    std::fflush(table);
    page += text;
  };
  show(simulate_header(options));
  const SimulateResult result =
      simulate_all(options, watchers, [&](const PerfRow& row) { show(row_text(row)); });
  show(simulate_body(options, result));
  if (!options.json.empty()) json.write(simulate_json(options, result).dump(2) + "\n");
  if (!options.csv.empty()) csv.write(simulate_csv(options, result));
  if (watchers.trace) watchers.trace->close();
  if (watchers.page) watchers.page->write(options.html, options.network, page);
  say_speed(result.report, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action* action) {
  auto* sub =
      app.add_subcommand("simulate", "collectives, flows and workloads on a network, packet by packet");
  sub->footer(kSimulateExamples);
  SimulateFlags flags;
  flags.add_to(*sub);
  auto sweep = std::make_shared<SweepOptions>();
  const char* group = "Sweeps";
  sub->add_option("--sweep", sweep->sweeps,
                  "option=value,value: a run for each, as for bytes=4K..1M and algo=all; several: for each "
                  "combination")
      ->allow_extra_args(false)
      ->group(group);
  sub->add_option("--sweep-folder", sweep->folder, "keep what each run gave here, and go on from there")
      ->group(group);
  sub->add_option("--jobs", sweep->jobs, "runs at once (as many as there are cores)")
      ->check(whole_number(1, 4096))
      ->group(group);
  sub->callback([flags, sweep, sub, action] {
    *action = [flags, sweep, sub] {
      if (sweep->sweeps.empty()) return simulate(flags.checked());
      const auto text = [&](const char* option) {
        return sub->get_option(option)->empty() ? "" : sub->get_option(option)->as<std::string>();
      };
      sweep->json = text("--json");
      sweep->csv = text("--csv");
      check_outputs({sweep->json, sweep->csv}, {text("network"), text("--cm"), text("--workload")});
      return run_sweep(*sub, *sweep);
    };
  });
}

}  // namespace talweg::cli
