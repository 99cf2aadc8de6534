// Who is taken, what is said of the others, and that what is taken is as good as it can be.
#include "forest/choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/at.h"
#include "forest/bound.h"
#include "forest/drawn_network.h"
#include "forest/packed.h"
#include "forest/packing_lp.h"
#include "forest/planner.h"
#include "forest/random_networks.h"
#include "forest/requests.h"
#include "forest/verify.h"
#include "sanitized.h"

namespace talweg::forest {
namespace {

using Reason = NotTaken::Reason;
using testing::ElementsAre;
using testing::IsEmpty;

// "packed: no_gain" for each planner that was passed over.
std::vector<std::string> reasons_of(const Choice& choice) {
  const char* const names[] = {"not_meant", "no_gain", "no_plan", "not_known"};
  std::vector<std::string> result;
  for (const NotTaken& other : choice.why_not)
    result.push_back(fmt::format("{}: {}", other.planner, names[static_cast<std::size_t>(other.reason)]));
  return result;
}

std::string why_of(const Choice& choice, const std::string& planner) {
  for (const NotTaken& other : choice.why_not)
    if (other.planner == planner) return other.why;
  return {};
}

// All offers are made up here.
TEST(Choice, SaysOfEveryPlannerThatIsPassedOverWhy) {
  const CostModel model(gigabit_star(4));
  const Request request = make_request(Collective::all_reduce, 4, 1 << 18);
  std::vector<std::string> asked;
  const auto choose_with = [&](double ring_seconds, const Offer& packed) {
    asked.clear();
    return choose(request, model, [&](const std::string& planner) {
      asked.push_back(planner);
      if (planner == "packed") return packed;
      return Offer{planner == "ring" ? ring_seconds : 2.0};
    });
  };
  Offer none;
  none.none_because = "it takes too long";
  const Choice without = choose_with(1, none);
  EXPECT_EQ(without.taken, "ring");
  EXPECT_THAT(reasons_of(without),
              ElementsAre("one_hop: not_meant", "recursive_doubling: not_meant", "packed: no_plan"));
  EXPECT_EQ(why_of(without, "one_hop"),
            "it is meant for up to 256 KiB: it sends whole vectors, to be done in few rounds");
  EXPECT_EQ(why_of(without, "packed"), "it takes too long");
  EXPECT_THAT(without.missing, IsEmpty()) << "there is nothing to wait for";

  none.may_come = true;
  const Choice early = choose_with(1, none);
  EXPECT_EQ(early.taken, "ring");
  EXPECT_THAT(early.missing, ElementsAre("packed"));
  EXPECT_THAT(reasons_of(early),
              ElementsAre("one_hop: not_meant", "recursive_doubling: not_meant", "packed: not_known"));

  const Choice near = choose_with(1e-6, Offer{1e-9});
  EXPECT_EQ(near.taken, "ring");
  EXPECT_THAT(reasons_of(near),
              ElementsAre("one_hop: not_meant", "recursive_doubling: not_meant", "packed: no_gain"));
  EXPECT_EQ(why_of(near, "packed"),
            "others come within 0.6 % of what links allow, or 5 % of what latencies and processors do");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "packed"), 0);

  const Choice quick = choose_with(1, Offer{0.5});
  EXPECT_EQ(quick.taken, "packed");
  EXPECT_THAT(reasons_of(quick), ElementsAre("one_hop: not_meant", "recursive_doubling: not_meant"));
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "packed"), 1);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "one_hop"), 0);
}

TEST(Choice, TakesNobodyWhereNobodyHasAnOfferAndAsksNobodyWhereRanksMayKnowDifferentCounts) {
  const CostModel model(gigabit_star(4));
  const auto nothing = [](const std::string&) {
    Offer none;
    none.may_come = true;
    return none;
  };
  const Choice none = choose(make_request(Collective::reduce_scatter, 4, 100), model, nothing);
  EXPECT_EQ(none.taken, "");
  EXPECT_THAT(none.missing, ElementsAre("halving_doubling", "ring", "direct", "packed"));
  const Choice only =
      choose(make_request(Collective::all_to_all, 4, 100), model, [](const std::string& planner) -> Offer {
        ADD_FAILURE() << planner << " is asked";
        return {};
      });
  EXPECT_EQ(only.taken, "direct");
  EXPECT_THAT(only.missing, IsEmpty());
}

TEST(Choice, LeavesPlannersOutByWorkAndNotByTheNumberOfRanks) {
  EXPECT_EQ(
      too_much_work(kMostStepsAtOnce),
      "planning takes more than 20 million steps (some 0.02 s), or a gigabyte as for more than 10000 links");
  EXPECT_EQ(too_much_work(kMostSteps),
            "planning takes more than 120000 million steps (some 120 s), or a gigabyte as for more than 10000"
            " links: it is planned where it is named");
  for (const int ranks : {16, 17, 256, 257, 300}) {
    const Choice choice =
        choose(make_request(Collective::all_reduce, ranks, 1 << 24), CostModel(gigabit_star(ranks)),
               [](const std::string& planner) { return Offer{planner == "packed" ? 1e3 : 1e4}; });
    EXPECT_EQ(choice.taken, "packed") << ranks;
  }
}

// A link between every two of so many workers, each with a rate of its own: the program that shares them out
// would take a gigabyte.
TEST(Choice, OfTooMuchWorkIsMadeWithoutItAndSaysSo) {
  constexpr int kRanks = 102;
  Random random(1);
  auto mesh = cluster::uniform_mesh(kRanks, {1e9}, {10000});
  for (cluster::Link& link : mesh.links)
    link.capacity.bits_per_second = 1e6 * static_cast<double>(5 + random.below(196));
  const CostModel model(mesh);
  const Request request = make_request(Collective::all_reduce, kRanks, 1 << 22);
  PackingMemo at_once, in_full;
  const Planned first = plan_at_once(request, model, at_once);
  EXPECT_FALSE(first.complete());
  EXPECT_THAT(first.choice.missing, ElementsAre("sharded_star", "packed"));
  EXPECT_EQ(why_of(first.choice, "packed"), too_much_work(kMostStepsAtOnce));
  const Planned last = plan_in_full(request, model, in_full);
  EXPECT_TRUE(last.complete()) << "nothing is to be waited for";
  EXPECT_EQ(why_of(last.choice, "packed"), too_much_work(kMostSteps));
  EXPECT_EQ(last.forest.planner, last.choice.taken);
  EXPECT_LE(model.seconds(last.forest), model.seconds(first.forest));
}

TEST(PackingLp, TakesNoGigabyteWhereWorkIsLimited) {
  WorkLimit limit(std::numeric_limits<std::int64_t>::max());
  EXPECT_THROW(PackingLp(std::vector<double>(20'000, 1.0), &limit), WorkLimit::Reached);
  WorkLimit small(99);
  EXPECT_THROW(PackingLp(std::vector<double>(10, 1.0), &small), WorkLimit::Reached);
  WorkLimit enough(100);
  EXPECT_NO_THROW(PackingLp(std::vector<double>(10, 1.0), &enough));
}

// What shapers let pass at once takes no time, which nobody is to be denied for.
TEST(Choice, IsNoSlowerThanAnyPlannerWhereBurstsPass) {
  for (std::uint64_t seed = 0; seed < fewer(12U); ++seed) {
    auto network = random_network(seed, 3 + static_cast<int>(seed % 5));
    for (cluster::Link& link : network.links) link.burst = Bytes{1 << 20};
    const CostModel model(network);
    PackingMemo memo;
    for (const std::int64_t count : {10000, 100000, 1000000}) {
      const Request request = make_request(Collective::all_reduce, network.workers(), count);
      const double taken = model.seconds(plan_best(request, model, memo));
      for (const Planner& planner : planners()) {
        if (!planner.serves(request) || !planner.suits(request)) continue;
        EXPECT_LE(kWorthOtherwise * taken, model.seconds(plan_by(planner, request, model, memo)))
            << seed << " " << count << " " << planner.name;
      }
    }
  }
}

// How long the busiest link works on the forest's payload.
double load_seconds(const Forest& forest, const cluster::Cluster& network) {
  const Verification load = verify(forest, &network);
  double seconds = 0;
  for (std::size_t i = 0; i < network.links.size(); ++i)
    seconds = std::max(seconds, static_cast<double>(load.link_bytes[i].value) /
                                    network.links[i].capacity.bytes_per_second());
  return seconds;
}

// Of the bound, by load and as predicted.
struct Shares {
  double load = 1, predicted = 1;
};

Shares expect_near_the_bound(const cluster::Cluster& network, const std::string& what) {
  Shares shares;
  // Of the bound. Ethernet, TCP and its acknowledgements leave 0.936 of what links carry, and incast 0.85 of
  // that. 0.97 and 0.9 are wanted, and reached but where more than three hosts send to one, and where a slow
  // link leads back from a quick one that is full.
  constexpr double kLeastLoad = 0.94, kLeastPredicted = 0.85;
  const CostModel model(network);
  const double bound = best_rate(network, Collective::all_reduce).rate.value() / 8;  // bytes/s
  PackingMemo memo;
  constexpr std::int64_t kLongest = 1 << 28;  // elements
  for (const std::int64_t count : {std::int64_t{1} << 12, std::int64_t{1} << 20, kLongest}) {
    const Request request = make_request(Collective::all_reduce, network.workers(), count);
    const Planned planned = plan_in_full(request, model, memo);
    for (const NotTaken& other : planned.choice.why_not)
      EXPECT_NE(other.reason, Reason::no_plan) << what << other.planner << ": " << other.why;
    const double taken = model.seconds(planned.forest);
    const bool is_long = count == kLongest;
    for (const Planner& planner : planners()) {
      if (!planner.serves(request) || !planner.suits(request)) continue;
      EXPECT_LE((is_long ? kWorthOfLinks : kWorthOtherwise) * taken,
                model.seconds(plan_by(planner, request, model, memo)))
          << what << ", " << count << " elements: " << planner.name << " is quicker than "
          << planned.choice.taken;
    }
    if (!is_long) continue;
    const double least = 4 * static_cast<double>(count) / bound;
    shares = {least / load_seconds(planned.forest, network), least / taken};
    EXPECT_GE(shares.load, kLeastLoad) << what << planned.choice.taken;
    EXPECT_GE(shares.predicted, kLeastPredicted) << what << planned.choice.taken;
  }
  return shares;
}

TEST(Choice, LoadsAndPredictsNearTheBoundOnNetworksOfOneWay) {
  constexpr std::uint64_t kFirst = 5000;
  std::vector<Shares> all;
  for (std::uint64_t draw = 0; draw < fewer(8U); ++draw)
    for (std::size_t kind = 0; kind < std::size(DrawnNetwork::kKinds); ++kind) {
      const DrawnNetwork drawn(kind, kFirst + draw);
      const std::string what =
          fmt::format("{} {} of {}: ", DrawnNetwork::kKinds[kind], kFirst + draw, drawn.get().workers());
      all.push_back(expect_near_the_bound(drawn.get(), what));
    }
  const auto below = [&](double Shares::*share, double wanted) {
    return std::ranges::count_if(all, [&](const Shares& s) { return s.*share < wanted; });
  };
  std::cout << fmt::format(
      "of {} networks: by load {} below 0.97 of the bound, the least {:.3f}; predicted {} below 0.9, the "
      "least {:.3f}\n",
      all.size(), below(&Shares::load, 0.97), std::ranges::min(all, {}, &Shares::load).load,
      below(&Shares::predicted, 0.9), std::ranges::min(all, {}, &Shares::predicted).predicted);
}

}  // namespace
}  // namespace talweg::forest
