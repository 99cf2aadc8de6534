// Groups, `talweg plan`, `info`, `simulate` and `predict` say the same of the same network.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "forest/planner.h"
#include "network_file.h"
#include "sanitized.h"
#include "steer/plan_chooser.h"
#include "study/choices.h"
#include "study/plan_study.h"
#include "study/simulate_run.h"
#include "train/cluster_times.h"

namespace talweg::study {
namespace {

constexpr double kLongPatience = 600;  // seconds: everything is done by then

class Drawn {
 public:
  // Each host's two directions have rates of their own.
  cluster::Cluster star(int workers) {
    cluster::Cluster network = hosts(workers);
    network.nodes.push_back({.name = "switch", .kind = cluster::NodeKind::switch_});
    for (int host = 0; host < workers; ++host) {
      network.links.push_back({host, workers, rate(), {10000}});
      network.links.push_back({workers, host, rate(), {10000}});
    }
    return network;
  }
  // A ring one way, and three links from each host to any others.
  cluster::Cluster directed(int workers) {
    cluster::Cluster network = hosts(workers);
    for (int host = 0; host < workers; ++host)
      for (int link = 0; link < 4; ++link) {
        const int to = link == 0 ? (host + 1) % workers
                                 : static_cast<int>(random_.below(static_cast<std::uint64_t>(workers)));
        const bool known = std::ranges::any_of(
            network.links, [&](const cluster::Link& l) { return l.from == host && l.to == to; });
        if (to != host && !known) network.links.push_back({host, to, rate(), {10000}});
      }
    return network;
  }

 private:
  static cluster::Cluster hosts(int workers) {
    cluster::Cluster network;
    for (int host = 0; host < workers; ++host) network.nodes.push_back({.name = fmt::format("h{}", host)});
    return network;
  }
  Bandwidth rate() { return {1e6 * static_cast<double>(5 + random_.below(196))}; }

  Random random_{1};
};

// "packed, predicted 12.34 ms", as `talweg simulate` says it, of each size.
std::vector<std::string> simulated(const cluster::Cluster& network, const std::string& sizes) {
  const NetworkFile file(cluster::to_yaml(network));
  SimulateRequest request;
  request.network = file.path();
  request.bytes = sizes;
  request.fluid = true;
  request.iters = 1;
  request.warmup = 0;
  Watchers nobody;
  std::vector<std::string> plans;
  for (const PerfRow& row : simulate_all(checked(request), nobody, [](const PerfRow&) {}).rows)
    plans.push_back(row.plan);
  return plans;
}

// `in_full`: packing trees takes `predict` no longer than it has, so that it need not say that it did
// without.
void expect_one_choice(const cluster::Cluster& network, bool in_full) {
  StudyRequest request;
  request.sizes = {64 << 10, 4 << 20};
  request.patience = kLongPatience;
  request.bound = false;
  const Study study = study_plans(network, request);
  const auto simulated_plans = simulated(network, "64K,4M");
  const auto info = choices(Collective::all_reduce, network, kLongPatience).sizes;
  const train::NetworkTimes predicted =
      train::cluster_times(network, std::vector<Bytes>{{64 << 10}, {4 << 20}});
  EXPECT_EQ(predicted.interim == train::NetworkTimes::Interim{}, in_full);
  steer::PlanChooser group(network, "", nullptr);
  ASSERT_EQ(simulated_plans.size(), study.rows.size());
  for (std::size_t row = 0; row < study.rows.size(); ++row) {
    const std::int64_t bytes = study.rows[row].bytes;
    SCOPED_TRACE(bytes);
    ASSERT_GE(study.rows[row].taken, 0);
    const auto taken = static_cast<std::size_t>(study.rows[row].taken);
    const std::string& planner = study.planners[taken];
    const double seconds = *study.rows[row].predictions[taken].seconds;
    const auto same_size = std::ranges::find(info, static_cast<std::size_t>(bytes), &Choice::bytes);
    ASSERT_NE(same_size, info.end());
    EXPECT_EQ(same_size->candidates.front().planner, planner);
    EXPECT_EQ(same_size->candidates.front().seconds, seconds);
    EXPECT_EQ(simulated_plans[row], fmt::format("{}, predicted {:.4g} ms", planner, seconds * 1e3));
    const forest::Forest forest = group.best(request_of(study.op, 0, study.ranks, bytes))();
    EXPECT_EQ(forest.planner, planner);
    EXPECT_EQ(group.model()->seconds(forest), seconds);
    if (in_full) {
      EXPECT_NEAR(predicted.all_reduce.seconds(static_cast<double>(bytes)), seconds, 0.01 * seconds);
    }
  }
}

TEST(OneChoice, OfAStarOf256HostsWhoseLinksDifferIsTheSameEverywhere) {
  const int hosts = fewer(256);  // with sanitizers so few that all is packed
  expect_one_choice(Drawn().star(hosts), hosts < 256);
}

TEST(OneChoice, OfAStarWhoseLinksDifferIsTheSameEverywhere) {
  expect_one_choice(Drawn().star(24), true);
}

TEST(OneChoice, OfADirectedNetworkIsTheSameEverywhere) {
  expect_one_choice(Drawn().directed(64), true);
}

}  // namespace
}  // namespace talweg::study
