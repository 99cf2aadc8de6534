// Transfer: how the data of one operation move. A session numbers operations, checks that all agree, keeps
// deadlines and turns failures into outcomes; which frames carry the data between which nodes, in what order
// and with what flow control, only its transfer knows.
//
//   transfer->reset(plan, operands);         // a node's part of an operation
//   transfer->begin(actions);                // once the ranks agree: it sends through `actions`
//   transfer->on_frame(from, header, payload, actions);     // and so on, until
//   if (transfer->done()) transfer->release();
//
// A new protocol is a folder beside forest/ with a Plan, which knows the Transfer that it is made for, and a
// line in plans.cc, which makes such plans. Neither the session nor who drives it knows which one it has.
//
// Pure: the driver calls, the transfer answers through Actions. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "forest/forest.h"
#include "kernel/reduce.h"
#include "protocol/buffer_pool.h"
#include "protocol/outbox.h"
#include "wire/frames.h"

namespace talweg::protocol {

// A node of the plan: ranks come first, others (aggregators) behind them.
using forest::NodeId;
inline constexpr NodeId kNone = -1;

class Transfer;

// One node's part of a plan, worked out once and shared by all its operations.
struct Plan {
  virtual ~Plan() = default;
  // A transfer for plans of this type. `pool` must outlive it.
  virtual std::unique_ptr<Transfer> make_transfer(BufferPool& pool) const = 0;

  NodeId self = 0;
  std::shared_ptr<const forest::Forest> forest;  // the whole plan
  std::string_view name;                         // who made it, such as "ring"; for people
  std::uint32_t trees_in_all = 0;                // for people
  std::uint32_t digest = 0;                      // of the whole plan, the same on all its nodes; 0: not told
  // Nodes that must be told that this node has started, besides by data; ascending.
  std::vector<NodeId> announce_to;
  // Nodes that are no ranks and take part anywhere in the plan; ascending.
  std::vector<NodeId> helpers;
};

struct Operands {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  DataType type = DataType::u8;
  kernel::ReduceFunction reduce = nullptr;  // may be null when nothing is summed
  int divisor = 0;                          // > 1: the sum is divided by it (avg)
};

// What a transfer asks of whoever runs it.
class Actions {
 public:
  struct Payload {
    const std::byte* data = nullptr;
    bool stable = false;          // `data` keeps its contents while the transfer lives
    std::uint32_t piece = 0;      // comes back through on_sent, as does
    std::byte* buffer = nullptr;  // what is then to be released; null: nothing
    float progress = 0;           // 0 .. 1: of what waits for a node the least far along goes first
  };
  virtual ~Actions() = default;
  // What a frame to `to` begins with.
  virtual wire::CallId call(NodeId to) const = 0;
  // A frame with data. True when they have been taken already; otherwise on_sent follows, and `data` stays
  // valid until then.
  virtual bool send(NodeId to, const wire::Header& header, const Payload& payload) = 0;
  // One without: it overtakes data, which may wait for what it says.
  virtual void tell(NodeId to, const wire::Header& header) = 0;
  // How many pieces of so many bytes may be sent to `to` before it says anything, if `most` are to be sent
  // ahead of it: more than any window when it has started the operation, or will when it hears of it.
  virtual std::uint32_t grant(NodeId to, std::uint32_t bytes, std::uint32_t most) = 0;
};

// A piece up to this size may be sent to a rank that has not started the operation yet.
inline constexpr std::uint32_t kEagerBytes = 64U << 10;

// More than any window, as Actions::grant says it.
inline constexpr std::uint32_t kStarted = 1U << 20;

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Prepares for an operation with a plan of the type whose make_transfer made this; memory of an earlier one
  // is reused. Nothing is sent before `begin`.
  virtual void reset(std::shared_ptr<const Plan> plan, const Operands& operands) = 0;
  virtual void begin(Actions& actions) = 0;
  // `node` has started the operation: what was sent sparingly before may flow.
  virtual void on_ready(NodeId node, Actions& actions) = 0;
  // Any frame of the operation but those that are the session's. Null, or why the peer is wrong (a static
  // string): the operation must then be given up. `payload` may already lie where `place` said.
  virtual const char* on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                               Actions& actions) = 0;
  // Where the payload of this frame may be received straight away; null: nowhere, hand it to on_frame.
  virtual std::byte* place(NodeId from, const wire::Header& header) const = 0;
  // There may be room for more now. `actions` is null where the operation has failed: nothing is sent then.
  virtual void on_sent(std::uint32_t piece, std::byte* buffer, Actions* actions) = 0;

  // For protocols that resend: called once next_time_ns() has come, which is asked after each call of the
  // others. Who does not know the time yet says 0, and hears it soon.
  virtual void on_time(std::int64_t, Actions&) {}
  virtual std::int64_t next_time_ns() const { return std::numeric_limits<std::int64_t>::max(); }

  // True once everything is sent and received; the operands are then as they should be.
  virtual bool done() = 0;
  // Asked once it is done.
  virtual SumWay way() const { return SumWay::none; }
  // Nodes that something is still expected from, ascending.
  virtual std::vector<NodeId> waiting_for() const = 0;
  // Whether anything is still to come from `node`, or to be done there with what has not been sent. False for
  // one that only waits for our results: what it gets does not matter to us.
  virtual bool depends_on(NodeId node) const = 0;
  // Gives all buffers back.
  virtual void release() = 0;
};

}  // namespace talweg::protocol
