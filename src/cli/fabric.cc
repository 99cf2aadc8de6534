// talweg fabric: whether the network between hosts does what Talweg's traffic classes ask of its switches.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/printable.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "group/environment.h"
#include "group/group_impl.h"
#include "study/fabric_report.h"
#include "study/fabric_study.h"
#include "talweg/group.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

constexpr const char* kFabricExamples = R"(
Examples:
  talweg run --hosts node1,node2,node3,node4 -- talweg fabric
  talweg run --hosts node1,node2,node3,node4 -- talweg fabric --expect dscp,ecn,marks,selective,priorities
  talweg lab run cluster.yaml --simulate --queue 64K --mark 15K --priorities 8 -- talweg fabric
  mpirun -np 8 --map-by node talweg fabric --no-load --json fabric.json

Each host sends datagrams of every class to the next one: whether they pass and stay what they are, and how large they
may be. Then two hosts or more send more than the link into a third takes, 0.1 to 0.4 s for each priority, host by host,
8 hosts at most: whether ECT(0) is marked, whether Not-ECT is dropped first, which class overtakes which. That fills
these links, and other traffic on them suffers; --no-load leaves it out. One rank of each host does the work.
The exit code is 0 unless something that --expect names did not pass: then it is 1.)";

struct FabricFlags {
  std::string pairs = "ring";
  std::string expect;
  std::string json;
  int queues = study::FabricOptions{}.queues;
  bool no_load = false;
  bool wide = false;
};

int check_fabric(const FabricFlags& flags) {
  const bool leads = group::find_place({}).rank == 0;
  const auto expected =
      flags.expect.empty() ? std::vector<std::string>{} : study::parse_expected(flags.expect);
  const text::OutputFile json("--json", leads ? flags.json : "");
  GroupOptions joining;
  joining.switch_address = "none";  // which has nothing to do here
  const auto joined = Group::join(joining);
  std::FILE* people = flags.json == "-" ? stderr : stdout;
  study::FabricOptions options;
  options.all_pairs = flags.pairs == "all";
  options.load = !flags.no_load;
  options.queues = flags.queues;
  options.progress = [people](const std::string& line) {
    fmt::print(people, "# {}\n", line);
    std::fflush(people);
  };
  const study::FabricResult result = study_fabric(dynamic_cast<group::GroupImpl&>(*joined), options);
  if (!leads) return 0;
  fmt::print(people, "{}", study::fabric_table(result, flags.wide));
  if (json.wanted()) json.write(text::json_document(study::fabric_json(result)));
  const std::vector<std::string> missing = study::unmet(result, expected);
  for (const std::string& line : missing) say("talweg fabric: {}\n", line);
  return missing.empty() ? 0 : kFailureExitCode;
}

}  // namespace

void add_fabric(CLI::App& app, Action* action) {
  auto flags = std::make_shared<FabricFlags>();
  auto* sub =
      app.add_subcommand("fabric", "check what switches between hosts do with Talweg's traffic classes");
  sub->footer(kFabricExamples);
  sub->add_option("--pairs", flags->pairs, "between which hosts: ring (each to the next), or all")
      ->check(CLI::IsMember({"ring", "all"}))
      ->capture_default_str();
  sub->add_option("--queues", flags->queues,
                  "of layers, as PacketClasses has it: which priorities are to be told apart")
      ->check(whole_number(1, 7))
      ->capture_default_str();
  sub->add_flag("--no-load", flags->no_load, "fill no links: leaves out marks, selective and priorities");
  sub->add_option(
      "--expect", flags->expect,
      "what must pass, with commas: host, dscp, ecn, mtu, marks, selective, priorities; else all is "
      "information");
  sub->add_option("-J,--json", flags->json,
                  "as JSON, into this file; - for standard output, the table then goes to standard error");
  add_wide(*sub, flags->wide);
  sub->callback([flags, action] { *action = [flags] { return check_fabric(*flags); }; });
}

}  // namespace talweg::cli
