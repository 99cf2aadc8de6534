// The flags of `talweg simulate` and what they come to once checked.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/perf_options.h"
#include "cluster/cluster.h"
#include "sim/ranks.h"
#include "sim/workload.h"

namespace talweg::cli {

struct SimulateOptions {
  std::string network;  // as it was written
  cluster::Cluster cluster;
  sim::SimulationOptions simulation;
  sim::RanksOptions ranks;
  std::vector<sim::NetworkChange> changes;
  sim::Picoseconds horizon = sim::kNever;
  sim::Picoseconds rest = 0;  // between warm-up and timed calls

  PerfOptions perf;                     // what to run, unless one of these:
  std::vector<std::string> algorithms;  // a line of the table for each; "": the cheapest
  std::string matrix;                   // a file,
  sim::Matrix flows;                    // and what it says
  std::string workload;                 // a file,
  sim::Workload job;                    // and what it says

  std::string json, csv;    // files; "-": standard output, in place of the table
  std::string trace, html;  // files
  bool progress = false;    // even if standard error is no terminal and the run is short
};

inline constexpr std::int64_t kQueueBytes = 1 << 20;  // --queue: of a switch with a shallow buffer
inline constexpr std::int64_t kMarkBytes = 100
                                           << 10;  // --mark: about 65 packets, as DCTCP has it at 10 Gbit/s

// "1M", "1M,4M", "1M..64M" in steps of `factor`; a range begins with the first that is at least `least`, and
// its last is always there. Throws Error{invalid_argument} that names --bytes.
std::vector<std::size_t> scanned_sizes(const std::string& text, int factor, std::size_t least);

// What a message costs a host's processor, as the cost model has it.
sim::HostCosts tcp_host_costs(const cluster::Cluster& cluster);

// How to use it: SimulateFlags flags; flags.add_to(app); parse; SimulateOptions options = flags.checked();
class SimulateFlags {
 public:
  SimulateFlags();
  void add_to(CLI::App& app);
  // Reads the files. Whatever can be known to be wrong before a run is known then: throws
  // Error{invalid_argument}, Error{bad_file} with one line that names the flag.
  SimulateOptions checked() const;

 private:
  struct Raw;
  std::shared_ptr<Raw> raw_;
};

}  // namespace talweg::cli
