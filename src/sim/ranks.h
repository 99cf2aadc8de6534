// Ranks: the members of a group on a simulated network. Each runs the protocol::Session that it would run on
// real sockets; what the session sends travels as a stream of frames over the simulation's transport. So does
// each aggregator of the network.
//
//   Ranks ranks(simulation, options);
//   ranks.help(part);                         // where plans lead through aggregators: what these do
//   ranks.start(rank, operation, when);       // one for each rank, as many collectives as wanted
//   simulation.run();
//   ranks.results()                           // when each ended, and how
//
// A frame is taken once little enough waits in front of it, as a socket's buffer takes it; more urgent ones
// overtake until then. A host has one processor, or shares the cluster's cores with the others: every batch
// of frames to or from one peer costs it time before the next thing happens.
//
// Payloads are carried, or (`carry_payloads` off) only their lengths: then operands may lie in one piece of
// memory for all ranks and nothing is summed, and a run needs no more memory than its packets.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ring_queue.h"
#include "forest/host_costs.h"
#include "forest/paces.h"
#include "protocol/session/session.h"
#include "sim/cores.h"
#include "sim/simulation.h"

namespace talweg::sim {

// What a batch of frames costs its sender's and its receiver's processor.
using HostCosts = forest::HostCosts<Picoseconds>;

struct RanksOptions {
  HostCosts costs;
  bool carry_payloads = true;
  std::uint32_t group = 1;
  std::vector<int> nodes;  // rank r is this worker; empty: worker r, for all workers
  int priority = 0;        // of all that the group sends
  bool pacing = false;     // calls are sent at the paces of their plans
};

// A frame of one rank that another one has received.
struct FrameNote {
  int from = 0;  // nodes
  int to = 0;
  const wire::Header& header;
  Picoseconds sent = 0;
  Picoseconds received = 0;
};

struct CollectiveResult {
  int rank = 0;
  std::uint64_t call = 0;  // 0, 1, ... in the order in which this rank was told to start them
  Picoseconds started = 0;
  Picoseconds ended = kNever;  // kNever: it has not
  bool paced = false;
  protocol::Outcome outcome;
};

class Ranks : private FlowClient {
 public:
  // Several groups may share one simulation, and workers. Throws Error{invalid_argument} for nodes that are
  // no workers or come twice.
  Ranks(Simulation& simulation, const RanksOptions& options);
  ~Ranks() override;

  int size() const { return size_; }
  // Of a rank; or of a node behind them, as cluster::restrict_to() to the ranks numbers it.
  int node(int rank) const { return nodes_[static_cast<std::size_t>(rank)]; }
  // Asked when an aggregator first hears of an operation. Without an answer it takes no part.
  using Part = std::function<std::optional<protocol::Operation>(int node, const wire::Signature& signature)>;
  void help(const Part& part);
  // `paces`: of all ranks, as forest::paces_of() has them; they are read when the operation starts.
  void start(int rank, protocol::Operation operation, Picoseconds when,
             std::span<const forest::Pace> paces = {});
  bool pacing() const { return options_.pacing; }
  // In no particular order of ranks; pointers into it stay valid.
  const std::deque<CollectiveResult>& results() const { return results_; }
  protocol::Session& session(int rank);
  void on_frame(std::function<void(const FrameNote&)> call) { on_frame_ = std::move(call); }
  // Called at each end of an operation.
  void on_end(std::function<void(const CollectiveResult&)> call) { on_end_ = std::move(call); }

 private:
  class Host;
  struct Channel;

  void on_delivered(FlowId flow, std::int64_t bytes, Picoseconds now) override;
  void on_writable(FlowId flow, Picoseconds now) override;
  Channel& channel(int from, int to);

  Simulation& simulation_;
  const RanksOptions options_;
  int size_ = 0;
  std::vector<int> nodes_;                    // by rank, and behind them as far as there are aggregators
  std::vector<std::unique_ptr<Host>> hosts_;  // of these; null for a node that only forwards
  std::vector<std::map<int, std::unique_ptr<Channel>>> channels_;  // by sender, then by receiver
  std::vector<Channel*> by_flow_;
  Cores cores_;
  std::vector<std::byte> nothing_;  // stands in for payloads that are not carried
  protocol::BufferPool copies_;
  std::deque<CollectiveResult> results_;
  std::vector<std::uint64_t> calls_;  // by rank
  std::function<void(const CollectiveResult&)> on_end_;
  std::function<void(const FrameNote&)> on_frame_;
};

}  // namespace talweg::sim
