// Adaptation: how a group's plans follow the network.
//
// An epoch is some calls, as many as bring so many bytes that their times say something. At its end rank 0
// asks every rank what its connections have carried since they were asked last (TrafficMeter). When all have
// answered, the re-planner decides in the background on what they said, and where plans are to change, plans
// ahead what is called. Rank 0's calls only look whether it is done: at the end of the next epoch, or as soon
// after it as the decision is there, all learn of it at the same call (PlanLeader). Until then nobody is
// asked again: what is carried meanwhile counts in the epoch that goes on.
//
// Threads: an Adaptation has one at a time, as has all that belongs to a group. No re-planner that another
// thread may see ever changes: the background is given the last one and what was heard, works on a copy, and
// that is the next one. So a decision that fails (no memory, no thread) leaves all as it was. Whoever lets go
// of the Adaptation gives up what is still being decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "forest/forest.h"
#include "live/engine.h"
#include "steer/background.h"
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
  // `background` outlives it, and should have little else to do.
  Adaptation(cluster::Cluster network, Background& background);

  // A collective starts.
  void count(const forest::Request& request);
  // What `rank` has said, as TrafficMeter::take() returned it there. False for what no rank can have said.
  // With the last one the background begins to decide.
  bool hear(int rank, std::span<const double> report, std::int64_t now_ns);
  Turn turn(std::uint64_t call) override;

  // Nothing is being decided.
  bool decided() const { return !task_ || task_->done(); }
  // What plans are made for, as of the last turn.
  const cluster::Cluster& network() const { return replanner_->network(); }

 private:
  struct Decision {
    std::shared_ptr<const Replanner> replanner;  // that knows of the epoch
    std::shared_ptr<const PlannedAhead> ahead;   // null: plans stay
  };
  void decide();

  const std::size_t ranks_;
  Background& background_;
  std::shared_ptr<const Replanner> replanner_;
  std::optional<Background::Task<Decision>> task_;
  std::int64_t enough_ = std::int64_t{4} << 20;  // bytes, for an epoch
  std::int64_t bytes_ = 0;                       // of this epoch
  std::uint64_t began_ = 0;                      // the call that this epoch began with
  forest::Request largest_;                      // of this epoch
  std::int64_t largest_bytes_ = 0;
  std::optional<std::uint64_t> late_since_;  // the call at which this epoch might have ended
  std::vector<forest::Request> requests_;    // of late, the last one first
  forest::Request decisive_;                 // the largest of the epoch that was asked about
  TrafficEpoch epoch_;                       // that was asked about
  double longest_ = 0;                       // that one of its edges was busy, in seconds
  std::vector<bool> heard_;                  // who has answered
  std::size_t missing_ = 0;
  bool asked_ = false;
};

// What a network's links and then its groups carry, in bit/s; and the same network with other such rates, of
// which there must be as many. Throws Error{corrupted} where there are not.
std::vector<double> rates_of(const cluster::Cluster& network);
cluster::Cluster with_rates(cluster::Cluster network, const std::vector<double>& rates);

}  // namespace talweg::steer
