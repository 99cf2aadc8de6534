// A network that is known, as a survey would see it: flows at once get max-min fair rates, blurred by noise;
// where it is asked for, as TCP over token buckets with queues does, on hosts that are busy now and then.
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

  // From now on acknowledgements take their part of the way back, and wait there in a queue of so many bytes
  // where it is full: from `full` of its rate on, as what is paced comes in lumps. A flow that waits for them
  // carries no more than `window` bytes in a round trip.
  void queue_acknowledgements(double window, double queue, double full = 0.97) {
    window_ = window;
    queue_ = queue;
    full_ = full;
  }

  // From now on a host has, in each trial with this chance, something else to do: its flows get half to 95 %
  // of what they would, others what it leaves.
  void keep_hosts_busy(double chance) { busy_ = chance; }

  std::vector<double> fair_rates(const std::vector<Flow>& flows, const std::vector<double>& most = {}) const {
    return fair_rates(flows, most, std::vector<double>(truth_.links.size()));
  }

  std::vector<double> run(const Trial& trial) {
    std::vector<double> most = trial.most;
    for (double& rate : most)
      if (rate <= 0) rate = kNoLimit;
    if (busy_ > 0) slow_busy_hosts(trial.flows, &most);
    std::vector<double> rates = with_acknowledgements(trial.flows, most);
    const double whole = random_.uniform() < outlier_ ? 0.5 : 1;
    for (double& rate : rates) rate *= whole * (1 + noise_ * (2 * random_.uniform() - 1));
    return rates;
  }

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
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // Raises all rates together; whenever a link or group is full, its flows are settled (Bertsekas and
  // Gallager, Data Networks, 6.5.2). Of each link `taken` is used by others.
  std::vector<double> fair_rates(const std::vector<Flow>& flows, const std::vector<double>& most,
                                 const std::vector<double>& taken) const {
    struct Part {
      double left;
      std::vector<std::size_t> flows;
    };
    std::vector<Part> parts;
    for (std::size_t l = 0; l < truth_.links.size(); ++l)
      parts.push_back({truth_.links[l].capacity.bits_per_second - taken[l], {}});
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
      double least = kNoLimit;
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
        least = std::max(0.0, left / open);
        tightest = &part;
      }
      for (const std::size_t f : tightest->flows)
        if (rates[f] < 0) rates[f] = least;
    }
    return rates;
  }

  void slow_busy_hosts(const std::vector<Flow>& flows, std::vector<double>* most) {
    const std::vector<double> rates = fair_rates(flows, *most);
    std::vector<double> part(static_cast<std::size_t>(truth_.workers()), 1);
    for (double& p : part)
      if (random_.uniform() < busy_) p = 0.5 + 0.45 * random_.uniform();
    most->resize(flows.size(), kNoLimit);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const double slower = std::min(part[static_cast<std::size_t>(flows[f].from)],
                                     part[static_cast<std::size_t>(flows[f].to)]);
      if (slower < 1) (*most)[f] = std::min((*most)[f], slower * rates[f]);
    }
  }

  // Queues make rates, and rates make queues: each queue grows while its link is full, else it shrinks, by
  // less in every step. Where both ways are as fast, short queues remain and links are full.
  std::vector<double> with_acknowledgements(const std::vector<Flow>& flows,
                                            const std::vector<double>& limits) const {
    constexpr int kSteps = 10;
    constexpr double kFirstStep = 0.5, kNextStep = 0.7;
    constexpr double kLeastLeft = 0.1;  // of a link, to data
    std::vector<double> rates = fair_rates(flows, limits);
    if (window_ <= 0) return rates;
    std::vector<double> most = limits, seconds(truth_.links.size());
    most.resize(flows.size(), kNoLimit);
    const std::vector<double> unlimited = most;
    double growth = kFirstStep;
    for (int step = 0; step < kSteps; ++step, growth *= kNextStep) {
      std::vector<double> data(truth_.links.size()), back(truth_.links.size());
      for (std::size_t f = 0; f < flows.size(); ++f) {
        for (const int l : routes_.path(flows[f].from, flows[f].to))
          data[static_cast<std::size_t>(l)] += rates[f];
        for (const int l : routes_.path(flows[f].to, flows[f].from))
          back[static_cast<std::size_t>(l)] += kAcknowledgements * rates[f];
      }
      bool meet = false;  // data and acknowledgements
      for (std::size_t l = 0; l < data.size(); ++l) {
        const double capacity = truth_.links[l].capacity.bits_per_second, longest = queue_ * 8 / capacity;
        const bool full = data[l] + back[l] >= full_ * capacity;
        seconds[l] = std::clamp(seconds[l] + (full ? growth : -growth) * longest, 0.0, longest);
        meet = meet || (data[l] > 0 && back[l] > 0);
        back[l] = std::min(back[l], (1 - kLeastLeft) * capacity);
      }
      if (!meet) return rates;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        double trip = 2e-9 * static_cast<double>(routes_.latency(flows[f].from, flows[f].to).value);
        for (const int l : routes_.path(flows[f].to, flows[f].from))
          if (data[static_cast<std::size_t>(l)] > 0) trip += seconds[static_cast<std::size_t>(l)];
        most[f] = std::min(unlimited[f], window_ * 8 / trip);
      }
      rates = fair_rates(flows, most, back);
    }
    return rates;
  }

  const Cluster truth_;
  const cluster::Routes routes_;
  const double noise_, outlier_;
  double window_ = 0, queue_ = 0, full_ = 1;
  double busy_ = 0;
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
