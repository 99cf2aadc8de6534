// A network that is known, as a survey would see it: flows at once get max-min fair rates, blurred by noise.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "cluster/cluster.h"
#include "cluster/routing.h"
#include "steer/survey.h"

namespace talweg::steer {

class FairNetwork {
 public:
  // Every rate is off by up to `noise`; with the chance `outlier` a whole trial is at half speed.
  FairNetwork(Cluster truth, double noise, double outlier = 0, std::uint64_t seed = 1)
      : truth_(std::move(truth)), routes_(truth_), noise_(noise), outlier_(outlier), random_(seed) {}

  const Cluster& truth() const { return truth_; }

  // Raises all rates together; whenever a link or group is full, its flows are settled (Bertsekas and
  // Gallager, Data Networks, 6.5.2).
  std::vector<double> fair_rates(const std::vector<Flow>& flows, const std::vector<double>& most = {}) const {
    struct Part {
      double left;
      std::vector<std::size_t> flows;
    };
    std::vector<Part> parts;
    for (const cluster::Link& link : truth_.links) parts.push_back({link.capacity.bits_per_second, {}});
    for (const cluster::CapacityGroup& group : truth_.groups)
      parts.push_back({group.capacity.bits_per_second, {}});
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const int l : routes_.path(flows[f].from, flows[f].to)) {
        parts[static_cast<std::size_t>(l)].flows.push_back(f);
        for (std::size_t g = 0; g < truth_.groups.size(); ++g)
          if (std::count(truth_.groups[g].links.begin(), truth_.groups[g].links.end(), l) > 0)
            parts[truth_.links.size() + g].flows.push_back(f);
      }
    for (std::size_t f = 0; f < most.size(); ++f) parts.push_back({most[f], {f}});
    std::vector<double> rates(flows.size(), -1);
    while (std::count(rates.begin(), rates.end(), -1.0) > 0) {
      const Part* tightest = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const Part& part : parts) {
        double left = part.left;
        int open = 0;
        for (const std::size_t f : part.flows) {
          if (rates[f] < 0) {
            ++open;
          } else {
            left -= rates[f];
          }
        }
        if (open == 0 || left / open >= least) continue;
        least = left / open;
        tightest = &part;
      }
      for (const std::size_t f : tightest->flows)
        if (rates[f] < 0) rates[f] = least;
    }
    return rates;
  }

  std::vector<double> run(const Trial& trial) {
    std::vector<double> rates = fair_rates(trial.flows, trial.most);
    delay(trial.flows, rates);
    const double whole = random_.uniform() < outlier_ ? 0.5 : 1;
    for (double& rate : rates) rate *= whole * (1 + noise_ * (2 * random_.uniform() - 1));
    return rates;
  }

  // From now on a host whose way out is full of data receives at this part of its way in at most:
  // acknowledgements wait behind the data.
  void queue_acknowledgements(double part) { late_ = part; }

  Findings survey(const SurveyOptions& options = {}) {
    Survey survey(truth_.workers(), options);
    while (const Trial* trial = survey.next()) survey.add(run(*trial));
    Findings found = survey.findings();
    const int n = truth_.workers();
    found.latency_ns.assign(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(n)));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        found.latency_ns[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] =
            static_cast<double>(routes_.latency(i, j).value);
    return found;
  }

 private:
  void delay(const std::vector<Flow>& flows, std::vector<double>& rates) const {
    constexpr double kNearlyFull = 0.97;
    std::vector<double> out(static_cast<std::size_t>(truth_.workers())), in(out);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      out[static_cast<std::size_t>(flows[f].from)] += rates[f];
      in[static_cast<std::size_t>(flows[f].to)] += rates[f];
    }
    for (const cluster::Link& up : truth_.links) {
      if (late_ >= 1 || up.from >= truth_.workers()) continue;
      const auto h = static_cast<std::size_t>(up.from);
      const auto down = std::find_if(truth_.links.begin(), truth_.links.end(),
                                     [&](const cluster::Link& l) { return l.to == up.from; });
      const double most = late_ * down->capacity.bits_per_second;
      if (out[h] < kNearlyFull * up.capacity.bits_per_second || in[h] <= most) continue;
      for (std::size_t f = 0; f < flows.size(); ++f)
        if (flows[f].to == up.from) rates[f] *= most / in[h];
    }
  }

  const Cluster truth_;
  const cluster::Routes routes_;
  const double noise_, outlier_;
  double late_ = 1;
  Random random_;
};

// One rank on every host.
inline Layout one_rank_each(int hosts) {
  Layout layout;
  for (int h = 0; h < hosts; ++h) {
    layout.host_of.push_back(h);
    layout.host_names.push_back("h" + std::to_string(h));
  }
  layout.memory = {80e9};
  return layout;
}

}  // namespace talweg::steer
