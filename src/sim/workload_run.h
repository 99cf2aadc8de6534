// A workload on a simulated network, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/bounded_sums.h"
#include "sim/matrix_run.h"
#include "sim/ranks.h"
#include "sim/trace.h"
#include "sim/workload.h"

namespace talweg::sim {

// What one rank of a group has done.
struct StepNote {
  int node = 0;
  bool computes = false;  // else it took part in a collective
  Picoseconds began = 0;
  Picoseconds ended = 0;
  int group = 0;          // in the order of the workload
  std::int64_t turn = 0;  // of the group's steps, over all iterations, from 0
};

struct WorkloadOptions {
  RanksOptions ranks;      // of every group, but for who they are; payloads are not carried
  std::uint64_t seed = 1;  // of jitter and background traffic
  Picoseconds horizon = kNever;
  Trace* trace = nullptr;
  std::function<void(const StepNote&)> on_step{};  // called at the end of each step of a rank; may be empty
};

struct GroupOutcome {
  std::string name;
  int ranks = 0;
  Picoseconds started = 0;
  Picoseconds ended = 0;                // of the last rank
  std::vector<Picoseconds> iterations;  // from the last rank's end to the last rank's next end
  std::vector<Picoseconds> of_step;     // by step: mean over ranks and iterations
  Picoseconds communication = 0;        // in all its collectives, mean over the ranks
  std::vector<std::string> algorithms;  // by step; empty where it computes
  BoundedLosses losses;                 // of steps by kBounded
};

struct BackgroundOutcome {
  std::uint64_t sent = 0;  // datagrams or bursts
  std::uint64_t arrived = 0;
  std::vector<Picoseconds> took;  // bursts that arrived
};

struct WorkloadOutcome {
  std::vector<GroupOutcome> groups;
  std::vector<FlowResult> flows;
  std::vector<BackgroundOutcome> background;
};

// Ends when all groups and flows have, or, where there are none, at the horizon. Throws Error{timeout} that
// names what had not ended at the horizon, Error{invalid_argument} for a workload that the network cannot
// run.
WorkloadOutcome run_workload(Simulation& simulation, const Workload& workload,
                             const WorkloadOptions& options);

// Fails and repairs what the changes say, when they say.
void schedule(Simulation& simulation, const std::vector<NetworkChange>& changes, Trace* trace = nullptr);

// Exponential with mean 1, and close to normal with mean 0 and deviation 1, by comparisons and sums alone:
// the same numbers from every compiler and library, which logarithms need not give.
double exponential(Random& random);
double roughly_normal(Random& random);

}  // namespace talweg::sim
