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
// into the output. But the blocks of a scatter, all of one source, go one after the other, as far ahead of
// what has arrived as queues hold (forest/block_turns.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "forest/block_turns.h"
#include "protocol/forest/local_plan.h"

namespace talweg::protocol {

class ForestRun : public Transfer {
 public:
  explicit ForestRun(BufferPool& pool) : pool_(pool) {}
  ~ForestRun() override { ForestRun::release(); }
  ForestRun(const ForestRun&) = delete;
  ForestRun& operator=(const ForestRun&) = delete;

  // A LocalPlan.
  void reset(std::shared_ptr<const Plan> plan, const Operands& operands) override;
  void begin(Actions& actions) override;
  void on_ready(NodeId node, Actions& actions) override;
  const char* on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                       Actions& actions) override;
  std::byte* place(NodeId from, const wire::Header& header) const override;
  void on_sent(std::uint32_t tree, std::byte* buffer, Actions* actions) override;
  bool done() override;
  std::vector<NodeId> waiting_for() const override;
  bool depends_on(NodeId node) const override;
  void release() override;

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
    std::uint32_t sum_lent = 0;    // taps that `sum` is being sent to: it must not change
    std::uint32_t taps_sent = 0;
    std::uint32_t* tap_granted = nullptr;
    std::uint32_t sums_in_flight = 0;  // buffers on their way up
    std::uint32_t results_held = 0;    // buffers on their way down
    std::uint32_t up_sent = 0;
    std::uint32_t up_granted = 0;
    std::uint32_t down_received = 0;
    bool waits = false;    // for another tree to be received, here or by whom it is for
    bool arrived = false;  // acknowledged: there
    std::size_t turn = 0;  // of a block: its number in `turns_`
  };
  // A buffer that several peers are sent, and how many of them still read it.
  struct Shared {
    std::byte* buffer = nullptr;
    std::size_t left = 0;
    bool result = false;
  };
  struct Arrival {
    int child = -1;
    const std::byte* payload = nullptr;
  };

  const char* on_credit(NodeId from, const wire::Credit& credit, Actions& actions);
  const char* on_arrival(TreeState& tree, const wire::Credit& credit, Actions& actions);
  const char* on_up(NodeId from, const wire::Chunk& chunk, const std::byte* payload, Actions& actions);
  const char* on_down(NodeId from, const wire::Chunk& chunk, const std::byte* payload, Actions& actions);
  TreeState* find(std::uint32_t tree);
  const TreeState* find(std::uint32_t tree) const;
  void send_blocks(Actions& actions);
  bool holds_up_blocks(const TreeState& tree) const;
  void send_own(TreeState& tree, Actions& actions);
  void advance(TreeState& tree, Arrival arrival, Actions& actions);
  void sent(std::uint32_t tree, std::byte* buffer);
  bool open_sum(TreeState& tree);
  std::byte* writable_sum(TreeState& tree);
  bool send_taps(TreeState& tree, Actions& actions);
  std::byte* result(TreeState& tree);
  const std::byte* source(const TreeState& tree, std::uint32_t operand, const Arrival& arrival) const;
  void consumed(TreeState& tree, std::uint32_t operand, Actions& actions);
  void close_sum(TreeState& tree, const std::byte* sum, Actions& actions);
  void send_down(TreeState& tree, std::uint32_t chunk, const std::byte* data, std::byte* buffer,
                 Actions& actions);
  // `buffer`: what `data` is in, if it is to be released; else `data` stays as it is while the run lives.
  void send(Actions& actions, const LocalTree& local, bool up, NodeId to, std::uint32_t chunk,
            const std::byte* data, bool stable, std::byte* buffer);
  std::byte* output(const TreeState& tree, std::uint32_t chunk) const;
  const std::byte* input(const TreeState& tree, std::uint32_t chunk) const;
  bool in_place() const;

  BufferPool& pool_;
  std::shared_ptr<const LocalPlan> plan_;
  Operands operands_;
  std::vector<TreeState> trees_;
  std::vector<Shared> shared_;
  std::vector<Child> children_;
  std::vector<std::byte*> stashes_;  // of all children, a window each
  std::vector<std::uint32_t> tap_granted_;
  std::uint64_t steps_left_ = 0;  // chunks still to be summed at roots, sent up, or received from above
  std::uint64_t own_left_ = 0;    // chunks of our input not yet handed to the driver
  std::uint64_t sends_pending_ = 0;
  forest::BlockTurns turns_;         // of blocks that are acknowledged
  std::vector<std::size_t> blocks_;  // by number in these: a position in trees_
  bool begun_ = false;
};

}  // namespace talweg::protocol
