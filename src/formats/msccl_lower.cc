#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/at.h"
#include "forest/verify.h"
#include "forest/walk.h"
#include "formats/msccl.h"
#include "formats/msccl_chunks.h"
#include "talweg/error.h"

namespace talweg::formats {
namespace {

constexpr std::pair<Collective, const char*> kCollectives[] = {{Collective::all_reduce, "allreduce"},
                                                               {Collective::all_gather, "allgather"},
                                                               {Collective::reduce_scatter, "reducescatter"},
                                                               {Collective::broadcast, "broadcast"},
                                                               {Collective::reduce, "reduce"}};

const char* collective_name(const forest::Request& request) {
  for (const auto& [op, word] : kCollectives)
    if (op == request.op) return word;
  refuse_for_msccl(
      fmt::format("no word for {}: expected all_reduce, all_gather, reduce_scatter, broadcast or reduce",
                  name(request.op)));
}

// A step before it has its block.
struct Operation {
  int gpu = 0;
  int channel = 0;
  int receive = -1, send = -1;  // peers
  MscclStep step;
  int after = -1;  // index of the operation of this GPU that must be done before; -1: none
};

// A tree's nodes below each node, those with the deepest subtrees last.
std::vector<std::vector<int>> children_of(const std::vector<forest::Edge>& edges, forest::NodeId root,
                                          int nodes) {
  const auto order = forest::outward(edges, root, nodes);
  std::vector<int> height(at(nodes));
  for (auto edge = order.rbegin(); edge != order.rend(); ++edge)
    height[at(edge->parent)] = std::max(height[at(edge->parent)], height[at(edge->child)] + 1);
  std::vector<std::vector<int>> children(at(nodes));
  for (const forest::Edge& edge : order) children[at(edge.parent)].push_back(edge.child);
  for (auto& list : children)
    std::ranges::stable_sort(list, [&](int a, int b) { return height[at(a)] < height[at(b)]; });
  return children;
}

// The operations of one tree over one run of chunks, each after all that it needs: first up, then down.
class TreeLowering {
 public:
  TreeLowering(const Forest& forest, const forest::Tree& tree, bool fused, std::vector<int>& scratch)
      : request_(forest.request),
        tree_(tree),
        fused_(fused),
        scratch_(scratch),
        up_(children_of(tree.up, tree.root, forest.nodes)),
        down_(children_of(tree.down, tree.root, forest.nodes)),
        store_(at(forest.nodes)) {}

  std::vector<Operation> run() {
    const auto inward = forest::outward(tree_.up, tree_.root, request_.ranks);
    for (auto edge = inward.rbegin(); edge != inward.rend(); ++edge) gather(edge->child, edge->parent);
    gather(tree_.root, -1);
    for (const forest::Edge& edge : outward(tree_.down, tree_.root, request_.ranks))
      spread(edge.child, edge.parent);
    return std::move(operations_);
  }

 private:
  bool receives(int node) const {
    const bool has_it = request_.op == Collective::broadcast && node == request_.root;
    return has_it || std::ranges::binary_search(tree_.receivers, node);
  }

  // Where a node keeps what it has received: its output if the tree delivers there, else scratch.
  MscclPlace store(int node) {
    auto& place = store_[at(node)];
    if (!place) {
      const auto output = receives(node) ? forest::output_offset(request_, node, tree_.slice) : -1;
      if (output >= 0) {
        place = MscclPlace{'o', static_cast<int>(output)};
      } else {
        place = MscclPlace{'s', scratch_[at(node)]};
        scratch_[at(node)] += static_cast<int>(tree_.slice.count);
      }
    }
    return *place;
  }

  int add(int gpu, const char* type, int receive, int send, MscclPlace source, MscclPlace target, int after) {
    Operation operation{.gpu = gpu, .receive = receive, .send = send, .step = {}, .after = after};
    operation.step.type = type;
    operation.step.source = source;
    operation.step.target = target;
    operation.step.count = static_cast<int>(tree_.slice.count);
    operations_.push_back(operation);
    return static_cast<int>(operations_.size()) - 1;
  }

  // Adds up what comes from below and sends it to `parent`; the root sends it down instead.
  void gather(int node, int parent) {
    std::optional<MscclPlace> have;
    if (std::ranges::binary_search(tree_.contributors, node))
      have = MscclPlace{'i', static_cast<int>(forest::input_offset(request_, node, tree_.slice))};
    const auto& below = up_[at(node)];
    const auto& above = down_[at(node)];
    const int next = parent >= 0 ? parent : above.empty() ? -1 : above.back();
    int last = -1;
    bool sent = false;
    for (const int child : below) {
      sent = fused_ && child == below.back() && next >= 0;
      // On its way up a sum need not be kept; at the root it is the result.
      const MscclPlace place = sent && have && parent >= 0 ? *have : store(node);
      const char* type = !have ? (sent ? "rcs" : "r") : !sent ? "rrc" : parent >= 0 ? "rrs" : "rrcs";
      last = add(node, type, child, sent ? next : -1, have.value_or(place), place, last);
      have = place;
    }
    if (parent >= 0) {
      if (!sent) add(node, "s", -1, parent, *have, *have, last);
      return;
    }
    if (below.empty() && receives(node)) add(node, "cpy", -1, -1, *have, store(node), -1);
    for (auto child = above.rbegin(); child != above.rend(); ++child)
      if (!sent || child != above.rbegin()) add(node, "s", -1, *child, *have, *have, last);
  }

  void spread(int node, int parent) {
    const auto& below = down_[at(node)];
    const MscclPlace place = store(node);
    const bool sent = fused_ && !below.empty();
    const int last = add(node, sent ? "rcs" : "r", parent, sent ? below.back() : -1, place, place, -1);
    for (auto child = below.rbegin(); child != below.rend(); ++child)
      if (!sent || child != below.rbegin()) add(node, "s", -1, *child, place, place, last);
  }

  const forest::Request& request_;
  const forest::Tree& tree_;
  bool fused_;
  std::vector<int>& scratch_;  // chunks used so far, by GPU
  std::vector<std::vector<int>> up_, down_;
  std::vector<std::optional<MscclPlace>> store_;
  std::vector<Operation> operations_;
};

// Which receiving and which sending side of connections share a block: (GPU, channel, peer received from) and
// (GPU, channel, peer sent to). A fused step binds two of them; each can be bound to one other only.
class Pairing {
 public:
  // Binds what the operations fuse; false, and in no useful state, if that is not possible.
  bool bind(const std::vector<Operation>& operations, int channel) {
    return std::ranges::all_of(operations, [&](const Operation& o) {
      return o.receive < 0 || o.send < 0 ||
             (to_.emplace(std::array{o.gpu, channel, o.receive}, o.send).first->second == o.send &&
              from_.emplace(std::array{o.gpu, channel, o.send}, o.receive).first->second == o.receive);
    });
  }

  // The block of an operation: its peers completed by those that they are bound to.
  std::array<int, 3> block(const Operation& o) const {
    std::array<int, 3> key{o.send, o.receive, o.channel};
    if (o.send < 0 && o.receive >= 0)
      if (const auto to = to_.find({o.gpu, o.channel, o.receive}); to != to_.end()) key[0] = to->second;
    if (o.receive < 0 && o.send >= 0)
      if (const auto from = from_.find({o.gpu, o.channel, o.send}); from != from_.end())
        key[1] = from->second;
    return key;
  }

 private:
  std::map<std::array<int, 3>, int> to_, from_;
};

// Runs of at most `most` chunks, which is what a step can move.
std::vector<forest::Tree> pieces_of(const forest::Tree& tree, int most) {
  std::vector<forest::Tree> pieces;
  for (std::int64_t done = 0; done < tree.slice.count; done += most) {
    pieces.push_back(tree);
    pieces.back().slice = {tree.slice.offset + done, std::min<std::int64_t>(most, tree.slice.count - done)};
  }
  return pieces;
}

void append(std::vector<Operation>& all, std::vector<Operation> more) {
  const int shift = static_cast<int>(all.size());
  for (Operation& operation : more) {
    if (operation.after >= 0) operation.after += shift;
    all.push_back(std::move(operation));
  }
}

// The program that spreads trees over `channels`. All blocks do their steps in the order of the trees and,
// within one, from the leaves to the root and back: what a step waits for always comes earlier in that one
// order, so that no two blocks can wait for each other.
MscclProgram lower(const Forest& forest, int channels, const MscclLimits& limits) {
  const forest::Request& request = forest.request;
  MscclProgram program{.name = fmt::format("{}-{}", forest.planner, collective_name(request)),
                       .collective = collective_name(request),
                       .chunks = 0,
                       .channels = channels,
                       .gpus = {}};
  program.gpus.resize(at(request.ranks));
  std::vector<int> scratch(at(request.ranks));
  std::vector<Operation> all;
  Pairing pairing;
  for (std::size_t t = 0; t < forest.trees.size(); ++t) {
    const int own = static_cast<int>(t) % channels;
    const auto lowered = [&](bool fused, std::vector<int>& used) {
      std::vector<Operation> operations;
      for (const forest::Tree& piece : pieces_of(forest.trees[t], limits.count))
        append(operations, TreeLowering(forest, piece, fused, used).run());
      return operations;
    };
    std::vector<int> used = scratch;
    auto operations = lowered(true, used);
    int channel = own;
    bool bound = false;
    for (int tried = 0; tried < channels && !bound; ++tried) {
      channel = (own + tried) % channels;
      Pairing with = pairing;
      bound = with.bind(operations, channel);
      if (bound) pairing = std::move(with);
    }
    if (!bound) {  // steps that are not fused go with any
      used = scratch;
      operations = lowered(false, used);
      channel = own;
    }
    for (Operation& operation : operations) operation.channel = operation.step.type == "cpy" ? 0 : channel;
    scratch = used;
    append(all, std::move(operations));
  }

  std::map<std::pair<int, std::array<int, 3>>, int> block_of;
  std::vector<std::pair<int, int>> place(all.size());  // block and step
  for (std::size_t i = 0; i < all.size(); ++i) {
    Operation& o = all[i];
    auto& blocks = program.gpus[at(o.gpu)].blocks;
    const auto key = pairing.block(o);
    const auto [found, fresh] = block_of.emplace(std::pair(o.gpu, key), static_cast<int>(blocks.size()));
    if (fresh) blocks.push_back({.send = key[0], .receive = key[1], .channel = key[2], .steps = {}});
    auto& steps = blocks[at(found->second)].steps;
    place[i] = {found->second, static_cast<int>(steps.size())};
    if (o.after >= 0 && place[at(o.after)].first != found->second) {
      std::tie(o.step.awaited_block, o.step.awaited_step) = place[at(o.after)];
      blocks[at(o.step.awaited_block)].steps[at(o.step.awaited_step)].is_awaited = true;
    }
    steps.push_back(o.step);
  }
  for (int rank = 0; rank < request.ranks; ++rank) {
    MscclGpu& gpu = program.gpus[at(rank)];
    gpu.input_chunks = static_cast<int>(forest::input_count(request, rank));
    gpu.output_chunks = static_cast<int>(forest::output_count(request, rank));
    gpu.scratch_chunks = scratch[at(rank)];
    program.chunks = std::max({program.chunks, gpu.input_chunks, gpu.output_chunks});
  }
  return program;
}

bool fits(const MscclProgram& program, const MscclLimits& limits) {
  return std::ranges::all_of(program.gpus, [&](const MscclGpu& gpu) {
    return std::ssize(gpu.blocks) <= limits.blocks &&
           std::ranges::all_of(gpu.blocks, [&](const MscclThreadBlock& block) {
             return std::ssize(block.steps) <= limits.steps;
           });
  });
}

}  // namespace

MscclProgram to_msccl(const Forest& forest, const MscclLimits& limits) {
  collective_name(forest.request);
  verify(forest);
  if (forest.nodes > forest.request.ranks)
    for (const forest::Tree& tree : forest.trees)
      for (const auto* edges : {&tree.up, &tree.down})
        for (const forest::Edge& edge : *edges)
          if (std::max(edge.child, edge.parent) >= forest.request.ranks)
            refuse_for_msccl(fmt::format("node {} is no rank: expected trees through ranks only",
                                         std::max(edge.child, edge.parent)));
  if (forest.sums_once)
    refuse_for_msccl(fmt::format("the trees of {} share sums: expected trees of their own", forest.planner));
  Forest chunks = in_chunks(forest, limits.chunks);
  chunks.nodes = forest.request.ranks;
  verify(chunks);
  // Trees that overlap would write over each other's sums.
  std::vector<forest::Slice> slices;
  for (const forest::Tree& tree : chunks.trees) slices.push_back(tree.slice);
  std::ranges::sort(slices,
                    [](const forest::Slice& a, const forest::Slice& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < slices.size(); ++i)
    if (slices[i - 1].offset + slices[i - 1].count > slices[i].offset)
      refuse_for_msccl(
          fmt::format("trees of {} overlap: expected a slice of its own for each", forest.planner));

  // Channels of their own let trees run side by side; with fewer, blocks are shared.
  int channels = std::max(1, std::min(limits.channels, static_cast<int>(chunks.trees.size())));
  MscclProgram program = lower(chunks, channels, limits);
  while (channels > 1 && !fits(program, limits)) program = lower(chunks, --channels, limits);
  check_executable(program, limits);
  return program;
}

}  // namespace talweg::formats
