#include "steer/replanner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "forest/packed.h"
#include "forest/planner.h"

namespace talweg::steer {
namespace {

constexpr double kBusyAllAlong = 0.9;  // of the epoch: an edge that is busy for so long meets something full
constexpr double kExplained = 0.9;     // of its capacity: what carries so much is full, which is no surprise
constexpr double kSlower = 0.8;        // of what it was thought to be: it has dropped
constexpr double kAlike = 0.05;
constexpr double kNoChange = 0.02;
constexpr double kHardlyUsed = 0.01;  // of what the busiest edge carried

constexpr double kDear = 3;
constexpr double kLeastPrice = 0.5;
constexpr double kChangesAtOnce = 3;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLeastDrop = kSecond / 2;  // what is over sooner is not looked at
constexpr std::int64_t kFlap = 60 * kSecond;      // a drop that is over by then should not have been believed
constexpr std::int64_t kLeastDamping = 5 * kSecond;
constexpr std::int64_t kMostDamping = 40 * kSecond;
constexpr std::int64_t kCalm = 200 * kSecond;  // after so long without a flap, damping halves
constexpr double kFlapped = 1.5;  // how much quicker what flaps is thought to be when it is not full

constexpr std::int64_t kTryEvery = 60 * kSecond;  // half as often each time that all have been tried
constexpr std::int64_t kTryRarely = 32 * kTryEvery;
constexpr std::int64_t kTryAgain = 5 * kSecond;
constexpr int kTrialEpochs = 4;  // the first one still tells of the plans before
constexpr double kMostHope = 2.5;
constexpr double kMuchWorse = 1.5;  // no need to look any longer
constexpr std::int64_t kDistrust =
    60 * kSecond;  // at first; twice as long each time that a change did not help
constexpr std::int64_t kMostDistrust = 200 * kDistrust;

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

constexpr std::size_t kCosts = 3;
double middle(const std::deque<double>& values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

bool fell_lately(std::int64_t fell_ns, std::int64_t now_ns) {
  return fell_ns >= 0 && now_ns - fell_ns < kFlap;
}

// Of the same two nodes: the directions of a cable.
bool same_cable(const cluster::Link& a, const cluster::Link& b) {
  return std::minmax(a.from, a.to) == std::minmax(b.from, b.to);
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
  memories_.resize(given_.links.size() + given_.groups.size());
  for (std::size_t r = 0; r < memories_.size(); ++r) memories_[r].seen.fill(capacity(given_, r));
  allowed_ = kChangesAtOnce;
  try_every_ns_ = kTryEvery;
  distrust_ns_ = kDistrust;
}

bool Replanner::flaps() const {
  return most_damping() > 0;
}

std::int64_t Replanner::most_damping() const {
  std::int64_t most = 0;
  for (const Memory& m : memories_) most = std::max(most, m.damping_ns);
  return most;
}

void Replanner::saw(std::size_t resource, double bits_per_second, std::int64_t now_ns) {
  Memory& m = memories_[resource];
  const double was = capacity(estimate_, resource);
  if (bits_per_second < kSlower * was) {
    if (m.low_since_ns < 0) {
      m.low_since_ns = last_ns_ < 0 ? now_ns : last_ns_;
      return;  // one epoch may be wrong, however long it was
    }
    // Where one flaps, others are likely to.
    if (now_ns - m.low_since_ns < std::max({kLeastDrop, m.damping_ns, most_damping() / 2})) return;
    m.fell_ns = std::exchange(m.low_since_ns, -1);
    m.fell_from = was;
    m.seen.fill(bits_per_second);
    set_capacity(estimate_, resource, bits_per_second);
    try_every_ns_ = kTryEvery;
    // What plans now avoid carries less because of that where it was not the reason.
    const bool avoided =
        trial_ && capacity(planned_, resource) < kSlower * capacity(trial_->before, resource);
    if (!avoided) ++falls_;
    return;
  }
  // What fell a moment ago and is quicker than it then seemed is what it was before.
  const bool back = fell_lately(m.fell_ns, now_ns) && bits_per_second * kSlower > was;
  if (back || m.low_since_ns >= 0) {
    m.damping_ns = std::clamp(2 * m.damping_ns, kLeastDamping, kMostDamping);
    m.damped_ns = now_ns;
    m.fell_ns = m.low_since_ns = -1;
  } else if (m.damping_ns > 0 && now_ns - m.damped_ns > kCalm) {
    m.damping_ns = m.damping_ns > kLeastDamping ? m.damping_ns / 2 : 0;
    m.damped_ns = now_ns;
  }
  if (back)
    m.seen.fill(m.fell_from);
  else
    m.seen = {m.seen[1], m.seen[2], bits_per_second};
  std::array<double, 3> sorted = m.seen;
  std::ranges::sort(sorted);
  set_capacity(estimate_, resource, sorted[1]);
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
  costs_.push_back(length / bytes);
  if (costs_.size() > kCosts) costs_.pop_front();

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
  std::vector<bool> alone(uses.size(), false);  // some edge has no other reason
  for (const EdgeTraffic& edge : edges) {
    if (edge.busy < kBusyAllAlong * length) continue;
    const std::vector<std::size_t> route = resources_of(edge);
    std::vector<std::size_t> reasons;
    for (const std::size_t r : route)
      if (carried(r, length) >= kExplained * capacity(estimate_, r)) reasons.push_back(r);
    if (reasons.size() == 1) full[reasons[0]] = alone[reasons[0]] = true;
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

  for (std::size_t r = 0; r < uses.size(); ++r) {
    Memory& m = memories_[r];
    m.surely_full = full[r] && alone[r];
    if (uses[r].edges == 0) continue;
    if (full[r]) {
      saw(r, carried(r, uses[r].busy), epoch.time_ns);
      continue;
    }
    const double was = capacity(estimate_, r);
    const double seen = carried(r, length);
    // What carries all that it can and is not full can carry more; by how much, nobody knows.
    const bool more = flaps() && fell_lately(m.fell_ns, epoch.time_ns) && seen > (1 - kNoChange) * was;
    saw(r, std::max(seen, more ? std::min(capacity(given_, r), kFlapped * was) : was), epoch.time_ns);
  }
  return true;
}

// By how much less time the best plan for a network is predicted to take there than the one in use.
double Replanner::gain_of_planning(const forest::Request& request, const cluster::Cluster& network) const {
  // How many trees there are hardly matters to the time, and finding few would take as long as an epoch.
  forest::PackingMemo quick(forest::Trees::any);
  const forest::CostModel model(network);
  const double best = model.seconds(forest::plan_at_once(request, model, quick).forest);
  return 1 - best / model.seconds(*current_);
}

double Replanner::price() const {
  return flaps() ? 1 : std::clamp(kDear * options_.threshold / gain_, kLeastPrice, 1.);
}

bool Replanner::worth_it(std::int64_t now_ns, const forest::Request& request) {
  if (!current_ || current_->request != request) {
    forest::PackingMemo packings;
    current_ = forest::plan_at_once(request, forest::CostModel(planned_), packings).forest;
  }
  gain_ = 0;
  const double passed = static_cast<double>(now_ns - refilled_ns_) / static_cast<double>(options_.hold_ns);
  allowed_ = std::min(kChangesAtOnce, allowed_ + std::max(0., passed));
  refilled_ns_ = now_ns;
  if (now_ns < trusts_at_ns_ || allowed_ < kLeastPrice) return false;
  bool any = false;
  for (std::size_t r = 0; r < memories_.size(); ++r)
    any = any || std::abs(capacity(estimate_, r) / capacity(planned_, r) - 1) > kNoChange;
  if (any) gain_ = std::max(0., gain_of_planning(request, estimate_));
  in_favour_ = gain_ > options_.threshold ? in_favour_ + 1 : 0;
  return in_favour_ >= options_.patience && allowed_ >= price();
}

// What is below what it was given, and is not surely full, may be quick again without anybody seeing it: both
// directions of a cable at once, or a group.
bool Replanner::try_one(std::int64_t now_ns, const forest::Request& request) {
  if (try_at_ns_ < 0) try_at_ns_ = now_ns + try_every_ns_;
  if (now_ns < try_at_ns_ || allowed_ < 1) return false;
  const std::size_t all = memories_.size(), links = given_.links.size();
  const auto slow = [&](std::size_t r) {
    return !memories_[r].surely_full && capacity(estimate_, r) < kSlower * capacity(given_, r);
  };
  for (std::size_t i = 0; i < all; ++i) {
    const std::size_t r = (next_tried_ + i) % all;
    // All have been tried: from now on more rarely.
    if (r == 0) try_every_ns_ = std::min(2 * try_every_ns_, kTryRarely);
    if (!slow(r)) continue;
    cluster::Cluster hoped = estimate_, recovered = estimate_;
    bool tried = false;  // with its cable's other direction
    for (std::size_t other = 0; other < all; ++other) {
      const bool together =
          other == r || (r < links && other < links && same_cable(given_.links[r], given_.links[other]));
      if (!together || !slow(other)) continue;
      tried = tried || other < r;
      const double given = capacity(given_, other);
      set_capacity(recovered, other, given);
      set_capacity(hoped, other, std::min(given, kMostHope * capacity(estimate_, other)));
    }
    if (tried) continue;
    try_at_ns_ = now_ns + try_every_ns_;
    next_tried_ = r + 1;
    const double gain = gain_of_planning(request, recovered);
    if (gain <= options_.threshold) continue;
    gain_ = gain;
    begin_trial(request, std::move(hoped), r);
    return true;
  }
  return false;
}

// Every change is on trial: what slows a job may be something else than its network.
void Replanner::begin_trial(const forest::Request& request, cluster::Cluster network,
                            std::optional<std::size_t> hope) {
  // A drop may have begun within the epoch before the last one.
  const std::size_t n = costs_.size();
  const double before = hope || n < 2 ? middle(costs_) : std::max(costs_[n - 1], costs_[n - 2]);
  trial_ = Trial{std::exchange(planned_, std::move(network)), request, before, falls_, hope, kTrialEpochs};
  costs_.clear();
}

// True when plans go back.
bool Replanner::end_trial(std::int64_t now_ns, const forest::Request& request) {
  Trial trial = *std::exchange(trial_, std::nullopt);
  // Nobody can tell where something else has fallen meanwhile, or calls have changed.
  const double enough = trial.hope ? trial.cost_before : (1 - kAlike) * trial.cost_before;
  const bool helped = request != trial.request || falls_ != trial.falls || middle(costs_) < enough;
  if (trial.hope) {
    // What was right may be right again: it may be quicker yet.
    if (helped) {
      try_every_ns_ = kTryEvery;
      next_tried_ = *trial.hope;
    }
    try_at_ns_ = now_ns + (helped ? kTryAgain : try_every_ns_);
  } else {
    distrust_ns_ = helped ? kDistrust : std::min(2 * distrust_ns_, kMostDistrust);
    if (!helped) trusts_at_ns_ = now_ns + distrust_ns_;
  }
  // Going back is always allowed; the next change pays for it.
  if (!helped) {
    planned_ = std::move(trial.before);
    allowed_ -= 1;
  }
  costs_.clear();
  return !helped;
}

bool Replanner::observe(const TrafficEpoch& epoch, const forest::Request& request) {
  const bool told = learn(epoch);
  last_ns_ = epoch.time_ns;
  if (!told) return false;
  const std::int64_t now = epoch.time_ns;
  bool change = false;
  if (trial_) {
    if (--trial_->epochs_left == kTrialEpochs - 1) costs_.clear();
    const bool bad = trial_->hope && middle(costs_) > kMuchWorse * trial_->cost_before;
    if (trial_->epochs_left > 0 && !bad) return false;
    change = end_trial(now, request);
  } else if (worth_it(now, request)) {
    allowed_ -= price();
    begin_trial(request, estimate_, std::nullopt);
    change = true;
  } else if (try_one(now, request)) {
    allowed_ -= 1;
    change = true;
  }
  if (!change) return false;
  current_.reset();
  in_favour_ = 0;
  return true;
}

}  // namespace talweg::steer
