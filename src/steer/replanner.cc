#include "steer/replanner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "forest/packed.h"
#include "forest/planner.h"

namespace talweg::steer {
namespace {

constexpr double kNearlyAll = 0.9;    // of an epoch, of a capacity: as much as all, as far as can be told
constexpr double kAlike = 0.05;       // what differs by so little does not differ: measurements are no better
constexpr double kHardlyUsed = 0.01;  // of what the busiest edge carried

// Of a change, in seconds of traffic saved. Dips of rented hosts last for some five seconds; a change that
// gains half of the time is made when a drop has lasted for six.
constexpr double kPrice = 3;

// In a quarter of an hour, one change a minute.
constexpr double kChangesAtOnce = 5;
constexpr double kAnotherChange = 90;  // seconds
constexpr double kThereAndBack = 2;    // every change is on trial
constexpr double kToSpare = 4;         // to probe: drops have precedence

// Seconds, doubled each time.
constexpr double kFirstWait = 60;
constexpr double kLongestWait = 32 * kFirstWait;

constexpr int kMostOfTheTrial = 2;  // epochs, of three

// To this part of what it was given what is slower is raised, where that costs next to nothing; or to half
// of it, and so on.
constexpr double kRelaxed = 0.5;
constexpr double kLeastRelaxed = kRelaxed / 8;

// Of a link or, behind them, a group.
double capacity(const cluster::Cluster& network, std::size_t resource) {
  const std::size_t links = network.links.size();
  return resource < links ? network.links[resource].capacity.bits_per_second
                          : network.groups[resource - links].capacity.bits_per_second;
}

void set_capacity(cluster::Cluster& network, std::size_t resource, double bits_per_second) {
  const std::size_t links = network.links.size();
  (resource < links ? network.links[resource].capacity : network.groups[resource - links].capacity) =
      Bandwidth{bits_per_second};
}

template <typename Values>
double middle(const Values& values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

}  // namespace

Replanner::Replanner(cluster::Cluster network, const ReplanOptions& options)
    : options_(options),
      given_(std::move(network)),
      routes_(given_),
      planned_(given_),
      believed_(given_),
      estimate_(given_),
      considered_(given_),
      groups_of_link_(given_.links.size()) {
  for (std::size_t g = 0; g < given_.groups.size(); ++g)
    for (const int link : given_.groups[g].links)
      groups_of_link_[static_cast<std::size_t>(link)].push_back(given_.links.size() + g);
  memories_.resize(given_.links.size() + given_.groups.size());
  for (std::size_t r = 0; r < memories_.size(); ++r) memories_[r].seen.fill(capacity(given_, r));
  allowed_ = kChangesAtOnce;
  probes_.restart(0);
}

void Replanner::Backoff::restart(double now) {
  wait = kFirstWait;
  until = now + wait;
}
void Replanner::Backoff::fail(double now) {
  wait = std::clamp(2 * wait, kFirstWait, kLongestWait);
  until = now + wait;
}

void Replanner::saw(std::size_t resource, double bits_per_second) {
  auto& seen = memories_[resource].seen;
  std::ranges::rotate(seen, seen.begin() + 1);
  seen.back() = bits_per_second;
  set_capacity(estimate_, resource, middle(seen));
}

std::vector<std::size_t> Replanner::resources_of(const EdgeTraffic& edge) const {
  std::vector<std::size_t> result;
  for (const int link : routes_.path(edge.from, edge.to)) {
    const auto l = static_cast<std::size_t>(link);
    result.push_back(l);
    for (const std::size_t group : groups_of_link_[l])
      if (std::ranges::find(result, group) == result.end()) result.push_back(group);
  }
  return result;
}

// False: the epoch says nothing.
bool Replanner::learn(const TrafficEpoch& epoch) {
  // What only carries credits or acknowledgements says nothing of its links.
  double most = 0;
  for (const EdgeTraffic& edge : epoch.edges) most = std::max(most, edge.bytes);
  std::vector<EdgeTraffic> edges;
  for (const EdgeTraffic& edge : epoch.edges)
    if (edge.bytes > kHardlyUsed * most) edges.push_back(edge);
  double length = 0, bytes = 0;
  for (const EdgeTraffic& edge : edges) {
    length = std::max(length, edge.busy);
    bytes += edge.bytes;
  }
  if (length < options_.least_seconds || bytes < options_.least_bytes) return false;
  length_ = length;
  costs_.push_back(length / bytes);
  if (costs_.size() > 3) costs_.pop_front();

  std::vector<Use> uses(estimate_.links.size() + estimate_.groups.size());
  for (const EdgeTraffic& edge : edges) {
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
  std::vector<bool> alone(uses.size(), false);    // some edge has no other reason
  std::vector<bool> suspect(uses.size(), false);  // an edge has this reason or another
  for (const EdgeTraffic& edge : edges) {
    if (edge.busy < kNearlyAll * length) continue;
    const std::vector<std::size_t> route = resources_of(edge);
    std::vector<std::size_t> reasons;
    for (const std::size_t r : route)
      if (carried(r, length) >= kNearlyAll * capacity(estimate_, r)) reasons.push_back(r);
    if (reasons.size() == 1) full[reasons[0]] = alone[reasons[0]] = true;
    for (const std::size_t r : reasons) suspect[r] = true;
    if (!reasons.empty() || route.empty()) continue;
    const auto part = [&](std::size_t r) { return carried(r, length) / capacity(estimate_, r); };
    // Below 0: `a` is less likely to be the reason; 0: nobody can tell.
    const auto compare = [&](std::size_t a, std::size_t b) {
      const double more = busyness(a) - busyness(b);
      if (std::abs(more) > kAlike) return more;
      if (uses[a].edges != uses[b].edges) return static_cast<double>(uses[a].edges - uses[b].edges);
      const double nearer = part(a) / part(b) - 1;
      return std::abs(nearer) > kAlike ? nearer : 0.;
    };
    std::size_t best = route[0];
    for (const std::size_t r : route)
      if (compare(r, best) > 0) best = r;
    const auto same = std::ranges::count_if(route, [&](std::size_t r) { return compare(r, best) == 0; });
    for (const std::size_t r : route)
      if (compare(r, best) == 0) full[r] = true;
    if (same == 1) alone[best] = true;
  }

  const bool probing = trial_ && trial_->probe;
  for (std::size_t r = 0; r < uses.size(); ++r) {
    Memory& m = memories_[r];
    const bool was_alone = std::exchange(m.full_alone, full[r] && alone[r]);
    if (uses[r].edges == 0) continue;
    const double was = capacity(estimate_, r), given = capacity(given_, r);
    const double seen = carried(r, length);
    if (probing && trial_->begun && m.full_alone && was < kNearlyAll * given) m.still_slow = true;
    // What carries all that it is thought to, and has room, can carry more.
    const bool room = !full[r] && busyness(r) < kNearlyAll && seen > (1 - kAlike) * was;
    m.recovered = room && (was_alone || m.recovered);
    if (m.recovered) m.seen.fill(given);
    const double least = suspect[r] || (probing && !room) ? was : capacity(believed_, r);
    saw(r, full[r] ? carried(r, uses[r].busy) : std::max(seen, least));
  }
  return true;
}

// How many trees there are hardly matters to the time, and finding few would take as long as an epoch.
forest::Forest best_plan(const forest::Request& request, const forest::CostModel& model) {
  forest::PackingMemo quick(forest::Trees::any);
  return forest::plan_at_once(request, model, quick).forest;
}

// What is slow is raised to as much of what it was given as plans bear.
cluster::Cluster Replanner::relaxed(const forest::Request& request, const cluster::Cluster& network) const {
  const forest::CostModel model(network);
  const double least = model.seconds(best_plan(request, model));
  for (double part = kRelaxed; part >= kLeastRelaxed; part /= 2) {
    cluster::Cluster result = network;
    for (std::size_t r = 0; r < memories_.size(); ++r)
      set_capacity(result, r, std::max(capacity(network, r), part * capacity(given_, r)));
    if (model.seconds(best_plan(request, forest::CostModel(result))) <= (1 + kAlike) * least) return result;
  }
  return network;
}

void Replanner::plan_for(const forest::Request& request, cluster::Cluster network) {
  believed_ = std::move(network);
  planned_ = relaxed(request, believed_);
  allowed_ -= 1;
}

bool Replanner::worth_it(double now, const forest::Request& request) {
  const forest::CostModel model(estimate_);
  const auto gain = [&](const forest::Forest& plan) {
    return std::max(0., 1 - model.seconds(plan) / model.seconds(*current_));
  };
  gain_ = better_ ? gain(*better_) : 0;
  if (gain_ <= options_.threshold) {
    better_.reset();
    saved_ = 0;
    bool news = false;
    for (std::size_t r = 0; r < memories_.size(); ++r)
      news = news || std::abs(capacity(estimate_, r) / capacity(considered_, r) - 1) > kAlike;
    if (!news) return false;
    considered_ = estimate_;
    gain_ = gain(best_plan(request, model));
    if (gain_ <= options_.threshold) return false;
    better_ = best_plan(request, forest::CostModel(relaxed(request, estimate_)));
    gain_ = gain(*better_);
  }
  saved_ += gain_ * length_;
  return saved_ >= kPrice && allowed_ >= kThereAndBack && now >= changes_.until;
}

// All that plans take to be slow and that no probe has shown to be slow still; or, where that would not
// change plans, the first half of it, and so on.
std::optional<cluster::Cluster> Replanner::probe(double now, const forest::Request& request) {
  if (allowed_ < kToSpare || now < probes_.until) return std::nullopt;
  std::vector<std::size_t> slow;
  for (std::size_t r = 0; r < memories_.size(); ++r) {
    const double enough = kNearlyAll * capacity(given_, r);
    const bool known = memories_[r].still_slow || memories_[r].full_alone;
    if (!known && capacity(estimate_, r) < enough) slow.push_back(r);
  }
  for (; !slow.empty(); slow.resize(slow.size() / 2)) {
    cluster::Cluster quick = estimate_;
    for (const std::size_t r : slow) set_capacity(quick, r, capacity(given_, r));
    const forest::CostModel model(quick);
    gain_ = 1 - model.seconds(best_plan(request, model)) / model.seconds(*current_);
    if (gain_ > options_.threshold) return quick;
  }
  for (Memory& m : memories_) m.still_slow = false;
  probes_.fail(now);
  return std::nullopt;
}

void Replanner::begin_trial(const forest::Request& request, cluster::Cluster network, bool probe) {
  trial_ = Trial{believed_, estimate_, request, middle(costs_), probe};
  plan_for(request, std::move(network));
}

// After an epoch. True when plans change again.
bool Replanner::end_trial(double now, const forest::Request& request) {
  if (!std::exchange(trial_->begun, true)) return false;  // still of the plans before
  ++(costs_.back() < (1 - kAlike) * trial_->cost ? trial_->quicker : trial_->slower);
  if (std::max(trial_->quicker, trial_->slower) < kMostOfTheTrial) return false;
  Trial trial = *std::exchange(trial_, std::nullopt);
  costs_.clear();
  bool fell = false, rose = false;
  for (std::size_t r = 0; r < memories_.size(); ++r) {
    const double change = capacity(estimate_, r) / capacity(trial.estimate, r) - 1;
    const bool planned = std::abs(capacity(believed_, r) / capacity(trial.believed, r) - 1) > kAlike;
    fell = fell || (change < -options_.threshold && !planned);
    rose = rose || change > options_.threshold;
    if (trial.probe && change > options_.threshold)
      set_capacity(trial.believed, r, std::max(capacity(trial.believed, r), capacity(estimate_, r)));
  }
  const bool quicker = trial.quicker > trial.slower;
  if (trial.probe) {
    // What was right may be right again: others may be quicker, too.
    if (rose) probes_.wait = 0;
    probes_.until = now + probes_.wait;
    if (quicker) return false;
  } else {
    // Nobody can tell where something else has fallen meanwhile, or calls have changed.
    if (quicker || fell || request != trial.request) {
      changes_ = {};
      probes_.restart(now);
      return false;
    }
    changes_.fail(now);
  }
  plan_for(request, std::move(trial.believed));
  return true;
}

bool Replanner::observe(const TrafficEpoch& epoch, const forest::Request& request) {
  if (!learn(epoch)) return false;
  if (first_ns_ < 0) first_ns_ = epoch.time_ns;
  const double now = static_cast<double>(epoch.time_ns - first_ns_) * 1e-9;
  allowed_ = std::min(kChangesAtOnce, allowed_ + (now - std::exchange(last_, now)) / kAnotherChange);
  bool change = false;
  if (trial_) {
    change = end_trial(now, request);
  } else {
    if (!current_ || current_->request != request) {
      forest::PackingMemo packings;
      current_ = forest::plan_at_once(request, forest::CostModel(planned_), packings).forest;
      better_.reset();
    }
    if (worth_it(now, request)) {
      begin_trial(request, estimate_, false);
      change = true;
    } else if (auto quick = probe(now, request)) {
      begin_trial(request, std::move(*quick), true);
      change = true;
    }
  }
  if (!change) return false;
  current_.reset();
  better_.reset();
  considered_ = believed_;
  return true;
}

}  // namespace talweg::steer
