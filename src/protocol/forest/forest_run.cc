#include "protocol/forest/forest_run.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "base/data_types.h"

namespace talweg::protocol {

namespace {
// Stands for an empty operand, whose own address may be null: null means "not here yet".
constexpr std::byte kEmpty{};
const std::byte* present(const std::byte* data) {
  return data == nullptr ? &kEmpty : data;
}

bool is_left(const LocalTree& local, std::size_t operand) {
  return !local.is_left.empty() && local.is_left[operand];
}

// What a scatter's source sends only so far ahead.
bool is_block(const LocalTree& local) {
  return local.acknowledged && local.root;
}
}  // namespace

std::unique_ptr<Transfer> LocalPlan::make_transfer(BufferPool& pool) const {
  return std::make_unique<ForestRun>(pool);
}

void ForestRun::reset(std::shared_ptr<const Plan> plan, const Operands& operands) {
  release();
  plan_ = std::static_pointer_cast<const LocalPlan>(std::move(plan));
  operands_ = operands;
  begun_ = false;
  steps_left_ = own_left_ = sends_pending_ = 0;
  turns_.reset(plan_->lanes, plan_->ahead_bytes);
  blocks_.clear();
  std::size_t children = 0;
  std::size_t taps = 0;
  std::size_t stashes = 0;
  for (const LocalTree& local : plan_->trees) {
    children += local.up_children.size();
    stashes += local.up_children.size() * local.window;
    taps += local.taps.size();
  }
  children_.assign(children, Child{});
  stashes_.assign(stashes, nullptr);
  tap_granted_.assign(taps, 0);
  trees_.assign(plan_->trees.size(), TreeState{});
  Child* next = children_.data();
  std::byte** next_stash = stashes_.data();
  std::uint32_t* next_tap = tap_granted_.data();
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    const LocalTree& local = plan_->trees[i];
    TreeState& tree = trees_[i];
    tree.local = &local;
    tree.waits = local.waits || is_block(local);
    if (is_block(local)) {
      tree.turn = blocks_.size();
      blocks_.push_back(i);
      turns_.add(local.down_children.front(), local.bytes);
    }
    tree.children = next;
    tree.tap_granted = next_tap;
    next_tap += local.taps.size();
    steps_left_ += local.taps.size();
    for (std::size_t c = 0; c < local.up_children.size(); ++c, ++next, next_stash += local.window) {
      next->granted = local.window;
      next->stash = next_stash;
    }
    if (local.up_parent != kNone) {
      steps_left_ += local.chunks;
      if (local.up_children.empty()) own_left_ += local.chunks;
    } else if (!local.operands.empty()) {
      steps_left_ += local.chunks;
    }
    if (local.down_parent != kNone) steps_left_ += local.chunks;
  }
  turns_.begin();
}

void ForestRun::release() {
  for (TreeState& tree : trees_) {
    const LocalTree& local = *tree.local;
    for (std::size_t c = 0; c < local.up_children.size(); ++c)
      for (std::byte*& slot : std::span(tree.children[c].stash, local.window))
        if (slot != nullptr) pool_.release(std::exchange(slot, nullptr), local.chunk_bytes);
    if (tree.scratch != nullptr)
      pool_.release(std::exchange(tree.scratch, nullptr), static_cast<std::size_t>(local.bytes));
    if (tree.sum != nullptr) pool_.release(std::exchange(tree.sum, nullptr), local.chunk_bytes);
  }
  trees_.clear();
  begun_ = false;
}

ForestRun::TreeState* ForestRun::find(std::uint32_t tree) {
  if (tree >= plan_->position.size() || plan_->position[tree] < 0) return nullptr;
  return &trees_[static_cast<std::size_t>(plan_->position[tree])];
}

const ForestRun::TreeState* ForestRun::find(std::uint32_t tree) const {
  return const_cast<ForestRun*>(this)->find(tree);
}

const std::byte* ForestRun::input(const TreeState& tree, std::uint32_t chunk) const {
  return operands_.in + tree.local->in_offset + static_cast<std::int64_t>(chunk) * tree.local->chunk_bytes;
}

std::byte* ForestRun::output(const TreeState& tree, std::uint32_t chunk) const {
  const std::int64_t within = static_cast<std::int64_t>(chunk) * tree.local->chunk_bytes;
  if (tree.scratch != nullptr) return tree.scratch + within;
  return operands_.out + tree.local->out_offset + within;
}

bool ForestRun::in_place() const {
  return operands_.in == operands_.out;
}

void ForestRun::begin(Actions& actions) {
  begun_ = true;
  for (TreeState& tree : trees_)
    if (tree.local->up_parent != kNone)
      tree.up_granted =
          std::min(actions.grant(tree.local->up_parent, tree.local->bytes_of(0), tree.local->window),
                   tree.local->window);
  for (TreeState& tree : trees_)
    for (std::size_t tap = 0; tap < tree.local->taps.size(); ++tap)
      tree.tap_granted[tap] = actions.grant(tree.local->taps[tap].parent, tree.local->bytes_of(0), 1);
  // Own input first, everywhere: others wait for it, and in shared memory it is then copied out once for all.
  for (TreeState& tree : trees_) send_own(tree, actions);
  for (TreeState& tree : trees_) advance(tree, {}, actions);
  send_blocks(actions);
}

void ForestRun::send_blocks(Actions& actions) {
  while (const auto next = turns_.next()) {
    TreeState& tree = trees_[blocks_[*next]];
    tree.waits = false;
    advance(tree, {}, actions);
  }
}

// Until it has arrived, others are not sent.
bool ForestRun::holds_up_blocks(const TreeState& tree) const {
  return begun_ && turns_.held_up() && is_block(*tree.local) && !tree.waits && !tree.arrived;
}

void ForestRun::send(Actions& actions, const LocalTree& local, bool up, NodeId to, std::uint32_t chunk,
                     const std::byte* data, bool stable, std::byte* buffer) {
  ++sends_pending_;
  const float progress = static_cast<float>(chunk) / static_cast<float>(local.chunks);
  const wire::Header header =
      encode(actions.call(to), wire::Chunk{up, local.index, chunk, local.bytes_of(chunk)});
  if (actions.send(to, header, {data, stable, local.index, buffer, progress})) sent(local.index, buffer);
}

void ForestRun::on_sent(std::uint32_t tree, std::byte* buffer, Actions* actions) {
  sent(tree, buffer);
  // What was held up for want of room goes on.
  if (buffer != nullptr && actions != nullptr && begun_) advance(*find(tree), {}, *actions);
}

void ForestRun::sent(std::uint32_t tree, std::byte* buffer) {
  --sends_pending_;
  if (buffer == nullptr) return;
  TreeState& state = *find(tree);
  if (buffer == state.sum) {
    --state.sum_lent;
    return;
  }
  const auto shared =
      std::find_if(shared_.begin(), shared_.end(), [=](const Shared& s) { return s.buffer == buffer; });
  if (shared == shared_.end()) {
    --state.sums_in_flight;
  } else {
    if (--shared->left > 0) return;
    if (shared->result) --state.results_held;
    *shared = shared_.back();
    shared_.pop_back();
  }
  pool_.release(buffer, state.local->chunk_bytes);
}

// A leaf's chunks go out straight from the caller's input.
void ForestRun::send_own(TreeState& tree, Actions& actions) {
  const LocalTree& local = *tree.local;
  if (local.up_parent == kNone || !local.up_children.empty()) return;
  while (tree.up_sent < std::min(local.chunks, tree.up_granted)) {
    const std::uint32_t chunk = tree.up_sent++;
    --steps_left_;
    --own_left_;
    send(actions, local, true, local.up_parent, chunk, input(tree, chunk), true, nullptr);
  }
}

// Finds room for a sum that goes on to others, or that is not complete yet; false while there is none.
bool ForestRun::open_sum(TreeState& tree) {
  const LocalTree& local = *tree.local;
  if (local.root ? tree.results_held >= kResultWindows * local.window
                 : tree.summed >= tree.up_granted || tree.sums_in_flight >= local.window)
    return false;
  tree.sum = pool_.acquire(local.chunk_bytes);
  return true;
}

// Where the next operand is added: not where a tap is still being sent from.
std::byte* ForestRun::writable_sum(TreeState& tree) {
  return tree.sum_lent > 0 ? pool_.acquire(tree.local->chunk_bytes) : tree.sum;
}

// Sends what is summed so far to those who want exactly this; false when one of them has no room yet.
bool ForestRun::send_taps(TreeState& tree, Actions& actions) {
  const LocalTree& local = *tree.local;
  while (tree.taps_sent < local.taps.size() && local.taps[tree.taps_sent].operands == tree.operand) {
    const LocalTree::Tap& tap = local.taps[tree.taps_sent];
    if (tree.tap_granted[tree.taps_sent] == 0) return false;
    ++tree.taps_sent;
    --steps_left_;
    ++tree.sum_lent;
    ++sends_pending_;
    const wire::Header header =
        encode(actions.call(tap.parent), wire::Chunk{true, tap.tree, 0, local.bytes_of(0)});
    if (actions.send(tap.parent, header, {tree.sum, false, tap.tree, tree.sum, 0})) sent(tap.tree, tree.sum);
  }
  return true;
}

// Where the root's sum of chunk `summed` goes. Called when the last operand is here, not before: then all
// contributors have been heard.
std::byte* ForestRun::result(TreeState& tree) {
  const LocalTree& local = *tree.local;
  // Trees that share elements (one-hop) in place: the output is still an input of sends under way.
  const bool input_in_use = own_left_ > 0 || sends_pending_ > 0;
  if (tree.summed == 0 && plan_->slices_overlap && in_place() && input_in_use && local.bytes > 0)
    tree.scratch = pool_.acquire(static_cast<std::size_t>(local.bytes));
  return output(tree, tree.summed);
}

const std::byte* ForestRun::source(const TreeState& tree, std::uint32_t operand,
                                   const Arrival& arrival) const {
  const int index = tree.local->operands[operand];
  if (index == kSelf) return present(input(tree, tree.summed));
  const Child& child = tree.children[index];
  if (const std::byte* stashed = child.stash[tree.summed % tree.local->window];
      stashed != nullptr && child.summed == tree.summed)
    return stashed;
  if (index == arrival.child && child.received == tree.summed + 1 && child.summed == tree.summed)
    return present(arrival.payload);
  return nullptr;
}

void ForestRun::consumed(TreeState& tree, std::uint32_t operand, Actions& actions) {
  const LocalTree& local = *tree.local;
  const int index = local.operands[operand];
  if (index == kSelf) return;
  Child& child = tree.children[index];
  std::byte*& slot = child.stash[tree.summed % local.window];
  if (slot != nullptr) pool_.release(std::exchange(slot, nullptr), local.chunk_bytes);
  ++child.summed;
  const std::uint32_t grant = child.summed + local.window;
  if (child.granted < local.chunks && grant - child.granted >= local.window / 2) {
    child.granted = grant;
    const NodeId to = local.up_children[static_cast<std::size_t>(index)];
    actions.tell(to, encode(actions.call(to), wire::Credit{local.index, grant}));
  }
}

// Sums as far as what has arrived allows. `arrival` is a payload that is only valid during this call; whoever
// calls keeps a copy if it was not consumed.
void ForestRun::advance(TreeState& tree, Arrival arrival, Actions& actions) {
  const LocalTree& local = *tree.local;
  if (tree.waits || local.operands.empty()) return;
  if (local.up_parent != kNone && local.up_children.empty()) return;
  const auto n = static_cast<std::uint32_t>(local.operands.size());
  const bool keeps = local.root && local.out_offset >= 0;
  while (tree.summed < local.chunks) {
    const std::uint32_t bytes = local.bytes_of(tree.summed);
    const std::size_t count = bytes / facts(operands_.type).bytes;
    if (n == 1) {
      const std::byte* only = source(tree, 0, arrival);
      if (only == nullptr) return;
      if (local.root && !keeps && local.operands[0] == kSelf) {  // straight from the input, nothing to store
        close_sum(tree, only, actions);
        continue;
      }
      if (!keeps && !open_sum(tree)) return;
      std::byte* to = keeps ? result(tree) : tree.sum;
      if (to != only && bytes > 0) std::memmove(to, only, bytes);
      consumed(tree, 0, actions);
      close_sum(tree, to, actions);
      continue;
    }
    if (tree.operand == 0) {
      const std::byte* first = source(tree, 0, arrival);
      const std::byte* second = first == nullptr ? nullptr : source(tree, 1, arrival);
      const bool direct = keeps && n == 2;
      if (second == nullptr || (!direct && !open_sum(tree))) return;
      std::byte* to = direct ? result(tree) : tree.sum;
      if (is_left(local, 1)) std::swap(first, second);
      operands_.reduce(to, first, second, count);
      consumed(tree, 0, actions);
      consumed(tree, 1, actions);
      tree.operand = 2;
      if (n == 2) {
        close_sum(tree, to, actions);
        continue;
      }
    }
    while (tree.operand < n) {
      if (!send_taps(tree, actions)) return;
      const std::byte* next = source(tree, tree.operand, arrival);
      if (next == nullptr) return;
      std::byte* to = keeps && tree.operand + 1 == n ? result(tree) : writable_sum(tree);
      const std::byte* sum = tree.sum;
      if (!keeps || tree.operand + 1 < n) {
        if (tree.sum_lent > 0) shared_.push_back({tree.sum, std::exchange(tree.sum_lent, 0), false});
        tree.sum = to;
      }
      if (is_left(local, tree.operand)) {
        operands_.reduce(to, next, sum, count);
      } else {
        operands_.reduce(to, sum, next, count);
      }
      consumed(tree, tree.operand++, actions);
      if (tree.operand == n) close_sum(tree, to, actions);
      if (tree.operand == 0) break;
    }
  }
}

void ForestRun::close_sum(TreeState& tree, const std::byte* sum, Actions& actions) {
  const LocalTree& local = *tree.local;
  const std::uint32_t chunk = tree.summed++;
  const std::uint32_t bytes = local.bytes_of(chunk);
  std::byte* buffer = std::exchange(tree.sum, nullptr);
  if (buffer != nullptr && buffer != sum) {  // it held the sum until the last operand came
    if (tree.sum_lent > 0)
      shared_.push_back({buffer, std::exchange(tree.sum_lent, 0), false});
    else
      pool_.release(buffer, local.chunk_bytes);
    buffer = nullptr;
  }
  tree.operand = 0;
  --steps_left_;
  if (!local.root) {
    ++tree.sums_in_flight;
    ++tree.up_sent;
    send(actions, local, true, local.up_parent, chunk, sum, false, buffer);
    return;
  }
  if (operands_.divisor > 1)
    kernel::divide(operands_.type, const_cast<std::byte*>(sum), bytes / size_of(operands_.type),
                   operands_.divisor);
  send_down(tree, chunk, sum, buffer, actions);
}

void ForestRun::send_down(TreeState& tree, std::uint32_t chunk, const std::byte* data, std::byte* buffer,
                          Actions& actions) {
  const LocalTree& local = *tree.local;
  if (buffer != nullptr && !local.down_children.empty()) {
    ++tree.results_held;
    shared_.push_back({buffer, local.down_children.size(), true});
  }
  for (const NodeId child : local.down_children)
    send(actions, local, false, child, chunk, data, buffer == nullptr, buffer);
  if (buffer != nullptr && local.down_children.empty()) pool_.release(buffer, local.chunk_bytes);
}

void ForestRun::on_ready(NodeId node, Actions& actions) {
  if (!begun_) return;
  for (TreeState& tree : trees_) {
    bool opened = false;
    if (tree.local->up_parent == node && tree.up_granted < tree.local->window) {
      tree.up_granted = tree.local->window;
      opened = true;
    }
    for (std::size_t tap = 0; tap < tree.local->taps.size(); ++tap)
      if (tree.local->taps[tap].parent == node && tree.tap_granted[tap] == 0) {
        tree.tap_granted[tap] = kLeastWindow;
        opened = true;
      }
    if (!opened) continue;
    send_own(tree, actions);
    advance(tree, {}, actions);
  }
}

const char* ForestRun::on_frame(NodeId from, const wire::Header& header, const std::byte* payload,
                                Actions& actions) {
  switch (header.type) {
    case wire::FrameType::up:
      return on_up(from, wire::chunk_of(header), payload, actions);
    case wire::FrameType::down:
      return on_down(from, wire::chunk_of(header), payload, actions);
    case wire::FrameType::credit:
      return on_credit(from, wire::credit_of(header), actions);
    default:
      return nullptr;
  }
}

const char* ForestRun::on_credit(NodeId from, const wire::Credit& credit, Actions& actions) {
  TreeState* state = find(credit.tree);
  if (state != nullptr && is_block(*state->local) && state->local->down_children.front() == from)
    return on_arrival(*state, credit, actions);
  if (state == nullptr || state->local->up_parent != from)
    return "credit for a tree that it is not our parent in";
  state->up_granted = std::max(state->up_granted, credit.granted);
  send_own(*state, actions);
  advance(*state, {}, actions);
  return nullptr;
}

const char* ForestRun::on_arrival(TreeState& tree, const wire::Credit& credit, Actions& actions) {
  if (tree.waits || tree.arrived || credit.granted != tree.local->chunks)
    return "acknowledgement of what was not sent";
  tree.arrived = true;
  turns_.arrived(tree.turn);
  send_blocks(actions);
  return nullptr;
}

const char* ForestRun::on_up(NodeId from, const wire::Chunk& arrived, const std::byte* payload,
                             Actions& actions) {
  const auto [up, tree, chunk, bytes] = arrived;
  TreeState* state = find(tree);
  if (state == nullptr) return "chunk of a tree that we take no part in";
  const LocalTree& local = *state->local;
  const auto it = std::lower_bound(local.up_children.begin(), local.up_children.end(), from);
  if (it == local.up_children.end() || *it != from)
    return "chunk from a rank that is not our child in this tree";
  const int index = static_cast<int>(it - local.up_children.begin());
  Child& child = state->children[index];
  if (chunk != child.received || chunk >= local.chunks) return "chunk out of order";
  if (chunk >= child.granted) return "chunk beyond the window that was granted";
  if (bytes != local.bytes_of(chunk)) return "chunk of a wrong length";
  ++child.received;
  advance(*state, {index, payload}, actions);
  if (child.summed <= chunk) {
    std::byte*& slot = child.stash[chunk % local.window];
    slot = pool_.acquire(local.chunk_bytes);
    if (bytes > 0) std::memcpy(slot, payload, bytes);
  }
  return nullptr;
}

std::byte* ForestRun::place(NodeId from, const wire::Header& header) const {
  const auto [up, tree, chunk, bytes] = wire::chunk_of(header);
  const TreeState* state = up ? nullptr : find(tree);
  if (!begun_ || state == nullptr || state->local->down_parent != from || state->local->out_offset < 0)
    return nullptr;
  if (chunk != state->down_received || chunk >= state->local->chunks ||
      bytes != state->local->bytes_of(chunk))
    return nullptr;
  return output(*state, chunk);
}

const char* ForestRun::on_down(NodeId from, const wire::Chunk& arrived, const std::byte* payload,
                               Actions& actions) {
  const auto [up, tree, chunk, bytes] = arrived;
  TreeState* state = find(tree);
  if (state == nullptr || state->local->down_parent != from)
    return "result from a rank that is not our parent";
  const LocalTree& local = *state->local;
  if (chunk != state->down_received || chunk >= local.chunks) return "result out of order";
  if (bytes != local.bytes_of(chunk)) return "result of a wrong length";
  ++state->down_received;
  --steps_left_;
  std::byte* target = nullptr;
  std::byte* buffer = nullptr;
  if (local.out_offset >= 0) {
    target = output(*state, chunk);
  } else {
    target = buffer = pool_.acquire(local.chunk_bytes);
  }
  if (target != payload && bytes > 0) std::memcpy(target, payload, bytes);
  send_down(*state, chunk, target, buffer, actions);
  if (state->down_received == local.chunks && local.acknowledged)
    actions.tell(from, encode(actions.call(from), wire::Credit{tree, local.chunks}));
  if (state->down_received == local.chunks && local.then >= 0) {
    TreeState& next = trees_[static_cast<std::size_t>(local.then)];
    next.waits = false;
    advance(next, {}, actions);
  }
  return nullptr;
}

bool ForestRun::done() {
  if (!begun_ || steps_left_ > 0 || sends_pending_ > 0) return false;
  for (TreeState& tree : trees_) {
    if (tree.scratch == nullptr) continue;
    std::byte* scratch = std::exchange(tree.scratch, nullptr);
    std::memcpy(output(tree, 0), scratch, static_cast<std::size_t>(tree.local->bytes));
    pool_.release(scratch, static_cast<std::size_t>(tree.local->bytes));
  }
  return true;
}

bool ForestRun::depends_on(NodeId node) const {
  for (const TreeState& tree : trees_) {
    const LocalTree& local = *tree.local;
    for (std::size_t c = 0; c < local.up_children.size(); ++c)
      if (local.up_children[c] == node && tree.children[c].received < local.chunks) return true;
    if (local.down_parent == node && tree.down_received < local.chunks) return true;
    if (local.up_parent == node && tree.up_sent < local.chunks) return true;
    if (holds_up_blocks(tree) && local.down_children.front() == node) return true;
    for (std::size_t tap = tree.taps_sent; tap < local.taps.size(); ++tap)
      if (local.taps[tap].parent == node) return true;
  }
  return false;
}

std::vector<NodeId> ForestRun::waiting_for() const {
  std::set<NodeId> nodes;
  for (const TreeState& tree : trees_) {
    const LocalTree& local = *tree.local;
    for (std::size_t c = 0; c < local.up_children.size(); ++c)
      if (tree.children[c].received < local.chunks) nodes.insert(local.up_children[c]);
    if (local.down_parent != kNone && tree.down_received < local.chunks) nodes.insert(local.down_parent);
    if (local.up_parent != kNone && tree.up_sent < local.chunks && tree.up_sent >= tree.up_granted)
      nodes.insert(local.up_parent);
    if (holds_up_blocks(tree)) nodes.insert(local.down_children.front());
    for (std::size_t tap = tree.taps_sent; tap < local.taps.size(); ++tap)
      if (tree.tap_granted[tap] == 0) nodes.insert(local.taps[tap].parent);
  }
  return {nodes.begin(), nodes.end()};
}

}  // namespace talweg::protocol
