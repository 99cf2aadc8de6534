// talweg probe: measures the network between the hosts of a job and writes it down as a cluster file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/settings.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/fields.h"
#include "cluster/cluster.h"
#include "formats/import.h"
#include "group/environment.h"
#include "group/group_impl.h"
#include "study/probe_report.h"
#include "talweg/error.h"
#include "talweg/group.h"
#include "text/escape.h"
#include "text/output_file.h"

namespace talweg::cli {
namespace {

constexpr const char* kProbeExamples = R"(
Examples:
  talweg run --hosts node1,node2,node3,node4 -- talweg probe -o cluster.yaml
  talweg lab run examples/clusters/uneven4.yaml -- talweg probe -o cluster.yaml
  mpirun -np 8 --map-by node talweg probe -o cluster.yaml
  TALWEG_CLUSTER=cluster.yaml talweg run ...        # plan with what was found
  TALWEG_PROBE=1 talweg run ...                     # or measure anew whenever a job starts

Latency and bandwidth are measured between pairs of hosts and in sets of flows, so that what pairs share is found: a
port, its two directions, a rack's uplink, a limit of one pair. One rank of each host does the work. How much will be
sent, and for how long, is said before. Rates are those on the wire, as links have them; other traffic at the same
time makes them less. Latencies are without what the two processors need for a message.)";

struct ProbeFlags {
  std::string out;
  std::string json;
  double confidence = ProbeOptions{}.confidence;
  std::string budget;
  bool wide = false;
};

std::vector<std::string> names_that_sum(const cluster::Cluster& network) {
  std::vector<std::string> names;
  for (const int node : cluster::nodes_that_sum(network))
    names.push_back(network.nodes[static_cast<std::size_t>(node)].name);
  return names;
}

int probe(const ProbeFlags& flags) {
  const bool leads = group::find_place({}).rank == 0;
  // Written at the end, whole: a launcher may end this process any time, since another rank has failed.
  const text::OutputFile file("-o", leads ? flags.out : ""), json("--json", leads ? flags.json : "");
  GroupOptions joining;
  joining.switch_address = "none";  // which would be measured meanwhile
  const auto joined = Group::join(joining);
  auto& group = dynamic_cast<group::GroupImpl&>(*joined);
  std::FILE* people = flags.json == "-" ? stderr : stdout;
  ProbeOptions options;
  options.confidence = flags.confidence;
  if (!flags.budget.empty())
    options.budget = std::chrono::milliseconds(parse_wait("--budget", flags.budget).value / 1'000'000);
  options.progress = [people](const std::string& line) {
    fmt::print(people, "# {}\n", line);
    std::fflush(people);
  };
  const steer::ProbeResult result = group.probe_in_full(options);
  if (!leads) return 0;
  file.write(cluster::to_yaml(result.network));
  fmt::print(people, "{}", study::probe_table(result, flags.wide));
  if (flags.out.empty()) {
    fmt::print(people, "-o cluster.yaml writes this down for TALWEG_CLUSTER\n");
  } else {
    fmt::print(people, "{} is written; to plan with it: TALWEG_CLUSTER={}, talweg plan {}\n", flags.out,
               flags.out, flags.out);
  }
  if (const std::string known = resolve("TALWEG_CLUSTER").value; !known.empty())
    if (const auto names = names_that_sum(formats::load_any(known)); !names.empty())
      fmt::print(people, "{}\n",
                 printable(fmt::format(
                     "aggregators are not probed: {} and its links are to be added by hand, as in {}",
                     fmt::join(names, ", "), known)));
  if (json.wanted()) json.write(text::json_document(study::probe_json(result)));
  return 0;
}

}  // namespace

void add_probe(CLI::App& app, Action* action) {
  auto flags = std::make_shared<ProbeFlags>();
  auto* sub = app.add_subcommand("probe", "measure the network between hosts and write a cluster file");
  sub->footer(kProbeExamples);
  sub->add_option("-o,--out", flags->out, "the cluster file to write (rank 0 writes it)");
  sub->add_option("-J,--json", flags->json,
                  "as JSON, into this file; - for standard output, the table then goes to standard error");
  add_wide(*sub, flags->wide);
  sub->add_option("--confidence", flags->confidence,
                  "repeat until rates are sure to this part of them, at most 5 times")
      ->capture_default_str();
  sub->add_option(
      "--budget", flags->budget,
      "no repeats after 0.6 of this, such as 20s (default: 10s for up to 8 hosts, and in proportion)");
  sub->callback([flags, action] { *action = [flags] { return probe(*flags); }; });
}

}  // namespace talweg::cli
