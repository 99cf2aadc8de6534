// What can be asked of the simulator, as the command line and Python say it, and what that comes to once
// checked.
//
//   SimulateRequest request;
//   request.network = "cluster.yaml";
//   const SimulateOptions options = checked(request);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "sim/ranks.h"
#include "sim/time.h"
#include "sim/workload.h"
#include "study/field.h"
#include "study/perf_options.h"
#include "study/sparse_vectors.h"
#include "wire/aggregation.h"

namespace talweg::study {

// The horizon where none is given: what a failure has cut off for good is sent again and again.
inline constexpr sim::Picoseconds kDay = 86'400 * sim::kPicosecondsPerSecond;

// Texts are read by checked(); simulate_fields() says what each means.
struct SimulateRequest {
  std::string network, topology;
  std::string op = "all_reduce", bytes = "1M", type = "float", algo;
  int factor = 2, root = 0, iters = 3, warmup = 1;
  std::string average = "mean", rest = "0";
  std::string matrix, flows, workload;
  // "auto" and 0: as the transport has it.
  std::string transport = "dctcp", queue = "auto", mark = "auto", red, class_limits, demote = "auto";
  std::string processors = "ideal", routing = "auto";
  int priorities = 0;
  bool trim = false, fluid = false, pacing = false, keep_important = false;
  double droppable = 0, loss = 0, bit_errors = 0, duplicate = 0, damage = 0;
  std::string may_lose;                        // empty: a hundredth, and of kBySwitch nothing
  std::string may_lose_sender, may_lose_call;  // empty: as may_lose
  std::string servers, burst_loss, reorder;
  std::vector<std::string> fail;
  double sparse_density = 1;
  int sparse_run = 0;  // 0: a block's
  std::string sparse_as = "blocks", overlap = "random", switch_format = "type";
  int payload = 1448, header = 66, window = 0, ack_every = 0;
  std::string most_window = "4M", least_rto = "auto", horizon;
  std::uint64_t seed = 1;
  int paths = 1;
};

std::span<const Field<SimulateRequest>> simulate_fields();

struct SimulateOptions {
  std::string network;  // as it was written
  cluster::Cluster cluster;
  sim::SimulationOptions simulation;
  sim::RanksOptions ranks;
  std::vector<sim::NetworkChange> changes;
  sim::Picoseconds horizon = kDay;
  sim::Picoseconds rest = 0;  // between warm-up and timed calls

  PerfOptions perf;                     // what to run, unless one of these:
  std::vector<std::string> algorithms;  // a line of the table for each; "": the cheapest
  double may_lose = 0, droppable = 0;   // of kBounded; the limits beside may_lose are in `perf`
  double switch_may_lose = 0;           // of kBySwitch
  bool keep_important = false;
  std::size_t paths = 1;  // of kBounded
  SparseShape sparse;     // of kBySwitch, as this: a coded format of float
  std::optional<wire::AggregationFormat> floats_as;
  bool bound = true;               // whether the bound is looked for
  std::string matrix;              // a file, or a pattern of flows,
  sim::Matrix flows;               // and what it says
  std::string workload;            // a file,
  sim::Workload job;               // and what it says
  std::string transport;           // the preset's name
  std::vector<std::string> notes;  // of options that do nothing here (simulate_notes.h)
};

// Reads the files. Whatever can be known to be wrong before a run is known then: throws
// Error{invalid_argument}, Error{bad_file} with one line that names the field as "--name".
SimulateOptions checked(const SimulateRequest& request);

// For a network that carries the packets of programs (fabric/relay.h). The same options, as far as they say
// what a network does; of the request only these count, and "network".
std::span<const Field<SimulateRequest>> network_fields();
struct CheckedNetwork {
  cluster::Cluster cluster;
  sim::NetworkOptions options;
  std::vector<sim::NetworkChange> changes;
  std::vector<std::string> notes;  // of options that do nothing here, or not what their numbers say
};
// "auto" is a queue of kQueueBytes without marks, for TCP is not ECN-capable unless somebody wants it to be.
// What a host holds back is limited, too. Throws as checked() does.
CheckedNetwork checked_network(const SimulateRequest& request);

// What frames cost a host's processor over TCP, as the cost model has it.
sim::HostCosts tcp_host_costs(const cluster::Cluster& cluster);

}  // namespace talweg::study
