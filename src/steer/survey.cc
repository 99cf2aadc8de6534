#include "steer/survey.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/fail.h"

namespace talweg::steer {
namespace {

// Both ways of a port at once that lose less than this part share nothing worth knowing.
constexpr double kDuplex = 0.15;
// What is sent the slower way meanwhile, of what that carries, in one company and the other: acknowledgements
// of a way that is eight times as fast find room beside it.
constexpr double kSlowerWay[] = {0.5, 0.7};
// Rounds that a disturbance may have slowed: where they are more than this part of all, the network has.
constexpr double kFewRounds = 0.25;
// What a limit within another one says nothing new about.
constexpr double kSame = 0.9;
constexpr int kPortRepeats = 2;
// Trials of what is supposed, in `most_repeats`.
constexpr int kMostTests = 2;

// Each pair of hosts, one way and the other.
int one_way_rounds(int hosts) {
  if (hosts == 2) return 0;
  return hosts > Survey::kAllPairs ? Survey::kSampledRounds : 2 * (hosts - 1 + hosts % 2);
}

}  // namespace

Survey::Survey(int hosts, SurveyOptions options) : hosts_(hosts), options_(options) {
  if (hosts < 2 || hosts > kMostHosts) refuse("a survey is of 2 to {} hosts, not of {}", kMostHosts, hosts);
}

int Survey::expected_trials(int hosts) {
  const bool small = hosts > 2 && hosts <= kAllPairs;  // its shifts come first, and then all pairs, twice
  const int shifts = hosts == 2 ? 0 : std::min(hosts - 1, kSampledRounds) + (small && hosts % 2 == 0 ? 1 : 0);
  return (small ? 2 : 1) + shifts + 2 * kPortRepeats * hosts + one_way_rounds(hosts);
}

int Survey::most_trials(int hosts, const SurveyOptions& options) {
  const int repeats = options.most_repeats;
  const int meshes = hosts > 2 && hosts <= kAllPairs ? (hosts + 5) * repeats : 0;
  const int ports = 2 * hosts * repeats;
  const int rounds = 2 * (std::min(hosts - 1, kSampledRounds) + one_way_rounds(hosts));
  const int pairs = hosts == 2 ? 0 : std::min(hosts * (hosts - 1), kMostAlone) * repeats;
  // Of what is supposed: both ways of a port, and a way out of hosts, which has two parts and is measured on
  // until its rate is sure.
  const int both = hosts * kMostTests * repeats;
  const int ways = hosts < 4 ? 0 : 2 * hosts * ((kMostTests + 1) * repeats + 4);
  return 1 + meshes + ports + rounds + pairs + both + ways;
}

std::size_t Survey::most_flows(int hosts) {
  return static_cast<std::size_t>(hosts) * static_cast<std::size_t>(hosts <= kAllPairs ? hosts - 1 : 2);
}

const Trial* Survey::next() {
  while (queue_.empty() && stage_ != Stage::done) advance();
  return queue_.empty() ? nullptr : &series_[queue_.front()].trial;
}

void Survey::add(std::span<const double> rates, Haste haste) {
  series_[queue_.front()].repeats.emplace_back(rates.begin(), rates.end());
  queue_.pop_front();
  haste_ = std::max(haste_, haste);
}

Survey::Index Survey::make(std::vector<Flow> flows, int times) {
  series_.emplace_back().trial.flows = std::move(flows);
  for (int i = 0; i < times; ++i) queue_.push_back(series_.size() - 1);
  return series_.size() - 1;
}

void Survey::advance() {
  switch (stage_) {
    case Stage::start:
      if (hosts_ > 2 && hosts_ <= kAllPairs) {
        make_shifts();
        make_all_pairs();
        stage_ = Stage::apart;
      } else {
        make_first_look();
        stage_ = Stage::ports;
      }
      return;
    case Stage::apart:
      if (const Apart found = judge_apart(); found != Apart::unsure)
        stage_ = found == Apart::yes ? Stage::done : Stage::ports;
      return;
    case Stage::ports:
      make_ports();
      stage_ = Stage::ports_again;
      return;
    case Stage::ports_again:
      if (repeat_ports()) return;
      if (ports_are_no_limit()) make_one_way();
      stage_ = Stage::one_way;
      return;
    case Stage::one_way:
      stage_ = one_way_is_apart() ? Stage::done : Stage::both;
      return;
    case Stage::both:
      make_both();
      stage_ = Stage::both_again;
      return;
    case Stage::both_again:
      std::ranges::copy(judge_ports(), std::back_inserter(queue_));
      if (queue_.empty()) stage_ = hosts_ == 2 ? Stage::done : Stage::rounds;
      return;
    case Stage::rounds:
      make_rounds();
      stage_ = Stage::contradictions;
      return;
    case Stage::contradictions:
      doubt_ports();
      stage_ = Stage::doubts;
      return;
    case Stage::doubts:
      judge_ports();
      doubt_rounds(kFewRounds);
      stage_ = Stage::sharing;
      return;
    case Stage::sharing:
      if (share()) return;
      doubt_rounds(1);
      stage_ = Stage::pairs;
      return;
    case Stage::pairs:
      make_pairs();
      stage_ = Stage::pairs_again;
      return;
    case Stage::pairs_again:
      if (repeat_pairs()) return;
      judge_pairs();
      forget_refuted();
      stage_ = Stage::sharing_again;
      return;
    case Stage::sharing_again:
      if (!share()) stage_ = Stage::done;
      return;
    case Stage::done:
      return;
  }
}

bool Survey::unsure(const Estimate& rate, Index series) const {
  const std::size_t repeats = series_[series].repeats.size();
  if (repeats < 2) return true;
  return haste_ == Haste::none && rate.half_width > options_.confidence && few_repeats(series);
}

bool Survey::few_repeats(Index series) const {
  return series_[series].repeats.size() < static_cast<std::size_t>(options_.most_repeats);
}

// What the flows of this trial reached together, each time.
std::vector<double> Survey::totals(Index series) const {
  std::vector<double> sums;
  for (const auto& rates : series_[series].repeats)
    sums.push_back(std::accumulate(rates.begin(), rates.end(), 0.0));
  return sums;
}

Estimate Survey::total(Index series) const {
  return estimate(totals(series));
}

// What they would reach together by all that is known.
double Survey::apart(Index series) const {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const Trial& trial = series_[series].trial;
  std::vector<double> most;
  for (std::size_t f = 0; f < trial.flows.size(); ++f) {
    const PairValue* pair = measured_alone(trial.flows[f]);
    const double paced = trial.most.empty() || trial.most[f] <= 0 ? kNoLimit : trial.most[f];
    most.push_back(std::min(paced, pair == nullptr ? kNoLimit : pair->rate.value));
  }
  const std::vector<double> rates = fair_rates(trial.flows, known_, most);
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// The most that passed this in any trial.
double Survey::carried(const Bottleneck& bottleneck) const {
  double most = 0;
  for (const Series& s : series_)
    for (const auto& rates : s.repeats) {
      double sum = 0;
      for (std::size_t f = 0; f < rates.size(); ++f)
        if (bottleneck.carries(s.trial.flows[f])) sum += rates[f];
      most = std::max(most, sum);
    }
  return most;
}

// Ports are what is measured several times whatever comes of it.
Noise Survey::noise() const {
  std::vector<std::vector<double>> repeats;
  for (const auto* ports : {&out_, &in_})
    for (const Index port : *ports) repeats.push_back(totals(port));
  return noise_of(repeats);
}

Standard Survey::standard(double least) const {
  return {least, 2 * hosts_, kMostTests * options_.most_repeats};
}

void Survey::make_ports() {
  pairs_.clear();
  for (int h = 0; h < hosts_; ++h) {
    std::vector<Flow> out, in;
    for (int other = 0; other < hosts_; ++other) {
      if (other == h) continue;
      out.push_back({h, other});
      in.push_back({other, h});
    }
    out_.push_back(make(std::move(out), 1));
    in_.push_back(make(std::move(in), 1));
  }
  // Not at once: what disturbs one measurement has often gone by the next round.
  for (int repeat = 1; repeat < kPortRepeats; ++repeat)
    for (int h = 0; h < hosts_; ++h) queue_.insert(queue_.end(), {out_[host(h)], in_[host(h)]});
}

bool Survey::repeat_ports() {
  for (int h = 0; h < hosts_; ++h)
    for (const Index port : {out_[host(h)], in_[host(h)]})
      if (unsure(total(port), port)) queue_.push_back(port);
  return !queue_.empty();
}

void Survey::make_both() {
  for (int h = 0; h < hosts_; ++h) {
    both_.emplace_back();
    for (const double part : kSlowerWay) both_.back().push_back(make_both_at(h, part));
  }
}

// A full queue of data delays the acknowledgements that wait in it, and so what they acknowledge: with its
// way out full, a host would receive as if its two ways shared something. The slower way is therefore not
// full.
Survey::Index Survey::make_both_at(int h, double part) {
  const bool out_is_slower = total(out_[host(h)]).value <= total(in_[host(h)]).value;
  Trial trial;
  const auto send = [&](Index series, bool slower) {
    const Observation seen = observed(series);
    const double sum = std::accumulate(seen.rates.begin(), seen.rates.end(), 0.0);
    for (std::size_t f = 0; f < seen.flows.size(); ++f) {
      trial.flows.push_back(seen.flows[f]);
      trial.most.push_back(slower && sum > 0 ? part * total(series).value * seen.rates[f] / sum : 0);
    }
  };
  send(out_[host(h)], out_is_slower);
  send(in_[host(h)], !out_is_slower);
  const Index both = make(std::move(trial.flows), 0);
  series_[both].trial.most = std::move(trial.most);
  return both;
}

// That the two ways of a host's port share something.
Supposition Survey::both_supposition(int h) const {
  Supposition supposed;
  for (const Index both : both_[host(h)]) supposed.companies.push_back({apart(both), totals(both)});
  supposed.in_parts = out_rate_[host(h)].value + in_rate_[host(h)].value;  // ports, each one way
  supposed.times_in_parts = kPortRepeats;
  supposed.carried = carried({only(hosts_, h), only(hosts_, h), true, 0});
  return supposed;
}

// What ports carry. Hosts are taken in the order of how evident it is that their two ways share something:
// where one of few others does, less is to be expected of a host that does not. Returned is what is still to
// be measured.
std::vector<Survey::Index> Survey::judge_ports() {
  known_.clear();
  out_rate_.clear();
  in_rate_.clear();
  for (int h = 0; h < hosts_; ++h) {
    out_rate_.push_back(total(out_[host(h)]));
    in_rate_.push_back(total(in_[host(h)]));
    known_.push_back({only(hosts_, h), all(hosts_), false, out_rate_.back().value});
    known_.push_back({all(hosts_), only(hosts_, h), false, in_rate_.back().value});
  }
  both_rate_.assign(host(hosts_), std::nullopt);
  both_doubt_ = 0;
  std::vector<double> part;
  for (const auto& both : both_) {
    const double expected = apart(both[0]), reached = fastest(totals(both[0])).value;
    part.push_back(reached > 0 && expected > 0 ? reached / expected : 1);
  }
  std::vector<int> order(host(hosts_));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int h) { return part[host(h)]; });
  const Noise noisy = noise();
  std::vector<Index> wanted;
  for (const int h : order) {
    const Judgement found = judge(both_supposition(h), noisy, standard(kDuplex));
    if (found.verdict == Judgement::Verdict::unsure)
      wanted.push_back(both_[host(h)][found.company.value_or(0)]);
    if (found.verdict != Judgement::Verdict::shared) continue;
    both_rate_[host(h)] = found.capacity;
    both_doubt_ += found.doubt;
    known_.push_back({only(hosts_, h), only(hosts_, h), true, found.capacity.value});
  }
  return wanted;
}

// Where pairs have limits of their own, ports may be only the sum of those: then what a pair reached in
// rounds is closer to its limit than its ports are.
void Survey::add_free_pairs(Findings& found) const {
  for (int i = 0; i < hosts_; ++i)
    for (int j = 0; j < hosts_; ++j) {
      const Flow flow{i, j};
      if (i == j || both_rate_[host(i)] || both_rate_[host(j)]) continue;
      if (const PairValue* pair = measured_alone(flow)) {
        if (pair->rate.value >= kFull * ports(flow) && pair->rate.value < ports(flow))
          found.pairs.push_back({flow, pair->rate});
        continue;
      }
      const Estimate rate = fastest(in_rounds(flow));
      if (rate.value > 0 && rate.value < ports(flow)) found.pairs.push_back({flow, rate});
    }
}

Findings Survey::findings() const {
  Findings found;
  found.hosts = hosts_;
  found.out = out_rate_;
  found.in = in_rate_;
  found.both = both_rate_;
  const std::vector<Uplink> known_uplinks = uplinks();
  for (const Uplink& u : known_uplinks) {
    Findings::Uplink uplink{{}, u.leaving, u.entering};
    for (int h = 0; h < hosts_; ++h)
      if (u.inside[host(h)]) uplink.inside.push_back(h);
    found.uplinks.push_back(std::move(uplink));
  }
  for (const PairValue& pair : pairs_) {
    const bool limited = pair.rate.value < kFull * ports(pair.flow);
    const bool by_uplink = std::ranges::any_of(known_uplinks, [&](const Uplink& u) {
      const bool from = u.inside[host(pair.flow.from)], to = u.inside[host(pair.flow.to)];
      const auto& rate = from ? u.leaving : u.entering;
      return from != to && rate && pair.rate.value >= kSame * rate->value;
    });
    if (limited && !by_uplink) found.pairs.push_back({pair.flow, pair.rate});
  }
  if (!found.pairs.empty()) add_free_pairs(found);
  const auto widen = [&](const std::optional<Estimate>& e) {
    if (e) found.confidence = std::max(found.confidence, e->half_width);
  };
  for (int h = 0; h < hosts_; ++h)
    for (const auto& e :
         {std::optional(out_rate_[host(h)]), std::optional(in_rate_[host(h)]), both_rate_[host(h)]})
      widen(e);
  for (const auto& pair : found.pairs) widen(pair.rate);
  for (const auto& uplink : found.uplinks) {
    widen(uplink.leaving);
    widen(uplink.entering);
  }
  found.doubt = both_doubt_;
  for (const Way& way : ways_) found.doubt += way.doubt;
  for (const Series& s : series_) found.trials += static_cast<int>(s.repeats.size());
  for (const Observation& seen : observed_rounds())
    found.unexplained_flows += static_cast<int>(unexplained(seen, known_).size());
  found.unmeasured_pairs = unmeasured_pairs_;
  return found;
}

}  // namespace talweg::steer
