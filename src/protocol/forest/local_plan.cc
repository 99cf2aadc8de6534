#include "protocol/forest/local_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "forest/shared_sums.h"
#include "talweg/error.h"
#include "wire/frame.h"

namespace talweg::protocol {

namespace {

// Their numbers and the window behind them fit the 32 bits that frames have for them.
constexpr std::int64_t kMostChunks = std::int64_t{1} << 31;

bool has(const std::vector<NodeId>& sorted, NodeId node) {
  return std::binary_search(sorted.begin(), sorted.end(), node);
}

// All but the node's neighbours in the tree.
LocalTree begin_tree(const forest::Forest& forest, std::uint32_t index, NodeId self,
                     const PlanLimits& limits) {
  const forest::Tree& tree = forest.trees[index];
  const std::int64_t element = forest.request.element_size;
  LocalTree local;
  local.index = index;
  local.bytes = tree.slice.count * element;
  // An empty slice still moves one empty chunk: that is how a tree without data synchronises.
  const std::int64_t chunk = std::max<std::int64_t>(std::min(tree.chunk, tree.slice.count), 1);
  if (chunk > wire::kMaxPayload / element)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tree {} has chunks of {} elements of {} bytes, a frame carries at most {} bytes",
                            index, chunk, element, wire::kMaxPayload));
  local.chunk_bytes = static_cast<std::uint32_t>(chunk * element);
  if (forest::chunk_count(tree) > kMostChunks)
    throw Error(ErrorCode::invalid_argument, fmt::format("tree {} has {} chunks, expected at most {}", index,
                                                         forest::chunk_count(tree), kMostChunks));
  local.chunks = static_cast<std::uint32_t>(forest::chunk_count(tree));
  local.window =
      static_cast<std::uint32_t>(forest::window_of(local.chunk_bytes, local.chunks, limits.window_bytes));
  local.root = tree.root == self;
  const bool rank = self < forest.request.ranks;
  if (rank && has(tree.contributors, self))
    local.in_offset = forest::input_offset(forest.request, self, tree.slice) * element;
  if (rank && has(tree.receivers, self))
    local.out_offset = forest::output_offset(forest.request, self, tree.slice) * element;
  return local;
}

// Tells both ends of each edge; `at(node)` is the LocalTree of a node, or null.
template <class At>
void add_edges(const forest::Tree& tree, At&& at) {
  for (const forest::Edge& edge : tree.up) {
    if (LocalTree* local = at(edge.child)) local->up_parent = edge.parent;
    if (LocalTree* local = at(edge.parent)) local->up_children.push_back(edge.child);
  }
  for (const forest::Edge& edge : tree.down) {
    if (LocalTree* local = at(edge.child)) local->down_parent = edge.parent;
    if (LocalTree* local = at(edge.parent)) local->down_children.push_back(edge.child);
  }
}

// Once the neighbours are known: what is summed, in which order.
void order_operands(LocalTree& local, NodeId self, bool ascending) {
  std::sort(local.up_children.begin(), local.up_children.end());
  std::sort(local.down_children.begin(), local.down_children.end());
  local.operands.reserve(local.up_children.size() + 1);
  if (local.in_offset >= 0) local.operands.push_back(kSelf);
  for (std::size_t i = 0; i < local.up_children.size(); ++i) local.operands.push_back(static_cast<int>(i));
  if (!ascending) return;
  std::sort(local.operands.begin(), local.operands.end(), [&](int a, int b) {
    const auto node = [&](int i) {
      return i == kSelf ? self : local.up_children[static_cast<std::size_t>(i)];
    };
    return node(a) < node(b);
  });
}

bool takes_part(const LocalTree& local) {
  return !local.operands.empty() || local.up_parent != kNone || local.down_parent != kNone;
}

void add_tree(LocalPlan& plan, LocalTree&& local) {
  plan.position[local.index] = static_cast<std::int32_t>(plan.trees.size());
  plan.trees.push_back(std::move(local));
}

// Everybody starts with the node after itself: ranks that all began with node 0 would flood its link while
// the others idle.
void order_sends(LocalPlan& plan, int nodes) {
  const auto distance = [&](NodeId to) { return (to - plan.self - 1 + nodes) % nodes; };
  const auto nearer = [&](NodeId a, NodeId b) { return distance(a) < distance(b); };
  for (LocalTree& local : plan.trees)
    std::sort(local.down_children.begin(), local.down_children.end(), nearer);
  const auto first_to = [&](const LocalTree& local) {
    if (local.up_parent != kNone) return distance(local.up_parent);
    return local.down_children.empty() ? nodes : distance(local.down_children.front());
  };
  std::stable_sort(plan.trees.begin(), plan.trees.end(),
                   [&](const LocalTree& a, const LocalTree& b) { return first_to(a) < first_to(b); });
  for (std::size_t i = 0; i < plan.trees.size(); ++i)
    plan.position[plan.trees[i].index] = static_cast<std::int32_t>(i);
}

// All at once would flood links. So a rank that has sent a few blocks sends the next one, to the rank at
// distance d, when it has received the one from a lower distance before itself. That one waited for a lower
// distance again: nobody waits in a circle. What arrives may be much larger than what waits for it, or
// nothing; so a rank that sends little never waits, and none waits for far more than it sends.
void pace_exchange(LocalPlan& plan, const forest::Forest& forest, std::int64_t ahead_bytes,
                   std::int64_t wire_bytes) {
  const int ranks = forest.request.ranks;
  if (forest.request.op != Collective::all_to_all || plan.self >= ranks) return;
  if (wire_bytes == forest::kNobodyWaits) return;
  std::vector<LocalTree*> to(static_cast<std::size_t>(ranks), nullptr);  // by distance
  std::vector<LocalTree*> from = to;
  for (LocalTree& local : plan.trees) {
    const forest::Tree& tree = forest.trees[local.index];
    if (tree.contributors.size() != 1 || tree.receivers.size() != 1) continue;
    const int distance = (tree.receivers.front() - tree.contributors.front() + ranks) % ranks;
    if (local.root && !local.down_children.empty()) to[static_cast<std::size_t>(distance)] = &local;
    if (local.down_parent != kNone && local.out_offset >= 0)
      from[static_cast<std::size_t>(distance)] = &local;
  }
  for (std::size_t d = 3; d < to.size(); ++d) {
    if (to[d] == nullptr || to[d]->bytes == 0) continue;
    std::int64_t ahead = to[d]->bytes;
    std::size_t e = d - 1;  // what was sent to farther ranks than this may be on its way
    const auto filled = [&] { return forest::fills_exchange(ahead, to[d]->bytes, wire_bytes, ahead_bytes); };
    for (bool other = false; e > 0 && !(other && filled()); --e) {
      if (to[e] == nullptr || to[e]->bytes == 0) continue;
      ahead += to[e]->bytes;
      other = true;
    }
    if (e == 0 || from[e] == nullptr || from[e]->then >= 0) continue;
    if (from[e]->bytes == 0 || from[e]->bytes > 2 * ahead) continue;
    from[e]->then = plan.position[to[d]->index];
    to[d]->waits = true;
  }
}

// A source that sent everything at once would overflow its own link's queue. So who gets a block says that it
// has it, and the source sends only so far ahead. Who gets one knows no other's size: whether its own is to
// be acknowledged depends on nothing else.
void pace_scatter(LocalPlan& plan, const forest::Forest& forest, std::int64_t ahead_bytes,
                  const forest::BlockLanes& lanes) {
  if (forest.request.op != Collective::scatter) return;
  plan.ahead_bytes = ahead_bytes;
  if (plan.self == forest.request.root) plan.lanes = lanes;
  for (LocalTree& local : plan.trees) {
    const forest::Tree& tree = forest.trees[local.index];
    if (tree.receivers.size() != 1 || !forest::may_be_held_up(local.bytes, ahead_bytes)) continue;
    const NodeId receiver = tree.receivers.front();
    const bool sends = local.root && local.down_children == std::vector<NodeId>{receiver};
    local.acknowledged = sends || (plan.self == receiver && local.down_parent == tree.root);
  }
}

bool overlap(const forest::Forest& forest) {
  std::vector<forest::Slice> slices;
  for (const forest::Tree& tree : forest.trees)
    if (tree.slice.count > 0) slices.push_back(tree.slice);
  std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < slices.size(); ++i)
    if (slices[i].offset < slices[i - 1].offset + slices[i - 1].count) return true;
  return false;
}

// Trees of a forest with sums_once, seen from one node. What it sums in several trees is one sum, that of the
// tree it is the root of, with taps for the others; what it sends from its input to one parent in several
// trees is sent in the first.
class SharedTrees {
 public:
  SharedTrees(const forest::Forest& forest, NodeId self) : sums_(forest), self_(self) {}

  // Takes over from `local` what other trees do already. False when nothing is left of it.
  bool keep(LocalTree& local) {
    const std::size_t tree = local.index;
    if (local.root) {
      local.operands.assign(1, kSelf);
      local.is_left.assign(1, false);
      for (const auto& [child, on_left] : sums_.steps(tree)) {
        const auto it = std::lower_bound(local.up_children.begin(), local.up_children.end(), child);
        local.operands.push_back(static_cast<int>(it - local.up_children.begin()));
        local.is_left.push_back(on_left);
      }
      return true;
    }
    const std::size_t first = local.up_parent == kNone ? tree : sums_.first(tree, self_);
    if (!local.up_children.empty()) {
      const auto root = static_cast<std::size_t>(sums_.rooted_at(self_, tree));
      instead_[tree] = root;
      if (first == tree)
        taps_[root].push_back(
            {static_cast<std::uint32_t>(local.up_children.size() + 1), local.up_parent, local.index});
      return false;
    }
    if (first == tree) return true;
    local.up_parent = kNone;
    local.operands.clear();
    if (local.down_parent == kNone) instead_[tree] = first;
    return local.down_parent != kNone;
  }

  void finish(LocalPlan& plan) {
    for (const auto& [tree, other] : instead_) plan.position[tree] = plan.position[other];
    for (LocalTree& local : plan.trees) {
      local.taps = std::move(taps_[local.index]);
      std::sort(local.taps.begin(), local.taps.end(),
                [](const auto& a, const auto& b) { return a.operands < b.operands; });
    }
  }

 private:
  forest::SharedSums sums_;
  NodeId self_;
  std::map<std::size_t, std::size_t> instead_;
  std::map<std::size_t, std::vector<LocalTree::Tap>> taps_;
};

// Ranks that disagree about a collective may have chosen forests without an edge between them, and each must
// hear of it. Where every rank is a root, whoever cannot finish waits for somebody who will not send, and it
// is enough that all whom a rank waits for get something from it before. Else every rank tells its successor:
// all forests share that edge.
std::set<NodeId> announcements(const LocalPlan& plan, int ranks) {
  std::set<NodeId> sent;
  std::set<NodeId> tell;
  for (const LocalTree& local : plan.trees)
    if (local.up_parent != kNone && local.up_children.empty()) sent.insert(local.up_parent);
  bool need_start = false;
  for (const LocalTree& local : plan.trees)
    if (!local.up_children.empty() && (local.chunks > 1 || local.chunk_bytes > kEagerBytes))
      need_start = true;
  for (const LocalTree& local : plan.trees) {
    if (need_start) tell.insert(local.up_children.begin(), local.up_children.end());
    if (!plan.slices_overlap) continue;
    std::size_t tap = 0;
    for (std::size_t i = 0; i < local.operands.size(); ++i) {
      for (; tap < local.taps.size() && local.taps[tap].operands <= i; ++tap)
        sent.insert(local.taps[tap].parent);
      if (local.operands[i] == kSelf) continue;
      const NodeId child = local.up_children[static_cast<std::size_t>(local.operands[i])];
      if (!sent.contains(child)) tell.insert(child);
    }
  }
  const NodeId successor = (plan.self + 1) % ranks;
  if (!plan.slices_overlap && successor != plan.self && plan.self < ranks) tell.insert(successor);
  return tell;
}

// Throws for those that nobody is: numbers from `nodes` on.
std::vector<NodeId> helpers(const forest::Forest& forest, NodeId nodes) {
  std::vector<NodeId> found = forest::aggregators_of(forest);
  const NodeId ranks = forest.request.ranks;
  if (!found.empty() && found.back() >= nodes)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a tree of the {} forest goes through node {}, and nobody is that node: {} ranks "
                            "and {} other nodes run it",
                            forest.planner, found.back(), ranks, std::max(nodes - ranks, 0)));
  return found;
}

// What a plan says about itself to those who do not know forests.
void describe(LocalPlan& plan, std::shared_ptr<const forest::Forest> forest,
              const std::vector<NodeId>& helping, std::uint32_t digest) {
  plan.digest = digest;
  const auto tell = announcements(plan, forest->request.ranks);
  plan.announce_to.assign(tell.begin(), tell.end());
  plan.helpers = helping;
  plan.name = forest->planner;
  plan.trees_in_all = static_cast<std::uint32_t>(forest->trees.size());
  plan.forest = std::move(forest);
}

}  // namespace

std::shared_ptr<const LocalPlan> make_local_plan(std::shared_ptr<const forest::Forest> forest, NodeId self,
                                                 const PlanLimits& limits) {
  const std::vector<NodeId> helping = helpers(*forest, limits.nodes);
  auto plan = std::make_shared<LocalPlan>();
  plan->self = self;
  plan->slices_overlap = overlap(*forest);
  plan->position.assign(forest->trees.size(), -1);
  std::optional<SharedTrees> shared;
  if (forest->sums_once) shared.emplace(*forest, self);
  for (std::uint32_t i = 0; i < forest->trees.size(); ++i) {
    LocalTree local = begin_tree(*forest, i, self, limits);
    add_edges(forest->trees[i], [&](NodeId node) { return node == self ? &local : nullptr; });
    order_operands(local, self, plan->slices_overlap && !shared);
    if (takes_part(local) && (!shared || shared->keep(local))) add_tree(*plan, std::move(local));
  }
  if (shared) {
    shared->finish(*plan);
  } else {
    order_sends(*plan, forest->nodes);
    pace_exchange(*plan, *forest, limits.ahead_bytes, limits.wire_bytes);
    pace_scatter(*plan, *forest, limits.ahead_bytes, limits.lanes);
  }
  describe(*plan, std::move(forest), helping, limits.digest);
  return plan;
}

std::vector<std::shared_ptr<const LocalPlan>> make_local_plans(
    const std::shared_ptr<const forest::Forest>& forest, std::uint32_t digest,
    const forest::LookAhead& ahead) {
  const NodeId nodes = forest->nodes;
  const PlanLimits limits{.nodes = nodes, .digest = digest, .lanes = ahead.lanes};
  const std::vector<NodeId> helping = helpers(*forest, nodes);
  std::vector<std::shared_ptr<const LocalPlan>> finished;
  if (forest->sums_once) {  // for short vectors, of which few ranks make much
    for (NodeId r = 0; r < nodes; ++r) finished.push_back(make_local_plan(forest, r, limits));
    return finished;
  }
  std::vector<std::shared_ptr<LocalPlan>> plans;
  const bool overlapping = overlap(*forest);
  for (NodeId r = 0; r < nodes; ++r) {
    plans.push_back(std::make_shared<LocalPlan>());
    plans.back()->self = r;
    plans.back()->slices_overlap = overlapping;
    plans.back()->position.assign(forest->trees.size(), -1);
  }
  std::vector<LocalTree> locals(plans.size());  // of one tree, by rank
  for (std::uint32_t i = 0; i < forest->trees.size(); ++i) {
    for (NodeId r = 0; r < nodes; ++r) locals[static_cast<std::size_t>(r)] = begin_tree(*forest, i, r, {});
    add_edges(forest->trees[i], [&](NodeId node) { return &locals[static_cast<std::size_t>(node)]; });
    for (NodeId r = 0; r < nodes; ++r) {
      LocalTree& local = locals[static_cast<std::size_t>(r)];
      order_operands(local, r, overlapping);
      if (takes_part(local)) add_tree(*plans[static_cast<std::size_t>(r)], std::move(local));
    }
  }
  for (const auto& plan : plans) {
    order_sends(*plan, forest->nodes);
    const auto self = static_cast<std::size_t>(plan->self);
    pace_exchange(*plan, *forest, limits.ahead_bytes, self < ahead.wires.size() ? ahead.wires[self] : 0);
    pace_scatter(*plan, *forest, limits.ahead_bytes, ahead.lanes);
    describe(*plan, forest, helping, digest);
    plan->trees.shrink_to_fit();
    finished.push_back(plan);
  }
  return finished;
}

}  // namespace talweg::protocol
