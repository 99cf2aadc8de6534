// ForestRun: one node's part of one collective, whatever the forest.
//
// Each tree is cut into chunks that flow independently. Toward the root, a node sums the chunk of every child
// and its own in ascending order of node number, then sends the sum to its parent; nothing of that touches
// the caller's output. Only the root writes a sum to its output, and the root has then heard from every
// contributor; the result flows down from there, straight into the outputs. So a rank that disagrees about
// the collective is found before any output is written, and every rank ends with the same bits.
//
// Flow control: a child may send chunk c of a tree once its parent has granted more than c chunks. The grant
// starts at the tree's window when the parent is known to have started (one chunk, if the session allows it,
// before that) and moves with what the parent has summed. A parent therefore always has room for what
// arrives, and no frame ever blocks the frames behind it. Chunks on their way down need no grant: they go
// into the output.
//
// Pure: the driver calls on_*, and the run answers through Actions. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol/buffer_pool.h"
#include "protocol/local_plan.h"
#include "protocol/operation.h"

namespace talweg::protocol {

// What a run asks of whoever drives it.
class Actions {
 public:
  struct Chunk {
    bool up = true;  // toward the root (else from it)
    NodeId to = 0;
    std::uint32_t tree = 0;
    std::uint32_t chunk = 0;
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool stable = false;          // `data` keeps its contents while the run lives
    std::byte* buffer = nullptr;  // hand back through on_sent; null: nothing to release
    float progress = 0;           // 0 .. 1: the part of its tree's chunks that are before it
  };
  virtual ~Actions() = default;
  // True when the bytes have been taken already; otherwise on_sent follows, and `data` stays valid until
  // then.
  virtual bool send_chunk(const Chunk& chunk) = 0;
  virtual void send_credit(NodeId to, std::uint32_t tree, std::uint32_t granted) = 0;
};

class ForestRun {
 public:
  explicit ForestRun(BufferPool& pool) : pool_(pool) {}
  ~ForestRun() { release(); }
  ForestRun(const ForestRun&) = delete;
  ForestRun& operator=(const ForestRun&) = delete;

  // Prepares for a collective; memory of an earlier one is reused. Nothing is sent before `begin`.
  void reset(std::shared_ptr<const LocalPlan> plan, const Operands& operands);
  // `grant(node, bytes of a chunk)` is how many chunks per tree may be sent to that node at once; more than
  // the tree's window stands for that.
  template <class Grant>
  void begin(Actions& actions, Grant&& grant) {
    begun_ = true;
    for (TreeState& tree : trees_)
      if (tree.local->up_parent != kNone)
        tree.up_granted = std::min(grant(tree.local->up_parent, tree.local->bytes_of(0)), tree.local->window);
    for (TreeState& tree : trees_)
      for (std::size_t tap = 0; tap < tree.local->taps.size(); ++tap)
        tree.tap_granted[tap] = grant(tree.local->taps[tap].parent, tree.local->bytes_of(0));
    start_trees(actions);
  }

  // Events. Those that carry what a peer says return null or why the peer is wrong (a static string); the run
  // must then be given up.
  void on_ready(NodeId node, Actions& actions);  // `node` has started: its whole window is open
  const char* on_credit(NodeId from, std::uint32_t tree, std::uint32_t granted, Actions& actions);
  const char* on_up(NodeId from, std::uint32_t tree, std::uint32_t chunk, const std::byte* payload,
                    std::uint32_t bytes, Actions& actions);
  // `payload` may already lie where `place` said.
  const char* on_down(NodeId from, std::uint32_t tree, std::uint32_t chunk, const std::byte* payload,
                      std::uint32_t bytes, Actions& actions);
  void on_sent(std::uint32_t tree, std::byte* buffer);

  // Where the payload of this chunk from the root may be received straight away; null: nowhere, hand it to
  // on_down.
  std::byte* place(NodeId from, std::uint32_t tree, std::uint32_t chunk, std::uint32_t bytes) const;

  // True once everything is sent and received; finishes in-place copies on the way.
  bool done();
  bool begun() const { return begun_; }
  // Nodes that something is still expected from, ascending.
  std::vector<NodeId> waiting_for() const;
  // Whether anything is still to come from `node`, or to be summed there that has not been sent. False for
  // one that only waits for our results: what it gets does not matter to us.
  bool depends_on(NodeId node) const;
  const LocalPlan& plan() const { return *plan_; }
  // Gives all buffers back.
  void release();

 private:
  struct Child {
    std::uint32_t received = 0;
    std::uint32_t summed = 0;
    std::uint32_t granted = 0;
    std::byte** stash = nullptr;  // chunk c lies in stash[c % window] until it is summed
  };
  struct TreeState {
    const LocalTree* local = nullptr;
    Child* children = nullptr;
    std::uint32_t summed = 0;      // chunks whose sum is complete; also the chunk being summed
    std::uint32_t operand = 0;     // operands of that chunk already in `sum`
    std::byte* sum = nullptr;      // a pool buffer: not complete, or on its way up
    std::byte* scratch = nullptr;  // whole slice, in place of `out` until all inputs are sent
    bool sum_lent = false;         // `sum` is being sent to a tap: it must not change
    std::uint32_t taps_sent = 0;
    std::uint32_t* tap_granted = nullptr;
    std::uint32_t sums_in_flight = 0;
    std::uint32_t up_sent = 0;
    std::uint32_t up_granted = 0;
    std::uint32_t down_received = 0;
    bool waits = false;  // for another tree to be received
  };
  struct Arrival {
    int child = -1;
    const std::byte* payload = nullptr;
  };

  TreeState* find(std::uint32_t tree);
  const TreeState* find(std::uint32_t tree) const;
  void start_trees(Actions& actions);
  void send_own(TreeState& tree, Actions& actions);
  void advance(TreeState& tree, Arrival arrival, Actions& actions);
  bool open_sum(TreeState& tree);
  std::byte* writable_sum(TreeState& tree);
  bool send_taps(TreeState& tree, Actions& actions);
  std::byte* result(TreeState& tree);
  const std::byte* source(const TreeState& tree, std::uint32_t operand, const Arrival& arrival) const;
  void consumed(TreeState& tree, std::uint32_t operand, Actions& actions);
  void close_sum(TreeState& tree, const std::byte* sum, Actions& actions);
  void send_down(TreeState& tree, std::uint32_t chunk, const std::byte* data, std::byte* buffer,
                 Actions& actions);
  void send(Actions& actions, TreeState& tree, Actions::Chunk chunk);
  std::byte* output(const TreeState& tree, std::uint32_t chunk) const;
  const std::byte* input(const TreeState& tree, std::uint32_t chunk) const;
  bool in_place() const;

  BufferPool& pool_;
  std::shared_ptr<const LocalPlan> plan_;
  Operands operands_;
  std::vector<TreeState> trees_;
  std::vector<Child> children_;
  std::vector<std::byte*> stashes_;  // of all children, a window each
  std::vector<std::uint32_t> tap_granted_;
  std::uint64_t steps_left_ = 0;  // chunks still to be summed at roots, sent up, or received from above
  std::uint64_t own_left_ = 0;    // chunks of our input not yet handed to the driver
  std::uint64_t sends_pending_ = 0;
  bool begun_ = false;
};

}  // namespace talweg::protocol
