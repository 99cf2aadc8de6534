// talweg probe: measures the network between the hosts of a job and writes it down as a cluster file.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "base/units.h"
#include "cli/command.h"
#include "cli/probe_report.h"
#include "group/environment.h"
#include "group/group_impl.h"
#include "talweg/error.h"
#include "talweg/group.h"

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
  std::string output;
  bool json = false;
  double confidence = ProbeOptions{}.confidence;
  std::string budget;
};

// The file comes into being at the end, whole; that it can is found out before anything is measured. Nothing
// lies there meanwhile: a launcher may end this process any time, since another rank has failed.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path), draft_(path + ".part") {
    if (path.empty()) return;
    const bool opened = std::ofstream(draft_).is_open();
    drop();
    if (!opened || std::filesystem::is_directory(path))
      throw Error(ErrorCode::invalid_argument, fmt::format("-o: cannot write {}", path));
  }

  void write(const std::string& text) const {
    if (path_.empty()) return;
    std::ofstream file(draft_);
    file << text;
    file.close();
    std::error_code failed;
    if (file) std::filesystem::rename(draft_, path_, failed);
    if (file && !failed) return;
    drop();
    throw Error(ErrorCode::system, fmt::format("-o: cannot write {}", path_));
  }

 private:
  void drop() const {
    std::error_code ignored;
    std::filesystem::remove(draft_, ignored);
  }

  std::string path_, draft_;
};

int probe(const ProbeFlags& flags) {
  const bool leads = group::find_place({}).rank == 0;
  const OutputFile file(leads ? flags.output : std::string());
  const auto joined = Group::join();
  auto& group = dynamic_cast<group::GroupImpl&>(*joined);
  std::FILE* people = flags.json ? stderr : stdout;
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
  fmt::print(people, "{}", probe_table(result));
  if (flags.output.empty()) {
    fmt::print(people, "-o cluster.yaml writes this down for TALWEG_CLUSTER\n");
  } else {
    fmt::print(people, "{} is written; to plan with it: TALWEG_CLUSTER={}, talweg plan {}\n", flags.output,
               flags.output, flags.output);
  }
  if (flags.json) fmt::print("{}\n", probe_json(result).dump(2));
  return 0;
}

}  // namespace

void add_probe(CLI::App& app, Action* action) {
  auto flags = std::make_shared<ProbeFlags>();
  auto* sub = app.add_subcommand("probe", "measure the network between hosts and write a cluster file");
  sub->footer(kProbeExamples);
  sub->add_option("-o,--output", flags->output, "the cluster file to write (rank 0 writes it)");
  sub->add_flag("--json", flags->json, "print what was found as JSON; the table goes to standard error");
  sub->add_option("--confidence", flags->confidence,
                  "repeat until rates are sure to this part of them, at most 5 times")
      ->capture_default_str();
  sub->add_option(
      "--budget", flags->budget,
      "no repeats after 0.6 of this, such as 20s (default: 10s for up to 8 hosts, and in proportion)");
  sub->callback([flags, action] { *action = [flags] { return probe(*flags); }; });
}

}  // namespace talweg::cli
