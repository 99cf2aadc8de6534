// Questions to a job: how a step's time goes with ranks, bandwidth and strategy, and which plan is best.
//
//   const auto curve = scaling(job, find_strategy("ddp"), setting, {2, 4, 8, 16}, by_growth(setting.network, Growth::ring));
//   const EnoughBandwidth enough = enough_bandwidth(job, find_strategy("ddp"), setting);
//   const std::vector<Candidate> plans = best_plans(job, find_strategy("ddp"), setting);
//   plans.front().strategy;  plans.front().step;  plans.front().gain;
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/strategies.h"

namespace talweg::train {

// ---- More ranks, each with the same batch (weak scaling)

// What a network takes for so many ranks.
using TimesAtRanks = std::function<NetworkTimes(int ranks)>;
// at_ranks(): known for some ranks, reckoned for others.
TimesAtRanks by_growth(const NetworkTimes& network, Growth growth);

struct ScalePoint {
  int ranks = 1;
  double step = 0;                // seconds
  double speed_up = 0;            // ranks * step of one rank / step
  double efficiency = 0;          // speed_up / ranks
  double samples_per_second = 0;  // 0: the job's batch is not known
  double exposed = 0;             // seconds of a step
};
// Throws Error{invalid_argument} where the setting has slowness, which is of so many ranks.
std::vector<ScalePoint> scaling(const Job& job, const Strategy& strategy, const Setting& setting,
                                std::span<const int> ranks, const TimesAtRanks& times);

// ---- More bandwidth

struct BandwidthPoint {
  double bandwidth = 1;  // times what there is
  double step = 0;
};
struct EnoughBandwidth {
  double step = 0;     // as it is
  double at_best = 0;  // with bandwidth without end: start-ups are left
  // Times what there is, the least with which all the rest would gain less than `threshold`. Below 1: there
  // is more than enough. Nothing: no bandwidth below kMostBandwidth is.
  std::optional<double> enough{};
  std::vector<BandwidthPoint> curve{};  // by powers of two around 1
};
inline constexpr double kMostBandwidth = 4096;
EnoughBandwidth enough_bandwidth(const Job& job, const Strategy& strategy, const Setting& setting,
                                 double threshold = 0.01);

// ---- The best plan

struct Candidate {
  Strategy strategy{};
  double step = 0;
  double gain = 0;  // of the baseline's step, what is saved: 0.2 for a step that is a fifth shorter
  StepParts parts{};
  int calls = 0;
};
struct SearchLimits {
  // Which kinds are tried, and which sizes; empty: powers of two from 1 MiB to 512 MiB.
  bool by_priority = true, decoupled = true, sharded = true;
  std::vector<Bytes> caps{};
  std::vector<Bytes> partitions{};
};
// Every kind with its parameters searched, the quickest first; of one kind and rule only the best. The
// baseline's input is kept, since reading is no matter of how gradients travel. `baseline` is among them.
std::vector<Candidate> best_plans(const Job& job, const Strategy& baseline, const Setting& setting,
                                  const SearchLimits& limits = {});
// Of DistributedDataParallel alone: the cap of its buckets (bucket_cap_mb) with the shortest step, of equals
// the smallest.
Candidate best_cap(const Job& job, const Strategy& baseline, const Setting& setting,
                   std::span<const Bytes> caps = {});
// "exact: 3 calls a step, step 52.2 ms, 25 % less": than the baseline's.
std::string to_words(const Candidate& candidate);

// ---- One change after the other

// A setting with one thing changed, and what a step takes then, the largest gain first: twice the bandwidth,
// no start-ups, devices twice as fast, no gaps, batches that are there, no rank late, half the bytes. Without
// bandwidth and bytes where times have no rate, of which neither says anything; without what would be scaled
// by more than kMostScale.
struct Change {
  std::string what;  // "twice the bandwidth"
  double step = 0;
  double gain = 0;
};
std::vector<Change> what_helps(const Job& job, const Strategy& strategy, const Setting& setting);

}  // namespace talweg::train
