// What collectives take on a cluster: as predicted for the plans that groups would choose, or as simulated,
// packet by packet. Tables by size, so that whatever reads TransferTimes needs neither again.
//
//   const NetworkTimes predicted = cluster_times(cluster);
//   const NetworkTimes of_four = cluster_times(cluster::restrict_to(cluster, std::vector{0, 1, 2, 3}));
#pragma once

#include <cstdint>
#include <span>

#include "base/units.h"
#include "cluster/cluster.h"
#include "sim/ranks.h"
#include "sim/simulation.h"
#include "train/transfer_times.h"

namespace talweg::train {

// 4 KiB to 1 GiB in steps of four.
std::span<const Bytes> table_sizes();

// What each packing of a table may take. A group plans for longer, in the background.
inline constexpr std::int64_t kMostStepsToPredict = 1'000'000'000;  // a second

// By the forests that groups end with and the cost model (forest/cost.h). Ranks are the workers. Where a
// planner would take more than `most_steps`, by the forests that serve until its own are there, as
// NetworkTimes::interim then says.
// What lies between two sizes is on the line between them; sizes between those of the table are added where
// such a line is more than 2 % off, as where another plan takes over. Of 64 workers and more, none are added,
// and sizes above 1 MiB are left out where a line comes within 2 %. Bursts of links are not in them, but in
// NetworkTimes::burst: how full a bucket is depends on what went before. Of those that are under way together
// each takes in turn what its plan gives the busiest link or processor to do.
NetworkTimes cluster_times(const cluster::Cluster& cluster, std::span<const Bytes> sizes = {},
                           std::int64_t most_steps = kMostStepsToPredict);
// The same with the first `ranks` of its workers alone. Throws Error{invalid_argument} for more than there
// are.
NetworkTimes cluster_times_at(const cluster::Cluster& cluster, int ranks, std::span<const Bytes> sizes = {});

// A switch with shallow buffers that marks what waits, and TCP that heeds marks.
sim::SimulationOptions marking_switches();
// By one simulated call for each size of the same forests, on an idle network. Only all-reduce is simulated;
// its halves take half of it. Large sizes on many ranks take minutes: 4 KiB to 16 MiB if `sizes` is empty.
// `ranks` says what sending costs the hosts' processors; payloads are not carried, whatever it says.
NetworkTimes simulated_times(const cluster::Cluster& cluster,
                             const sim::SimulationOptions& options = marking_switches(),
                             const sim::RanksOptions& ranks = {}, std::span<const Bytes> sizes = {});
// The same with the first `ranks` of its workers alone. Throws Error{invalid_argument} for more than there
// are.
NetworkTimes simulated_times_at(const cluster::Cluster& cluster, int ranks);

}  // namespace talweg::train
