#include "steer/evidence.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace talweg::steer {
namespace {

// Of surveys, those that may find something shared that is not there.
constexpr double kWrong = 0.01;
// However quiet the network was: so many measurements make a capacity.
constexpr int kLeastTrials = 3;
// Standard deviations that undisturbed measurements are within: one of 16,000 is not.
constexpr double kSpreads = 4;
// Values below this part of the greatest were disturbed.
constexpr double kDisturbed = 0.9;
// What one disturbed measurement would refute is measured again before it is refuted.
constexpr std::size_t kLeastSure = 2;

double greatest(const Company& company) {
  return company.reached.empty() ? 0 : *std::ranges::max_element(company.reached);
}

int trials_needed(const Noise& noise, const Standard& asked) {
  const double trials = std::log(kWrong / std::max(1, asked.suppositions)) / std::log(noise.low);
  return std::max(kLeastTrials, static_cast<int>(std::ceil(trials)));
}

}  // namespace

Noise noise_of(const std::vector<std::vector<double>>& repeats) {
  double squares = 0;
  int freedom = 0, others = 0, low = 0;
  for (const auto& values : repeats) {
    if (values.size() < 2) continue;
    const double best = *std::ranges::max_element(values);
    std::vector<double> fine;
    std::ranges::copy_if(values, std::back_inserter(fine),
                         [&](double value) { return value >= kDisturbed * best; });
    others += static_cast<int>(values.size()) - 1;
    low += static_cast<int>(values.size() - fine.size());
    freedom += static_cast<int>(fine.size()) - 1;
    double mean = 0;
    for (const double value : fine) mean += value / static_cast<double>(fine.size());
    if (mean > 0)
      for (const double value : fine) squares += (value / mean - 1) * (value / mean - 1);
  }
  Noise noise;
  if (freedom > 0) noise.spread = std::sqrt(squares / freedom);
  noise.low = (low + 1.0) / (others + 2.0);
  return noise;
}

Judgement judge(const Supposition& supposed, const Noise& noise, const Standard& asked) {
  constexpr Judgement kApart{Judgement::Verdict::apart, {}, {}, 1};
  const Company& first = supposed.companies.front();
  const double part = 1 - std::max(asked.least, kSpreads * noise.spread);
  const int needed = trials_needed(noise, asked);
  double carried = supposed.carried;
  for (const Company& company : supposed.companies) carried = std::max(carried, greatest(company));
  if (part <= 0 || needed > asked.most_trials || carried >= part * first.apart) return kApart;
  Judgement found;
  const double top = greatest(first);
  const double most = top / part;                 // that something shared would carry
  if (first.reached.empty() || carried > most) {  // or the first company was disturbed
    found.company = 0;
    return first.reached.size() < kLeastSure ? found : kApart;
  }
  if (supposed.elsewhere <= most) return kApart;
  if (supposed.in_parts <= most) return supposed.times_in_parts < kLeastSure ? found : kApart;
  std::vector<double> sums;
  std::size_t trials = 0;
  for (std::size_t i = 0; i < supposed.companies.size(); ++i) {
    const Company& company = supposed.companies[i];
    if (company.apart <= most) continue;  // would reach no more if nothing were shared
    if (company.reached.size() >= kLeastSure && greatest(company) < part * top) return kApart;
    sums.insert(sums.end(), company.reached.begin(), company.reached.end());
    trials += company.reached.size();
    if (!found.company || company.reached.size() < supposed.companies[*found.company].reached.size())
      found.company = i;
  }
  found.capacity = estimate(std::move(sums));
  if (found.capacity.agreeing >= needed) {
    found.verdict = Judgement::Verdict::shared;
    found.doubt = std::pow(noise.low, found.capacity.agreeing);
  } else if (trials >= static_cast<std::size_t>(asked.most_trials)) {
    return kApart;
  }
  return found;
}

}  // namespace talweg::steer
