#include "steer/replanner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/at.h"
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

// In any quarter of an hour, one change a minute. About half of them at once: hosts may become slow one soon
// after the other.
constexpr double kChangesAtOnce = 8;
constexpr double kAnotherChange = 900 / (15 - kChangesAtOnce);  // seconds
// Every change is on trial, and so is every probe. Drops do not come first: where noise has used the ration
// up, following more of it is worth less than seeing what is no longer slow.
constexpr double kThereAndBack = 2;
// What is left of the ration is dearer: below this, a change has to save as many times more as it is less.
// One that is made for a dip leaves none for what lasts.
constexpr double kPlenty = kChangesAtOnce / 2;

// Seconds, doubled each time.
constexpr double kFirstWait = 60;
constexpr double kLongestWait = 32 * kFirstWait;

constexpr std::size_t kMostCandidates = 32;  // calls: far more than a job's gradients have buckets

constexpr std::size_t kLooks = 3;  // epochs: one alone may be wrong

// In bit/s, whatever ranks report: rates that a network can have, and planners take.
constexpr double kLeastRate = 1e3;
constexpr double kMostRate = 1e15;

// To this part of what it was given what is slower is raised, where that costs next to nothing; or to half
// of it, and so on.
constexpr double kRelaxed = 0.5;
constexpr double kLeastRelaxed = kRelaxed / 8;
// What one that is quick is loaded with: so little that it is seen not to be full.
constexpr double kSpared = kNearlyAll - kAlike;
constexpr double kWitnessCost = 1. / 3;  // at most, of what a change has to gain

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

std::shared_ptr<const forest::Forest> share(forest::Forest forest) {
  return std::make_shared<const forest::Forest>(std::move(forest));
}

// What they take per byte can be compared, as that of the buckets of a job's gradients.
bool alike(const forest::Request& a, const forest::Request& b) {
  const auto bytes = [](const forest::Request& r) {
    return std::accumulate(r.counts.begin(), r.counts.end(), 0.) * static_cast<double>(r.element_size);
  };
  return a.op == b.op && a.root == b.root && bytes(a) <= 2 * bytes(b) && bytes(b) <= 2 * bytes(a);
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
      routes_(std::make_shared<const cluster::Routes>(given_)),
      planned_(given_),
      believed_(given_),
      estimate_(given_),
      groups_of_link_(given_.links.size()) {
  for (std::size_t g = 0; g < given_.groups.size(); ++g)
    for (const int link : given_.groups[g].links)
      groups_of_link_[at(link)].push_back(given_.links.size() + g);
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
  std::rotate(seen.begin(), seen.begin() + 1, seen.end());
  seen.back() = std::clamp(bits_per_second, kLeastRate, kMostRate);
  set_capacity(estimate_, resource, middle(seen));
}

std::vector<Replanner::Share> Replanner::resources_of(const EdgeTraffic& edge) const {
  std::vector<Share> result;
  routes_->for_each_share(edge.from, edge.to, [&](int link, double part) {
    result.push_back({at(link), part});
    for (const std::size_t group : groups_of_link_[at(link)]) {
      const auto known = std::ranges::find(result, group, &Share::resource);
      if (known == result.end())
        result.push_back({group, part});
      else
        known->part += part;
    }
  });
  return result;
}

// Sets the links that another one stands for to what that one has.
void Replanner::keep_alike(cluster::Cluster& network) const {
  for (std::size_t l = 0; l < network.links.size(); ++l)
    network.links[l].capacity = network.links[at(routes_->leader(static_cast<int>(l)))].capacity;
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
  if (costs_.size() > kLooks) costs_.pop_front();

  std::vector<Use> uses(estimate_.links.size() + estimate_.groups.size());
  for (const EdgeTraffic& edge : edges) {
    for (const auto& [r, part] : resources_of(edge)) {
      uses[r].bytes += part * edge.bytes;
      uses[r].busy = std::max(uses[r].busy, edge.busy);
      uses[r].idlest = std::min(uses[r].idlest, edge.busy);
      uses[r].weighted += part * edge.bytes * edge.busy;
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
    std::vector<std::size_t> route, reasons;
    for (const Share& share : resources_of(edge)) route.push_back(share.resource);
    for (const std::size_t r : route)
      if (carried(r, length) >= kNearlyAll * capacity(estimate_, r)) reasons.push_back(r);
    if (reasons.size() == 1) full[reasons[0]] = alone[reasons[0]] = true;
    for (const std::size_t r : reasons) suspect[r] = true;
    if (!reasons.empty() || route.empty()) continue;
    const auto load = [&](std::size_t r) { return carried(r, length) / capacity(estimate_, r); };
    // Below 0: `a` is less likely to be the reason; 0: nobody can tell.
    const auto compare = [&](std::size_t a, std::size_t b) {
      const double more = busyness(a) - busyness(b);
      if (std::abs(more) > kAlike) return more;
      if (uses[a].edges != uses[b].edges) return static_cast<double>(uses[a].edges - uses[b].edges);
      const double nearer = load(a) / load(b) - 1;
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

  const bool probing = trial_ && trial_->kind == Trial::Kind::probe;
  for (std::size_t r = 0; r < uses.size(); ++r) {
    Memory& m = memories_[r];
    const bool was_alone = std::exchange(m.full_alone, full[r] && alone[r]);
    if (uses[r].edges == 0) continue;
    const double was = capacity(estimate_, r), given = capacity(given_, r);
    const double seen = carried(r, length);
    if (probing && trial_->begun && m.full_alone && was < kNearlyAll * given) m.still_slow = true;
    // What carries all that it is thought to, and has room, can carry more.
    const bool room = !full[r] && uses[r].idlest < kNearlyAll * length;
    const bool more = room && seen > (1 - kAlike) * was;
    m.recovered = room && (m.recovered || (was_alone && more));
    if (m.recovered) m.seen.fill(given);
    const double least = suspect[r] || (probing && !more) ? was : capacity(believed_, r);
    saw(r, full[r] ? carried(r, uses[r].busy) : std::max(seen, least));
  }
  keep_alike(estimate_);
  return true;
}

// How many trees there are hardly matters to the time, and finding few would take as long as an epoch.
forest::Forest Replanner::best_plan(const forest::Request& request, const forest::CostModel& model) const {
  forest::PackingMemo quick(forest::Trees::any);
  return forest::plan_at_once(request, model, quick, limit_).forest;
}

// What is slow is raised to as much of what it was given as plans bear, and a witness is spared.
cluster::Cluster Replanner::to_plan_for(const forest::Request& request,
                                        const cluster::Cluster& network) const {
  const forest::CostModel model(network);
  const auto seconds = [&](const cluster::Cluster& as_if) {
    return model.seconds(best_plan(request, forest::CostModel(as_if)));
  };
  const double least = seconds(network);
  cluster::Cluster result = network;
  for (double part = kRelaxed; part >= kLeastRelaxed; part /= 2) {
    cluster::Cluster raised = network;
    for (std::size_t r = 0; r < memories_.size(); ++r)
      set_capacity(raised, r, std::max(capacity(network, r), part * capacity(given_, r)));
    if (seconds(raised) > (1 + kAlike) * least) continue;
    result = std::move(raised);
    break;
  }
  const auto slow = [&](std::size_t r) { return capacity(network, r) < kNearlyAll * capacity(given_, r); };
  bool any = false;
  for (std::size_t r = 0; r < memories_.size(); ++r) any = any || slow(r);
  for (int witness = 0; any && witness < given_.workers(); ++witness) {
    bool needed = false, quick = true;
    for (int other = 0; other < given_.workers(); ++other)
      for (const EdgeTraffic& edge : {EdgeTraffic{witness, other}, EdgeTraffic{other, witness}})
        needed = needed || std::ranges::any_of(resources_of(edge), slow, &Share::resource);
    cluster::Cluster spared = result;
    for (std::size_t l = 0; l < given_.links.size(); ++l) {
      if (given_.links[l].from != witness && given_.links[l].to != witness) continue;
      quick = quick && !slow(l);
      set_capacity(spared, l, kSpared * capacity(result, l));
    }
    if (!needed || !quick) continue;
    return seconds(spared) <= (1 + kWitnessCost * options_.threshold) * least ? spared : result;
  }
  return result;
}

void Replanner::plan_for(const forest::Request& request, cluster::Cluster network) {
  believed_ = std::move(network);
  planned_ = to_plan_for(request, believed_);
  allowed_ -= 1;
}

// A job's largest calls may differ from epoch to epoch, as the buckets of its gradients do.
Replanner::Candidate& Replanner::candidate(const forest::Request& request) {
  const auto known =
      std::ranges::find_if(candidates_, [&](const Candidate& c) { return c.current->request == request; });
  if (known != candidates_.end()) {
    std::rotate(known, known + 1, candidates_.end());
    return candidates_.back();
  }
  if (candidates_.size() == kMostCandidates) candidates_.erase(candidates_.begin());
  forest::PackingMemo packings;
  candidates_.push_back(
      {share(forest::plan_at_once(request, forest::CostModel(planned_), packings, limit_).forest), nullptr,
       believed_});
  return candidates_.back();
}

bool Replanner::worth_it(const forest::Request& request) {
  Candidate& call = candidate(request);
  bool news = false;
  for (std::size_t r = 0; r < memories_.size(); ++r)
    news = news || std::abs(capacity(estimate_, r) / capacity(call.considered, r) - 1) > kAlike;
  if (!call.better && !news) {
    saved_ = 0;
    return false;
  }
  const forest::CostModel model(estimate_);
  const auto gain = [&](const forest::Forest& plan) {
    return std::max(0., 1 - model.seconds(plan) / model.seconds(*call.current));
  };
  if (call.better && gain(*call.better) <= options_.threshold) {
    call.better.reset();
    saved_ = 0;
  }
  if (news) {
    call.considered = estimate_;
    // First with one plan, since most news gains nothing, and what plans would be made for takes several.
    if (gain(best_plan(request, model)) > options_.threshold) {
      forest::Forest best = best_plan(request, forest::CostModel(to_plan_for(request, estimate_)));
      if (gain(best) > options_.threshold) call.better = share(std::move(best));
    }
  }
  saved_ = call.better ? saved_ + gain(*call.better) * length_ : 0;
  if (allowed_ < kThereAndBack || now_ < changes_.until) return false;
  return saved_ >= kPrice * std::max(1., kPlenty / allowed_);
}

// All that plans take to be slow and that no probe has shown to be slow still; or, where that would not
// change plans, the first half of it, and so on.
std::optional<cluster::Cluster> Replanner::probe(const forest::Request& request) {
  if (allowed_ < kThereAndBack || now_ < probes_.until) return std::nullopt;
  std::vector<std::size_t> slow;
  for (std::size_t r = 0; r < memories_.size(); ++r) {
    if (r < given_.links.size() && at(routes_->leader(static_cast<int>(r))) != r) continue;
    const double enough = kNearlyAll * capacity(given_, r);
    const bool known = memories_[r].still_slow || memories_[r].full_alone;
    if (!known && capacity(estimate_, r) < enough) slow.push_back(r);
  }
  for (; !slow.empty(); slow.resize(slow.size() / 2)) {
    cluster::Cluster quick = estimate_;
    for (const std::size_t r : slow) set_capacity(quick, r, capacity(given_, r));
    keep_alike(quick);
    const forest::CostModel model(quick);
    const double gain =
        1 - model.seconds(best_plan(request, model)) / model.seconds(*candidate(request).current);
    if (gain > options_.threshold) return quick;
  }
  for (Memory& m : memories_) m.still_slow = false;
  probes_.fail(now_);
  return std::nullopt;
}

void Replanner::begin_trial(const forest::Request& request, cluster::Cluster network, Trial::Kind kind) {
  trial_ = Trial{kind, believed_, request};
  plan_for(request, std::move(network));
}

// What plans go back to: for what the trial tried, what was believed before, unless that has proved to be
// more; for all else, no more than is known now.
cluster::Cluster Replanner::to_go_back_to(const Trial& trial) const {
  cluster::Cluster result = trial.believed;
  for (std::size_t r = 0; r < memories_.size(); ++r) {
    const double old = capacity(trial.believed, r), now = capacity(estimate_, r);
    const bool tried = std::abs(capacity(believed_, r) / old - 1) > kAlike;
    set_capacity(result, r, tried ? std::max(old, now) : std::min(old, now));
  }
  return result;
}

// After an epoch. True when plans change again.
bool Replanner::end_trial(const forest::Request& request) {
  if (!std::exchange(trial_->begun, true)) {  // this one was of the plans before, the last one
    trial_->cost = middle(costs_);
    costs_.clear();
  }
  if (costs_.size() < kLooks) return false;
  const Trial trial = *std::exchange(trial_, std::nullopt);
  const double change = middle(costs_) / trial.cost - 1;
  const bool same_calls = alike(request, trial.request);
  bool fell = false;  // something that plans do not avoid: what the trial raised, or never touched
  for (std::size_t r = 0; r < memories_.size(); ++r) {
    const bool lowered = capacity(believed_, r) < (1 - kAlike) * capacity(trial.believed, r);
    fell = fell || (!lowered && capacity(estimate_, r) < (1 - options_.threshold) * capacity(believed_, r));
  }
  switch (trial.kind) {
    case Trial::Kind::probe:
      probes_.until = now_ + probes_.wait;
      if (change < -kAlike) return false;
      plan_for(request, to_go_back_to(trial));
      return true;
    case Trial::Kind::change:
      if (change < -kAlike || fell || !same_calls) {  // nobody can tell where something else has changed
        changes_ = {};
        probes_.restart(now_);
        return false;
      }
      begin_trial(request, to_go_back_to(trial), Trial::Kind::way_back);
      return true;
    case Trial::Kind::way_back:
      if (change <= kAlike || !same_calls || allowed_ < 1) {
        changes_.fail(now_);
        return false;
      }
      changes_ = {};
      probes_.restart(now_);
      plan_for(request, estimate_);
      return true;
  }
  return false;
}

bool Replanner::observe(const TrafficEpoch& epoch, const forest::Request& request,
                        const forest::WorkLimit* limit) {
  limit_ = limit;
  if (!learn(epoch)) return false;
  if (first_ns_ < 0) first_ns_ = epoch.time_ns;
  const double last = std::exchange(now_, static_cast<double>(epoch.time_ns - first_ns_) * 1e-9);
  allowed_ = std::min(kChangesAtOnce, allowed_ + (now_ - last) / kAnotherChange);
  bool change = false;
  if (trial_) {
    change = end_trial(request);
  } else {
    if (worth_it(request)) {
      begin_trial(request, estimate_, Trial::Kind::change);
      change = true;
    } else if (auto quick = probe(request)) {
      begin_trial(request, std::move(*quick), Trial::Kind::probe);
      change = true;
    }
  }
  if (!change) return false;
  candidates_.clear();
  saved_ = 0;
  return true;
}

}  // namespace talweg::steer
