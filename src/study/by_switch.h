// All-reduces that nodes of a network sum as switches of streaming aggregation, as `talweg switch` does:
// simulated with `--algo switch`, and predicted beside planners. It is none of these: no group takes it but
// one that a switch is named for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "sim/switch_sums.h"
#include "study/perf_case.h"
#include "study/plan_study.h"
#include "study/simulate_request.h"

namespace talweg::study {

inline constexpr const char* kBySwitch = "switch";

// Of a planner, kBySwitch or kBounded. Throws Error{invalid_argument} that lists the names there are.
void check_algorithm(const std::string& name);
// Whether it serves the request. Of kBySwitch that is not yet whether the network has a switch, nor of either
// whether the type is one that it sums.
bool serves(const std::string& algorithm, const forest::Request& request);

// The nodes that sum: those that say where their switch listens; or else all that can. Where switches of
// racks are below one, that one alone, or where all workers are in one rack, that of the rack; none where
// one of them is not reached.
std::vector<int> summing_nodes(const cluster::Cluster& network);
// By worker, its rack's switch, below that one; empty: they send to summing_nodes() themselves.
std::vector<int> summing_racks(const cluster::Cluster& network);

// Why calls cannot be summed by switches where all else is as `options` say; empty: they can.
std::string why_no_switch(const SimulateOptions& options);

// For a network of which why_no_switch() says nothing.
sim::SwitchSumsOptions switch_sums_options(const SimulateOptions& options, DataType type);
// Of vectors of so many bytes, of which the part that is not zero travels, by all nodes of the model's
// network that sum.
Prediction predict_switch(const forest::CostModel& model, std::int64_t bytes, DataType type,
                          const sim::SwitchJob& job, const SparseShape& sparse = {});

}  // namespace talweg::study
