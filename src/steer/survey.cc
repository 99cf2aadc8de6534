#include "steer/survey.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/fail.h"

namespace talweg::steer {
namespace {

// Both directions at once that reach less than this part of what is sent share something.
constexpr double kDuplex = 0.85;
// Of what a port carries: what is sent through it both ways at once, less what acknowledgements of the other
// way may take, at least kHalf.
constexpr double kRoom = 0.9, kHalf = 0.5;
// What a limit within another one says nothing new about.
constexpr double kSame = 0.9;
constexpr int kPortRepeats = 2;

}  // namespace

Survey::Survey(int hosts, SurveyOptions options) : hosts_(hosts), options_(options) {
  if (hosts < 2 || hosts > kMostHosts) refuse("a survey is of 2 to {} hosts, not of {}", kMostHosts, hosts);
}

int Survey::expected_trials(int hosts) {
  const int rounds = hosts == 2 ? 0 : std::min(hosts - 1, kSampledRounds) + std::min(hosts, kSampledRounds);
  return (hosts > 2 && hosts <= kAllPairs ? 2 : 1) + (2 * kPortRepeats + 1) * hosts + rounds +
         (hosts > 2 && hosts <= kAllPairs ? std::min(hosts - 1, kSampledRounds) : 0);
}

int Survey::most_trials(int hosts, const SurveyOptions& options) {
  const int apart = hosts > 2 && hosts <= kAllPairs ? hosts * options.most_repeats : 0;
  const int ports = 3 * hosts * options.most_repeats;
  const int rounds = expected_trials(hosts) - 1 - (2 * kPortRepeats + 1) * hosts;
  const int pairs = hosts == 2 ? 0 : std::min(hosts * (hosts - 1) / 2, kMostPairs);
  const int uplinks = hosts < 4 ? 0 : 2 * hosts;  // a supposition each, and each way
  return 1 + apart + ports + 2 * rounds + (2 * pairs + uplinks) * options.most_repeats;
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
      if (const Apart apart = judge_apart(); apart != Apart::unsure)
        stage_ = apart == Apart::yes ? Stage::done : Stage::ports;
      return;
    case Stage::ports:
      make_ports();
      stage_ = Stage::ports_again;
      return;
    case Stage::ports_again:
      if (repeat_ports()) return;
      stage_ = Stage::both;
      return;
    case Stage::both:
      make_both();
      stage_ = Stage::both_again;
      return;
    case Stage::both_again:
      if (repeat_both()) return;
      judge_ports();
      stage_ = hosts_ == 2 ? Stage::done : Stage::rounds;
      return;
    case Stage::rounds:
      make_rounds();
      stage_ = Stage::contradictions;
      return;
    case Stage::contradictions:
      doubt_ports();
      stage_ = Stage::pairs;
      return;
    case Stage::pairs:
      judge_ports();
      make_pairs();
      stage_ = Stage::pairs_again;
      return;
    case Stage::pairs_again:
      if (repeat_pairs()) return;
      judge_pairs();
      stage_ = Stage::doubts;
      return;
    case Stage::doubts:
      doubt_rounds();
      stage_ = Stage::sharing;
      return;
    case Stage::sharing:
      share();
      return;
    case Stage::ways:
      if (!measure_ways()) stage_ = Stage::done;
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

Estimate Survey::total(Index series) const {
  std::vector<double> sums;
  for (const auto& rates : series_[series].repeats)
    sums.push_back(std::accumulate(rates.begin(), rates.end(), 0.0));
  return estimate(std::move(sums));
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

// A full queue of data delays the acknowledgements that wait in it, and so what they acknowledge: a host with
// a slow way out would receive as if its two ways shared something.
void Survey::make_both() {
  for (int h = 0; h < hosts_; ++h) {
    Trial trial;
    const double out = total(out_[host(h)]).value, in = total(in_[host(h)]).value;
    const auto send = [&](Index series, double rate, double back) {
      const Observation seen = observed(series);
      const double part = std::max(kHalf, kRoom - kAcknowledgements * back / rate) * rate /
                          std::accumulate(seen.rates.begin(), seen.rates.end(), 0.0);
      for (std::size_t f = 0; f < seen.flows.size(); ++f) {
        trial.flows.push_back(seen.flows[f]);
        trial.most.push_back(part * seen.rates[f]);
      }
    };
    send(out_[host(h)], out, in);
    send(in_[host(h)], in, out);
    both_.push_back(make(std::move(trial.flows), 1));
    series_[both_.back()].trial.most = std::move(trial.most);
  }
}

// What is sent through its port both ways at once.
double Survey::offered(int h) const {
  const std::vector<double>& most = series_[both_[host(h)]].trial.most;
  return std::accumulate(most.begin(), most.end(), 0.0);
}

bool Survey::repeat_both() {
  for (int h = 0; h < hosts_; ++h) {
    const Index port = both_[host(h)];
    const Estimate both = total(port);
    // Rare, and easily mistaken: a busy host is slow both ways at once.
    const bool suspect = both.value < kDuplex * offered(h);
    if (suspect && (unsure(both, port) || (haste_ == Haste::none && few_repeats(port))))
      queue_.push_back(port);
  }
  return !queue_.empty();
}

// Hosts are taken in the order of how evident it is that their two ways share something: where one of few
// others does, less is to be expected of a host that does not.
void Survey::judge_ports() {
  known_.clear();
  out_rate_.clear();
  in_rate_.clear();
  both_rate_.clear();
  std::vector<Estimate> both;
  for (int h = 0; h < hosts_; ++h) {
    out_rate_.push_back(total(out_[host(h)]));
    in_rate_.push_back(total(in_[host(h)]));
    both.push_back(total(both_[host(h)]));
  }
  both_rate_.resize(host(hosts_));
  const auto part = [&](int h) { return both[host(h)].value / offered(h); };
  std::vector<int> order(host(hosts_));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return part(a) < part(b); });
  for (const int h : order) {
    double others = 0;
    for (int o = 0; o < hosts_; ++o) {
      if (o == h) continue;
      const double two_ways = std::min(out_rate_[host(h)].value, in_rate_[host(o)].value) +
                              std::min(out_rate_[host(o)].value, in_rate_[host(h)].value);
      others += both_rate_[host(o)] ? std::min(two_ways, both_rate_[host(o)]->value) : two_ways;
    }
    const double expected = std::min(offered(h), others);
    const bool sure = both[host(h)].agreeing >= 2 && both[host(h)].half_width < (1 - kDuplex) / 2;
    if (sure && both[host(h)].value < kDuplex * expected) both_rate_[host(h)] = both[host(h)];
  }
  for (int h = 0; h < hosts_; ++h) {
    known_.push_back({only(hosts_, h), all(hosts_), false, out_rate_[host(h)].value});
    known_.push_back({all(hosts_), only(hosts_, h), false, in_rate_[host(h)].value});
    if (both_rate_[host(h)])
      known_.push_back({only(hosts_, h), only(hosts_, h), true, both_rate_[host(h)]->value});
  }
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
  for (const Uplink& u : uplinks_) {
    Findings::Uplink uplink{{}, u.leaving_rate, u.entering_rate};
    for (int h = 0; h < hosts_; ++h)
      if (u.inside[host(h)]) uplink.inside.push_back(h);
    found.uplinks.push_back(std::move(uplink));
  }
  for (const PairValue& pair : pairs_) {
    const bool limited = pair.rate.value < kFull * ports(pair.flow);
    const bool by_uplink = std::ranges::any_of(uplinks_, [&](const Uplink& u) {
      const bool from = u.inside[host(pair.flow.from)], to = u.inside[host(pair.flow.to)];
      const auto& rate = from ? u.leaving_rate : u.entering_rate;
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
  for (const Series& s : series_) found.trials += static_cast<int>(s.repeats.size());
  for (const Observation& seen : observed_rounds())
    found.unexplained_flows += static_cast<int>(unexplained(seen, known_).size());
  found.unmeasured_pairs = unmeasured_pairs_;
  return found;
}

}  // namespace talweg::steer
