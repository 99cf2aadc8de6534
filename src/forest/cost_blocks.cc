// The blocks of a scatter, played through: few are on their way at a time, and others wait for these.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "base/at.h"
#include "forest/block_turns.h"
#include "forest/cost.h"
#include "forest/flow_control.h"
#include "forest/look_ahead.h"

namespace talweg::forest {
namespace {

struct Use {
  std::size_t resource = 0;  // a link or, behind them, a group
  double part = 0;           // of the traffic
};

struct Block {
  NodeId to = 0;
  std::int64_t bytes = 0;
  std::vector<Use> uses{};
  double payload = 0;  // bytes on the links
  double left = 0;     // of these, that have not passed the links yet
  double rate = 0;     // bytes per second, with what is under way now
  // Seconds from when it has passed the links to when it is there, and from then to when its source knows.
  double processors = 0, latency = 0;
  double processors_back = 0, latency_back = 0;
  double there = 0, heard = 0;  // when that is
  bool passing() const { return left > 0; }
};

// Beyond so many under way at once, which takes many lanes, they are not played through one by one, but to
// the end at once: links that lanes share are as good as never idle, and a lane's own one idles whenever all
// that it may have on its way has passed and is not heard of yet.
constexpr std::size_t kMostPlayed = 64;

// Seconds until all have passed all links, if none of these idles.
double seconds_for_all(const std::vector<Block>& blocks, const std::vector<double>& capacities) {
  std::vector<double> loads(capacities.size());
  double seconds = 0;
  for (const Block& block : blocks) {
    for (const Use& use : block.uses) {
      loads[use.resource] += use.part * block.left;
      seconds = std::max(seconds, loads[use.resource] / capacities[use.resource]);
    }
  }
  return seconds;
}

// What a lane has still to bring.
struct LaneLeft {
  std::int64_t blocks = 0, bytes = 0;
  double payload = 0;
  double processors = 0, latency = 0, processors_back = 0, latency_back = 0;  // the most of any block

  void add(const Block& block) {
    if (!block.passing()) return;
    ++blocks;
    bytes += block.bytes;
    payload += block.left;
    processors = std::max(processors, block.processors);
    processors_back = std::max(processors_back, block.processors_back);
    latency = std::max(latency, block.latency);
    latency_back = std::max(latency_back, block.latency_back);
  }
  // How often all that it may have on its way is there, and more waits until that is known.
  double waits(std::int64_t wire) const {
    if (blocks == 0) return 0;
    const std::int64_t block = bytes / blocks;
    std::int64_t at_once = kLeastAhead;
    while (at_once < blocks && may_go_beside(at_once * block, block, wire)) ++at_once;
    const std::int64_t waits = (blocks - 1) / at_once;
    return static_cast<double>(waits);
  }
};

// What each gets of what they share: as much as others or, where it cannot use that, what it can (max-min).
// `capacities`: bytes per second, by resource.
void share(std::vector<Block*> blocks, const std::vector<double>& capacities) {
  std::vector<double> free = capacities, wanted(capacities.size());
  for (const Block* block : blocks)
    for (const Use& use : block->uses) wanted[use.resource] += use.part;
  while (!blocks.empty()) {
    for (Block* block : blocks) {
      block->rate = std::numeric_limits<double>::infinity();
      for (const Use& use : block->uses)
        block->rate = std::min(block->rate, free[use.resource] / wanted[use.resource]);
    }
    const auto least = std::ranges::min_element(blocks, {}, &Block::rate);
    for (const Use& use : (*least)->uses) {
      // What is left when the last has its share is nothing, but for rounding.
      free[use.resource] =
          std::max(free[use.resource] - use.part * (*least)->rate, 1e-9 * capacities[use.resource]);
      wanted[use.resource] -= use.part;
    }
    blocks.erase(least);
  }
}

}  // namespace

CostModel::Spent CostModel::blocks_in_turn(const Forest& forest) const {
  if (forest.request.op != Collective::scatter) return {};
  const NodeId source = forest.request.root;
  const std::size_t links = cluster_.links.size();
  std::vector<double> capacities;
  for (const cluster::Link& link : cluster_.links) capacities.push_back(link.capacity.bytes_per_second());
  for (const cluster::CapacityGroup& group : cluster_.groups)
    capacities.push_back(group.capacity.bytes_per_second());

  std::vector<Block> blocks;
  for (const Tree& tree : forest.trees) {
    const std::int64_t bytes = tree.slice.count * forest.request.element_size;
    if (tree.root != source || tree.down.size() != 1 || !may_be_held_up(bytes)) continue;
    Block& block = blocks.emplace_back(Block{.to = tree.down.front().child, .bytes = bytes});
    const Hop &there = hop(source, block.to), &back = hop(block.to, source);
    const auto header = static_cast<double>(parameters_.header_bytes);
    const auto payload = static_cast<double>(bytes) + header * static_cast<double>(chunk_count(tree));
    block.payload = block.left = there.memory ? payload : payload / parameters_.tcp_payload;
    routes_.for_each_share(source, block.to, [&](int link, double part) {
      block.uses.push_back({at(link), part});
      for (const std::size_t g : groups_of_link_[at(link)]) block.uses.push_back({links + g, part});
    });
    const double frame =
        header + static_cast<double>(std::min(tree.slice.count, tree.chunk) * forest.request.element_size);
    block.processors = 2 * (transport(there).per_batch + frame * transport(there).per_byte);
    block.processors_back = 2 * transport(back).per_batch;
    block.latency = there.latency;
    block.latency_back = back.latency;
  }
  const int ranks = forest.request.ranks;
  std::ranges::stable_sort(blocks, {},
                           [&](const Block& block) { return (block.to - source - 1 + ranks) % ranks; });

  const BlockLanes lanes = lanes_of(forest.request, cluster_, routes_);
  BlockTurns turns;
  turns.reset(lanes, kAheadBytes);
  for (const Block& block : blocks) turns.add(block.to, block.bytes);
  turns.begin();

  Spent spent;
  double now = 0;
  std::vector<Block*> under_way, passing;
  while (turns.held_up() || !under_way.empty()) {
    const std::size_t before = under_way.size();
    while (const auto next = turns.next()) under_way.push_back(&blocks[*next]);
    if (under_way.size() > kMostPlayed) {
      const auto fixed = [](const Block& block) { return block.processors + block.latency; };
      const Block& last = *std::ranges::max_element(blocks, {}, fixed);
      Spent most{seconds_for_all(blocks, capacities), last.processors, last.latency};
      std::vector<LaneLeft> left(lanes.lanes.size());
      for (const Block& block : blocks) left[at(lanes.of_rank[at(block.to)])].add(block);
      for (std::size_t i = 0; i < left.size(); ++i) {
        const double waits = left[i].waits(lanes.lanes[i].wire);
        most =
            std::max(most, Spent{left[i].payload / lanes.lanes[i].rate,
                                 left[i].processors + waits * (left[i].processors + left[i].processors_back),
                                 left[i].latency + waits * (left[i].latency + left[i].latency_back)});
      }
      return spent + most;
    }
    if (under_way.size() > before ||
        std::ranges::any_of(passing, [](const Block* b) { return !b->passing(); })) {
      passing.clear();
      std::ranges::copy_if(under_way, std::back_inserter(passing), &Block::passing);
      share(passing, capacities);
    }
    // Nobody waits to hear of the last ones.
    const bool hears = turns.held_up();
    const auto seconds_left = [&](const Block* block) {
      return block->passing() ? block->left / block->rate : (hears ? block->heard : block->there) - now;
    };
    Block* const first = *std::ranges::min_element(under_way, {}, seconds_left);
    const double seconds = std::max(0.0, seconds_left(first));
    now += seconds;
    if (!passing.empty()) {
      spent.links += seconds;
    } else {
      const double processors = first->processors + (hears ? first->processors_back : 0);
      const double fixed = processors + first->latency + (hears ? first->latency_back : 0);
      spent.processors += fixed > 0 ? seconds * processors / fixed : 0;
      spent.latency += fixed > 0 ? seconds * (fixed - processors) / fixed : 0;
    }
    if (!first->passing()) {
      turns.arrived(static_cast<std::size_t>(first - blocks.data()));
      std::erase(under_way, first);
    }
    for (Block* block : passing) {
      block->left -= seconds * block->rate;
      // Others may end with it, but for rounding.
      if (block != first && block->left > 1e-9 * block->payload) continue;
      block->left = 0;
      block->there = now + block->processors + block->latency;
      block->heard = block->there + block->processors_back + block->latency_back;
    }
  }
  return spent;
}

// Of blocks of the mean size.
int CostModel::meeting_senders(const Forest& forest) const {
  if (forest.request.op != Collective::all_to_all) return parameters_.incast_most;
  std::int64_t blocks = 0, bytes = 0;
  for (const Tree& tree : forest.trees) {
    if (tree.down.empty() || tree.slice.count == 0) continue;
    ++blocks;
    bytes += tree.slice.count * forest.request.element_size;
  }
  if (blocks == 0) return parameters_.incast_most;
  const LookAhead ahead = look_ahead(forest.request, cluster_, routes_);
  const std::int64_t wire = std::ranges::max(ahead.wires);
  // Where some are quicker they meet at slow ones, however few blocks each is ahead.
  if (wire == kNobodyWaits || !ahead.alike) return parameters_.incast_most;
  const std::int64_t block = bytes / blocks;
  int meeting = static_cast<int>(kLeastAhead);
  while (meeting < parameters_.incast_most && !fills_exchange(meeting * block, block, wire, kAheadBytes))
    ++meeting;
  return meeting;
}

}  // namespace talweg::forest
