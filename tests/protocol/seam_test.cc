// The seam between sessions and transfers, from both sides: another transfer than the forest's, nodes that
// are no ranks, and what sessions promise about the order of calls whatever carries them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "flood.h"
#include "forest/verify.h"
#include "memory_network.h"
#include "protocol/forest/forest_run.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

using ::testing::HasSubstr;

const std::byte* bytes(const std::vector<std::int32_t>& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}
std::byte* bytes(std::vector<std::int32_t>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

constexpr std::int64_t kFarAway = 1'000'000'000;

// What `ranks` of a network do with one vector each.
struct Calls {
  explicit Calls(MemoryNetwork& network, std::int64_t elements = 1)
      : net(network), count(elements), results(static_cast<std::size_t>(net.size())) {
    for (int r = 0; r < net.size(); ++r) {
      in.emplace_back(static_cast<std::size_t>(count), 1 << r);
      out.emplace_back(static_cast<std::size_t>(count), -1);
    }
  }
  Operation operation(int rank, Collective op = Collective::all_reduce) {
    const auto r = static_cast<std::size_t>(rank);
    const forest::Request q = forest::even_request(op, net.size(), 0, count, 4);
    Operation made =
        make_operation({.op = op, .type = DataType::i32, .in = in[r].data(), .out = out[r].data()}, rank, q);
    made.deadline_ns = kFarAway;
    made.user = &results[r];
    made.plan = net.plan(q,
                         op == Collective::all_reduce ? "ring"
                         : op == Collective::barrier  ? "binomial"
                                                      : "direct",
                         rank, 64);
    return made;
  }
  void start(int rank, std::shared_ptr<const Plan> plan) {
    Operation made = operation(rank);
    made.plan = std::move(plan);
    net.session(rank).start(std::move(made));
  }
  void start(int rank, Collective op = Collective::all_reduce) {
    net.session(rank).start(operation(rank, op));
  }
  Result& result(int rank) { return results[static_cast<std::size_t>(rank)]; }

  MemoryNetwork& net;
  std::int64_t count;
  std::vector<Result> results;
  std::vector<std::vector<std::int32_t>> in, out;
};

// Its pieces have a frame type of their own, are received where they belong, and come only when it has heard
// the time.
TEST(Seam, AnotherTransferRunsInTheSameSessionAsForests) {
  const auto placed = std::make_shared<int>(0);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    MemoryNetwork net(4, seed);
    Calls flood(net, 100);
    Calls forest(net, 100);
    for (int r = 0; r < 4; ++r) {
      const auto plan = flood_plan(r, 4, 400);
      plan->placed = placed;
      flood.start(r, plan);
      forest.start(r);
    }
    net.run();
    for (int r = 0; r < 4; ++r) {
      ASSERT_TRUE(flood.result(r).outcome.ok) << flood.result(r).outcome.text;
      ASSERT_TRUE(flood.result(r).done);
      EXPECT_THAT(flood.out[static_cast<std::size_t>(r)], ::testing::Each(15));
      EXPECT_THAT(forest.out[static_cast<std::size_t>(r)], ::testing::Each(15));
      EXPECT_EQ(net.session(r).in_flight(), 0U);
      EXPECT_EQ(net.node(r).pool.bytes_in_use(), 0U);
    }
  }
  EXPECT_GT(*placed, 100);
}

// Of several that wait, each is heard in its turn.
TEST(Seam, EachTransferHearsItsOwnTime) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    MemoryNetwork net(3, seed);
    std::deque<Calls> calls;
    for (const std::int64_t pause_ns : {50'000, 7'000, 300, 7'000}) {
      calls.emplace_back(net);
      for (int r = 0; r < 3; ++r) calls.back().start(r, flood_plan(r, 3, 4, pause_ns));
      for (int i = 0; i < 10; ++i) net.step();
    }
    net.run();
    for (Calls& call : calls)
      for (int r = 0; r < 3; ++r) EXPECT_TRUE(call.result(r).done && call.result(r).outcome.ok) << seed;
    EXPECT_GE(net.now_ns(), 50'000) << "before its time";
  }
}

TEST(Seam, ASessionSaysForAnyTransferWhomItWaitsForAndFailsWithoutThem) {
  MemoryNetwork net(3, 1);
  Calls calls(net);
  calls.start(0, flood_plan(0, 3, 4));
  calls.start(1, flood_plan(1, 3, 4));
  net.run();
  const auto pending = net.session(0).pending();
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_THAT(pending[0].absent, ::testing::ElementsAre(2));
  net.session(0).on_time(kFarAway);
  EXPECT_EQ(calls.result(0).outcome.code, ErrorCode::timeout);
  EXPECT_THAT(calls.result(0).outcome.text, HasSubstr("rank 2 (h2) has not started it"));
  net.run();
  EXPECT_FALSE(calls.result(1).outcome.ok) << "the others are told";
}

TEST(Seam, RanksWithOtherPlansDoNotTakeEachOthersDataForTheirs) {
  MemoryNetwork net(2, 1);
  Calls calls(net);
  for (const int r : {0, 1}) {
    const auto plan = flood_plan(r, 2, 4);
    plan->digest = r == 0 ? 0xa : 0xb;
    calls.start(r, plan);
  }
  net.run();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(calls.result(r).outcome.code, ErrorCode::mismatch);
    EXPECT_THAT(calls.result(r).outcome.text, HasSubstr("plan 0000000a"));
  }
}

// ---- Nodes that are no ranks ----

// Ranks 0 and 1, and node 2, which sums what they have and sends it back.
std::shared_ptr<forest::Forest> through_node_2(std::int64_t count, std::int64_t chunk) {
  auto f = std::make_shared<forest::Forest>();
  f->planner = "by hand";
  f->request = forest::even_request(Collective::all_reduce, 2, 0, count, 4);
  f->nodes = 3;
  f->trees.push_back({.slice = {0, count},
                      .root = 2,
                      .contributors = {0, 1},
                      .receivers = {0, 1},
                      .up = {{0, 2}, {1, 2}},
                      .down = {{0, 2}, {1, 2}},
                      .chunk = chunk});
  return f;
}

struct Helped {
  explicit Helped(std::uint64_t seed, std::int64_t elements = 1000, std::int64_t chunk = 10)
      : net(2, seed, 1), calls(net, elements), forest(through_node_2(elements, chunk)) {
    net.session(2).serve([this](std::uint64_t sequence, const wire::Signature& signature) {
      served.push_back(sequence);
      return knows_plan ? std::optional(part_of_node_2(signature)) : std::nullopt;
    });
  }
  std::shared_ptr<const LocalPlan> plan(int node) {
    return make_local_plan(forest, node,
                           {.window_bytes = 64, .ahead_bytes = 64, .nodes = 3, .digest = 0xabc});
  }
  Operation part_of_node_2(const wire::Signature& signature) {
    Operation part;
    part.plan = plan(2);
    part.signature = signature;
    part.operands.type = signature.type;
    part.operands.reduce = kernel::reduce_function(signature.type, signature.reduction);
    part.all_contribute = signature.op == Collective::all_reduce;
    part.deadline_ns = kFarAway;
    part.user = &helped.emplace_back();
    return part;
  }

  MemoryNetwork net;
  Calls calls;
  std::shared_ptr<forest::Forest> forest;
  std::deque<Result> helped;  // by operation
  std::vector<std::uint64_t> served;
  bool knows_plan = true;
};

TEST(Seam, ANodeThatIsNoRankStartsItsPartWhenItHearsOfIt) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Helped group(seed);
    for (int call = 0; call < 3; ++call) {
      Calls calls(group.net, group.calls.count);
      for (int r = 0; r < 2; ++r) calls.start(r, group.plan(r));
      group.net.run();
      for (int r = 0; r < 2; ++r) {
        ASSERT_TRUE(calls.result(r).outcome.ok) << calls.result(r).outcome.text;
        EXPECT_THAT(calls.out[static_cast<std::size_t>(r)], ::testing::Each(3));
      }
      EXPECT_TRUE(group.helped.back().done && group.helped.back().outcome.ok);
    }
    EXPECT_THAT(group.served, ::testing::ElementsAre(0, 1, 2));
    EXPECT_EQ(group.net.node(2).pool.bytes_in_use(), 0U);
  }
}

TEST(Seam, ANodeThatLearnsItsPartLateKeepsWhatHasCome) {
  Helped group(4);
  group.knows_plan = false;
  for (int r = 0; r < 2; ++r) group.calls.start(r, group.plan(r));
  group.net.run();
  EXPECT_FALSE(group.calls.result(0).done);
  group.knows_plan = true;
  group.net.session(2).serve_early();
  group.net.run();
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(group.calls.result(r).outcome.ok) << r;
}

TEST(Seam, WhatANodeThatIsNoRankDoesNotKnowWhenRank0LeavesFails) {
  Helped group(4);
  group.knows_plan = false;
  group.calls.start(1, group.plan(1));
  group.net.run();
  EXPECT_FALSE(group.calls.result(1).done);
  group.net.session(0).leave(2);
  group.net.run();
  ASSERT_TRUE(group.calls.result(1).done) << "what had come before";
  EXPECT_EQ(group.calls.result(1).outcome.code, ErrorCode::peer_failed);
  EXPECT_THAT(group.calls.result(1).outcome.text, HasSubstr("rank 0 (h0) has left the group"));
  Calls later(group.net, group.calls.count);
  later.start(1, group.plan(1));
  group.net.run();
  ASSERT_TRUE(later.result(1).done) << "what comes later";
  EXPECT_THAT(later.result(1).outcome.text, HasSubstr("rank 0 (h0) has left the group"));
  group.knows_plan = true;
  Calls known(group.net, group.calls.count);
  known.start(1, group.plan(1));
  group.net.run();
  EXPECT_EQ(group.served.back(), 2U);
  EXPECT_EQ(group.helped.size(), 1U) << "what it knows it begins";
}

// Calls of all kinds at once: one that has ended, one that has begun, some whose plan is unknown, of which
// one has run out of time; and rank 0's leaving at any moment among their frames.
TEST(Seam, ANodeThatIsNoRankKeepsNothingOfAnyCallOnceRank0HasLeft) {
  std::size_t most_kept = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Helped group(seed);
    MemoryNetwork& net = group.net;
    const std::set<std::uint64_t> known{0, 1, 5};
    net.session(2).serve([&](std::uint64_t sequence, const wire::Signature& signature) {
      return known.contains(sequence) ? std::optional(group.part_of_node_2(signature)) : std::nullopt;
    });
    std::deque<Calls> calls;
    const auto call = [&](std::int64_t deadline_ns) {  // of rank 1
      calls.emplace_back(net, group.calls.count);
      Operation operation = calls.back().operation(1);
      operation.plan = group.plan(1);
      operation.deadline_ns = deadline_ns;
      net.session(1).start(std::move(operation));
    };
    call(kFarAway);
    calls.back().start(0, group.plan(0));
    net.run();
    ASSERT_TRUE(calls[0].result(1).done && calls[0].result(1).outcome.ok) << calls[0].result(1).outcome.text;
    for (const std::int64_t deadline_ns : {kFarAway, kFarAway, std::int64_t{1}, kFarAway}) call(deadline_ns);
    const std::uint64_t steps = net.random().below(400);
    for (std::uint64_t i = 0; i < steps; ++i) net.step();
    most_kept = std::max(most_kept, net.session(2).early_bytes());
    net.session(1).on_time(1);
    net.session(0).leave(2);
    net.run();
    for (int i = 0; i < 2; ++i) call(kFarAway);
    net.run();
    for (std::size_t i = 1; i < calls.size(); ++i) {
      ASSERT_TRUE(calls[i].result(1).done) << "call " << i << " hangs, seed " << seed;
      EXPECT_EQ(calls[i].result(1).outcome.code, i == 3 ? ErrorCode::timeout : ErrorCode::peer_failed);
    }
    EXPECT_EQ(net.session(2).early_bytes(), 0U) << "seed " << seed;
    EXPECT_EQ(net.session(2).in_flight(), 0U) << "seed " << seed;
    EXPECT_EQ(net.node(2).pool.bytes_in_use(), 0U) << "seed " << seed;
    EXPECT_EQ(net.session(1).in_flight(), 0U) << "seed " << seed;
  }
  EXPECT_GT(most_kept, 0U) << "nothing was kept that could have been kept too long";
}

// Ranks 0 and 1 below node 3, which is below node 2.
std::shared_ptr<forest::Forest> through_nodes_3_and_2(std::int64_t count, std::int64_t chunk) {
  auto f = through_node_2(count, chunk);
  f->nodes = 4;
  f->trees[0].up = {{0, 3}, {1, 3}, {3, 2}};
  f->trees[0].down = {{3, 2}, {0, 3}, {1, 3}};
  forest::verify(*f);
  return f;
}

TEST(Seam, ANodeThatPassesResultsOnGoesOnSummingWhenTheyHaveLeft) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    MemoryNetwork net(2, seed, 2);
    Calls calls(net, 300);
    const auto forest = through_nodes_3_and_2(calls.count, 10);
    const auto plan = [&](int node) {
      return make_local_plan(forest, node, {.window_bytes = 64, .ahead_bytes = 64, .nodes = 4});
    };
    Result helped[2];
    for (const int node : {2, 3})
      net.session(node).serve([&, node](std::uint64_t, const wire::Signature& signature) {
        Operation part;
        part.plan = plan(node);
        part.signature = signature;
        part.operands.type = signature.type;
        part.operands.reduce = kernel::reduce_function(signature.type, signature.reduction);
        part.deadline_ns = kFarAway;
        part.user = &helped[node - 2];
        return std::optional(part);
      });
    for (int r = 0; r < 2; ++r) calls.start(r, plan(r));
    net.run();
    for (int r = 0; r < 2; ++r) {
      ASSERT_TRUE(calls.result(r).done) << "seed " << seed << ": it hangs";
      EXPECT_THAT(calls.out[static_cast<std::size_t>(r)], ::testing::Each(3));
    }
    for (const Result& part : helped) EXPECT_TRUE(part.done && part.outcome.ok);
  }
}

// Its two children send all they have; one of them takes nothing.
TEST(Seam, ANodeThatKeepsNoResultsHoldsFewForAPeerThatTakesThemSlowly) {
  struct Slow : Actions {
    wire::CallId call(NodeId) const override { return {}; }
    bool send(NodeId to, const wire::Header&, const Payload& payload) override {
      if (to == 1) unsent.push_back(payload);
      return to != 1;
    }
    void tell(NodeId to, const wire::Header& header) override {
      granted[static_cast<std::size_t>(to)] = wire::credit_of(header).granted;
    }
    std::uint32_t grant(NodeId, std::uint32_t, std::uint32_t) override { return kStarted; }
    std::deque<Payload> unsent;
    std::uint32_t granted[2] = {kLeastWindow, kLeastWindow};
  } actions;
  constexpr std::uint32_t kChunks = 500;
  constexpr std::size_t kChunkBytes = 64;
  BufferPool pool;
  ForestRun run(pool);
  run.reset(make_local_plan(through_node_2(kChunks * 16, 16), 2, {.window_bytes = 64, .nodes = 3}),
            {nullptr, nullptr, DataType::i32, kernel::reduce_function(DataType::i32, ReduceOp::sum), 0});
  run.begin(actions);
  const std::vector<std::byte> zeros(kChunkBytes);
  std::uint32_t sent[2] = {0, 0};
  while (!run.done()) {
    for (const NodeId from : {0, 1})
      for (std::uint32_t& n = sent[from]; n < std::min(kChunks, actions.granted[from]); ++n)
        ASSERT_EQ(run.on_frame(from, encode(wire::CallId{}, wire::Chunk{true, 0, n, kChunkBytes}),
                               zeros.data(), actions),
                  nullptr);
    ASSERT_FALSE(actions.unsent.empty()) << "it waits for ever, with " << sent[0] << " chunks summed";
    const Actions::Payload taken = actions.unsent.front();
    actions.unsent.pop_front();
    run.on_sent(taken.piece, taken.buffer, &actions);
  }
  EXPECT_EQ(sent[1], kChunks);
  EXPECT_LE(pool.peak_bytes(), (kResultWindows + 3) * kLeastWindow * kChunkBytes);
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

// Rank 0 sends the sum of its pair to both ranks of the other one.
TEST(Seam, ASumThatSeveralPeersAreSentStaysUntilAllHaveTakenIt) {
  auto forest = std::make_shared<forest::Forest>();
  forest->request = forest::even_request(Collective::all_reduce, 4, 0, 5, 4);
  forest->nodes = 4;
  forest->sums_once = true;
  const std::vector<std::vector<forest::Edge>> up = {
      {{1, 0}, {2, 0}, {3, 2}}, {{0, 1}, {3, 1}, {2, 3}}, {{3, 2}, {0, 2}, {1, 0}}, {{2, 3}, {0, 3}, {1, 0}}};
  for (int r = 0; r < 4; ++r)
    forest->trees.push_back({.slice = {0, 5},
                             .root = r,
                             .contributors = {0, 1, 2, 3},
                             .receivers = {r},
                             .up = up[static_cast<std::size_t>(r)],
                             .down = {},
                             .chunk = 5});
  forest::verify(*forest);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    MemoryNetwork net(4, seed);
    Calls calls(net, 5);
    for (int r = 0; r < 4; ++r) calls.start(r, make_local_plan(forest, r));
    net.run();
    for (int r = 0; r < 4; ++r) {
      ASSERT_TRUE(calls.result(r).outcome.ok) << calls.result(r).outcome.text;
      EXPECT_THAT(calls.out[static_cast<std::size_t>(r)], ::testing::Each(15));
      EXPECT_EQ(net.node(r).pool.bytes_in_use(), 0U) << "seed " << seed;
    }
  }
}

TEST(Seam, WhoeverWaitsForANodeThatIsNoRankNamesIt) {
  Helped group(4);
  group.knows_plan = false;
  for (int r = 0; r < 2; ++r) group.calls.start(r, group.plan(r));
  group.net.run();
  const auto pending = group.net.session(0).pending();
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_THAT(pending[0].text, HasSubstr("aggregator 2 (h2)"));
  EXPECT_TRUE(pending[0].absent.empty() && pending[0].silent.empty()) << "whoever counts by rank would miss";
  group.net.session(0).on_time(kFarAway);
  EXPECT_THAT(group.calls.result(0).outcome.text, HasSubstr("aggregator 2 (h2)"));
}

// What one rank gives up before it has its plan, another may have begun with a node that helps.
TEST(Seam, ANodeThatIsNoRankHearsOfAFailureFromARankThatHasNoPlan) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Helped group(seed);
    group.calls.start(0, group.plan(0));
    Operation waiting = group.calls.operation(1);
    waiting.plan = nullptr;
    waiting.deadline_ns = 1;
    group.net.session(1).start(std::move(waiting));
    group.net.run();
    group.net.session(1).on_time(1);
    group.net.run();
    for (int r = 0; r < 2; ++r) EXPECT_EQ(group.calls.result(r).outcome.code, ErrorCode::timeout);
    EXPECT_EQ(group.net.session(2).in_flight(), 0U) << "it waits for ever";
    EXPECT_EQ(group.net.node(2).pool.bytes_in_use(), 0U);
  }
}

TEST(Seam, ARankMayLeaveBeforeANodeThatIsNoRankKnowsWhatToDoWithItsData) {
  Helped group(4);
  auto forest = std::make_shared<forest::Forest>(*group.forest);
  forest->request.op = Collective::reduce;
  forest->trees[0].receivers = {0};
  forest->trees[0].down = {{0, 2}};
  forest::verify(*forest);
  group.forest = forest;
  group.knows_plan = false;
  for (int r = 0; r < 2; ++r) {
    Operation operation = group.calls.operation(r, Collective::reduce);
    operation.plan = group.plan(r);
    group.net.session(r).start(std::move(operation));
  }
  group.net.session(2).on_frame(1, encode(wire::Leave{1}), nullptr);  // its data are not here
  group.knows_plan = true;
  group.net.session(2).serve_early();
  group.net.run();
  EXPECT_EQ(group.calls.result(0).outcome.code, ErrorCode::peer_failed);
  EXPECT_THAT(group.calls.result(0).outcome.text, HasSubstr("rank 1 (h1) has left the group"));

  Helped late(4, 40, 10);  // within its window
  late.forest = forest;
  forest->request.counts = {40};
  forest->trees[0].slice.count = 40;
  late.knows_plan = false;
  for (int r = 0; r < 2; ++r) {
    Operation operation = late.calls.operation(r, Collective::reduce);
    operation.plan = late.plan(r);
    late.net.session(r).start(std::move(operation));
  }
  late.net.run();
  ASSERT_TRUE(late.calls.result(1).done) << "all that it had was sent";
  for (const int to : {0, 2}) late.net.session(1).leave(to);
  late.net.run();
  late.knows_plan = true;
  late.net.session(2).serve_early();
  late.net.run();
  EXPECT_TRUE(late.calls.result(0).done && late.calls.result(0).outcome.ok)
      << late.calls.result(0).outcome.text;
  EXPECT_THAT(late.calls.out[0], ::testing::Each(3));
}

// Rank 0's word of a plan may come late to it, when ranks are many calls ahead.
TEST(Seam, ANodeThatIsNoRankIsSentNoMoreThanItKeepsBeforeItKnowsThePlan) {
  constexpr std::int64_t kElements = 1 << 18;  // a MiB, all of it in one window
  Helped group(4, kElements, kElements / 4);
  group.knows_plan = false;
  std::deque<Calls> calls;
  for (int i = 0; i < 12; ++i) {
    calls.emplace_back(group.net, kElements);
    for (int r = 0; r < 2; ++r) calls.back().start(r, group.plan(r));
  }
  group.net.run();
  for (const Calls& call : calls) ASSERT_FALSE(call.results[0].done) << call.results[0].outcome.text;
  group.knows_plan = true;
  group.net.session(2).serve_early();
  group.net.run();
  for (Calls& call : calls)
    for (int r = 0; r < 2; ++r) ASSERT_TRUE(call.result(r).done && call.result(r).outcome.ok) << r;
  EXPECT_EQ(group.net.node(2).pool.bytes_in_use(), 0U);
}

// What it takes for a rank's death may be a link of its own.
TEST(Seam, ANodeThatIsNoRankFailsAlone) {
  Helped group(4);
  for (int r = 0; r < 2; ++r) group.calls.start(r, group.plan(r));
  group.net.session(2).on_peer_gone(1, ErrorCode::peer_failed, "no route");
  group.net.run();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(group.calls.result(r).outcome.code, ErrorCode::peer_failed);
    EXPECT_THAT(group.calls.result(r).outcome.text,
                HasSubstr("rank 1 (h1) failed: no route (noticed by aggregator 2 (h2))"));
  }
  Calls without(group.net, 8);
  for (int r = 0; r < 2; ++r) without.start(r);
  group.net.run();
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(without.result(r).outcome.ok) << without.result(r).outcome.text;
}

TEST(Seam, WithoutANodeThatIsNoRankItsOperationsFailAndTheGroupGoesOn) {
  Helped group(4);
  for (int r = 0; r < 2; ++r) group.calls.start(r, group.plan(r));
  for (int r = 0; r < 2; ++r) {
    group.net.session(r).on_peer_gone(2, ErrorCode::peer_failed, "it closed the connection");
    EXPECT_EQ(group.calls.result(r).outcome.code, ErrorCode::peer_failed);
    EXPECT_THAT(group.calls.result(r).outcome.text,
                HasSubstr("aggregator 2 (h2) failed: it closed the connection"));
  }
  Calls again(group.net, 8);
  again.start(0, group.plan(0));
  EXPECT_EQ(again.result(0).outcome.code, ErrorCode::peer_failed) << "a plan that still goes through it";
  again.start(1, group.plan(1));
  Calls without(group.net, 8);
  for (int r = 0; r < 2; ++r) without.start(r);
  group.net.run();
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(without.result(r).outcome.ok) << without.result(r).outcome.text;
}

TEST(Seam, ATreeThroughANodeThatNobodyIsIsRefused) {
  try {
    make_local_plan(through_node_2(8, 8), 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("goes through node 2, and nobody is that node"));
  }
  EXPECT_THAT(make_local_plan(through_node_2(8, 8), 0, {.nodes = 3})->helpers, ::testing::ElementsAre(2));
}

// ---- The order of calls ----

TEST(Seam, ABarrierEndsAfterEverythingThatItsRankStartedBefore) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    MemoryNetwork net(2, seed);
    std::vector<std::int32_t> box(1, -1);
    Result received;
    Message message{.peer = kAnySource, .tag = 7, .signature = {Collective::send_recv, DataType::i32}};
    message.signature.count = 1;
    message.receive = bytes(box);
    message.deadline_ns = kFarAway;
    message.user = &received;
    net.session(0).receive(message);
    Calls barrier(net), later(net);
    for (int r = 0; r < 2; ++r) {
      barrier.start(r, Collective::barrier);
      later.start(r);
    }
    net.run();
    EXPECT_TRUE(barrier.result(1).done);
    EXPECT_FALSE(barrier.result(0).done) << "what it posted before has not come";
    EXPECT_TRUE(later.result(0).outcome.ok && later.result(0).done) << "what comes after may overtake it";
    for (const auto& pending : net.session(0).pending())
      if (pending.user == &barrier.result(0)) {
        EXPECT_THAT(pending.text, HasSubstr("which was called before it, has not ended here"));
      }
    const std::vector<std::int32_t> sent(1, 42);
    Result gone;
    message.peer = 0;
    message.receive = nullptr;
    message.send = bytes(sent);
    message.user = &gone;
    net.session(1).send(message);
    net.run();
    EXPECT_TRUE(barrier.result(0).done && barrier.result(0).outcome.ok);
    EXPECT_EQ(box[0], 42);
  }
}

TEST(Seam, BarriersThatWaitForEarlierCallsEndInTheirOrderAndWhenTheseFail) {
  MemoryNetwork net(2, 5);
  Calls odd(net), first(net), second(net);
  odd.start(0);  // which rank 1 never calls in time
  for (Calls* barrier : {&first, &second}) barrier->start(0, Collective::barrier);
  odd.start(1, Collective::broadcast);
  for (Calls* barrier : {&first, &second}) barrier->start(1, Collective::barrier);
  net.run();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(odd.result(r).outcome.code, ErrorCode::mismatch);
    EXPECT_TRUE(first.result(r).outcome.ok && first.result(r).done);
    EXPECT_TRUE(second.result(r).outcome.ok && second.result(r).done);
    EXPECT_EQ(net.session(r).in_flight(), 0U);
  }
}

}  // namespace
}  // namespace talweg::protocol
