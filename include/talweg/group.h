// A group of ranks that call collectives together.
//
// How to use it:
//   1. Start N processes that know their rank (talweg run, torchrun, mpirun and srun all tell them).
//   2. auto group = talweg::Group::join();                 // or join(options)
//   3. group->all_reduce(in, out, n, DataType::f32, ReduceOp::sum);        // blocks, throws talweg::Error
//      auto work = group->start_all_reduce(in, out, n, DataType::f32, ReduceOp::sum);    // or: in flight
//   4. work->wait();                                       // returns, or throws what went wrong
//   5. Let the group go out of scope: that is local and bounded.
//
// Rules. Every rank calls the same collectives in the same order; a call that differs in operation, type,
// count, reduction or root is answered on every rank with Error{mismatch} before any buffer is written, and
// the group stays usable. Buffers belong to the caller and must stay untouched until the work is done. `in ==
// out` is allowed (in place) in all_reduce, reduce and broadcast, and where the input is the rank's own part
// of the output (all_gather, gather) or the output is a part of the input (reduce_scatter, scatter) at its
// own offset; all_to_all wants distinct buffers. Buffers that share memory otherwise are refused. Any thread
// may call; calls of one group are ordered by when they were made. Every call has a deadline and ends in a
// result or in an Error that names rank, operation, sequence number.
#pragma once

#if __cplusplus < 202002L
#error "Talweg needs C++20: compile with -std=c++20 or later, or link the CMake target talweg::talweg"
#endif

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "talweg/call.h"
#include "talweg/error.h"
#include "talweg/store.h"
#include "talweg/types.h"

namespace talweg {

// Where a setting comes from: explicit option > environment > default. `Group::describe` says which.
struct GroupOptions {
  int rank = -1;                 // -1: from the environment (talweg run, torchrun, Open MPI, Slurm, PMI)
  int size = -1;                 // both or neither
  std::shared_ptr<Store> store;  // where the ranks meet; empty: at `rendezvous`
  std::string rendezvous;        // "tcp://host:port" or "file:/path"; empty: TALWEG_STORE or MASTER_*
  std::string prefix;            // of the keys in the store: several groups can share one store
  std::chrono::milliseconds timeout{0};  // default deadline of calls; 0: TALWEG_TIMEOUT or 30 s
  std::string interface;     // NCCL_SOCKET_IFNAME's grammar; empty: TALWEG_SOCKET_IFNAME or automatic
  std::string cluster_file;  // the network, rank i = worker i; empty: TALWEG_CLUSTER or built-in defaults
  // Another group of this process: when every rank brings one and they are the same group with all its ranks
  // still there, the new group shares its connections and knows the network between its ranks; else it makes
  // its own, and `cluster_file` counts only if it describes as many workers as the new group has ranks.
  std::shared_ptr<class Group> within;
  // "all_reduce:ring;broadcast:chain", "ring" or "switch"; empty: TALWEG_ALGO or by cost
  std::string algorithm;
  // A switch that all_reduces may go through, "address:port", or several with commas, the same on all ranks;
  // "none"; empty: TALWEG_SWITCH, or those that the cluster file names. Groups that are split from this one,
  // or share its connections, have the same, each with a job of its own there from its first all_reduce on.
  std::string switch_address;
  std::string switch_key_file;  // that the switch has, too; empty: TALWEG_SWITCH_KEY_FILE or none
};

// One collective in flight. Thread-safe. Dropping it does not cancel it.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool test() = 0;  // done, well or badly; makes progress
  // Blocks until done; throws Error if it failed. The collective's own deadline bounds the wait.
  virtual void wait() = 0;
  // As wait(), but gives up after `limit` (false), leaving the collective in flight.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  virtual std::exception_ptr error() = 0;  // null while in flight and after success
  // Called once, when done, from the thread that drives (at once if done already). Must not block.
  virtual void on_done(std::function<void()> callback) = 0;
  virtual std::uint64_t sequence() const = 0;
  virtual int source_rank() const = 0;  // recv: who sent; otherwise -1
};
using WorkPtr = std::shared_ptr<Work>;

// What a group has done since it was joined, for `talweg perf` and people.
struct GroupStatistics {
  std::uint64_t bytes_sent = 0;  // frames, headers included, to other hosts and through shared memory
  std::uint64_t bytes_received = 0;
  std::uint64_t peak_buffer_bytes = 0;    // chunk buffers held at once, beyond the callers' tensors
  std::uint64_t shared_memory_bytes = 0;  // mapped for this rank's rings and payload pool
  // Of all sums of which a part may be lost (talweg/bounded_loss.h), as their LossReports say. Their
  // datagrams are not in bytes_sent.
  std::uint64_t bounded_calls = 0;
  std::uint64_t bounded_sent_bytes = 0;
  std::uint64_t bounded_lost_bytes = 0;
  std::uint64_t bounded_packets_again = 0;
};

// How the network is to be measured.
struct ProbeOptions {
  double confidence = 0.05;                          // repeats until rates are sure to this part of them
  std::chrono::milliseconds budget{0};               // 0: 10 s for 8 hosts. A goal, not a deadline
  std::function<void(const std::string&)> progress;  // called on rank 0: a line for people
};

class Group {
 public:
  // Blocks until all ranks are connected to each other. Throws Error: invalid_argument (options, an interface
  // that does not exist), timeout (names the ranks that never came), system, version.
  static std::shared_ptr<Group> join(const GroupOptions& options = {});
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts a call: what all the named functions below come down to. Throws Error{invalid_argument} or
  // Error{unsupported} for a call that can never work; everything else is told by the Work.
  virtual WorkPtr start(const Call& call) = 0;

  // Counts are elements. For the shape of each buffer see the individual comment.
  WorkPtr start_all_reduce(const void* in, void* out, std::size_t count, DataType, ReduceOp,
                           const CallOptions& = {});
  // `out` is written on the root only and may be null elsewhere.
  WorkPtr start_reduce(const void* in, void* out, std::size_t count, DataType, ReduceOp, int root,
                       const CallOptions& = {});
  WorkPtr start_broadcast(void* data, std::size_t count, DataType, int root, const CallOptions& = {});
  // `in`: sum(counts) elements; `out`: counts[rank].
  WorkPtr start_reduce_scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType,
                               ReduceOp, const CallOptions& = {});
  // `in`: counts[rank] elements; `out`: sum(counts).
  WorkPtr start_all_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType,
                           const CallOptions& = {});
  // `in`: row by destination, in_counts[d] each; `out`: by source, out_counts[s] each.
  WorkPtr start_all_to_all(const void* in, std::span<const std::size_t> in_counts, void* out,
                           std::span<const std::size_t> out_counts, DataType, const CallOptions& = {});
  // The root passes every rank's count; another rank may pass 0 for the ranks that it does not know.
  WorkPtr start_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType, int root,
                       const CallOptions& = {});
  WorkPtr start_scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType, int root,
                        const CallOptions& = {});
  // Matched by (peer, tag), in order; not ordered against collectives. `source` may be kAnyRank.
  WorkPtr start_send(const void* data, std::size_t count, DataType, int destination, std::uint32_t tag = 0,
                     const CallOptions& = {});
  WorkPtr start_recv(void* data, std::size_t count, DataType, int source, std::uint32_t tag = 0,
                     const CallOptions& = {});
  // Done when every rank has called it, and everything that this rank started before it (messages, too) has
  // ended, well or badly. So once it has ended on all ranks, all earlier calls have.
  WorkPtr start_barrier(const CallOptions& = {});

  // Start and wait, in one: the calling thread drives, which is the fastest way for small messages.
  void all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& o = {});
  void reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op, int root,
              const CallOptions& o = {});
  void broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& o = {});
  void reduce_scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                      ReduceOp op, const CallOptions& o = {});
  void all_gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type,
                  const CallOptions& o = {});
  void all_to_all(const void* in, std::span<const std::size_t> in_counts, void* out,
                  std::span<const std::size_t> out_counts, DataType type, const CallOptions& o = {});
  void gather(const void* in, void* out, std::span<const std::size_t> counts, DataType type, int root,
              const CallOptions& o = {});
  void scatter(const void* in, void* out, std::span<const std::size_t> counts, DataType type, int root,
               const CallOptions& o = {});
  void send(const void* data, std::size_t count, DataType type, int destination, std::uint32_t tag = 0,
            const CallOptions& o = {});
  void recv(void* data, std::size_t count, DataType type, int source, std::uint32_t tag = 0,
            const CallOptions& o = {});
  void barrier(const CallOptions& o = {});

  // A group of some of this group's ranks, numbered in the order given; every rank of *this* group calls it,
  // in the same order. Null on ranks that are not in the list. Shares this group's connections. Throws
  // Error{mismatch} on every rank where a rank has been listed by another whose list is not its own.
  virtual std::shared_ptr<Group> split(std::span<const int> ranks) = 0;

  // Measures the network between the hosts of this group: latency and bandwidth of pairs and of sets, and
  // what they share. Every rank calls it, with nothing else in flight. Returns a cluster file, the same on
  // all ranks, by which this group plans from then on; groups that were split from it before keep theirs. It
  // loads the network for some seconds. Throws Error{invalid_argument} where all ranks are on one host, or a
  // value is out of range; when a call fails in the middle, the group is aborted.
  virtual std::string probe(const ProbeOptions& = {}) = 0;

  // Fails everything in flight and every later call, here and on all other ranks, with Error{aborted}; also
  // calls of BoundedSums that were made of this group, not those of groups that were split from it.
  virtual void abort(const std::string& why) = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  virtual GroupStatistics statistics() const = 0;
  // How this group is connected and what was chosen and why: one "key: value (origin)" a line.
  virtual std::string describe() const = 0;
  // Which algorithm would carry this call in the end, and the predicted time: "ring, 64 chunks of 64 KiB,
  // predicted 8.9 ms". Where that is not planned yet it may take minutes; calls go on meanwhile.
  virtual std::string explain(Collective op, std::size_t count, DataType type) const = 0;
  // The flight recorder: this rank's last calls, those in flight with the ranks that they wait for, as JSON
  // for `talweg doctor` (docs/seeing.md). Any thread may ask at any time.
  virtual std::string flight_record() const = 0;
  // "hostname pid" of a rank of this group.
  virtual std::string host_of(int rank) const = 0;
};

}  // namespace talweg
