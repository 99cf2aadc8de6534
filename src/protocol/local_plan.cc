#include "protocol/local_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "talweg/error.h"
#include "wire/frame.h"

namespace talweg::protocol {

namespace {

bool has(const std::vector<NodeId>& sorted, NodeId node) {
  return std::binary_search(sorted.begin(), sorted.end(), node);
}

LocalTree local_tree(const forest::Forest& forest, std::uint32_t index, NodeId self, bool ascending) {
  const forest::Tree& tree = forest.trees[index];
  const std::int64_t element = forest.request.element_size;
  LocalTree local;
  local.index = index;
  local.bytes = tree.slice.count * element;
  // An empty slice still moves one empty chunk: that is how a tree without data synchronises.
  local.chunk_bytes =
      static_cast<std::uint32_t>(std::max<std::int64_t>(std::min(tree.chunk, tree.slice.count), 1) * element);
  if (local.chunk_bytes > wire::kMaxPayload)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tree {} has chunks of {} bytes, a frame carries at most {}", index,
                            local.chunk_bytes, wire::kMaxPayload));
  local.chunks = static_cast<std::uint32_t>(forest::chunk_count(tree));
  local.root = tree.root == self;
  const bool rank = self < forest.request.ranks;
  if (rank && has(tree.contributors, self))
    local.in_offset = forest::input_offset(forest.request, self, tree.slice) * element;
  if (rank && has(tree.receivers, self))
    local.out_offset = forest::output_offset(forest.request, self, tree.slice) * element;
  for (const forest::Edge& edge : tree.up) {
    if (edge.child == self) local.up_parent = edge.parent;
    if (edge.parent == self) local.up_children.push_back(edge.child);
  }
  for (const forest::Edge& edge : tree.down) {
    if (edge.child == self) local.down_parent = edge.parent;
    if (edge.parent == self) local.down_children.push_back(edge.child);
  }
  std::sort(local.up_children.begin(), local.up_children.end());
  std::sort(local.down_children.begin(), local.down_children.end());
  if (local.in_offset >= 0) local.operands.push_back(kSelf);
  for (std::size_t i = 0; i < local.up_children.size(); ++i) local.operands.push_back(static_cast<int>(i));
  if (ascending)
    std::sort(local.operands.begin(), local.operands.end(), [&](int a, int b) {
      const auto node = [&](int i) {
        return i == kSelf ? self : local.up_children[static_cast<std::size_t>(i)];
      };
      return node(a) < node(b);
    });
  return local;
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

}  // namespace

std::shared_ptr<const LocalPlan> make_local_plan(std::shared_ptr<const forest::Forest> forest, NodeId self) {
  auto plan = std::make_shared<LocalPlan>();
  plan->self = self;
  plan->slices_overlap = overlap(*forest);
  plan->position.assign(forest->trees.size(), -1);
  std::set<NodeId> to;
  std::set<NodeId> from;
  for (std::uint32_t i = 0; i < forest->trees.size(); ++i) {
    LocalTree local = local_tree(*forest, i, self, plan->slices_overlap);
    const bool takes_part = !local.operands.empty() || local.up_parent != kNone || local.down_parent != kNone;
    if (!takes_part) continue;
    if (local.up_parent != kNone && local.up_children.empty()) to.insert(local.up_parent);
    if (!local.up_children.empty() && (local.chunks > 1 || local.chunk_bytes > kEagerBytes))
      plan->senders_need_start = true;
    from.insert(local.up_children.begin(), local.up_children.end());
    plan->position[i] = static_cast<std::int32_t>(plan->trees.size());
    plan->trees.push_back(std::move(local));
  }
  plan->senders.assign(from.begin(), from.end());
  plan->sends_to_all = true;
  for (NodeId r = 0; r < forest->request.ranks; ++r)
    if (r != self && !to.contains(r)) plan->sends_to_all = false;
  plan->forest = std::move(forest);
  return plan;
}

}  // namespace talweg::protocol
