// Sums in the network one after the other, of which each begins with what its workers have learnt in those
// before it.
#include <gtest/gtest.h>

#include <vector>

#include "base/at.h"
#include "base/random.h"
#include "sim/shapes.h"
#include "sim/switch_sums.h"

namespace talweg::sim {
namespace {

constexpr int kCallers = 4;
constexpr std::size_t kCalledElements = 1 << 20;

// A switch that sums, with a port for each host. A round of all slots takes 3 ms.
cluster::Cluster callers() {
  cluster::Cluster c;
  for (int h = 0; h < kCallers; ++h) {
    c.nodes.push_back({"h" + std::to_string(h)});
    c.links.push_back({h, kCallers, kGigabit.capacity, Nanoseconds{30'000}});
    c.links.push_back({kCallers, h, kGigabit.capacity, Nanoseconds{30'000}});
  }
  c.nodes.push_back({"box", cluster::NodeKind::aggregator});
  return c;
}

// Each rank has so many of the runs, which it draws for itself.
struct DrawnVectors {
  std::vector<std::vector<float>> in, out;
  std::vector<SumOperands> operands;
  DrawnVectors(double density, std::size_t run) : out(kCallers, std::vector<float>(kCalledElements)) {
    for (int r = 0; r < kCallers; ++r) {
      in.emplace_back(kCalledElements);
      for (std::size_t i = 0; i < kCalledElements; ++i)
        in.back()[i] = Random(static_cast<std::uint64_t>(r), i / run).uniform() < density ? 1.0F : 0.0F;
      operands.push_back(
          {reinterpret_cast<std::byte*>(in.back().data()), reinterpret_cast<std::byte*>(out[at(r)].data())});
    }
  }
};

void expect_nothing_asked(const SwitchSums& sums) {
  for (int r = 0; r < kCallers; ++r) EXPECT_EQ(sums.worker_counters(r).timeouts, 0U) << "worker " << r;
  EXPECT_EQ(sums.switch_counters(0).queries, 0U);
  EXPECT_EQ(sums.switch_counters(0).repeated, 0U);
}

// Rounds at the end of a call are short, as they hold little and few are in flight: the next call begins with
// longer ones than have just been measured.
TEST(SwitchCalls, ASparseOneAfterAnotherTakesAsLongAsTheFirstAndHasNothingRepeated) {
  const struct {
    wire::AggregationFormat format;
    double density;
    std::size_t run;
  } forms[] = {{wire::AggregationFormat::pairs, 0.05, 1},
               {wire::AggregationFormat::f32, 0.1, 344},
               {wire::AggregationFormat::f32, 0.05, 64}};
  for (const auto& form : forms) {
    SCOPED_TRACE(testing::Message() << "runs of " << form.run);
    DrawnVectors vectors(form.density, form.run);
    Simulation simulation(callers(), {});
    SwitchSumsOptions options;
    options.switches = {kCallers};
    options.format = form.format;
    options.sparse = true;
    SwitchSums sums(simulation, options);
    const CallTimes times = sums.run(vectors.operands, kCalledElements, {0, 4}, kNever);
    for (const Picoseconds call : times.of_call) EXPECT_LE(seconds(call), 1.1 * seconds(times.of_call[0]));
    expect_nothing_asked(sums);
  }
}

TEST(SwitchCalls, AFullVectorAfterAnEmptyOneTakesAsLongAsBefore) {
  DrawnVectors full(1, 1), empty(0.01, 344);
  Simulation simulation(callers(), {});
  SwitchSumsOptions options;
  options.switches = {kCallers};
  options.sparse = true;
  SwitchSums sums(simulation, options);
  const auto call = [&](const DrawnVectors& vectors) {
    return seconds(sums.run(vectors.operands, kCalledElements, {}, kNever).of_call.at(0));
  };
  const double first = call(full);
  EXPECT_LT(call(empty), 0.1 * first);
  EXPECT_LE(call(full), 1.01 * first);
  expect_nothing_asked(sums);
}

}  // namespace
}  // namespace talweg::sim
