// talweg lab: the network that a cluster file describes, built on this machine.
#include "fabric/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "cli/relay_report.h"
#include "cluster/cluster.h"
#include "fabric/lab_state.h"
#include "formats/import.h"
#include "study/simulate_request.h"
#include "text/escape.h"
#include "text/output_file.h"
#include "text/table.h"

namespace talweg::cli {
namespace {

using fabric::Lab;
using fabric::LabNote;

constexpr const char* kLabExamples = R"(
Examples:
  talweg lab run cluster.yaml -- talweg perf all_reduce -b 4K -e 64M -f 4
  talweg lab run cluster.yaml --timeout 60s -- python train.py
  talweg lab run cluster.yaml --simulate --queue 64K --mark 30K --priorities 8 --loss 0.001 -- ./train
  talweg lab up cluster.yaml        # stays until: talweg lab down cluster.yaml

Each worker of the file becomes a host: a network namespace with one interface, eth0, whose rates are those of its
links. "run" starts one rank per worker on its host, a switch where the file has one, and an aggregator on every other
host; without an "up" before it, the lab exists only meanwhile. What cannot be emulated is said. With --simulate the
network of "talweg simulate" carries the packets, by the wall clock, with its queues, priorities, marks and losses. It
needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN, or unprivileged user namespaces; --simulate needs /dev/net/tun.)";

struct LabFlags {
  std::string file;
  std::string name;  // empty: the file's
  std::string timeout;
  bool tag_output = true;
  bool all = false;
  bool wide = false;
  std::vector<std::string> program;
  bool simulate = false;
  study::SimulateRequest network;
  std::string needs_simulate;  // the first option given that does
  std::string json;

  std::string lab_name() const { return name.empty() ? fabric::default_lab_name(file) : name; }
};

void warn(const std::string& line) {
  say("talweg lab: {}\n", printable(line));
}

std::optional<LabNote> find_lab(const std::string& name, const std::string& folder) {
  for (LabNote& note : fabric::labs_up(folder))
    if (note.name == name) return std::move(note);
  return std::nullopt;
}

int up(const LabFlags& flags) {
  if (flags.simulate) refuse("--simulate: the network is there as long as talweg lab run is: expected that");
  const std::string folder = fabric::lab_state_folder();
  const cluster::Cluster cluster = formats::load_any(flags.file);
  if (const auto other = find_lab(flags.lab_name(), folder))
    refuse("a lab named {} is up already (of {}); take it down or give another --name", other->name,
           other->cluster_file);
  const Lab lab = Lab::build(cluster);
  std::ranges::for_each(lab.warnings(), warn);
  const LabNote note = fabric::keep_up(lab, flags.lab_name(), flags.file, cluster, folder);
  fmt::print("lab {} is up, held by process {}\n", note.name, note.holder);
  const text::Columns columns{{"", -16}, {"", -12, 1}, {"", -10, 1}, {"", 0, 1}};
  for (std::size_t h = 0; h < note.hosts.size(); ++h) {
    const LabNote::Host& host = note.hosts[h];
    const char* const kind = host.worker                      ? "worker"
                             : lab.hosts()[h].switch_port > 0 ? "switch"
                                                              : "aggregator";
    fmt::print("{}",
               columns.line({host.name, host.address, kind, fmt::format("nsenter --net={} ...", host.net)}));
  }
  return 0;
}

// The lab that is up under this name, if it is of this very network; a lab of its own otherwise.
Lab lab_for_run(const LabFlags& flags, const cluster::Cluster& cluster) {
  const auto note = find_lab(flags.lab_name(), fabric::lab_state_folder());
  if (!note && !flags.name.empty()) refuse("no lab named {} is up", flags.name);
  if (!note) return Lab::build(cluster);
  if (note->network != cluster::to_yaml(cluster))
    refuse(
        "lab {} is up with another network than {} has now: take it down first (talweg lab down "
        "--name {})",
        note->name, flags.file, note->name);
  return fabric::attach(*note, cluster);
}

int run_in(const Lab& lab, const LabFlags& flags) {
  fabric::LaunchOptions options;
  options.prefix = flags.tag_output;
  if (!flags.timeout.empty())
    options.timeout = std::chrono::milliseconds(parse_wait("--timeout", flags.timeout).value / 1'000'000);
  std::ranges::for_each(lab.warnings(), warn);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const fabric::LaunchResult result =
      lab.run(flags.program, flags.file, options,
              {{self, "aggregator", "--again", "--name"}, {self, "switch", "--quiet"}});
  if (!result.what.empty()) say("talweg lab: {}\n", result.what);
  return result.exit_code;
}

int run_simulated(const LabFlags& flags) {
  if (!flags.name.empty()) refuse("--name {}: a lab that is up has no simulated network", flags.name);
  study::SimulateRequest request = flags.network;
  request.network = flags.file;
  const study::CheckedNetwork network = checked_network(request);
  text::check_outputs({flags.json}, {flags.file});
  const text::OutputFile json("--json", flags.json);
  std::ranges::for_each(network.notes, warn);
  const Lab lab = Lab::build_relayed(network.cluster, {network.options, network.changes});
  const int code = run_in(lab, flags);
  const fabric::RelayReport report = lab.relay_report();
  if (report.whole) say("{}", relay_text(network.cluster, report, flags.wide));
  if (const std::string doubt = relay_doubt(report); !doubt.empty()) warn(doubt);
  if (json.wanted()) json.write(text::json_document(relay_json(network.cluster, report)));
  return code;
}

int run(const LabFlags& flags) {
  if (flags.program.empty()) refuse("no program given: talweg lab run {} -- program arguments", flags.file);
  if (flags.simulate) return run_simulated(flags);
  if (!flags.needs_simulate.empty()) refuse("{}: it needs --simulate", flags.needs_simulate);
  return run_in(lab_for_run(flags, formats::load_any(flags.file)), flags);
}

int down(const LabFlags& flags) {
  const std::string folder = fabric::lab_state_folder();
  if (flags.all) {
    for (const LabNote& note : fabric::labs_up(folder)) fabric::take_down(note, folder);
    return 0;
  }
  if (flags.lab_name().empty()) refuse("say which lab: a cluster file, --name or --all");
  const auto note = find_lab(flags.lab_name(), folder);
  if (!note) refuse("no lab named {} is up", flags.lab_name());
  fabric::take_down(*note, folder);
  return 0;
}

int list(const LabFlags& flags) {
  using text::Quantity;
  text::Table table{{"lab"},
                    {.title = "hosts", .of = Quantity::number},
                    {.title = "first address", .drop = 1},
                    {.title = "held by process", .of = Quantity::number},
                    {"cluster file"}};
  for (const LabNote& note : fabric::labs_up(fabric::lab_state_folder()))
    table.add({note.name, std::to_string(note.hosts.size()), note.hosts.empty() ? "-" : note.hosts[0].address,
               std::to_string(note.holder), note.cluster_file});
  if (!table.empty()) text::print(table.text(flags.wide));
  return 0;
}

}  // namespace

void add_lab(CLI::App& app, Action* action) {
  auto flags = std::make_shared<LabFlags>();
  CLI::App* lab =
      app.add_subcommand("lab", "build the network of a cluster file on this machine and run in it");
  lab->footer(kLabExamples);
  lab->require_subcommand(1);
  constexpr const char* kNameHelp = "of the lab (default: the file's name)";

  CLI::App* up_app = lab->add_subcommand("up", "build a lab that stays up");
  up_app->add_option("cluster", flags->file, "cluster file (see docs/clusters-and-plans.md)")->required();
  up_app->add_option("--name", flags->name, kNameHelp);
  up_app->add_flag("--simulate", flags->simulate, "refused: only talweg lab run has it")->group("");
  up_app->callback([=] { *action = [=] { return up(*flags); }; });

  CLI::App* run_app = lab->add_subcommand("run", "run a program with one rank per worker in a lab");
  run_app->footer(kLabExamples);
  CLI::Option* file =
      run_app->add_option("cluster", flags->file, "cluster file (see docs/clusters-and-plans.md)")
          ->required();
  run_app->add_option("--name", flags->name,
                      "of a lab that is up (default: the file's, or a lab of its own)");
  run_app->add_option("-T,--timeout", flags->timeout,
                      "stop everything after this time, such as 90s; 0: never, which is the default");
  run_app->add_flag("--tag-output,!--no-tag-output", flags->tag_output,
                    "prefix each line with its rank (default)");
  // An option of its own for the program's name: only while one is still open does CLI11 leave what follows
  // "--" to this subcommand. The program's arguments then arrive untouched as remaining().
  run_app->prefix_command();
  auto program = std::make_shared<std::string>();
  run_app->add_option("program", *program, "after --: the program and its arguments");
  run_app->add_flag("--simulate", flags->simulate,
                    "the network of talweg simulate carries the packets, with the options below");
  const auto request = std::make_shared<study::SimulateRequest>();
  add_fields(*run_app, study::network_fields(), request);
  run_app->add_option("-J,--json", flags->json,
                      "what the links did, as JSON, into this file (with --simulate)");
  add_wide(*run_app, flags->wide);
  // Then the first word that is no option is the program's.
  CLI::Option* topology = run_app->get_option("--topology")->trigger_on_parse();
  topology->each([=, named = false](const std::string&) mutable {
    if (std::exchange(named, true)) refuse("--topology: given twice, expected one network");
    if (file->count() == 0) run_app->remove_option(file);
  });
  run_app->callback([=] {
    flags->network = *request;
    for (const auto& field : study::network_fields())
      if (run_app->count(fmt::format("--{}", field.name)) > 0)
        flags->needs_simulate = fmt::format("--{}", field.name);
    if (!flags->json.empty()) flags->needs_simulate = "--json";
    std::vector<std::string> arguments = run_app->remaining();
    if (!arguments.empty() && arguments.front() == "--") arguments.erase(arguments.begin());
    flags->program = std::move(arguments);
    if (!program->empty()) flags->program.insert(flags->program.begin(), *program);
    *action = [=] { return run(*flags); };
  });

  CLI::App* down_app = lab->add_subcommand("down", "take a lab down");
  down_app->add_option("cluster", flags->file, "the file that it was built from");
  down_app->add_option("--name", flags->name, kNameHelp);
  down_app->add_flag("--all", flags->all, "all labs of this user");
  down_app->callback([=] { *action = [=] { return down(*flags); }; });

  CLI::App* list_app = lab->add_subcommand("list", "the labs that are up");
  add_wide(*list_app, flags->wide);
  list_app->callback([=] { *action = [=] { return list(*flags); }; });
}

}  // namespace talweg::cli
