// Survey, third part: rounds of flows between disjoint hosts, and pairs that are measured alone.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "steer/survey.h"

namespace talweg::steer {
namespace {

// So many measurements, in other company each, make a limit of a pair.
constexpr int kPairBelieved = 3;
constexpr int kPairLikely = 2;
constexpr std::uint64_t kRelabelSeed = 7;

std::vector<int> in_order(int n) {
  std::vector<int> list(static_cast<std::size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// Host h at place `label[h]` sends to the one that is `step` places further.
std::vector<Flow> shifted(const std::vector<int>& label, int step) {
  const auto n = label.size();
  std::vector<Flow> flows;
  for (std::size_t p = 0; p < n; ++p)
    flows.push_back({label[p], label[(p + static_cast<std::size_t>(step)) % n]});
  return flows;
}

// Disjoint pairs, both ways at once: i with (sum - i) mod n.
std::vector<Flow> reflected(int n, int sum) {
  std::vector<Flow> flows;
  for (int i = 0; i < n; ++i)
    if (const int j = (sum - i + n) % n; j != i) flows.push_back({i, j});
  return flows;
}

// All of first .. last, or a sample of them.
std::vector<int> spread(int first, int last, int most) {
  const int count = last - first + 1;
  std::vector<int> list;
  for (int i = 0; i < std::min(count, most); ++i) list.push_back(first + i * count / std::min(count, most));
  return list;
}

}  // namespace

// So that whoever runs trials knows how much to send; nothing is concluded from it.
void Survey::make_first_look() {
  make(shifted(in_order(hosts_), 1), 1);
}

void Survey::make_shifts() {
  for (const int step : spread(1, hosts_ - 1, kSampledRounds))
    rounds_.push_back(make(shifted(in_order(hosts_), step), 1));
}

void Survey::make_all_pairs() {
  std::vector<Flow> flows;
  for (int step = 1; step < hosts_; ++step)
    std::ranges::copy(shifted(in_order(hosts_), step), std::back_inserter(flows));
  all_pairs_ = make(std::move(flows), 1);
  series_[all_pairs_].trial.each = true;
}

// Every pair is in each kind of round once, every time in other company. Hosts of one rack are often numbered
// in a row, or in turn: then some shift and some reflection sends everything across. The third kind is for
// those that are not.
void Survey::make_rounds() {
  if (rounds_.empty()) make_shifts();
  for (const int sum : spread(0, hosts_ - 1, kSampledRounds))
    rounds_.push_back(make(reflected(hosts_, sum), 1));
  if (hosts_ > kAllPairs) return;
  std::vector<int> label = in_order(hosts_);
  Random random(kRelabelSeed);
  for (std::size_t i = label.size() - 1; i > 0; --i)
    std::swap(label[i], label[static_cast<std::size_t>(random.below(i + 1))]);
  for (const int step : spread(1, hosts_ - 1, kSampledRounds))
    rounds_.push_back(make(shifted(label, step), 1));
}

// A single flow that is faster than a port was measured to be: that port was disturbed each time.
void Survey::doubt_ports() {
  if (haste_ != Haste::none) return;
  std::vector<Index> again;
  const auto doubt = [&](Index port, double flow) {
    const double rate = total(port).value;
    if (flow > rate / kFull && std::ranges::find(again, port) == again.end()) again.push_back(port);
  };
  for (const Observation& seen : observed_rounds())
    for (std::size_t f = 0; f < seen.flows.size(); ++f) {
      doubt(out_[host(seen.flows[f].from)], seen.rates[f]);
      doubt(in_[host(seen.flows[f].to)], seen.rates[f]);
    }
  for (const Index port : again)
    for (int repeat = static_cast<int>(series_[port].repeats.size()); repeat < options_.most_repeats;
         ++repeat)
      queue_.push_back(port);
}

Observation Survey::observed(Index series) const {
  const Series& s = series_[series];
  Observation seen{s.trial.flows, std::vector<double>(s.trial.flows.size())};
  // The best that each reached: what only disturbed one repeat is no limit.
  for (const auto& rates : s.repeats)
    for (std::size_t f = 0; f < rates.size(); ++f) seen.rates[f] = std::max(seen.rates[f], rates[f]);
  return seen;
}

std::vector<Observation> Survey::observed_rounds() const {
  std::vector<Observation> list;
  for (const Index r : rounds_) list.push_back(observed(r));
  return list;
}

// Never as fast in rounds as its ports are; no flow is faster in company than alone.
bool Survey::slow_in_rounds(const Flow& flow) const {
  return fastest(in_rounds(flow)).value < kFull * ports(flow);
}

void Survey::make_pairs() {
  std::vector<Flow> slow;  // the lower host first
  for (const Observation& seen : observed_rounds())
    for (const std::size_t f : unexplained(seen, known_)) {
      const Flow pair{std::min(seen.flows[f].from, seen.flows[f].to),
                      std::max(seen.flows[f].from, seen.flows[f].to)};
      if (!slow_in_rounds(pair) && !slow_in_rounds({pair.to, pair.from})) continue;
      if (std::ranges::find(slow, pair) == slow.end()) slow.push_back(pair);
    }
  if (slow.size() > kMostPairs) {
    unmeasured_pairs_ = static_cast<int>(slow.size()) - kMostPairs;
    slow.resize(kMostPairs);
  }
  // What is the same in other company is most likely a limit of its own: good enough where time is over.
  const auto likely = [&](const Flow& flow) { return fastest(in_rounds(flow)).agreeing >= kPairLikely; };
  for (const Flow& pair : slow) {
    const Flow back{pair.to, pair.from};
    const int times = haste_ == Haste::finish && likely(pair) && likely(back) ? 0 : 1;
    // One way after the other: acknowledgements that wait behind data would slow both.
    for (const Flow& flow : {pair, back}) pairs_.push_back({flow, make({flow}, times), {}});
  }
}

// Rounds in which the flow was not held up count too: no flow is faster in company than alone.
Estimate Survey::pair_rate(const PairValue& pair) const {
  std::vector<double> values;
  for (const auto& rates : series_[pair.series].repeats) values.push_back(rates[0]);
  for (const double rate : in_rounds(pair.flow)) values.push_back(rate);
  return fastest(std::move(values));
}

std::vector<double> Survey::in_rounds(const Flow& flow) const {
  std::vector<double> values;
  for (const Index r : rounds_) {
    const auto& flows = series_[r].trial.flows;
    const auto found = std::ranges::find(flows, flow);
    if (found == flows.end()) continue;
    for (const auto& rates : series_[r].repeats)
      values.push_back(rates[static_cast<std::size_t>(found - flows.begin())]);
  }
  return values;
}

double Survey::ports(const Flow& flow) const {
  return std::min(out_rate_[host(flow.from)].value, in_rate_[host(flow.to)].value);
}

bool Survey::repeat_pairs() {
  std::vector<Index> again;
  for (PairValue& pair : pairs_) {
    pair.rate = pair_rate(pair);
    // What only seems slow is a disturbance more often than a limit: seen once it is none, whatever the
    // hurry.
    const bool slow = pair.rate.value < kFull * ports(pair.flow);
    const bool once = slow && pair.rate.agreeing < kPairLikely && haste_ != Haste::finish;
    const bool doubtful = slow && pair.rate.agreeing < kPairBelieved;
    const bool unsure = (doubtful || pair.rate.half_width > options_.confidence) && haste_ == Haste::none;
    const bool more = (once || unsure) && few_repeats(pair.series);
    if (more && std::ranges::find(again, pair.series) == again.end()) again.push_back(pair.series);
  }
  queue_.insert(queue_.end(), again.begin(), again.end());
  return !queue_.empty();
}

void Survey::judge_pairs() {
  for (const PairValue& pair : pairs_) {
    if (pair.rate.value < kFull * ports(pair.flow))
      known_.push_back({only(hosts_, pair.flow.from), only(hosts_, pair.flow.to), false, pair.rate.value});
  }
}

const Survey::PairValue* Survey::measured_alone(const Flow& flow) const {
  const auto pair = std::ranges::find_if(pairs_, [&](const PairValue& p) { return p.flow == flow; });
  return pair == pairs_.end() ? nullptr : &*pair;
}

double Survey::base(const Flow& flow) const {
  const PairValue* pair = measured_alone(flow);
  return pair != nullptr ? pair->rate.value : ports(flow);
}

}  // namespace talweg::steer
