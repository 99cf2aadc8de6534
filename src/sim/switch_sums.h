// SwitchSums: all-reduces that switches sum in the network. Workers and switches are the objects of
// protocol/aggregation that run on real sockets; their datagrams travel as packets, and may be lost,
// overtaken or doubled.
//
//   SwitchSums sums(simulation, {.switches = {node}});
//   const CallTimes times = sums.run(operands, count, {.warm_up = 1, .timed = 3}, horizon);
//
// With racks, each worker sends to its rack's switch, and these to the one above.
//
// Every worker of the cluster takes part. Several switches share a vector as the threads of one do: block b
// is the b mod n'th one's. Results go to each worker by itself, as `talweg switch` sends them; where its
// node can multicast, and whoever has to copy on the way to its workers, once to all of them. A datagram
// fills a packet of the transport's size, and has a tag; slots are lent as `talweg switch` lends them. A sum
// that has not ended after 20 minutes has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocol/aggregation/switch.h"
#include "protocol/aggregation/worker.h"
#include "sim/collectives.h"
#include "sim/datagram_hosts.h"
#include "sim/host_calls.h"
#include "sim/simulation.h"
#include "sim/trace.h"

namespace talweg::sim {

struct SwitchSumsOptions {
  std::vector<int> switches;  // nodes, none of them a worker
  std::vector<int>
      racks;  // by worker: the node of its rack's switch, below the only one of `switches`; empty: none
  HostCosts costs;
  wire::AggregationFormat format = wire::AggregationFormat::f32;
  bool sparse = false;  // blocks that are zero do not travel
  // The part of each worker's blocks that may be missing, 0 .. 0.5; not of sparse sums, nor below another
  // switch. Each worker has a residual.
  double may_lose = 0;
  std::size_t slots = 256;                          // of each switch, at most
  std::size_t window_bytes = std::size_t{2} << 20;  // that may wait in a socket
  std::uint32_t port = 4711;                        // that nothing else of the simulation has
};

// What the switches lend to the job of so many workers, and the bytes on the wire of a datagram that is full
// of elements of four bytes, as they are for formats of fewer where these have as many elements in one.
// Throws Error{invalid_argument} for packets too small for a block.
struct SwitchJob {
  protocol::JobTerms terms;
  std::size_t datagram_bytes = 0;
  wire::AggregationFormat format = wire::AggregationFormat::f32;
};
SwitchJob switch_job(const SwitchSumsOptions& options, const TransportOptions& transport, int workers);

class SwitchSums {
 public:
  // Throws Error{invalid_argument} as switch_job(), and for nodes that cannot be switches.
  SwitchSums(Simulation& simulation, const SwitchSumsOptions& options);
  ~SwitchSums();
  SwitchSums(const SwitchSums&) = delete;
  SwitchSums& operator=(const SwitchSums&) = delete;

  // `operands` by rank, of `count` elements each. Throws what a sum has failed with; Error{timeout} that
  // names the ranks when the horizon comes first. After either the simulation is not to be run on.
  CallTimes run(std::span<const SumOperands> operands, std::size_t count, const Calls& calls,
                Picoseconds horizon, Trace* trace = nullptr);

  struct Call {
    int rank = 0;
    Picoseconds started = 0;
    Picoseconds ended = 0;
  };
  const std::vector<Call>& ended() const { return ended_; }  // as they ended
  const SwitchJob& job() const { return job_; }
  // The part of all workers' blocks that is missing in sums, but for the first ones, which lose nothing.
  double lost() const {
    return blocks_ > 0 ? static_cast<double>(missing_) / static_cast<double>(blocks_) : 0;
  }
  // What was missing of a worker's vectors and is still to come: as many bytes as a vector has. Empty:
  // nothing may be missing.
  std::span<const std::byte> residual(int rank) const;
  protocol::WorkerCounters worker_counters(int rank) const;  // of all switches together
  // Of the options' switch of this number; behind these are those of racks, in the order of their first
  // workers.
  protocol::SwitchCounters switch_counters(std::size_t number) const;

 private:
  class WorkerHost;
  class SwitchHost;

  void on_done(int rank, Picoseconds started);
  [[noreturn]] void fail(const protocol::SumFailure& failure) const;
  std::vector<int> nodes() const;               // of workers and switches
  std::vector<std::vector<int>> racks() const;  // their workers, in the order of their first ones

  Simulation& simulation_;
  const SwitchSumsOptions options_;
  const SwitchJob job_;
  DatagramHosts hosts_;
  std::vector<std::unique_ptr<WorkerHost>> workers_;   // by rank
  std::vector<std::unique_ptr<SwitchHost>> switches_;  // by number
  std::vector<Call> ended_;
  std::size_t count_ = 0;  // of the calls that are running
  std::uint64_t blocks_ = 0, missing_ = 0;
  HostCalls calls_;
};

}  // namespace talweg::sim
