// The promises are kept, whatever carries the data: all-reduces by a transfer with frames and a clock of its
// own among the others, through every kind of fault.
#include <gtest/gtest.h>

#include "chaos/world.h"

namespace talweg::chaos {
namespace {

constexpr std::int64_t kMostOfAPiece = 1 << 14;  // elements: what a frame takes here

// How many calls of the scenario it carries now.
int flood(Scenario& scenario) {
  int flooded = 0;
  for (Group& group : scenario.groups)
    for (ScriptedCall& call : group.calls) {
      const bool led = scenario.led && &group == &scenario.groups[0];
      call.flooded = !led && !call.helped && !call.message &&
                     call.call.request.op == Collective::all_reduce && call.call.total() <= kMostOfAPiece;
      flooded += call.flooded ? 1 : 0;
    }
  return flooded;
}

TEST(Chaos, PromisesAreKeptByAnotherTransferToo) {
  int calls = 0, well = 0;
  for (std::uint64_t seed = 1; calls < 300; ++seed) {
    Scenario scenario = scenario_of(seed);
    if (scenario.ranks > 5) continue;
    const int flooded = flood(scenario);
    if (flooded == 0) continue;
    calls += flooded;
    well += scenario.all_must_end_well ? flooded : 0;
    World world(scenario, {});
    world.run();
    for (const std::string& problem : world.problems()) ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (HasFailure()) return;
  }
  EXPECT_GT(well, 50);
}

}  // namespace
}  // namespace talweg::chaos
