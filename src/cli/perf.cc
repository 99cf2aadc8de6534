// talweg perf: how fast the collectives are here, and whether they are right.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/perf_flags.h"
#include "group/environment.h"
#include "group/switch_stream.h"
#include "study/by_bounded_loss.h"
#include "study/perf_bounded.h"
#include "study/perf_measure.h"
#include "study/perf_rows.h"
#include "study/perf_switch.h"
#include "study/perf_table.h"
#include "study/simulate_plan.h"
#include "study/simulate_run.h"
#include "study/simulate_text.h"
#include "study/version.h"
#include "talweg/bounded_loss.h"
#include "talweg/group.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/table.h"
#include "wire/aggregation.h"

namespace talweg::cli {
namespace {

using namespace study;

constexpr const char* kPerfExamples = R"(
Examples:
  talweg run -n 4 -- talweg perf all_reduce -b 4K -e 64M -f 4
  talweg run -n 2 -- talweg perf all_gather -b 1M -e 1M -d bfloat16 -n 100 -a 3
  talweg run -n 4 --no-tag-output -- talweg perf all_reduce -b 8 -e 1M -f 2 -z 1 --json result.json
  mpirun -np 4 talweg perf broadcast -r all
  talweg perf all_reduce -b 1M -e 64M -f 4 --sim cluster.yaml        # simulated, with the processors' costs
  talweg run -n 4 -- talweg perf all_reduce --may-lose 0.01     # sums of which 1 % may be lost (BoundedSums)
  talweg run -n 4 -- talweg perf all_reduce --may-lose 0.01 --servers 0     # rank 0 as a parameter server
  talweg run -n 4 -- talweg perf all_reduce --switch 127.0.0.1:4711 --sparse-density 0.1    # sums of a switch
  talweg run -n 4 -- talweg perf all_reduce --sparse-rows 64 --sparse-density 0.01     # sums of sparse tensors
  talweg run -n 4 -- talweg perf all_reduce --switch 127.0.0.1:4711 --may-lose 0.01  # of which 1 % may be late

Collectives: all_reduce, reduce, broadcast, reduce_scatter, all_gather, all_to_all, gather, scatter, send_recv, barrier.
Flags, columns and # lines are those of nccl-tests; Talweg's own columns follow on the right. Sizes are rounded
down to whole elements, of each rank's part where the vector is made of parts; those that hold less than one are left
out. busbw is algbw times what the slowest
link of a ring would carry, 2(n-1)/n for all-reduce of n ranks. GB/s is 1e9 bytes/s. #wrong counts elements that
differ from an exact serial reference, and inputs that were changed. A wrong value makes the exit code 1 on every rank.)";

std::string now_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

PerfTotals totals_of(Group& group, const std::vector<PerfRow>& rows, std::uint64_t sent_elsewhere) {
  PerfTotals totals = summed(rows);
  const GroupStatistics own = group.statistics();
  std::uint64_t sent = own.bytes_sent + sent_elsewhere;
  std::uint64_t most[] = {own.peak_buffer_bytes, own.shared_memory_bytes};
  group.all_reduce(&sent, &sent, 1, DataType::u64, ReduceOp::sum);
  group.all_reduce(most, most, 2, DataType::u64, ReduceOp::max);
  totals.wire_bytes = sent;
  totals.peak_buffer_bytes = most[0];
  totals.shared_memory_bytes = most[1];
  return totals;
}

std::string lost_text(const PerfOptions& options, const std::vector<PerfRow>& rows) {
  std::string text;
  for (const std::string& sentence : lost_sentences(options, rows, options.may_lose.value_or(0), false))
    for (const std::string& line :
         text::wrapped(sentence, options.columns == PerfColumns::all ? INT_MAX : text::kTableWidth - 2))
      text += fmt::format("# {}\n", line);
  return text;
}

// Rank 0's output. With --json - the table makes room on standard output and goes to standard error.
class Printer {
 public:
  Printer(bool prints, const std::string& json) : json_("--json", prints ? json : ""), prints_(prints) {}

  void line(const std::string& text) const {
    if (!prints_) return;
    std::FILE* const table = json_.is_standard_output() ? stderr : stdout;
    std::fputs(text.c_str(), table);
    std::fflush(table);
  }
  void json(const nlohmann::json& document) const { json_.write(text::json_document(document)); }

 private:
  text::OutputFile json_;
  bool prints_;
};

int perf_simulated(const PerfOptions& perf, const std::string& network, const std::string& json) {
  text::check_outputs({json}, {network});
  const SimulateOptions options = options_of_perf(perf, network);
  const std::vector<PerfCase> cases = perf_cases(perf, options.cluster.workers());
  const Printer printer(true, json);
  printer.line(simulate_header(options));
  Watchers watchers;
  Progress progress(false);
  watchers.progress = &progress;
  SimulateResult result;
  result.planned = study_of_calls(options);
  for (const PerfCase& c : cases) {
    simulate_case(options, c, options.algorithms.front(), watchers, result);
    printer.line(row_text(perf, result.rows.back()));
  }
  printer.line(simulate_body(options, result));
  printer.json(simulate_json(options, result));
  return 0;
}

// `hosts`: by rank, "name pid".
bool is_first_of_host(const std::vector<std::string>& hosts, int rank) {
  const auto host_name = [](const std::string& host) { return host.substr(0, host.find(' ')); };
  for (int before = 0; before < rank; ++before)
    if (host_name(hosts[static_cast<std::size_t>(before)]) ==
        host_name(hosts[static_cast<std::size_t>(rank)]))
      return false;
  return true;
}

// Ranks go by trees until all have joined the group's switch, and what is measured would be both. Where it
// cannot be joined, description and plans say so.
void await_switch(Group& group) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (std::int32_t joining = 1; joining != 0;) {
    joining = std::chrono::steady_clock::now() < until &&
                      group.describe().find(group::kBeingJoined) != std::string::npos
                  ? 1
                  : 0;
    group.all_reduce(&joining, &joining, 1, DataType::i32, ReduceOp::max);
    if (joining != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int perf_measured(const PerfOptions& options, const SwitchPerfOptions& how, const RowsPerfOptions& of_rows,
                  const std::string& json) {
  const auto launcher = group::find_place({});
  if (of_rows.width > 0) check_rows_perf(of_rows, options, launcher.size);
  if (!how.address.empty()) check_switch_perf(how, options, launcher.size);
  const Printer printer(launcher.rank == 0, json);
  GroupOptions joining;
  if (!how.address.empty()) joining.switch_address = "none";  // this one has all of the switch
  const auto group = Group::join(joining);
  const int ranks = group->size();
  await_switch(*group);
  if (options.op == Collective::send_recv && ranks < 2)
    refuse("send_recv needs at least two ranks: talweg run -n 2 -- talweg perf send_recv");
  check_root(options, ranks);

  const std::vector<PerfCase> cases =
      of_rows.width > 0 ? rows_cases(of_rows, options, ranks) : perf_cases(options, ranks);
  PerfSetup setup{kVersion, {}, group->describe(), launcher.size == 1};
  for (int rank = 0; rank < ranks; ++rank) setup.hosts.push_back(group->host_of(rank));
  std::optional<live::SwitchClient> client;
  int racks = 1;
  if (!how.address.empty()) {
    live::SwitchClientOptions at = switch_client_options(how, options, *group);
    at.say = [](const std::string& text) { say("talweg perf: {}\n", text); };
    client.emplace(at);
    racks = at.racks;
    setup.description += describe(client->terms(), at.racks) + "\n" + sparseness(how.sparse, ranks);
    if (how.floats_as)
      setup.description +=
          fmt::format("float as {}, each rank with a residual\n", wire::name(*how.floats_as));
    if (const std::string shortage = client->shortage();
        !shortage.empty() && is_first_of_host(setup.hosts, group->rank()))
      say("talweg perf: --switch: {}\n", shortage);
  }
  if (of_rows.width > 0) setup.description += describe_rows(of_rows, ranks);
  printer.line(header_text(options, setup));

  std::shared_ptr<BoundedSums> sums;
  if (options.may_lose && !client)
    sums = BoundedSums::make(*group, {.p = *options.may_lose,
                                      .p_sender = options.may_lose_sender,
                                      .p_call = options.may_lose_call,
                                      .servers = options.servers});
  std::optional<PerfBuffers> buffers;
  if (!client && of_rows.width == 0) buffers.emplace(options, ranks);
  LostBytes lost;  // of one line, as these
  MissingBlocks missing;
  RowsWays ways;
  const auto side = [&](const PerfCase& c, bool in_place) {
    if (of_rows.width > 0) return measure_rows(*group, c, options, of_rows, ways);
    if (sums) return measure_bounded(*group, *sums, c, options, *buffers, in_place, lost);
    return client ? measure_switch(*group, *client, c, options, how, in_place, missing, racks)
                  : measure(*group, c, options, *buffers, in_place);
  };
  const auto plan = [&](const PerfCase& c) -> std::string {
    if (of_rows.width > 0) return ways.describe();
    if (sums) {
      const std::string words = sums->explain(vector_elements(c), c.type);
      return words.substr(0, words.find('\n'));
    }
    return client ? "switch" : group->explain(c.op, vector_elements(c), c.type);
  };
  std::vector<PerfRow> rows;
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) {
    if (options.cycles == 0) rows.clear();  // for ever: only the table grows, not the memory
    for (const PerfCase& c : cases) {
      PerfRow row{c, {}, {}, {}, {}};
      lost = {};
      missing = {};
      ways = {};
      row.out_of_place = side(c, false);
      if (has_in_place(c.op) && of_rows.width == 0) row.in_place = side(c, true);
      row.plan = plan(c);  // not before: a switch is joined, and large plans are made, while calls go on
      if (options.may_lose) row.lost = client ? missing.part() : lost.part();
      if (options.timestamps) row.timestamp = now_text();
      printer.line(row_text(options, row));
      rows.push_back(std::move(row));
    }
  }
  const PerfTotals totals = totals_of(*group, rows,
                                      client ? client->sent().bytes
                                      : sums ? group->statistics().bounded_sent_bytes
                                             : 0);
  printer.line(algorithms_text(options, rows) + lost_text(options, rows) + footer_text(totals));
  printer.json(to_json(options, setup, rows, totals));
  return totals.wrong == 0 ? 0 : kFailureExitCode;
}

int perf(const PerfFlags& flags) {
  const PerfOptions options = flags.checked();
  const SwitchPerfOptions how = flags.switched();
  const RowsPerfOptions of_rows = flags.rows();
  return flags.sim().empty() ? perf_measured(options, how, of_rows, flags.json())
                             : perf_simulated(options, flags.sim(), flags.json());
}

}  // namespace

void add_perf(CLI::App& app, Action* action) {
  auto* sub = app.add_subcommand("perf", "measure and check a collective, as nccl-tests do");
  sub->footer(kPerfExamples);
  PerfFlags flags;
  flags.add_to(*sub);
  sub->callback([flags, action] { *action = [flags] { return perf(flags); }; });
}

}  // namespace talweg::cli
