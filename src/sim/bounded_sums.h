// BoundedSums: all-reduces of which a bounded part may be lost on the way, as talweg/bounded_loss.h makes
// them. Ranks are the objects of protocol/bounded and protocol/datagram that run on real sockets; their
// datagrams travel as packets, and may be lost, overtaken or doubled.
//
//   BoundedSums sums(simulation, {.p = 0.01});
//   const CallTimes times = sums.run(operands, count, {.warm_up = 20, .timed = 100}, horizon);
//   sums.losses()
//
//   const std::size_t sum = sums.add(count, depth);     // or one by one, each rank when it is told to
//   sums.on_end([&](int rank) { ... });
//   sums.start(rank, sum, operands);
//
// Every worker of the cluster takes part, or those that the options name. In each call all ranks first tell
// each other what they call, then send each rank its shard, of which a part may be missing, and then get the
// sums of the others' shards, exactly: as with TALWEG_TRANSPORT=udp. A datagram fills a packet of the
// transport's size, and has a tag. With several queues, shards have the priority of their layer and what is
// said about them the most urgent one, as with PacketClasses; words and sums are best effort, as the group's
// datagrams are. A call that has not ended after 20 minutes has failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "protocol/bounded/exchange.h"
#include "sim/collectives.h"
#include "sim/datagram_hosts.h"
#include "sim/host_calls.h"
#include "sim/queue_policy.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace talweg::sim {

inline constexpr const char* kBounded = "bounded";   // where such sums are named beside planners
inline constexpr int kMostQueues = kPriorities - 1;  // of shards: control has one

struct BoundedSumsOptions {
  double p = 0.01;                             // of what a rank sends another one in a call; 0 .. 0.5
  std::optional<double> p_sender{}, p_call{};  // as BoundedLossOptions
  DataType type = DataType::f32;
  protocol::ExchangeClasses classes{};  // of every rank; the priority is by `queues`
  // So many priorities for shards, by where in the model they are, the first layers' the most urgent
  // (PacketClasses::queues). 1: all is best effort, wire::kOrdinary.
  int queues = 1;  // 1 .. kMostQueues
  HostCosts costs{};
  std::vector<int> nodes{};    // rank r is this worker; empty: worker r, for all workers
  std::vector<int> servers{};  // ranks that sum, in any order; empty: all (BoundedLossOptions::servers)
  bool warm_up = true;         // the first calls lose nothing (AdaptiveDeadline::kWarmUp)
  std::size_t paths = 1;       // of each rank to each other one; 1 .. protocol::kMostPaths
  std::size_t window_bytes = std::size_t{2} << 20;  // that may wait in a socket, of all senders
  std::uint32_t port = 4713;                        // that nothing else of the simulation has
};

// Of all calls and ranks of a run.
struct BoundedLosses {
  std::uint64_t sent_bytes = 0;            // of shards, in calls that may lose a part
  std::uint64_t lost_bytes = 0;            // of these, in no sum
  std::uint64_t lost_important_bytes = 0;  // of these, in packets that were not droppable
  std::uint64_t datagrams = 0;
  std::uint64_t packets_again = 0;  // of shards
  std::uint64_t sums_again = 0;     // datagrams' worth of sums and agreements that were sent more than once
  std::uint64_t timeouts = 0;       // of both
  std::uint64_t paths_left = 0;     // times that a path was found to answer nothing
  double lost() const {
    return sent_bytes > 0 ? static_cast<double>(lost_bytes) / static_cast<double>(sent_bytes) : 0;
  }
  double important() const {  // of what was lost
    return lost_bytes > 0 ? static_cast<double>(lost_important_bytes) / static_cast<double>(lost_bytes) : 0;
  }
};

// Throws Error{invalid_argument} for a bound out of range, packets too small for what has to be said,
// classes that are none, and types of which no part may be missing.
void check_bounded_sums(const BoundedSumsOptions& options, const TransportOptions& transport);

class BoundedSums {
 public:
  // Throws as check_bounded_sums(), and for more workers than there is memory for.
  BoundedSums(Simulation& simulation, const BoundedSumsOptions& options);
  ~BoundedSums();
  BoundedSums(const BoundedSums&) = delete;
  BoundedSums& operator=(const BoundedSums&) = delete;

  // `operands` by rank, of `count` elements each, none in place. Throws what a sum has failed with;
  // Error{timeout} that names the ranks when the horizon comes first. After either the simulation is not to
  // be run on.
  CallTimes run(std::span<const SumOperands> operands, std::size_t count, const Calls& calls,
                Picoseconds horizon, Trace* trace = nullptr);

  // Sums of so many elements from now on, between two of them; what start() calls it. `depth`: where in the
  // model they are, 0 next to its input .. 1 next to its output. Throws Error{invalid_argument} for more than
  // there is memory for.
  std::size_t add(std::size_t count, double depth = 0);
  // The rank begins its part of such a sum, as all do, in the same order; it has ended the last one.
  // `operands` as above; they outlive it.
  void start(int rank, std::size_t sum, const SumOperands& operands);
  // Called at each end of a rank's part, after which that rank may be told to start another one, but not
  // from this call. A sum that has failed throws out of the simulation.
  void on_end(std::function<void(int rank)> call) { on_end_ = std::move(call); }

  // Of the last run, or of all that was started; of the flows' part, sums_again and timeouts, of a run alone.
  const BoundedLosses& losses() const { return losses_; }
  // Of what `rank` was sent in the last call, what it has summed without, by sender. By packets: the shape of
  // its shard says which elements these are.
  const protocol::PacketSet& missing(int rank, int sender) const;
  const protocol::BoundedShape& shape(int rank) const;
  std::size_t calls_ended() const { return calls_ended_; }  // of rank 0

 private:
  class RankHost;

  void on_done(int rank, Picoseconds started);
  [[noreturn]] void fail(const protocol::BoundedFailure& failure) const;
  std::vector<int> nodes() const;

  Simulation& simulation_;
  const BoundedSumsOptions options_;
  DatagramHosts hosts_;
  std::vector<int> servers_;  // ascending
  std::vector<std::unique_ptr<RankHost>> ranks_;
  BoundedLosses losses_;
  std::size_t sums_ = 0;  // that were added
  std::size_t calls_ended_ = 0;
  std::function<void(int rank)> on_end_;  // empty: in a run
  HostCalls calls_;
};

}  // namespace talweg::sim
