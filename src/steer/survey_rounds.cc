// Survey, third part: rounds in which every flow has its ports for itself, and pairs that are measured alone.
#include <algorithm>
#include <iterator>
#include <utility>

#include "steer/survey.h"

namespace talweg::steer {
namespace {

// So many measurements, in other company each, make a limit of a pair.
constexpr int kPairBelieved = 3;
constexpr int kPairLikely = 2;

// Every host sends to the one that is `step` places further.
std::vector<Flow> shifted(int n, int step) {
  std::vector<Flow> flows;
  for (int h = 0; h < n; ++h) flows.push_back({h, (h + step) % n});
  return flows;
}

// Pairs of hosts, each host in one at most: every two meet in one of these, as in a tournament (the circle
// method: the last stands still, the others move on by one place). There are n - 1, or n if n is odd.
std::vector<Flow> matching(int n, int number) {
  const int circle = n - 1 + n % 2;
  std::vector<Flow> pairs;
  if (n % 2 == 0) pairs.push_back({number, n - 1});
  for (int k = 1; 2 * k <= circle - 1; ++k)
    pairs.push_back({(number + k) % circle, (number - k + circle) % circle});
  return pairs;
}

// One way: from the lower number to the higher one; by turns from even numbers to odd ones, where a pair has
// both. Hosts of one rack are often numbered in a row, or in turn: then everything goes out of one rack.
std::vector<Flow> directed(std::vector<Flow> pairs, bool from_even, bool back) {
  for (Flow& pair : pairs) {
    const bool mixed = from_even && pair.from % 2 != pair.to % 2;
    const bool right = mixed ? pair.from % 2 == 0 : pair.from < pair.to;
    if (right == back) std::swap(pair.from, pair.to);
  }
  return pairs;
}

// All of first .. last, or a sample of them.
std::vector<int> spread(int first, int last, int most) {
  const int count = last - first + 1;
  std::vector<int> list;
  for (int i = 0; i < std::min(count, most); ++i) list.push_back(first + i * count / std::min(count, most));
  return list;
}

}  // namespace

// So that whoever runs trials knows how much to send; only what it carried counts.
void Survey::make_first_look() {
  make(shifted(hosts_, 1), 1);
}

// Half-way round the flows of a shift are pairs both ways, whose acknowledgements wait where a pair has a
// limit of its own: they run one way and then the other. By turns the lower host sends first.
void Survey::make_shifts() {
  for (const int step : spread(1, hosts_ - 1, kSampledRounds)) {
    std::vector<Flow> flows = shifted(hosts_, step);
    if (2 * step == hosts_ && hosts_ <= kAllPairs) {
      const auto back = std::stable_partition(flows.begin(), flows.end(), [](const Flow& flow) {
        return (flow.from < flow.to) == (std::min(flow.from, flow.to) % 2 == 0);
      });
      rounds_.push_back(make({back, flows.end()}, 1));
      flows.erase(back, flows.end());
    }
    rounds_.push_back(make(std::move(flows), 1));
  }
}

void Survey::make_all_pairs() {
  std::vector<Flow> flows;
  for (int step = 1; step < hosts_; ++step)
    std::ranges::copy(shifted(hosts_, step), std::back_inserter(flows));
  all_pairs_ = make(std::move(flows), 1);
  series_[all_pairs_].trial.each = true;
}

// Every pair is in each kind of round once: in a shift, where hosts send and receive at once, and one way.
void Survey::make_rounds() {
  if (rounds_.empty()) make_shifts();
  for (const int number : spread(0, hosts_ - 2 + hosts_ % 2, kSampledRounds)) {
    const std::vector<Flow> pairs = matching(hosts_, number);
    const bool from_even = number % 2 != 0;
    if (hosts_ <= kAllPairs || number % 4 < 2) rounds_.push_back(make(directed(pairs, from_even, false), 1));
    if (hosts_ <= kAllPairs || number % 4 >= 2) rounds_.push_back(make(directed(pairs, from_even, true), 1));
  }
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
  std::vector<Flow> slow;
  for (const Observation& seen : observed_rounds())
    for (const std::size_t f : unexplained(seen, known_))
      if (slow_in_rounds(seen.flows[f]) && std::ranges::find(slow, seen.flows[f]) == slow.end())
        slow.push_back(seen.flows[f]);
  if (slow.size() > kMostAlone) {
    unmeasured_pairs_ = static_cast<int>(slow.size()) - kMostAlone;
    slow.resize(kMostAlone);
  }
  for (const Flow& flow : slow) {
    // What is the same in other company is most likely a limit of its own: good enough where time is over.
    const bool likely = fastest(in_rounds(flow)).agreeing >= kPairLikely;
    pairs_.push_back({flow, make({flow}, haste_ == Haste::finish && likely ? 0 : 1), {}});
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
  return values_in(rounds_, flow);
}

// What the flow reached in these, each time.
std::vector<double> Survey::values_in(const std::vector<Index>& companies, const Flow& flow) const {
  std::vector<double> values;
  for (const Index company : companies) {
    const auto& flows = series_[company].trial.flows;
    const auto found = std::ranges::find(flows, flow);
    if (found == flows.end()) continue;
    for (const auto& rates : series_[company].repeats)
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
    const bool once = pair.rate.agreeing < kPairLikely && haste_ != Haste::finish;
    const bool doubtful = pair.rate.agreeing < kPairBelieved || pair.rate.half_width > options_.confidence;
    const bool more = slow && (once || (doubtful && haste_ == Haste::none)) && few_repeats(pair.series);
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
