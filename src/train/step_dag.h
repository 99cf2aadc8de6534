// The DAG of a few steps of a job under a strategy, and where in it a step ends. For predict().
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "train/dag.h"
#include "train/strategies.h"

namespace talweg::train {

inline double in_seconds(Nanoseconds time) {
  return static_cast<double>(time.value) * 1e-9;
}

// Steps that are built, and those at the end that are looked at. The first ones differ: nothing of a step
// before overlaps them, and batches that were read ahead are still there.
inline constexpr int kSteps = 8;
inline constexpr int kStepsSeen = 4;

struct StepDag {
  Dag dag;
  int ranks = 1;                         // that have a device of their own in it
  std::vector<int> devices;              // resources, by rank
  std::vector<std::vector<int>> ends;    // by rank and step: the last task of its device
  std::vector<std::vector<int>> groups;  // layers that travel together
};

// `recorded`: transfers take what the job's exchanges took.
StepDag build_steps(const Job& job, const Strategy& strategy, const Setting& setting, bool recorded);

// By layer, seconds that a transfer with its gradient waits for late ranks: what the job's exchanges
// recorded, each with the gradient that completes it, the first layer's among those that it carried.
std::vector<double> peer_waits(const Job& job, const Setting& setting);

// Prediction::bottleneck of the rest of it.
std::string bottleneck_words(const Prediction& prediction);

// As groups_of(), in the order of the forward pass, of layers that follow each other.
std::vector<std::vector<int>> forward_groups(const Job& job, const Merging& merging, const Setting& setting);

}  // namespace talweg::train
