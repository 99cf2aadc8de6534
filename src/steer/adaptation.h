// Adaptation: how a group's plans follow the network.
//
// An epoch is some calls, as many as bring so many bytes that their times say something. At its end rank 0
// asks every rank what its connections have carried since they were asked last (TrafficMeter). At the end of
// the next one, if it has heard from all, the re-planner decides on what they said; and all learn what rank 0
// says of it at the same call (PlanLeader).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "live/engine.h"
#include "steer/plan_leader.h"
#include "steer/replanner.h"

namespace talweg::steer {

// One rank's connections.
class TrafficMeter {
 public:
  explicit TrafficMeter(int ranks);
  // What has been carried since it was asked last, as rank 0 wants to hear it: for each rank the bytes that
  // have arrived there, and the seconds for which some were on their way.
  std::vector<double> take(const std::vector<live::PeerStatistics>& statistics);

 private:
  std::vector<double> carried_, busy_;  // when taken last
  bool taken_ = false;
};

// Rank 0's.
class Adaptation : public NetworkWatch {
 public:
  explicit Adaptation(cluster::Cluster network);

  // A collective starts.
  void count(const forest::Request& request);
  // What `rank` has said, as TrafficMeter::take() returned it there. False for what no rank can have said.
  bool hear(int rank, std::span<const double> report, std::int64_t now_ns);
  Turn turn(std::uint64_t call) override;

  const cluster::Cluster& network() const { return replanner_.network(); }
  double gain() const { return replanner_.gain(); }

 private:
  const std::size_t ranks_;
  Replanner replanner_;
  std::int64_t enough_ = std::int64_t{4} << 20;  // bytes, for an epoch
  std::int64_t bytes_ = 0;                       // of this epoch
  std::uint64_t began_ = 0;                      // the call that this epoch began with
  forest::Request largest_;                      // of this epoch
  std::int64_t largest_bytes_ = 0;
  forest::Request decisive_;  // the largest of the epoch that was asked about
  TrafficEpoch epoch_;        // that was asked about
  std::vector<bool> heard_;   // who has answered
  std::size_t missing_ = 0;
  bool asked_ = false;
};

// What a network's links and then its groups carry, in bit/s; and the same network with other such rates, of
// which there must be as many. Throws Error{corrupted} where there are not.
std::vector<double> rates_of(const cluster::Cluster& network);
cluster::Cluster with_rates(cluster::Cluster network, const std::vector<double>& rates);

}  // namespace talweg::steer
