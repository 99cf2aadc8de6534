#include "protocol/replanner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "forest/packed.h"
#include "forest/planner.h"

namespace talweg::protocol {
namespace {

constexpr double kFull = 0.9;       // of the epoch: an edge that is busy for so long meets something full
constexpr double kExplained = 0.9;  // of its capacity: what carries so much is full, which is no surprise
constexpr double kEager = 0.2;      // how much quicker what seems not to be full is thought to be, per epoch
constexpr double kSlower = 0.8;
constexpr double kAlike = 0.05;
constexpr double kDear = 3;
constexpr double kChangesAtOnce = 3;
constexpr double kNoChange = 0.02;

// Of a link or, behind them, a group.
double capacity(const cluster::Cluster& network, std::size_t resource) {
  const std::size_t links = network.links.size();
  return resource < links ? network.links[resource].capacity.bits_per_second
                          : network.groups[resource - links].capacity.bits_per_second;
}

}  // namespace

Replanner::Replanner(cluster::Cluster network, const ReplanOptions& options)
    : options_(options),
      given_(std::move(network)),
      routes_(given_),
      planned_(given_),
      estimate_(given_),
      groups_of_link_(given_.links.size()) {
  for (std::size_t g = 0; g < given_.groups.size(); ++g)
    for (const int link : given_.groups[g].links)
      groups_of_link_[static_cast<std::size_t>(link)].push_back(given_.links.size() + g);
  for (std::size_t r = 0; r < given_.links.size() + given_.groups.size(); ++r)
    seen_.push_back({capacity(given_, r), capacity(given_, r), capacity(given_, r)});
  eager_.assign(seen_.size(), kEager);
  allowed_ = kChangesAtOnce;
}

void Replanner::saw(std::size_t resource, double bits_per_second) {
  std::array<double, 3>& seen = seen_[resource];
  seen = {seen[1], seen[2], bits_per_second};
  std::array<double, 3> sorted = seen;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t links = estimate_.links.size();
  Bandwidth& capacity =
      resource < links ? estimate_.links[resource].capacity : estimate_.groups[resource - links].capacity;
  capacity = Bandwidth{sorted[1]};
}

std::vector<std::size_t> Replanner::resources_of(const EdgeTraffic& edge) const {
  std::vector<std::size_t> result;
  for (const int link : routes_.path(edge.from, edge.to)) {
    const auto l = static_cast<std::size_t>(link);
    result.push_back(l);
    for (const std::size_t group : groups_of_link_[l])
      if (std::find(result.begin(), result.end(), group) == result.end()) result.push_back(group);
  }
  return result;
}

void Replanner::learn(const TrafficEpoch& epoch) {
  double length = 0;
  for (const EdgeTraffic& edge : epoch.edges) length = std::max(length, edge.busy);
  if (length < options_.least_seconds) return;

  std::vector<Use> uses(estimate_.links.size() + estimate_.groups.size());
  for (const EdgeTraffic& edge : epoch.edges) {
    if (edge.bytes <= 0) continue;
    for (const std::size_t r : resources_of(edge)) {
      uses[r].bytes += edge.bytes;
      uses[r].busy = std::max(uses[r].busy, edge.busy);
      uses[r].weighted += edge.bytes * edge.busy;
      ++uses[r].edges;
    }
  }
  const auto busyness = [&](std::size_t r) { return uses[r].weighted / uses[r].bytes / length; };
  const auto carried = [&](std::size_t r, double seconds) {
    return uses[r].bytes * 8 / options_.payload / seconds;
  };

  std::vector<bool> full(uses.size(), false);
  for (const EdgeTraffic& edge : epoch.edges) {
    if (edge.bytes <= 0 || edge.busy < kFull * length) continue;
    const std::vector<std::size_t> route = resources_of(edge);
    std::vector<std::size_t> reasons;
    for (const std::size_t r : route)
      if (carried(r, length) >= kExplained * capacity(estimate_, r)) reasons.push_back(r);
    if (reasons.size() == 1) full[reasons[0]] = true;
    if (!reasons.empty() || route.empty()) continue;
    std::size_t best = route[0];
    for (const std::size_t r : route) {
      const double more = busyness(r) - busyness(best);
      const int more_edges = uses[r].edges - uses[best].edges;
      const double nearer =
          carried(r, length) / capacity(estimate_, r) - carried(best, length) / capacity(estimate_, best);
      const bool alike = std::abs(more) <= kAlike;
      if (alike ? more_edges > 0 || (more_edges == 0 && nearer > 0) : more > 0) best = r;
    }
    full[best] = true;
  }

  for (std::size_t r = 0; r < uses.size(); ++r) {
    if (uses[r].edges == 0) continue;
    const double was = capacity(estimate_, r);
    if (full[r]) {
      const double seen = carried(r, uses[r].busy);
      // Hope that was wrong comes back half as fast.
      if (seen < kSlower * was) eager_[r] /= 2;
      saw(r, seen);
    } else {
      const double hoped = std::min(capacity(given_, r), was * (1 + eager_[r]));
      saw(r, std::max({was, hoped, carried(r, length)}));
    }
  }
}

double Replanner::price() const {
  return std::min(1., kDear * options_.threshold / gain_);
}

bool Replanner::worth_it(std::int64_t now_ns, const forest::Request& request) {
  if (!current_ || current_->request != request) current_ = forest::plan_best(request, planned_);
  gain_ = 0;
  bool any = false;
  for (std::size_t r = 0; r < seen_.size(); ++r)
    any = any || std::abs(capacity(estimate_, r) / capacity(planned_, r) - 1) > kNoChange;
  if (any) {
    const double kept = forest::predict_seconds(*current_, estimate_);
    // How many trees there are hardly matters to the time, and finding few would take as long as an epoch.
    forest::PackingMemo quick(forest::Trees::any);
    const double best = forest::predict_seconds(forest::plan_best(request, estimate_, quick), estimate_);
    gain_ = std::max(0., 1 - best / kept);
  }
  in_favour_ = gain_ > options_.threshold ? in_favour_ + 1 : 0;
  const double passed = static_cast<double>(now_ns - refilled_ns_) / static_cast<double>(options_.hold_ns);
  allowed_ = std::min(kChangesAtOnce, allowed_ + std::max(0., passed));
  refilled_ns_ = now_ns;
  return in_favour_ >= options_.patience && allowed_ >= price();
}

bool Replanner::observe(const TrafficEpoch& epoch, const forest::Request& request) {
  learn(epoch);
  if (!worth_it(epoch.time_ns, request)) return false;
  planned_ = estimate_;
  current_.reset();
  in_favour_ = 0;
  allowed_ -= price();
  return true;
}

}  // namespace talweg::protocol
