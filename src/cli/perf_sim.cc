// talweg perf --sim: what talweg perf would run, on a network that is a file.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "cli/output.h"
#include "cli/simulate_run.h"
#include "cli/simulate_text.h"
#include "formats/import.h"
#include "talweg/error.h"

namespace talweg::cli {

int perf_simulated(const PerfOptions& perf) {
  SimulateOptions options;
  options.perf = perf;
  check_outputs({perf.json}, {perf.sim});
  options.network = perf.sim;
  options.cluster = formats::load_any(perf.sim);
  options.ranks.carry_payloads = false;
  options.ranks.costs = tcp_host_costs(options.cluster);
  auto& network = options.simulation.network;
  network.switch_queue.limit_bytes = kQueueBytes;
  network.switch_queue.mark_bytes = network.host_queue.mark_bytes = kMarkBytes;
  options.simulation.transport.least_rto = options.simulation.transport.first_rto =
      Nanoseconds{200'000'000};  // Linux
  const int ranks = options.cluster.workers();
  if (perf.op == Collective::send_recv && ranks < 2)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("send_recv: {} has one worker, needs two", perf.sim));
  if (has_root(perf.op) && perf.root >= ranks)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("-r {}: there are {} ranks, numbered from 0", perf.root, ranks));
  const std::vector<PerfCase> cases = perf_cases(perf, ranks);
  std::ofstream file;
  if (!perf.json.empty() && perf.json != "-") {
    file.open(perf.json);
    if (!file) throw Error(ErrorCode::invalid_argument, fmt::format("--json: cannot write {}", perf.json));
  }

  std::FILE* const table = perf.json == "-" ? stderr : stdout;
  const auto show = [&](const std::string& text) {
    std::fputs(text.c_str(), table);
    std::fflush(table);
  };
  show(simulate_header(options));
  Watchers watchers;
  Progress progress(false);
  watchers.progress = &progress;
  SimulateResult result;
  for (const PerfCase& c : cases) {
    result.rows.push_back(simulate_case(options, c, "", watchers, result.report));
    show(row_text(result.rows.back()));
  }
  show(simulate_body(options, result));
  const std::string json = simulate_json(options, result).dump(2) + "\n";
  if (perf.json == "-") fmt::print("{}", json);
  if (file.is_open()) file << json;
  return 0;
}

}  // namespace talweg::cli
