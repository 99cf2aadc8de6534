// Replanner: decides, while a job runs, when its network has changed so much that other plans are worth it.
//
//   Replanner replanner(network, options);
//   if (replanner.observe(epoch, request)) plans.use(replanner.network());
//
// It sends nothing: what the job's own traffic has met is all that it knows. An edge is a connection between
// two workers; an epoch says of each how many bytes arrived and for how long something was on its way. An
// edge that was busy all the time has met something full. Where a link or group of its route carried what it
// is thought to carry, that is the reason. Else one of them has become slower: the one all of whose edges
// were busy (where others were idle, there was room), of several the one that most edges share, or all where
// nobody can tell; it carries what its edges carried while they were busy. What is not full carries at least
// what it carried. Of the last three values the middle one counts: one epoch may be wrong. A drop that was
// soon over makes the next one of the same link wait longer until it is believed, as routers damp routes that
// flap.
//
// Where everything is full, nothing shows that a link that had become slow is quick again. So now and then
// one is tried: plans are made as if it were, and soon go back if it is not.
//
// A plan is given up when another one is predicted to take `threshold` less for the largest call of the
// epoch, at `patience` epochs in a row, but changes that gain up to three times that once per `hold` at most,
// those that gain more up to twice as often (and a few in a row, since a first guess may be wrong): noise
// must not make plans flap. Where links have flapped, each change counts as one.
//
// Every change is on trial: where the next epochs take hardly less time per byte, plans go back, and the next
// change waits longer. What slows a job may be something else than its network.
//
// Every rank must be given the same epochs in the same order; then every rank decides the same. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/cost.h"
#include "forest/forest.h"

namespace talweg::steer {

using cluster::Cluster;
using forest::Forest;

struct EdgeTraffic {
  int from = 0;  // workers
  int to = 0;
  double bytes = 0;  // payload that has arrived
  double busy = 0;   // seconds for which some of it was on its way
};

struct TrafficEpoch {
  std::int64_t time_ns = 0;  // on one rank's clock, the same for all
  std::vector<EdgeTraffic> edges;
};

struct ReplanOptions {
  double threshold = 0.1;
  int patience = 1;
  std::int64_t hold_ns = 60'000'000'000;
  double least_seconds = 0.02;    // a shorter epoch says nothing: latency and bursts rule it
  double least_bytes = 1 << 20;   // nor does one in which so little was sent
  double payload = 1448. / 1514;  // over bytes on the wire, as in forest::CostParameters
};

class Replanner {
 public:
  // `network` must be valid. It is what plans are made for now.
  explicit Replanner(cluster::Cluster network, const ReplanOptions& options = {});

  // True when plans should be made for network() from now on. `request` is the call that matters most.
  bool observe(const TrafficEpoch& epoch, const forest::Request& request);

  // What plans are, or now should be, made for.
  const cluster::Cluster& network() const { return planned_; }
  // What the network is thought to be, whether or not plans are made for it.
  const cluster::Cluster& estimate() const { return estimate_; }
  // By how much less time the best plan for the estimate was last predicted to take; 0 where none is.
  double gain() const { return gain_; }

 private:
  // A link or, behind them, a group.
  struct Use {
    double bytes = 0;
    double busy = 0;      // of its busiest edge
    double weighted = 0;  // bytes times busy
    int edges = 0;
  };
  struct Memory {
    std::array<double, 3> seen{};    // the latest last
    std::int64_t low_since_ns = -1;  // a drop that is not believed yet
    std::int64_t fell_ns = -1;       // when the last believed one began
    double fell_from = 0;            // and what had been thought before
    std::int64_t damping_ns = 0;     // for so long a drop must last
    std::int64_t damped_ns = 0;      // when that was last changed
    bool surely_full = false;        // in the last epoch, since something was busy and had no other reason
  };
  struct Trial {
    cluster::Cluster before;  // what plans were made for
    forest::Request request;
    double cost_before = 0;
    int falls = 0;                    // until then
    std::optional<std::size_t> hope;  // the resource that is tried
    int epochs_left = 0;
  };
  bool flaps() const;
  std::int64_t most_damping() const;
  void saw(std::size_t resource, double bits_per_second, std::int64_t now_ns);
  bool learn(const TrafficEpoch& epoch);
  double gain_of_planning(const forest::Request& request, const cluster::Cluster& network) const;
  void begin_trial(const forest::Request& request, cluster::Cluster network, std::optional<std::size_t> hope);
  bool end_trial(std::int64_t now_ns, const forest::Request& request);
  bool try_one(std::int64_t now_ns, const forest::Request& request);
  std::vector<std::size_t> resources_of(const EdgeTraffic& edge) const;
  double price() const;  // of a change, in those that are allowed
  bool worth_it(std::int64_t now_ns, const forest::Request& request);

  const ReplanOptions options_;
  const cluster::Cluster given_;
  const cluster::Routes routes_;
  cluster::Cluster planned_;
  cluster::Cluster estimate_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<Memory> memories_;           // by resource
  std::optional<forest::Forest> current_;  // the plan in use for the last request
  double gain_ = 0;
  int in_favour_ = 0;   // epochs in a row
  double allowed_ = 0;  // changes, now; one more per hold
  std::int64_t refilled_ns_ = 0;
  std::optional<Trial> trial_;
  std::deque<double> costs_;  // of the latest epochs with the same plans: busy seconds per byte
  int falls_ = 0;             // that were believed
  std::int64_t distrust_ns_ = 0;
  std::int64_t trusts_at_ns_ = 0;  // no change before
  std::size_t next_tried_ = 0;     // the resource after the one that was tried last
  std::int64_t try_every_ns_ = 0;
  std::int64_t try_at_ns_ = -1;
  std::int64_t last_ns_ = -1;  // when the last epoch ended
};

}  // namespace talweg::steer
