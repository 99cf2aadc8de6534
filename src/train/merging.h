// Merging: which gradients travel together. A collective of few bytes takes hardly less time than one of
// more, so gradients wait for others, are sent as one, and save start-ups; but what waits is sent later.
//
//   const std::vector<Arrival> arrivals = ...;            // as the backward pass makes them ready
//   const Groups groups = merge_exact(arrivals, times);
//   finish(arrivals, groups, times);                      // when the last is exchanged: the least there is
//
// Groups are sent in the order of arrival, each when all of it is ready, at most `in_flight` of them at once:
// start-ups of those overlap, the rest of each (its bytes) is served in turn. With one in flight, a group
// starts when the group before it is done. Of a group's waits for late ranks the longest counts; it comes
// before the start-up and overlaps as start-ups do, so that a group may be served before one that waits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/units.h"
#include "train/transfer_times.h"

namespace talweg::train {

struct Arrival {
  double ready = 0;  // seconds; they ascend
  double bytes = 0;
  double wait = 0;  // seconds that a group with it waits for ranks that are late, after it has started
  bool operator==(const Arrival&) const = default;
};

// Where each group ends: {3, 5} are the arrivals 0 to 2, and 3 to 4. Empty where there are no arrivals.
using Groups = std::vector<std::size_t>;

// When the last group is exchanged; 0 where there are none.
double finish(std::span<const Arrival> arrivals, const Groups& groups, const TransferTimes& times,
              int in_flight = 1);

// Each alone (wait-free back-propagation), or all together.
Groups merge_none(std::size_t arrivals);
Groups merge_all(std::size_t arrivals);

// As PyTorch's DistributedDataParallel fills its buckets: a bucket closes once it holds as much as its cap,
// and the first has a cap of its own. A cap of 0 leaves each gradient alone.
Groups merge_by_size(std::span<const Arrival> arrivals, Bytes first_cap, Bytes cap);

// As MG-WFBP does (Shi, Chu, Li: "MG-WFBP: Efficient data communication for distributed synchronous SGD
// algorithms", INFOCOM 2019), which looks at neighbours, from the first arrival on: a gradient waits for the
// next one where the link is busy until then anyhow, or where the wait is shorter than a start-up. It takes
// no account of what a growing group costs that still has not been sent, and so may end far from the best
// where start-ups are longer than layers.
Groups merge_mg_wfbp(std::span<const Arrival> arrivals, const TransferTimes& times);

// The groups that finish first, for any table of times. With P_j the bytes of the first j arrivals and W_ij
// the longest wait of arrivals i + 1 to j,
//
//   F(0) = 0,   F(j) = min over i < j of  max(F(i), ready_j) + W_ij + t(P_j - P_i),
//
// since what follows a group depends on it only by when it ends, and never gains from its ending later
// (Bellman's principle). O(n^2). Of equally good ones, that with the longest last groups.
// Arrivals with nothing to send join the group that they come in.
Groups merge_exact(std::span<const Arrival> arrivals, const TransferTimes& times);

// The same with several in flight. Where no group need wait for one of `in_flight` before it, only the last
// group's end counts again, with a the start-up:
//
//   F(j) = min over i < j of  max(F(i), ready_j + W_ij + a) + t(P_j - P_i) - a.
//
// Between the two, where only a part of each start-up is hidden, a group's end depends on several before it,
// and the best groups of a few such parts are taken, with waits and without. So this is exact for one in
// flight, and without waits where the least for any number in flight is reached; else it is the best found,
// never worse than merge_exact()'s, merge_mg_wfbp()'s, each alone, all together, or any of `others`.
Groups merge_in_flight(std::span<const Arrival> arrivals, const TransferTimes& times, int in_flight,
                       std::span<const Groups> others = {});

}  // namespace talweg::train
