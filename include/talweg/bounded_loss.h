// Sums of gradients of which a bounded part may be lost on the way: nobody waits for the last packets.
//
//   auto sums = talweg::BoundedSums::make(*group, {.p = 0.01});        // every rank, with the same options
//   std::vector<float> residual(n);                                    // zeros; one for each tensor, and kept
//   talweg::LossReport report =
//       sums->all_reduce({.in = gradient, .out = gradient, .count = n, .residual = residual.data()});
//
// Each rank sends every other one its part of the tensor in datagrams. A rank sums what has come as soon as
// no more than the fraction p of anybody's part is missing and nothing more seems to be on its way; what is
// missing beyond that is asked for again. The sums themselves are exact: they go to all ranks over the
// group's own connections. So all ranks end with the same bits, whatever was lost. Its switches may sum, too.
//
// A sender is told what was lost of its own. With a residual it comes with the next tensor (error feedback):
// what all calls have given and what is left in the residuals of all ranks add up to what went in. After 20
// calls of one size, which lose nothing, it is known how long to wait for the rest (docs/bounded-loss.md).
//
// The two halves are calls of their own, for parameter servers (BoundedLossOptions::servers):
//
//   const talweg::BoundedPart part = sums->part_of(group->rank(), n);    // of no elements on who is no server
//   sums->push({.in = gradient, .out = sum_of_part, .count = n, .residual = residual.data()});
//   ... a server updates its part of the parameters by its part of the sum ...
//   sums->pull({.in = parameters + part.first, .out = parameters, .count = n});    // all have all of them
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "talweg/group.h"

namespace talweg {

// What is done about a part that was lost.
enum class LossPolicy : std::uint8_t {
  zero,     // it counts as zero, and comes later where there is a residual
  rescale,  // the mean is over those ranks whose part has come: right on average, and varies more
};

// What the network may do with packets, where its switches are set up for it (docs/bounded-loss.md). Ranks
// may have different ones.
struct PacketClasses {
  // The part of a rank's packets, those with the smallest values, that are not ECN-capable: a switch with RED
  // and ECN drops these where it marks others. In the model's first layer, and in its last one.
  double droppable_front = 0, droppable_back = 0;  // 0 .. 1
  bool keep_important = false;                     // of all others none may be missing
  // So many priorities, by BoundedCall::depth, the first layers' the most urgent. Each has a DSCP. 1: all
  // packets are best effort.
  int queues = 1;           // 1 .. 7
  bool back_first = false;  // the last layers' are
};

struct BoundedLossOptions {
  double p = 0.01;  // 0 .. 0.5: the part of a rank's data that may be missing. 0: everything arrives
  // Limits beside p, of the same data: 0 .. p, and p where nothing is said. Of what one rank sends another
  // one, on average over the calls of one size: what is not missing in one may be in the next 15. So one call
  // may lack p of it, and a rank that is always late loses no more than this.
  std::optional<double> p_sender{};
  // Of what all others together send a rank in one call, and so of all calls of an iteration together.
  std::optional<double> p_call{};
  LossPolicy policy = LossPolicy::zero;
  // What is lost is lost in packets of at most so many bytes; 0: 8 KiB, or what the network takes.
  std::size_t packet_bytes = 0;
  PacketClasses classes{};
  // Ranks that sum, an equal part of each vector each; their order says nothing. Empty: all. All ranks have
  // the same ones.
  std::vector<int> servers{};
  // Servers add nothing of their own: `in` and `residual` are null on them, and avg is the mean over all
  // others. Some ranks are no servers then.
  bool dedicated = false;
};

// What of a vector one rank sums: elements.
struct BoundedPart {
  std::size_t first = 0, count = 0;
  bool operator==(const BoundedPart&) const = default;
};

struct BoundedCall {
  const void* in = nullptr;  // count elements; null on a dedicated server
  // all_reduce: count elements: `in`, or a distinct buffer. push: this rank's part of the sum, part_of()
  // elements, where these are in `in`, or a distinct buffer; null where there are none.
  void* out = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;       // f16, bf16, f32 or f64
  ReduceOp reduction = ReduceOp::sum;  // sum or avg
  // count elements, or null: what was lost is gone. Added to the input; afterwards it holds what was lost of
  // this rank's. After an error on the way: the whole input, with what it held before; after one before any
  // data were sent (invalid_argument, mismatch, and ranks that never came): what it held before.
  void* residual = nullptr;
  // Elements of each layer, `count` together: LossReport says what was lost of each. Read during the call.
  std::span<const std::size_t> layers{};
  // Where in the model it is, for PacketClasses: 0, next to its input, .. 1, next to its output.
  double depth = 0;
  std::chrono::milliseconds timeout{0};  // 0: that of the group when these sums were made
  // 0 .. 7, as CallOptions::priority: of what ranks tell each other of the call, and of the sums. Datagrams
  // have none.
  int priority = 0;
};

struct PullCall {
  // This rank's part, part_of() elements: where they belong in `out`, or a distinct buffer; null where there
  // are none.
  const void* in = nullptr;
  void* out = nullptr;  // count elements
  std::size_t count = 0;
  DataType type = DataType::f32;         // any
  std::chrono::milliseconds timeout{0};  // as BoundedCall::timeout
  int priority = 0;                      // as BoundedCall::priority
};

// Of one call.
struct LossReport {
  std::uint64_t sent_bytes = 0;  // this rank's data for the others
  std::uint64_t lost_bytes = 0;  // of these, what never arrived; in the residual, where there is one
  std::uint64_t lost_important_bytes = 0;  // of these, what was in packets that are not droppable
  bool exact = false;  // nothing may be lost: one of the first calls, p is 0, or datagrams do not pass
  // The group's switches have made the sum (docs/bounded-loss.md): what is missing of a rank's is missing on
  // all ranks, and sent_bytes are what they were sent.
  bool by_switch = false;
  std::vector<std::uint64_t> lost_of_layer;   // bytes of lost_bytes, by layer
  std::vector<std::uint64_t> lost_of_sender;  // bytes of each rank's data that this rank has summed without
  std::uint64_t packets_again = 0;            // that were sent again
  double seconds = 0;
};

class BoundedSums {
 public:
  // Every rank of `group` calls it, in the same order as other collectives. Tries by datagrams which sizes
  // pass between the ranks' hosts: where it is less than their MTU, packets become smaller, and where none
  // pass between two of them, calls go over the group's connections and lose nothing (LossReport::exact).
  // Either is logged, as a warning, and found out after a second; else it takes a few round trips. Shares the
  // group's connections, and may outlive it; Group::abort ends these sums as well. Throws Error:
  // invalid_argument (options), mismatch (ranks have other options; on every rank), system (no socket), and
  // what a collective throws.
  static std::shared_ptr<BoundedSums> make(Group& group, const BoundedLossOptions& options = {});
  virtual ~BoundedSums() = default;

  // Every rank calls it, in the same order. Blocks. Of one thread at a time: while one is in a call, any
  // other gets an invalid_argument at once, of which the other ranks hear nothing. Throws Error:
  // invalid_argument (a call that can never work; the other ranks get a mismatch), mismatch (count, type or
  // reduction differ by rank: on every rank, before any buffer is written; the next call may be right),
  // timeout and peer_failed (who is missing), aborted (why another rank has given up, or who has aborted the
  // group). After the latter three these sums are of no use any more on any rank; the group is, unless it was
  // aborted.
  virtual LossReport all_reduce(const BoundedCall& call) = 0;

  // The first half of an all_reduce: each rank's data go to who sums them, with all that is said above of
  // losses, of the residual and of errors. `out` has this rank's part of the sum. Pushes may follow one
  // another, with no pull between them. Who has no part waits for no others: where such a rank's own data
  // have come and another's do not, it hears of the error at its next call.
  virtual LossReport push(const BoundedCall& call) = 0;
  // The other half: all ranks get all parts, whatever these are by now. Nothing is lost. No push need come
  // before it. The same thread rule and errors.
  virtual void pull(const PullCall& call) = 0;

  // The part of a vector of `count` elements that `rank` sums, the same on all ranks: parts follow each other
  // in the order of ranks, and where they are not equal the first ones have one element more. Any thread.
  // Throws Error{invalid_argument} for a rank that there is not.
  virtual BoundedPart part_of(int rank, std::size_t count) const = 0;

  // How an all_reduce of so many elements would go: a line as that of Group::explain, and what it rests on,
  // one "key: value" a line: who sums which part, what carries it and why, how much may be missing and what
  // becomes of it, classes of packets, the deadline, and the predicted time of both halves, by the cost model
  // of the group. No collective; any thread may ask at any time. Throws Error{invalid_argument} for what no
  // all_reduce takes.
  virtual std::string explain(std::size_t count, DataType type = DataType::f32) const = 0;

  // The last calls of these sums as JSON, as Group::flight_record() has those of a group, which these are not
  // in. Any thread may ask at any time.
  virtual std::string flight_record() const = 0;
};

}  // namespace talweg
