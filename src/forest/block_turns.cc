#include "forest/block_turns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "forest/flow_control.h"

namespace talweg::forest {

namespace {

// What is narrower by less than this counts as equally wide: measured rates of equal links differ.
constexpr double kAlike = 0.9;

// The links and groups that a block passes on its way. Of a group it may pass several links.
class Ways {
 public:
  Ways(const cluster::Cluster& network, const cluster::Routes& routes)
      : network_(network), routes_(routes), groups_of_link_(network.links.size()) {
    for (const cluster::Link& link : network.links) capacities_.push_back(link.capacity.bytes_per_second());
    for (std::size_t g = 0; g < network.groups.size(); ++g) {
      capacities_.push_back(network.groups[g].capacity.bytes_per_second());
      for (const int link : network.groups[g].links) groups_of_link_[at(link)].push_back(g);
    }
    parts_.resize(capacities_.size());
  }

  std::size_t places() const { return capacities_.size(); }
  // visit(place, the traffic's rate if it fills that), in the order of travel, groups before their links.
  template <class Visit>
  void for_each_place(NodeId from, NodeId to, Visit&& visit) {
    passed_.clear();
    const auto pass = [&](std::size_t place, double part) {
      if (parts_[place] == 0) passed_.push_back(place);
      parts_[place] += part;
    };
    routes_.for_each_share(from, to, [&](int link, double part) {
      for (const std::size_t g : groups_of_link_[at(link)]) pass(network_.links.size() + g, part);
      pass(at(link), part);
    });
    for (const std::size_t place : passed_)
      visit(place, capacities_[place] / std::exchange(parts_[place], 0));
  }

 private:
  const cluster::Cluster& network_;
  const cluster::Routes& routes_;
  std::vector<std::vector<std::size_t>> groups_of_link_;
  std::vector<double> capacities_;   // bytes per second, of links and, behind them, groups
  std::vector<double> parts_;        // of the traffic, by place; 0 but within for_each_place()
  std::vector<std::size_t> passed_;  // by what travels
};

// Rounded up, so that as many as fill a place do; but not for what is added by rounding alone.
std::int64_t part_of(double rate, double place_rate) {
  const double part = std::ceil(static_cast<double>(kWholeLane) * rate / place_rate - 1e-6);
  return part < 1 ? 1 : part < kWholeLane ? static_cast<std::int64_t>(part) : kWholeLane;
}

}  // namespace

BlockLanes lanes_of(const Request& request, const cluster::Cluster& network, const cluster::Routes& routes) {
  if (request.op != Collective::scatter) return {};
  Ways ways(network, routes);
  constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  std::map<std::size_t, std::int32_t> lane_at;             // by the narrowest place
  std::vector<std::map<std::size_t, std::int64_t>> parts;  // by lane and place: the most of a rank's way
  std::vector<std::pair<std::size_t, double>> way;
  BlockLanes found;
  for (NodeId to = 0; to < request.ranks; ++to) {
    double rate = std::numeric_limits<double>::infinity();
    std::size_t narrowest = kNowhere;
    way.clear();
    ways.for_each_place(request.root, to, [&](std::size_t place, double most) {
      way.emplace_back(place, most);
      // Of what is equally narrow, what more ways share.
      if (narrowest != kNowhere && most >= kAlike * rate) return;
      rate = most;
      narrowest = place;
    });
    const auto [known, added] = lane_at.try_emplace(narrowest, static_cast<std::int32_t>(found.lanes.size()));
    found.of_rank.push_back(known->second);
    if (added) {
      found.lanes.push_back({.rate = rate});
      parts.emplace_back();
    }
    if (!way.empty()) {
      std::int64_t& wire = found.lanes[at(known->second)].wire;
      wire = std::max(wire, bytes_on_wire(rate, Nanoseconds{routes.latency(request.root, to).value +
                                                            routes.latency(to, request.root).value}));
    }
    for (const auto& [place, most] : way) {
      std::int64_t& part = parts[at(known->second)][place];
      part = std::max(part, part_of(rate, most));
    }
  }

  // Others can fill a place if all but the one with the least part do.
  std::vector<std::int64_t> all(ways.places()), least(ways.places(), kWholeLane);
  for (const auto& lane : parts) {
    for (const auto& [place, part] : lane) {
      all[place] += part;
      least[place] = std::min(least[place], part);
    }
  }
  std::vector<std::int32_t> number(ways.places(), -1);
  for (std::size_t lane = 0; lane < parts.size(); ++lane) {
    for (const auto& [place, part] : parts[lane]) {
      if (all[place] - least[place] < kWholeLane) continue;
      if (number[place] < 0) number[place] = found.places++;
      found.lanes[lane].shares.push_back({number[place], part});
    }
  }
  return found;
}

BlockLanes lanes_of(const Request& request, const cluster::Cluster& network) {
  if (request.op != Collective::scatter) return {};
  return lanes_of(request, network, cluster::Routes(network));
}

void BlockTurns::reset(const BlockLanes& lanes, std::int64_t ahead_bytes) {
  lane_of_rank_ = lanes.of_rank;
  lanes_.clear();
  shares_.clear();
  for (const BlockLanes::Lane& lane : lanes.lanes) {
    const std::size_t begin = shares_.size();
    shares_.insert(shares_.end(), lane.shares.begin(), lane.shares.end());
    lanes_.push_back({.rate = lane.rate, .wire = lane.wire, .begin = begin, .end = shares_.size()});
  }
  if (lanes_.empty()) lanes_.emplace_back();
  places_.assign(at(lanes.places), {});
  blocks_.clear();
  late_ = kNoBlock;
  on_way_ = {};
  unsent_ = 0;
  ahead_bytes_ = ahead_bytes;
}

// So many bytes more, or less, have still to pass.
void BlockTurns::pass(Lane& lane, std::int64_t bytes) {
  lane.left += bytes;
  const double seconds = static_cast<double>(bytes) / lane.rate / kWholeLane;
  for (std::size_t s = lane.begin; s < lane.end; ++s)
    places_[at(shares_[s].place)].seconds += seconds * static_cast<double>(shares_[s].part);
}

void BlockTurns::fill(const Lane& lane, std::int64_t sign) {
  for (std::size_t s = lane.begin; s < lane.end; ++s)
    places_[at(shares_[s].place)].filled += sign * shares_[s].part;
}

void BlockTurns::add(NodeId to, std::int64_t bytes) {
  const std::size_t number = at(lane_of_rank_.empty() ? 0 : lane_of_rank_[at(to)]);
  Lane& lane = lanes_[number];
  (lane.first == kNoBlock ? lane.first : blocks_[lane.last].behind) = blocks_.size();
  lane.last = blocks_.size();
  pass(lane, bytes);
  blocks_.push_back({.bytes = bytes, .lane = number});
  ++unsent_;
}

// Seconds that the lane needs beyond what it would take alone where its part is greatest.
double BlockTurns::beyond(const Lane& lane) const {
  std::int64_t most = 0;
  for (std::size_t s = lane.begin; s < lane.end; ++s) most = std::max(most, shares_[s].part);
  return lane.seconds() * static_cast<double>(kWholeLane - most);
}

void BlockTurns::begin() {
  if (unsent_ == 0) return;  // most calls have no blocks
  std::vector<double> needs;
  for (const Lane& lane : lanes_) needs.push_back(beyond(lane));
  order_.resize(lanes_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
    return needs[a] != needs[b] ? needs[a] > needs[b] : lanes_[a].first < lanes_[b].first;
  });
}

bool BlockTurns::few(const OnWay& on_way, std::int64_t bytes, std::int64_t wire) const {
  return on_way.blocks < kLeastAhead || may_go_beside(on_way.bytes, bytes, wire, ahead_bytes_);
}

BlockTurns::Room BlockTurns::room_for(std::size_t number) const {
  const Lane& lane = lanes_[number];
  const std::int64_t bytes = blocks_[lane.first].bytes;
  if (few(on_way_, bytes, 0)) return Room::enough;
  if (!few(lane.on_way, bytes, lane.wire)) return Room::none;
  Room room = Room::enough;
  for (std::size_t s = lane.begin; s < lane.end; ++s) {
    const auto& [place, part] = shares_[s];
    if (places_[at(place)].filled - (lane.on_way.blocks > 0 ? part : 0) < kWholeLane) continue;
    if (late_ != kNoBlock && late_ != number) return Room::none;
    if (lane.seconds() < places_[at(place)].seconds / 2) return Room::none;
    room = Room::late;
  }
  return room;
}

std::optional<std::size_t> BlockTurns::next() {
  if (unsent_ == 0) return {};
  for (const std::size_t number : order_) {
    Lane& lane = lanes_[number];
    if (lane.first == kNoBlock) continue;
    const Room room = room_for(number);
    if (room == Room::none) continue;
    if (room == Room::late) late_ = number;
    const std::size_t block = lane.first;
    lane.first = blocks_[block].behind;
    if (lane.on_way.blocks == 0) fill(lane, 1);
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
  pass(lane, -bytes);
  if (lane.on_way.blocks > 0) return;
  fill(lane, -1);
  if (late_ == number) late_ = kNoBlock;
}

}  // namespace talweg::forest
