// The checks can fail: each way to break the protocols on purpose is found, in a scenario that gives it the
// chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "chaos/world.h"

namespace talweg::chaos {
namespace {

// Tries scenarios that `fit` until a check fails.
void expect_caught(Mutation mutation, const std::function<bool(const Scenario&)>& fit) {
  constexpr int kMostTries = 500;
  int tries = 0;
  for (std::uint64_t seed = 1; tries < kMostTries; ++seed) {
    const Scenario scenario = scenario_of(seed);
    if (scenario.ranks > 5 || !fit(scenario)) continue;
    ++tries;
    World world(scenario, {false, mutation});
    world.run();
    if (!world.problems().empty()) return;
  }
  FAIL() << kMutations[static_cast<std::size_t>(mutation)] << " was not noticed in " << tries << " scenarios";
}

TEST(Mutation, ATransportThatDoesNotSendAgainIsCaught) {
  expect_caught(Mutation::silent_timer, [](const Scenario& s) {
    return s.all_must_end_well && s.simulation.network.loss.loss > 0.04;
  });
}
TEST(Mutation, AChannelThatDeliversTwiceIsCaught) {
  expect_caught(Mutation::duplicate_frames, [](const Scenario& s) { return s.all_must_end_well; });
}
TEST(Mutation, AChannelThatLosesIsCaught) {
  expect_caught(Mutation::lose_frames, [](const Scenario& s) { return s.all_must_end_well; });
}
TEST(Mutation, AChannelThatReordersIsCaught) {
  expect_caught(Mutation::swap_frames, [](const Scenario& s) { return s.all_must_end_well; });
}
TEST(Mutation, AReceiverThatDoesNotLookAtChecksumsIsCaught) {
  expect_caught(Mutation::no_checksums, [](const Scenario& s) {
    return s.faults.size() == 1 && s.faults[0].kind == FaultKind::damage && s.faults[0].after_frames < 100;
  });
}
TEST(Mutation, FramesOfAnotherGroupAreCaught) {
  expect_caught(Mutation::any_group, [](const Scenario& s) {
    return s.all_must_end_well && s.ranks > 2 &&
           any_call(s, [](const ScriptedCall& c) { return c.opens >= 0; });
  });
}
TEST(Mutation, ARankThatDoesNotListenToFailuresIsCaught) {
  expect_caught(Mutation::deaf_to_failures, [](const Scenario& s) {
    return s.faults.empty() && s.ranks > 2 && any_call(s, [](const ScriptedCall& c) { return c.odd >= 0; }) &&
           !any_call(s, [](const ScriptedCall& c) { return c.impatient >= 0; });
  });
}
TEST(Mutation, MemoryThatIsWrittenToAfterTheEndIsCaught) {
  expect_caught(Mutation::keep_placing, [](const Scenario& s) {
    return has(s, FaultKind::abort) || has(s, FaultKind::cut) || has(s, FaultKind::crash_process);
  });
}
TEST(Mutation, ACallWithoutADeadlineIsCaught) {
  expect_caught(Mutation::no_deadlines, [](const Scenario& s) { return has(s, FaultKind::leave); });
}

TEST(Mutation, ARankThatIsSentMoreAheadThanItsBudgetIsCaught) {
  expect_caught(Mutation::no_eager_budget, [](const Scenario& s) {
    return s.all_must_end_well && s.in_flight > 1 && s.eager_budget < protocol::kEagerBudget;
  });
}
TEST(Mutation, ABarrierThatWaitsForNothingCalledBeforeItIsCaught) {
  expect_caught(Mutation::no_fences, [](const Scenario& s) {
    return s.all_must_end_well && s.in_flight > 1 && any_call(s, [](const ScriptedCall& c) {
             return !c.message && c.call.request.op == Collective::barrier;
           });
  });
}

TEST(World, ASeedIsPlayedAgainExactly) {
  for (const std::uint64_t seed : {3, 4, 5}) {
    std::uint64_t digests[2];
    for (std::uint64_t& digest : digests) {
      World world(scenario_of(seed), {});
      world.run();
      digest = world.digest();
    }
    EXPECT_NE(digests[0], 0U);
    EXPECT_EQ(digests[0], digests[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace talweg::chaos
