#include "forest/block_turns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/at.h"
#include "forest/flow_control.h"

namespace talweg::forest {

namespace {

// What is narrower by less than this counts as equally wide: measured rates of equal links differ.
constexpr double kAlike = 0.9;

// Bytes per second of all its links together, where no group holds them back.
double most_sent(const cluster::Cluster& network, NodeId source) {
  double rate = 0;
  for (const cluster::Link& link : network.links)
    if (link.from == source) rate += link.capacity.bytes_per_second();
  for (const cluster::CapacityGroup& group : network.groups) {
    double inside = 0;
    for (const int link : group.links)
      if (network.links[at(link)].from == source)
        inside += network.links[at(link)].capacity.bytes_per_second();
    rate -= std::max(0.0, inside - group.capacity.bytes_per_second());
  }
  return rate;
}

}  // namespace

BlockLanes lanes_of(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes) {
  if (request.op != Collective::scatter) return {};
  std::vector<std::vector<std::size_t>> groups_of_link(network.links.size());
  for (std::size_t g = 0; g < network.groups.size(); ++g)
    for (const int link : network.groups[g].links) groups_of_link[at(link)].push_back(g);

  const double most = most_sent(network, request.root);
  constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  std::map<std::size_t, std::int32_t> lane_at;  // by the narrowest link or, behind them, group
  BlockLanes lanes;
  for (NodeId to = 0; to < request.ranks; ++to) {
    double rate = std::numeric_limits<double>::infinity();
    std::size_t narrowest = kNowhere;
    const auto pass = [&](std::size_t place, double capacity) {
      if (narrowest != kNowhere && capacity >= kAlike * rate) return;
      rate = capacity;
      narrowest = place;
    };
    routes.for_each_share(request.root, to, [&](int link, double part) {
      // Of what is equally narrow, what more ways share.
      for (const std::size_t g : groups_of_link[at(link)])
        pass(network.links.size() + g, network.groups[g].capacity.bytes_per_second() / part);
      pass(at(link), network.links[at(link)].capacity.bytes_per_second() / part);
    });
    const auto [known, added] = lane_at.try_emplace(narrowest, static_cast<std::int32_t>(lanes.parts.size()));
    lanes.of_rank.push_back(known->second);
    if (!added) continue;
    const double part = rate < most ? static_cast<double>(kWholeLane) * rate / most : kWholeLane;
    lanes.parts.push_back(std::max<std::int64_t>(1, std::llround(part)));
  }
  return lanes;
}

BlockLanes lanes_of(const Request& request, const cluster::Cluster& network) {
  if (request.op != Collective::scatter) return {};
  return lanes_of(request, network, cluster::Routes(network));
}

void BlockTurns::reset(const BlockLanes& lanes, std::int64_t ahead_bytes) {
  lane_of_rank_ = lanes.of_rank;
  lanes_.clear();
  for (const std::int64_t part : lanes.parts) lanes_.push_back({.part = part});
  if (lanes_.empty()) lanes_.emplace_back();
  blocks_.clear();
  on_way_ = {};
  left_ = filled_ = 0;
  unsent_ = 0;
  ahead_bytes_ = ahead_bytes;
}

void BlockTurns::add(NodeId to, std::int64_t bytes) {
  const std::size_t number = at(lane_of_rank_.empty() ? 0 : lane_of_rank_[at(to)]);
  Lane& lane = lanes_[number];
  (lane.first == kNoBlock ? lane.first : blocks_[lane.last].behind) = blocks_.size();
  lane.last = blocks_.size();
  lane.left += bytes;
  left_ += bytes;
  blocks_.push_back({.bytes = bytes, .lane = number});
  ++unsent_;
}

void BlockTurns::begin() {
  order_.resize(lanes_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
    const std::int64_t one = lanes_[a].stretched(), other = lanes_[b].stretched();
    return one != other ? one > other : lanes_[a].first < lanes_[b].first;
  });
}

bool BlockTurns::few(const OnWay& on_way, std::int64_t bytes) const {
  return on_way.blocks < kLeastAhead || on_way.bytes + bytes <= ahead_bytes_;
}

bool BlockTurns::may_go(const Lane& lane) const {
  const std::int64_t bytes = blocks_[lane.first].bytes;
  if (few(on_way_, bytes)) return true;
  if (!few(lane.on_way, bytes)) return false;
  const std::int64_t by_others = filled_ - (lane.on_way.blocks > 0 ? lane.part : 0);
  return by_others < kWholeLane || lane.stretched() >= left_ / 2;
}

std::optional<std::size_t> BlockTurns::next() {
  if (unsent_ == 0) return {};
  for (const std::size_t number : order_) {
    Lane& lane = lanes_[number];
    if (lane.first == kNoBlock || !may_go(lane)) continue;
    const std::size_t block = lane.first;
    lane.first = blocks_[block].behind;
    if (lane.on_way.blocks == 0) filled_ += lane.part;
    for (OnWay* on_way : {&lane.on_way, &on_way_}) {
      ++on_way->blocks;
      on_way->bytes += blocks_[block].bytes;
    }
    --unsent_;
    return block;
  }
  return {};
}

void BlockTurns::arrived(std::size_t block) {
  const auto [bytes, number, behind] = blocks_[block];
  Lane& lane = lanes_[number];
  for (OnWay* on_way : {&lane.on_way, &on_way_}) {
    --on_way->blocks;
    on_way->bytes -= bytes;
  }
  if (lane.on_way.blocks == 0) filled_ -= lane.part;
  lane.left -= bytes;
  left_ -= bytes;
}

}  // namespace talweg::forest
