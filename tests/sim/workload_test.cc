// Workloads: groups, flows, background traffic and failures, from a file to what came of them.
#include "sim/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "header_sample.h"
#include "sim/sampler.h"
#include "sim/shapes.h"
#include "sim/topologies.h"
#include "sim/topology_text.h"
#include "sim/workload_run.h"
#include "talweg/error.h"

namespace talweg::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Picoseconds kMillisecond = 1000 * kMicrosecond;

SimulationOptions with_priorities() {
  SimulationOptions o;
  o.network.switch_queue.priorities = o.network.host_queue.priorities = 8;
  o.network.switch_queue.mark_bytes = o.network.host_queue.mark_bytes = 60'000;
  return o;
}

WorkloadOutcome run(const cluster::Cluster& cluster, const std::string& text,
                    const SimulationOptions& options = {}, Picoseconds horizon = kNever) {
  const Workload workload = parse_workload(text, "w.yaml", cluster);
  Simulation simulation(cluster, options);
  WorkloadOptions how;
  how.horizon = horizon;
  return run_workload(simulation, workload, how);
}

TEST(Workload, TheSampleInTheHeaderIsRead) {
  const cluster::Cluster network = parse_topology("leaf-spine:leaves=2,hosts=2,spines=2");
  const Workload w =
      parse_workload(header_sample(TALWEG_SOURCE_DIR "/src/sim/workload.h"), "workload.h", network);
  ASSERT_EQ(w.groups.size(), 1u);
  EXPECT_EQ(w.groups[0].nodes.size(), 4u);
  EXPECT_EQ(w.groups[0].steps.size(), 3u);
  EXPECT_EQ(w.groups[0].steps[2].algorithm, kBounded);
  EXPECT_EQ(w.groups[0].may_lose, 0.01);
  EXPECT_EQ(w.groups[0].droppable, 0.5);
  EXPECT_EQ(w.groups[0].queues, 4);
  EXPECT_EQ(w.groups[0].steps[2].depth, 0.5);
  EXPECT_EQ(w.flows.size(), 1u);
  EXPECT_EQ(w.background.size(), 2u);
  EXPECT_EQ(w.background[1].burst_bytes, 1'000'000);
  EXPECT_EQ(w.changes.size(), 2u);
}

TEST(Workload, AComputeStepTakesItsTimeAndAStartIsWaitedFor) {
  const auto outcome =
      run(star(2, kTen),
          "groups:\n"
          "  - {name: a, ranks: [h0, h1], start: 3ms, repeat: 4, steps: [{compute: 2ms}, {compute: 1ms}]}\n");
  ASSERT_EQ(outcome.groups.size(), 1U);
  const GroupOutcome& g = outcome.groups[0];
  EXPECT_THAT(g.iterations,
              ElementsAre(3 * kMillisecond, 3 * kMillisecond, 3 * kMillisecond, 3 * kMillisecond));
  EXPECT_EQ(g.ended, 15 * kMillisecond);
  EXPECT_EQ(g.of_step[0], 2 * kMillisecond);
  EXPECT_EQ(g.communication, 0);
}

TEST(Workload, AnIterationIsComputingAndThenCommunicating) {
  const std::string op = "{op: all_reduce, bytes: 4MiB, algorithm: ring}";
  const std::string group = "groups:\n  - {ranks: all, repeat: 3, steps: [";
  const auto alone = run(star(4, kTen), group + op + "]}\n");
  const auto both = run(star(4, kTen), group + "{compute: 5ms}, " + op + "]}\n");
  EXPECT_EQ(both.groups[0].algorithms, (std::vector<std::string>{"", "ring"}));
  // The first iteration is the same but for the computing; later windows are wider.
  EXPECT_EQ(both.groups[0].iterations[0], alone.groups[0].iterations[0] + 5 * kMillisecond);
  EXPECT_GT(both.groups[0].communication, 0);
}

TEST(Workload, JitterHasTheMeanAndTheDeviationThatWereAskedFor) {
  const auto outcome =
      run(star(1, kTen), "groups:\n  - {ranks: [h0], repeat: 4000, jitter: 5%, steps: [{compute: 1ms}]}\n");
  double sum = 0;
  double squares = 0;
  for (const Picoseconds t : outcome.groups[0].iterations) {
    const double ms = static_cast<double>(t) / kMillisecond;
    sum += ms;
    squares += ms * ms;
  }
  const double mean = sum / 4000;
  const double deviation = std::sqrt(squares / 4000 - mean * mean);
  EXPECT_NEAR(mean, 1, 4 * 0.05 / std::sqrt(4000.0));              // four standard errors
  EXPECT_NEAR(deviation, 0.05, 4 * 0.05 / std::sqrt(2 * 4000.0));  // likewise
}

TEST(Workload, AnUrgentGroupDoesNotFeelAnotherOneOnTheSameLinks) {
  const std::string urgent =
      "  - {name: urgent, ranks: [h0, h2], priority: 0, repeat: 4, steps: [{op: all_reduce, bytes: 8MiB, "
      "algorithm: ring}]}\n";
  const std::string other =
      "  - {name: other, ranks: [h1, h3], priority: PRIORITY, repeat: 4, steps: [{op: all_reduce, bytes: "
      "8MiB, algorithm: ring}]}\n";
  const cluster::Cluster cluster = leaf_spine(2, 2, 1, kTen, kTen);  // one link between the leaves
  SimulationOptions options = with_priorities();
  options.transport.turns = true;  // alone it fills its links, as what it holds back marks nothing
  const auto with = [&](const std::string& priority) {
    std::string text = other;
    text.replace(text.find("PRIORITY"), 8, priority);
    return run(cluster, "groups:\n" + urgent + text, options).groups[0].ended;
  };
  const Picoseconds alone = run(cluster, "groups:\n" + urgent, options).groups[0].ended;
  // Strict priorities leave it all of the link but for the packet being sent (at most 1.2 us of each round);
  // equal ones halve it.
  EXPECT_LT(static_cast<double>(with("7")), 1.1 * static_cast<double>(alone));
  EXPECT_GT(static_cast<double>(with("0")), 1.7 * static_cast<double>(alone));
}

TEST(Workload, BackgroundTrafficComesAtItsRateAndEndsWithTheRest) {
  const auto outcome = run(star(4, kTen),
                           "groups:\n  - {ranks: [h0], steps: [{compute: 10ms}]}\n"
                           "background:\n"
                           "  - {from: h1, to: h2, rate: 1Gbit/s, packet: 1250}\n"
                           "  - {from: all, to: random, rate: 1Gbit/s, packet: 1250, start: 5ms}\n");
  // 1 Gbit/s in packets of 10 us: 1000 in 10 ms, with the Poisson deviation of its root.
  EXPECT_NEAR(static_cast<double>(outcome.background[0].sent), 1000, 4 * std::sqrt(1000.0));
  EXPECT_NEAR(static_cast<double>(outcome.background[1].sent), 2000, 4 * std::sqrt(2000.0));
  EXPECT_EQ(outcome.groups[0].ended, 10 * kMillisecond);
  // All but what was on its way.
  EXPECT_GE(outcome.background[0].arrived + 10, outcome.background[0].sent);
}

TEST(Workload, FlowsFollowTheRoutesTheyAreGiven) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 4, kTen, kTen);
  const Workload workload = parse_workload(
      "flows: [{from: h0, to: h1, bytes: 1MB, route: [h0, leaf0, spine3, leaf1, h1]}]", "w.yaml", cluster);
  Simulation simulation(cluster, {});
  const auto outcome = run_workload(simulation, workload, {});
  EXPECT_EQ(outcome.flows[0].counters.delivered_bytes, 1'000'000);
  const int up = change_of("leaf0->spine3", cluster).links.at(0);
  EXPECT_EQ(simulation.network().counters(up).packets, outcome.flows[0].counters.segments);
}

TEST(Workload, ALinkThatFailsIsAvoidedUntilItIsRepaired) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 1, kTen, kTen);  // no other way
  const auto outcome = run(cluster,
                           "flows: [{from: h0, to: h1, bytes: 10kB}]\n"
                           "changes: [{at: 0ms, fail: leaf0->spine0}, {at: 25ms, repair: leaf0->spine0}]\n");
  // The retransmission timer doubles from 10 ms: what is sent at 30 ms arrives.
  EXPECT_EQ(outcome.flows[0].counters.timeouts, 2U);
  EXPECT_NEAR(static_cast<double>(outcome.flows[0].ended), 30e9, 1e9);
}

TEST(Workload, TheHorizonNamesGroupsAndFlowsThatHadNotEnded) {
  const std::string said = message_of([] {
    run(star(3, kTen),
        "groups: [{name: big, ranks: [h0, h1], steps: [{compute: 1s}]}]\n"
        "flows: [{from: h0, to: h1, bytes: 1GB}]\n",
        {}, kMillisecond);
  });
  EXPECT_THAT(said, HasSubstr("at the horizon of 1 ms: group big had not ended: 2 of 2 ranks go on"));
  EXPECT_THAT(said, HasSubstr("1 of 1 flows had not ended: 1 (0->1)"));
}

TEST(Workload, BoundedSumsAreStepsOfSomeOfTheWorkers) {
  const auto outcome =
      run(star(5, kTen),
          "groups:\n"
          "  - {name: a, ranks: [h4, h1, h3], repeat: 30, may_lose: 5%, steps: [{compute: 100us}, "
          "{op: all_reduce, bytes: 300KB, algorithm: bounded}, {op: all_reduce, bytes: 30KB, "
          "algorithm: bounded}, {op: broadcast, bytes: 3KB}]}\n"
          "  - {name: b, ranks: [h0, h1], repeat: 30, steps: [{op: all_reduce, bytes: 90KB, "
          "algorithm: bounded}]}\n");
  ASSERT_EQ(outcome.groups.size(), 2U);
  const GroupOutcome& a = outcome.groups[0];
  EXPECT_EQ(a.iterations.size(), 30U);
  EXPECT_THAT(a.algorithms, testing::ElementsAre("", "bounded", "bounded", testing::Ne("")));
  EXPECT_GT(a.losses.sent_bytes, 0U) << "calls after the first, that lose nothing";
  EXPECT_LE(a.losses.lost(), 0.05);
  // Each rank sends and receives two thirds of 300 KB twice, at 10 Gbit/s.
  EXPECT_GT(seconds(a.of_step[1]), 2 * 200e3 * 8 / 10e9);
  EXPECT_LT(seconds(a.of_step[1]), 5 * 200e3 * 8 / 10e9);
  EXPECT_LT(a.of_step[2], a.of_step[1] / 3);
}

TEST(Workload, AGroupSaysWhatPartOfItsSumsMayBeLost) {
  SimulationOptions lossy;
  lossy.network.loss.loss = 0.01;
  const auto lost = [&](const std::string& part) {
    return run(star(3, kTen),
               "groups: [{name: a, ranks: all, repeat: 40, may_lose: " + part +
                   ", steps: [{op: all_reduce, bytes: 600KB, algorithm: bounded}]}]\n",
               lossy)
        .groups[0]
        .losses.lost();
  };
  EXPECT_EQ(lost("0%"), 0);
  const double some = lost("10%");
  EXPECT_GT(some, 0.001);
  EXPECT_LE(some, 0.1);
  EXPECT_LE(lost("10%, may_lose_call: 0.5%"), 0.005);
  EXPECT_EQ(lost("10%, may_lose_sender: 0%"), 0);
}

// Two groups that do the same at the same time, over one link between two leaves.
TEST(Workload, SumsOfTheFrontLayersEndSoonerWhereSwitchesHavePriorities) {
  const auto communication = [](const std::string& depths, const SimulationOptions& options) {
    const auto group = [](const std::string& ranks, char depth) {
      return "  - {name: of " + ranks.substr(0, 2) + ", ranks: [" + ranks +
             "], repeat: 25, queues: 4, steps: [{compute: 100us}, {op: all_reduce, bytes: 2MB, algorithm: "
             "bounded, depth: " +
             depth + "}]}\n";
    };
    const auto outcome = run(leaf_spine(2, 2, 1, kTen, kTen),
                             "groups:\n" + group("h0, h2", depths[0]) + group("h1, h3", depths[1]), options);
    return static_cast<double>(outcome.groups[0].communication) /
           static_cast<double>(outcome.groups[1].communication);
  };
  EXPECT_LT(communication("01", with_priorities()), 0.9);
  EXPECT_GT(communication("10", with_priorities()), 1 / 0.9);
  EXPECT_NEAR(communication("11", with_priorities()), 1, 0.05);
  EXPECT_EQ(communication("01", {}), communication("10", {})) << "a FIFO knows no layers";
}

TEST(Workload, BurstsCostSumsTheirDroppablePacketsFirst) {
  SimulationOptions marking;
  marking.network.switch_queue.mark_bytes = 60'000;
  marking.network.switch_queue.limit_bytes = 1 << 20;
  const auto losses = [&](const std::string& droppable) {
    return run(star(4, kTen),
               "groups: [{name: a, ranks: [h0, h1, h2], repeat: 60, may_lose: 20%" + droppable +
                   ", steps: [{op: all_reduce, bytes: 600KB, algorithm: bounded}]}]\n"
                   "background: [{from: h3, to: h0, rate: 2G, burst: 500KB}]\n",
               marking)
        .groups[0]
        .losses;
  };
  const BoundedLosses some = losses(", droppable: 50%");
  EXPECT_GT(some.lost(), 0.001);
  EXPECT_LT(some.important(), 0.1);
  const BoundedLosses none = losses("");
  EXPECT_LT(none.lost(), some.lost()) << "what a queue does not mark it drops";
  EXPECT_EQ(none.lost_important_bytes, none.lost_bytes);
}

TEST(Workload, WithoutQueuesADepthChangesNothing) {
  const auto iterations = [](const std::string& group, const std::string& step) {
    return run(star(3, kTen),
               "groups: [{name: a, ranks: all, repeat: 30" + group +
                   ", steps: [{op: all_reduce, bytes: 300KB, algorithm: bounded" + step +
                   "}]}]\n"
                   "background: [{from: h1, to: h0, rate: 1G, burst: 500KB}]\n",
               with_priorities())
        .groups[0]
        .iterations;
  };
  const auto plain = iterations("", "");
  EXPECT_EQ(iterations("", ", depth: 0.1"), plain);
  EXPECT_EQ(iterations(", queues: 1, droppable: 0%", ", depth: 1"), plain);
  EXPECT_NE(iterations(", queues: 4", ""), plain);
}

TEST(Workload, BurstsAreFlowsThatSlowOthersAndKeepNoRunAlive) {
  const std::string group =
      "groups: [{name: a, ranks: [h0, h1], repeat: 20, steps: [{compute: 100us}, {op: all_reduce, bytes: "
      "200KB}]}]\n";
  const auto quiet = run(star(4, kTen), group);
  const std::string text = group + "background: [{from: h2, to: h0, rate: 5G, burst: 500KB, start: 1ms}]\n";
  const auto busy = run(star(4, kTen), text);
  const BackgroundOutcome& b = busy.background[0];
  EXPECT_GT(b.sent, 3U);
  EXPECT_GE(b.sent, b.arrived);
  EXPECT_EQ(b.took.size(), b.arrived);
  for (const Picoseconds t : b.took) EXPECT_GT(seconds(t), 500e3 * 8 / 10e9);
  EXPECT_GT(seconds(busy.groups[0].ended), 1.05 * seconds(quiet.groups[0].ended));
  EXPECT_EQ(run(star(4, kTen), text).groups[0].iterations, busy.groups[0].iterations);
  // A mean rate of 5 Gbit/s: 195 ms hold 244 bursts, give or take four deviations.
  const auto alone =
      run(star(4, kTen), "background: [{from: h2, to: random, rate: 5G, burst: 500KB, start: 5ms}]\n", {},
          200 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(alone.background[0].sent), 244, 64);
  EXPECT_LT(seconds(*std::ranges::min_element(alone.background[0].took)), 1e-3) << "since it began";
}

TEST(Workload, BackgroundAloneNeedsAHorizon) {
  const std::string text = "background: [{from: h0, to: h1, rate: 1G}]";
  EXPECT_THAT(message_of([&] { run(star(2, kTen), text); }), HasSubstr("give a horizon"));
  EXPECT_GT(run(star(2, kTen), text, {}, 10 * kMillisecond).background[0].sent, 500U);
}

TEST(Workload, MistakesAreNamedWithTheirLine) {
  const cluster::Cluster cluster = leaf_spine(2, 1, 2, kTen, kTen);
  const auto about = [&](const std::string& text) {
    return message_of([&] { parse_workload(text, "w.yaml", cluster); });
  };
  EXPECT_THAT(about("flows:\n  - {from: h0, to: h9, bytes: 1}\n"),
              HasSubstr("w.yaml:2: flows[0].to: expected the name of a node, got \"h9\""));
  EXPECT_THAT(about("flows:\n  - {from: h0, to: leaf0, bytes: 1}\n"),
              HasSubstr("expected the name of a worker"));
  EXPECT_THAT(about("flows: [{from: h0, to: h1, bytes: 1, route: [h0, leaf0, spine0, leaf0, h1]}]\n"),
              HasSubstr("a loop: the route comes to leaf0 twice"));
  EXPECT_THAT(about("flows: [{from: h0, to: h1, bytes: 1, route: [h0, spine0, leaf1, h1]}]\n"),
              HasSubstr("there is no link h0->spine0"));
  EXPECT_THAT(about("groups: [{ranks: [h0, h0], steps: [{compute: 1ms}]}]\n"), HasSubstr("comes twice"));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: juggle, bytes: 1}]}]\n"),
              HasSubstr("expected a collective"));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: all_reduce, bytes: 1K, algorithm: best}]}]\n"),
              HasSubstr("w.yaml:1: groups[0].steps[0].algorithm"));
  EXPECT_THAT(about("groups: [{ranks: all, jitter: 90%, steps: [{compute: 1ms}]}]\n"),
              HasSubstr("such as 5%"));
  EXPECT_THAT(about("background: [{from: h0, to: h1, rate: 0G}]\n"),
              HasSubstr("w.yaml:1: background[0].rate"));
  EXPECT_THAT(about("changes: [{at: 1ms, fail: h0->spine1}]\n"), HasSubstr("there is no link h0->spine1"));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: reduce, bytes: 8, type: complex128}]}]\n"),
              HasSubstr("steps[0].bytes: expected at least one element of c128, 16 B, got \"8\""));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: gather, bytes: 1K, algorithm: ring}]}]\n"),
              HasSubstr("steps[0].algorithm: ring does not serve gather"));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: reduce, bytes: 0}]}]\n"),
              HasSubstr("steps[0].bytes: expected at least one element of f32, 4 B, got \"0\""));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: all_gather, bytes: 4}]}]\n"),
              HasSubstr("steps[0].bytes: expected at least one element of f32 for each of 2 ranks, 8 B"));
  EXPECT_THAT(about("groups:\n  - {name: a, ranks: all, steps: [{compute: 1ms}]}\n"
                    "  - {name: a, ranks: all, steps: [{compute: 1ms}]}\n"),
              HasSubstr("w.yaml:3: groups[1].name: expected a name of its own: there are two groups \"a\""));
  EXPECT_THAT(about("groups:\n  - {name: group1, ranks: all, steps: [{compute: 1ms}]}\n"
                    "  - {ranks: all, steps: [{compute: 1ms}]}\n"),
              HasSubstr("w.yaml:3: groups[1]: expected a name of its own"));
  EXPECT_THAT(about("background: [{from: h0, to: h0, rate: 1G}]\n"),
              HasSubstr("w.yaml:1: background[0].to: expected another worker than the one in \"from\""));
  EXPECT_THAT(about("background: [{from: h0, to: h1, rate: 1G, start: 2ms, end: 1ms}]\n"),
              HasSubstr("w.yaml:1: background[0].end: expected a time after its start, got \"1ms\""));
  EXPECT_THAT(about("background: [{from: h0, to: h1, rate: 1G, end: 0ms}]\n"),
              HasSubstr("a time after its start"));
  EXPECT_THAT(about("background: [{from: h0, to: h1, rate: 1G, burst: 0}]\n"),
              HasSubstr("background[0].burst: expected a size of at least 1 B"));
  EXPECT_THAT(about("background: [{from: h0, to: h1, rate: 1G, burst: 1MB, packet: 100}]\n"),
              HasSubstr("background[0].burst: a burst is a flow"));
  EXPECT_THAT(about("groups: [{ranks: all, may_lose: 1%, steps: [{compute: 1ms}]}]\n"),
              HasSubstr("groups[0].may_lose: nothing is lost here"));
  EXPECT_THAT(about("groups: [{ranks: all, may_lose_call: 1%, steps: [{compute: 1ms}]}]\n"),
              HasSubstr("groups[0].may_lose_call: nothing is lost here"));
  EXPECT_THAT(
      about("groups: [{ranks: all, may_lose: 5%, may_lose_sender: 6%, steps: [{op: all_reduce, bytes: "
            "8, algorithm: bounded}]}]\n"),
      HasSubstr("groups[0].may_lose_sender: expected a share from 0 to 0.05"));
  EXPECT_THAT(
      about(
          "groups: [{ranks: all, may_lose: 60%, steps: [{op: all_reduce, bytes: 8, algorithm: bounded}]}]\n"),
      HasSubstr("groups[0].may_lose: expected a share from 0 to 0.5"));
  EXPECT_THAT(about("groups: [{ranks: all, steps: [{op: all_gather, bytes: 8, algorithm: bounded}]}]\n"),
              HasSubstr("steps[0].algorithm: bounded loss is of all_reduce alone"));
  EXPECT_THAT(
      about("groups: [{ranks: all, steps: [{op: all_reduce, bytes: 8, algorithm: bounded}, {op: all_reduce, "
            "bytes: 8, type: half, algorithm: bounded}]}]\n"),
      HasSubstr("groups[0].steps: expected one type of all steps"));
  EXPECT_THAT(about("groups: [{ranks: all, queues: 4, steps: [{compute: 1ms}]}]\n"),
              HasSubstr("groups[0].queues: nothing is lost here"));
  EXPECT_THAT(
      about("groups: [{ranks: all, queues: 8, steps: [{op: all_reduce, bytes: 8, algorithm: bounded}]}]\n"),
      HasSubstr("groups[0].queues: expected"));
  EXPECT_THAT(
      about(
          "groups: [{ranks: all, droppable: 2, steps: [{op: all_reduce, bytes: 8, algorithm: bounded}]}]\n"),
      HasSubstr("groups[0].droppable: expected a share from 0 to 1"));
  EXPECT_THAT(
      about("groups: [{ranks: all, steps: [{op: all_reduce, bytes: 8, algorithm: bounded, depth: 9}]}]\n"),
      HasSubstr("steps[0].depth: expected a share from 0 to 1"));
  EXPECT_THAT(
      about("groups: [{ranks: all, steps: [{op: all_reduce, bytes: 1K, algorithm: ring, depth: 0}]}]\n"),
      HasSubstr("steps[0].depth: layers have no priorities here"));
  const Workload one = parse_workload("background: [{from: all, to: h1, rate: 1G}]\n", "w.yaml", cluster);
  EXPECT_THAT(one.background[0].from, testing::ElementsAre(0));
  EXPECT_THAT(about("{}\n"), HasSubstr("expected groups, flows or background"));
}

TEST(Workload, RandomNumbersWithoutLogarithmsHaveTheRightMoments) {
  Random random(5);
  constexpr int kDraws = 200'000;
  double sum = 0;
  double squares = 0;
  int beyond = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = exponential(random);
    sum += x;
    squares += x * x;
    beyond += x > 2 ? 1 : 0;
  }
  // Mean 1, second moment 2, tail e^-2; four standard errors each (variances 1, 20, p(1-p)).
  const double n = kDraws;
  EXPECT_NEAR(sum / n, 1, 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 2, 4 * std::sqrt(20 / n));
  const double tail = std::exp(-2.0);
  EXPECT_NEAR(beyond / n, tail, 4 * std::sqrt(tail * (1 - tail) / n));
}

TEST(Sampler, AddsUpToWhatTheLinksCarriedAndHalvesWhenItHasTooMany) {
  const cluster::Cluster cluster = star(2, kTen);
  Simulation simulation(cluster, {});
  const Sampler sampler(simulation);
  Matrix m;
  m.nodes = 2;
  m.connections.push_back({});
  m.connections[0].to = 1;
  m.connections[0].bytes = 5'000'000;  // some 4 ms: 4000 steps of a microsecond
  run_matrix(simulation, m, kNever);
  EXPECT_LT(sampler.samples(), 2 * Sampler::kMostSamples);
  EXPECT_GE(sampler.samples(), Sampler::kMostSamples / 2);
  std::int64_t sent = 0;
  for (std::size_t i = 0; i < sampler.samples(); ++i) {
    sent += sampler.series(0).sent_bytes[i];
    EXPECT_LE(sampler.use(0, i), 1.01);
  }
  const auto all = static_cast<double>(simulation.network().counters(0).bytes);
  EXPECT_NEAR(static_cast<double>(sent), all, all / 100);  // but for the steps after the last sample
}

TEST(TopologyText, SaysWhatTheGeneratorsMake) {
  EXPECT_EQ(parse_topology("star:hosts=3").workers(), 3);
  EXPECT_EQ(parse_topology("leaf-spine:leaves=2,hosts=3,spines=2,rate=25G,up=100G,latency=2us"),
            leaf_spine(2, 3, 2, {Bandwidth{25e9}, Nanoseconds{2000}}, {Bandwidth{100e9}, Nanoseconds{2000}}));
  EXPECT_EQ(parse_topology("fat-tree:hosts=16,tiers=3"), fat_tree(16, 3, 1, kTen));
  EXPECT_EQ(parse_topology("torus:dims=2x3x4").workers(), 24);
  EXPECT_EQ(parse_topology("dragonfly:routers=2,hosts=2,global=1").workers(), 12);
  const auto about = [](const std::string& text) { return message_of([&] { parse_topology(text); }); };
  const std::string range = "expected a capacity of 1 bit/s to 1000 Tbit/s";
  for (const std::string of : {"star:hosts=4", "star:hosts=1", "fat-tree:hosts=16", "torus:dims=4x4"})
    EXPECT_EQ(about(of + ",rate=2000T"), "topology " + of + ",rate=2000T: rate: " + range);
  EXPECT_EQ(about("star:rate=.10"), "topology star:rate=.10: rate: " + range);
  EXPECT_EQ(about("torus:dims=4x4,up=2000T"), "topology torus:dims=4x4,up=2000T: up: " + range);
  EXPECT_EQ(about("leaf-spine:latency=4000s"),
            "topology leaf-spine:latency=4000s: latency: expected a latency of at most an hour");
  EXPECT_THAT(about("ring:hosts=3"), HasSubstr("expected star, leaf-spine, fat-tree, torus or dragonfly"));
  EXPECT_THAT(about("star:nodes=3"), HasSubstr("\"nodes\" is not known here: expected rate, latency, hosts"));
  EXPECT_THAT(about("star:hosts=many"), HasSubstr("hosts: expected a number"));
  EXPECT_THAT(about("star:hosts"), HasSubstr("expected name=value"));
}

}  // namespace
}  // namespace talweg::sim
