// A connection matrix on a simulated network: which flow ended when, and what became of the network.
#pragma once

#include <string>
#include <vector>

#include "sim/htsim_files.h"
#include "sim/simulation.h"

namespace talweg::sim {

struct FlowResult {
  Connection connection;
  Picoseconds started = 0;
  Picoseconds ended = 0;  // its last byte arrived
  FlowCounters counters;
};

// Throws Error{invalid_argument} for a matrix that the network has not hosts enough for, Error{timeout} that
// names the flows which the horizon left unfinished.
std::vector<FlowResult> run_matrix(Simulation& simulation, const Matrix& matrix, Picoseconds horizon);

// The least time of which at least `share` (0 .. 1) of the flows needed no more.
Picoseconds completion_percentile(const std::vector<FlowResult>& flows, double share);

// What all links together report.
struct NetworkSummary {
  double busiest_utilisation = 0;  // bytes over what the link could have carried
  double mean_utilisation = 0;     // of the links that carried anything
  std::string busiest_link;        // "leaf0->spine1"
  std::int64_t most_queued_bytes = 0;
  std::string most_queued_link;
  std::uint64_t dropped = 0;
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t lost = 0;
};
NetworkSummary summarise(const Network& network, Picoseconds duration);

}  // namespace talweg::sim
