// Survey, second part: whether pairs share anything at all.
//
// In a shift every flow has both its ports for itself; all pairs at once are the most company that there is.
// What is as fast in both is held up by nothing that it shares with others: more of those who share it would
// leave each less. Among all pairs at once acknowledgements wait behind the data of the other way, where
// pairs have limits of their own that differ; one way of each pair at once leaves the other way to them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "steer/survey.h"

namespace talweg::steer {
namespace {

// If all pairs at once hold up more than this part of the flows, twice, then hosts have ports; less may be
// noise.
constexpr double kNoise = 0.25;
// So many measurements that agree make a limit.
constexpr int kApartBelieved = 3;

}  // namespace

Survey::Apart Survey::judge_apart() {
  const Observation together = observed(all_pairs_);
  const auto reached = [&](const Flow& flow) {
    return together
        .rates[static_cast<std::size_t>(std::ranges::find(together.flows, flow) - together.flows.begin())];
  };
  std::vector<Index> again;
  for (const Flow& flow : together.flows) {
    const double with_all = reached(flow) + kAcknowledgements * reached({flow.to, flow.from});
    if (with_all < kFull * estimate(in_rounds(flow)).value) again.push_back(shift_of(flow));
  }
  const std::size_t times = series_[all_pairs_].repeats.size();
  if (!again.empty()) {
    const bool many = static_cast<double>(again.size()) > kNoise * static_cast<double>(together.flows.size());
    // What follows takes longer than this again: a hurry is no reason to go on to it.
    if (haste_ == Haste::finish || times >= (many ? 2 : static_cast<std::size_t>(options_.most_repeats)))
      return Apart::no;
    queue_.push_back(all_pairs_);
    if (!many && times > 1) repeat_once(std::move(again), 2);
    return Apart::unsure;
  }
  make_apart({all_pairs_});
  if (times == 1) {
    queue_.push_back(all_pairs_);
    return Apart::unsure;
  }
  for (const PairValue& pair : pairs_)
    if (pair.rate.agreeing < kApartBelieved || pair.rate.half_width > options_.confidence)
      again.push_back(shift_of(pair.flow));
  if (haste_ == Haste::none) repeat_once(std::move(again), options_.most_repeats);
  return queue_.empty() ? Apart::yes : Apart::unsure;
}

// The round in which this flow runs.
Survey::Index Survey::shift_of(const Flow& flow) const {
  return *std::ranges::find_if(rounds_, [&](Index round) {
    const auto& flows = series_[round].trial.flows;
    return std::ranges::find(flows, flow) != flows.end();
  });
}

// Each of these once, up to so many times in all.
void Survey::repeat_once(std::vector<Index> again, int most) {
  std::ranges::sort(again);
  again.erase(std::unique(again.begin(), again.end()), again.end());
  std::ranges::copy_if(again, std::back_inserter(queue_), [&](Index series) {
    return series_[series].repeats.size() < static_cast<std::size_t>(most);
  });
}

// Whether the flow, in this company, is as fast as it ever was.
bool Survey::as_fast(const Flow& flow, Index company) const {
  const std::vector<double> here = values_in({company}, flow);
  return !here.empty() && *std::ranges::max_element(here) >= kFull * fastest(in_rounds(flow)).value;
}

// Not for more hosts than all pairs of are measured: then there are no rounds yet.
bool Survey::ports_are_no_limit() const {
  if (rounds_.empty()) return false;
  return std::ranges::all_of(series_[all_pairs_].trial.flows, [&](const Flow& flow) {
    return as_fast(flow, out_[host(flow.from)]) && as_fast(flow, in_[host(flow.to)]);
  });
}

// Every host sends to those that follow it, up to the opposite one, in a circle; and all the other way. Of
// two opposite ones the lower one sends first.
void Survey::make_one_way() {
  std::vector<Flow> flows, back;
  for (const Flow& flow : series_[all_pairs_].trial.flows) {
    const int step = (flow.to - flow.from + hosts_) % hosts_;
    const bool first = 2 * step < hosts_ || (2 * step == hosts_ && flow.from < flow.to);
    (first ? flows : back).push_back(flow);
  }
  for (std::vector<Flow>* way : {&flows, &back}) {
    one_way_.push_back(make(std::move(*way), 1));
    series_[one_way_.back()].trial.each = true;
  }
  queue_.insert(queue_.end(), one_way_.begin(), one_way_.end());
}

bool Survey::one_way_is_apart() {
  if (one_way_.empty()) return false;
  for (const Index way : one_way_)
    for (const Flow& flow : series_[way].trial.flows)
      if (!as_fast(flow, way)) return false;
  std::vector<Index> companies{all_pairs_};
  for (const auto* more : {&one_way_, &out_, &in_})
    companies.insert(companies.end(), more->begin(), more->end());
  make_apart(companies);
  return true;
}

// A limit for each pair, from rounds and these; ports carry at least the sum of those.
void Survey::make_apart(const std::vector<Index>& companies) {
  pairs_.clear();
  known_.clear();
  out_rate_.assign(host(hosts_), Estimate{0, 0, options_.most_repeats});
  in_rate_ = out_rate_;
  both_rate_.assign(host(hosts_), std::nullopt);
  for (const Flow& flow : series_[all_pairs_].trial.flows) {
    std::vector<double> values = in_rounds(flow);
    std::ranges::copy(values_in(companies, flow), std::back_inserter(values));
    const Estimate rate = estimate(std::move(values));
    pairs_.push_back({flow, shift_of(flow), rate});
    known_.push_back({only(hosts_, flow.from), only(hosts_, flow.to), false, rate.value});
    for (Estimate* port : {&out_rate_[host(flow.from)], &in_rate_[host(flow.to)]}) {
      port->value += rate.value;
      port->half_width = std::max(port->half_width, rate.half_width);
      port->agreeing = std::min(port->agreeing, rate.agreeing);
    }
  }
}

}  // namespace talweg::steer
