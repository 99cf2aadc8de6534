// Replanner: decides, while a job runs, when its network has changed so much that other plans are worth it.
//
//   Replanner replanner(network, options);
//   if (replanner.observe(epoch, request)) plans.use(replanner.network());
//
// It sends nothing: what the job's own traffic has met is all that it knows. An edge is a connection between
// two workers; an epoch says of each how many bytes arrived and for how long something was on its way.
//
// What a link or group carries. Of what an edge has carried each link has had the part that routes give it
// (cluster/routing.h): where several ways are equally good, all of them. Links that are alike and always
// loaded alike are one, which the first of them stands for: nothing tells them apart. An edge that was busy
// all the time has met something full. Where a link or
// group of its route carried what it is thought to carry, that is the reason. Else one of them has become
// slower: the one all of whose edges were busy (where others were idle, there was room), of several the one
// that most edges share, or all where nobody can tell; it carries what its edges carried while they were
// busy. What is one of several reasons stays as it was thought to be. What is not full carries what it
// carried, and no less than was believed when plans were made: a dip that is over and was not planned for is
// forgotten. An edge that was idle for a while has met nothing full: what was the only reason for some edge,
// and then has room, is as it was given. Of the last three values the middle one counts, since one epoch may
// be wrong.
//
// When plans change:
// 1. A change has a price: other plans must have been predicted to take `threshold` less time for the largest
//    call of each epoch, for so long that they would have saved a few seconds. What is over soon, or gains
//    little, is not followed.
// 2. Changes are rationed: at most fifteen in any quarter of an hour, some of them in a row, as hosts that
//    become slow one after the other need. The less is left, the more a change has to save: dips that come
//    and go must not use up what lasting drops, and looking whether they are over (6), will need.
// 3. Plans are made as if what is slow were less slow, as far as that costs next to nothing. A host that is
//    seven times slower than others is what each plan waits for, so that it hardly matters how others share
//    the load; a plan that knew it would load some of these far more than others, and wait for them too as
//    soon as they become slower.
// 4. Every change is on trial: where the next epochs take no less time per byte, plans go back, unless
//    something fell that they do not avoid, so that nobody can tell. Going back is on trial, too: where
//    epochs then take more time, the change had helped, while what it avoids became still slower, and is made
//    again. Else the next change waits, twice as long each time. What slows a job may be something else than
//    its network.
// 5. Where everything is full, nothing shows that a link that had become slow is quick again. So while one is
//    slow, one worker that is not, the witness, has a little less to carry than it could, as far as that
//    costs little: its edges to what is slow are busy all the time only as long as that stays so.
// 6. Which ones fell, of many at once, no witness shows. So now and then, ever more rarely where it does not
//    help, plans are made as if all that is slow, and was not seen to be the only reason, were as it was
//    given. That shows what is slow still.
//
// From the same epochs in the same order follow the same decisions. Pure. A copy decides on its own: whoever
// plans in another thread gives it one.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "forest/cost.h"
#include "forest/forest.h"
#include "forest/work_limit.h"

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
  double least_seconds = 0.02;    // a shorter epoch says nothing: latency and bursts rule it
  double least_bytes = 1 << 20;   // nor does one in which so little was sent
  double payload = 1448. / 1514;  // over bytes on the wire, as in forest::CostParameters
};

class Replanner {
 public:
  // `network` must be valid. It is what plans are made for now.
  explicit Replanner(cluster::Cluster network, const ReplanOptions& options = {});

  // True when plans should be made for network() from now on. `request` is the call that matters most. May
  // take as long as some plans. Throws WorkLimit::Reached, if there is a limit, when nobody waits any more,
  // and what planning throws; then the re-planner is of no further use.
  bool observe(const TrafficEpoch& epoch, const forest::Request& request,
               const forest::WorkLimit* limit = nullptr);

  // What plans are, or now should be, made for.
  const cluster::Cluster& network() const { return planned_; }
  // What the network is thought to be, whether or not plans are made for it.
  const cluster::Cluster& estimate() const { return estimate_; }

 private:
  // A resource is a link or, behind them, a group. What part of an edge's bytes it carries.
  struct Share {
    std::size_t resource = 0;
    double part = 0;
  };
  struct Use {
    double bytes = 0;
    double busy = 0;                                          // of its busiest edge
    double idlest = std::numeric_limits<double>::infinity();  // the same of the one that was busy least
    double weighted = 0;                                      // bytes times busy
    int edges = 0;
  };
  struct Memory {
    std::array<double, 3> seen{};  // the latest last
    bool full_alone = false;       // in the last epoch, since something was busy and had no other reason
    bool recovered = false;        // was full alone, and has had room since
    bool still_slow = false;       // was full alone while plans were made as if it were not slow
  };
  // What did not help waits until it is done again, longer each time.
  struct Backoff {
    double wait = 0;  // seconds
    double until = 0;
    void restart(double now);
    void fail(double now);
  };
  // One of the calls that matter, since plans have changed.
  struct Candidate {
    std::shared_ptr<const forest::Forest> current;  // the plan in use
    std::shared_ptr<const forest::Forest> better;   // one that has been so since some epoch, or none
    cluster::Cluster considered;                    // what a better one was last looked for
  };
  struct Trial {
    enum class Kind { change, probe, way_back };
    Kind kind = Kind::change;
    cluster::Cluster believed;  // before
    forest::Request request;
    double cost = 0;     // before: busy seconds per byte
    bool begun = false;  // the epoch in which plans changed is over
  };
  void saw(std::size_t resource, double bits_per_second);
  bool learn(const TrafficEpoch& epoch);
  cluster::Cluster to_plan_for(const forest::Request& request, const cluster::Cluster& network) const;
  void plan_for(const forest::Request& request, cluster::Cluster network);
  void begin_trial(const forest::Request& request, cluster::Cluster network, Trial::Kind kind);
  cluster::Cluster to_go_back_to(const Trial& trial) const;
  bool end_trial(const forest::Request& request);
  bool worth_it(const forest::Request& request);
  std::optional<cluster::Cluster> probe(const forest::Request& request);
  Candidate& candidate(const forest::Request& request);
  std::vector<Share> resources_of(const EdgeTraffic& edge) const;
  void keep_alike(cluster::Cluster& network) const;
  forest::Forest best_plan(const forest::Request& request, const forest::CostModel& model) const;

  const ReplanOptions options_;
  const cluster::Cluster given_;
  const std::shared_ptr<const cluster::Routes> routes_;
  const forest::WorkLimit* limit_ = nullptr;  // of observe(), while it runs
  cluster::Cluster planned_;                  // believed_, relaxed
  cluster::Cluster believed_;                 // the estimate when plans were made
  cluster::Cluster estimate_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<Memory> memories_;       // by resource
  std::vector<Candidate> candidates_;  // the latest last
  double saved_ = 0;                   // seconds that better plans would have since they were found
  double length_ = 0;                  // of the last epoch, in seconds of traffic
  std::deque<double> costs_;           // of the latest epochs: busy seconds per byte
  double allowed_ = 0;                 // changes, now
  std::int64_t first_ns_ = -1;
  double now_ = 0;  // seconds since then, as of all times here
  std::optional<Trial> trial_;
  Backoff changes_, probes_;
};

}  // namespace talweg::steer
