// One run at a time, fed by hand.
#include "protocol/forest/forest_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "forest/planner.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

struct Sent {
  bool up;
  NodeId to;
  std::uint32_t tree, chunk;
  std::vector<float> values;
  std::byte* buffer;
  float progress;
};

class Recorder : public Actions {
 public:
  wire::CallId call(NodeId) const override { return {}; }
  bool send(NodeId to, const wire::Header& header, const Payload& p) override {
    const auto* f = reinterpret_cast<const float*>(p.data);
    const wire::Chunk c = wire::chunk_of(header);
    sent.push_back({c.up, to, c.tree, c.chunk, {f, f + c.bytes / sizeof(float)}, p.buffer, p.progress});
    return copies;
  }
  void tell(NodeId to, const wire::Header& header) override {
    const wire::Credit credit = wire::credit_of(header);
    credits.push_back({to, credit.tree, credit.granted});
  }
  std::uint32_t grant(NodeId, std::uint32_t, std::uint32_t) override { return granted; }
  struct Credit {
    NodeId to;
    std::uint32_t tree, granted;
  };
  std::vector<Sent> sent;
  std::vector<Credit> credits;
  bool copies = true;
  std::uint32_t granted = kLeastWindow;
};

const char* chunk(Transfer& run, bool up, NodeId from, wire::Chunk c, const std::vector<float>& values,
                  Actions& actions) {
  c.up = up;
  c.bytes = static_cast<std::uint32_t>(values.size() * sizeof(float));
  return run.on_frame(from, encode(wire::CallId{}, c), reinterpret_cast<const std::byte*>(values.data()),
                      actions);
}

// A chain 0 <- 1 <- 2 over `n` floats in chunks of `chunk`; the root sends results back.
std::shared_ptr<forest::Forest> chain(int ranks, std::int64_t n, std::int64_t chunk) {
  auto f = std::make_shared<forest::Forest>();
  f->planner = "by hand";
  f->request = {Collective::all_reduce, ranks, 0, 0, {n}, sizeof(float)};
  f->nodes = ranks;
  forest::Tree t;
  t.slice = {0, n};
  for (int r = 0; r < ranks; ++r) {
    t.contributors.push_back(r);
    t.receivers.push_back(r);
    if (r > 0) {
      t.up.push_back({r, r - 1});
      t.down.push_back({r, r - 1});
    }
  }
  t.chunk = chunk;
  f->trees.push_back(t);
  return f;
}

std::byte* bytes(std::vector<float>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

class MiddleOfAChain : public ::testing::Test {
 protected:
  void begin(std::int64_t n, std::int64_t chunk, std::uint32_t grant) {
    in.resize(static_cast<std::size_t>(n));
    std::iota(in.begin(), in.end(), 1.0F);
    out.assign(in.size(), -1.0F);
    run.reset(
        make_local_plan(chain(3, n, chunk), 1, {0, 0}),
        {bytes(in), bytes(out), DataType::f32, kernel::reduce_function(DataType::f32, ReduceOp::sum), 0});
    actions.granted = grant;
    run.begin(actions);
  }
  const char* up(std::uint32_t chunk, std::vector<float> values) {
    return talweg::protocol::chunk(run, true, 2, {.chunk = chunk}, values, actions);
  }
  const char* down(std::uint32_t chunk, std::vector<float> values) {
    return talweg::protocol::chunk(run, false, 0, {.chunk = chunk}, values, actions);
  }

  BufferPool pool;
  ForestRun run{pool};
  Recorder actions;
  std::vector<float> in, out;
};

TEST_F(MiddleOfAChain, AddsItsOwnAndPassesOnWithoutTouchingTheOutput) {
  begin(4, 2, kLeastWindow);
  EXPECT_TRUE(actions.sent.empty());
  ASSERT_EQ(up(0, {10, 20}), nullptr);
  ASSERT_EQ(actions.sent.size(), 1U);
  EXPECT_TRUE(actions.sent[0].up);
  EXPECT_EQ(actions.sent[0].to, 0);
  EXPECT_THAT(actions.sent[0].values, ::testing::ElementsAre(11, 22));
  EXPECT_THAT(out, ::testing::Each(-1.0F));
}

TEST_F(MiddleOfAChain, ResultsGoIntoTheOutputAndOnToTheChild) {
  begin(4, 2, kLeastWindow);
  up(0, {1, 1});
  up(1, {1, 1});
  ASSERT_EQ(down(0, {7, 8}), nullptr);
  EXPECT_FALSE(run.done());
  ASSERT_EQ(down(1, {9, 10}), nullptr);
  EXPECT_TRUE(run.done());
  EXPECT_THAT(out, ::testing::ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(actions.sent.back().to, 2);
  EXPECT_FALSE(actions.sent.back().up);
}

TEST_F(MiddleOfAChain, KeepsWhatArrivesWhileItMayNotSend) {
  begin(8, 2, 0);
  for (std::uint32_t c = 0; c < 4; ++c) ASSERT_EQ(up(c, {1, 1}), nullptr);
  EXPECT_TRUE(actions.sent.empty());
  EXPECT_GT(pool.bytes_in_use(), 0U);
  run.on_ready(0, actions);
  EXPECT_EQ(actions.sent.size(), 4U);
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

TEST_F(MiddleOfAChain, GrantsMoreAsItSums) {
  begin(40, 2, kLeastWindow);
  up(0, {1, 1});
  EXPECT_TRUE(actions.credits.empty());
  up(1, {1, 1});
  ASSERT_EQ(actions.credits.size(), 1U);
  EXPECT_EQ(actions.credits[0].to, 2);
  EXPECT_EQ(actions.credits[0].granted, 2 + kLeastWindow);
}

TEST_F(MiddleOfAChain, SaysHowFarAlongEachChunkIs) {
  begin(8, 2, kLeastWindow);
  for (std::uint32_t c = 0; c < 4; ++c) up(c, {1, 1});
  for (std::uint32_t c = 0; c < 4; ++c) down(c, {1, 1});
  ASSERT_EQ(actions.sent.size(), 8U);
  for (const Sent& sent : actions.sent) EXPECT_EQ(sent.progress, static_cast<float>(sent.chunk) / 4);
}

TEST(LocalTree, WindowsHoldMoreOfSmallChunksButNoMoreThanAQuarterOfATree) {
  const auto window = [](std::int64_t n, std::int64_t chunk) {
    return make_local_plan(chain(3, n, chunk), 1)->trees.at(0).window;
  };
  EXPECT_EQ(window(1 << 20, 1 << 16), kLeastWindow) << "chunks of 256 KiB";
  EXPECT_EQ(window(1 << 20, 1 << 11), 16U) << "chunks of 8 KiB, 128 KiB in all";
  EXPECT_EQ(window(1 << 20, 1 << 8), kMostWindow);
  EXPECT_EQ(window(40 << 8, 1 << 8), 10U) << "40 chunks";
  EXPECT_EQ(window(3 << 8, 1 << 8), 3U);
}

TEST_F(MiddleOfAChain, RefusesWhatMakesNoSense) {
  begin(40, 2, 0);
  EXPECT_STREQ(talweg::protocol::chunk(run, true, 0, {}, {1, 1}, actions),
               "chunk from a rank that is not our child in this tree");
  EXPECT_STREQ(talweg::protocol::chunk(run, true, 2, {.tree = 1}, {1, 1}, actions),
               "chunk of a tree that we take no part in");
  EXPECT_STREQ(up(1, {1, 1}), "chunk out of order");
  EXPECT_STREQ(up(0, {1, 1, 1}), "chunk of a wrong length");
  for (std::uint32_t c = 0; c < kLeastWindow; ++c) EXPECT_EQ(up(c, {1, 1}), nullptr);
  EXPECT_STREQ(up(kLeastWindow, {1, 1}), "chunk beyond the window that was granted");
  EXPECT_STREQ(talweg::protocol::chunk(run, false, 2, {}, {1, 1}, actions),
               "result from a rank that is not our parent");
  EXPECT_STREQ(down(1, {1, 1}), "result out of order");
  EXPECT_STREQ(down(0, {1}), "result of a wrong length");
  EXPECT_STREQ(run.on_frame(2, encode(wire::CallId{}, wire::Credit{0, 9}), nullptr, actions),
               "credit for a tree that it is not our parent in");
}

TEST_F(MiddleOfAChain, IsNotDoneBeforeItsBuffersAreTaken) {
  actions.copies = false;
  begin(2, 2, kLeastWindow);
  up(0, {1, 1});
  down(0, {3, 4});
  EXPECT_FALSE(run.done());
  ASSERT_EQ(actions.sent.size(), 2U);
  for (const Sent& s : actions.sent) run.on_sent(s.tree, s.buffer, nullptr);
  EXPECT_TRUE(run.done());
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

TEST_F(MiddleOfAChain, SaysWhomItWaitsFor) {
  begin(2, 2, kLeastWindow);
  EXPECT_THAT(run.waiting_for(), ::testing::ElementsAre(0, 2));
  up(0, {1, 1});
  EXPECT_THAT(run.waiting_for(), ::testing::ElementsAre(0));
}

TEST_F(MiddleOfAChain, GivesAllBuffersBackWhenItIsGivenUp) {
  begin(40, 2, 1);
  for (std::uint32_t c = 0; c < kLeastWindow; ++c) up(c, {1, 1});
  EXPECT_GT(pool.bytes_in_use(), 0U);
  run.release();
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

TEST(ForestRun, SumsInAFixedOrderWhateverArrivesFirst) {
  // In float32, (1e8 + 1) + -1e8 and (1e8 + -1e8) + 1 differ: the order shows in the bits.
  auto f = std::make_shared<forest::Forest>(*chain(3, 1, 1));
  f->trees[0].up = {{1, 0}, {2, 0}};
  f->trees[0].down = {{1, 0}, {2, 0}};
  const auto plan = make_local_plan(f, 0);
  for (const bool swapped : {false, true}) {
    BufferPool pool;
    ForestRun run(pool);
    Recorder actions;
    std::vector<float> data{1e8F};
    const std::vector<float> one{1.0F};
    const std::vector<float> minus{-1e8F};
    run.reset(plan, {bytes(data), bytes(data), DataType::f32,
                     kernel::reduce_function(DataType::f32, ReduceOp::sum), 0});
    run.begin(actions);
    const auto arrive = [&](NodeId from) {
      ASSERT_EQ(chunk(run, true, from, {}, from == 1 ? one : minus, actions), nullptr);
    };
    arrive(swapped ? 2 : 1);
    arrive(swapped ? 1 : 2);
    EXPECT_TRUE(run.done());
    EXPECT_EQ(data[0], (1e8F + 1.0F) - 1e8F);
  }
}

TEST(ForestRun, AnAverageIsDividedOnceAtTheRoot) {
  BufferPool pool;
  ForestRun run(pool);
  Recorder actions;
  std::vector<float> data{2.0F};
  const std::vector<float> other{4.0F};
  run.reset(make_local_plan(chain(2, 1, 1), 0), {bytes(data), bytes(data), DataType::f32,
                                                 kernel::reduce_function(DataType::f32, ReduceOp::avg), 2});
  run.begin(actions);
  chunk(run, true, 1, {}, other, actions);
  EXPECT_EQ(data[0], 3.0F);
  EXPECT_THAT(actions.sent.at(0).values, ::testing::ElementsAre(3.0F));
}

// Rank 0 scatters: to itself nothing, to ranks 1, 2, ... so many floats, in chunks of four. It may be 64
// bytes ahead. Nobody but the source knows all counts.
class Scattering {
 public:
  Scattering(std::vector<std::int64_t> floats, NodeId self, const forest::BlockLanes& lanes = {}) {
    const int ranks = static_cast<int>(floats.size()) + 1;
    in.assign(static_cast<std::size_t>(std::accumulate(floats.begin(), floats.end(), std::int64_t{0})), 7);
    out.assign(in.size(), -1);
    for (int r = 1; r < ranks && self != 0; ++r)
      if (r != self) floats[static_cast<std::size_t>(r) - 1] = 0;
    floats.insert(floats.begin(), 0);
    auto f = std::make_shared<forest::Forest>();
    f->planner = "by hand";
    f->request = {Collective::scatter, ranks, 0, 0, floats, sizeof(float)};
    f->nodes = ranks;
    std::int64_t offset = 0;
    for (int r = 1; r < ranks; ++r) {
      const std::int64_t count = floats[static_cast<std::size_t>(r)];
      f->trees.push_back({.slice = {offset, count},
                          .root = 0,
                          .contributors = {0},
                          .receivers = {r},
                          .up = {},
                          .down = {{r, 0}},
                          .chunk = 4});
      offset += count;
    }
    run.reset(make_local_plan(f, self, {.ahead_bytes = 64, .lanes = lanes}),
              {bytes(in), bytes(out), DataType::f32, nullptr, 0});
    run.begin(actions);
  }
  // To whom something has been sent since this was asked last.
  std::vector<NodeId> sent_to() {
    std::vector<NodeId> to;
    for (const Sent& s : std::exchange(actions.sent, {}))
      if (to.empty() || to.back() != s.to) to.push_back(s.to);
    return to;
  }
  const char* acknowledge(NodeId from, std::uint32_t chunks) {
    const wire::Credit there{static_cast<std::uint32_t>(from) - 1, chunks};
    return run.on_frame(from, encode(wire::CallId{}, there), nullptr, actions);
  }

  BufferPool pool;
  ForestRun run{pool};
  Recorder actions;
  std::vector<float> in, out;
};

using ::testing::ElementsAre;

TEST(Scatter, TheSourceIsOnlySoFarAheadOfWhatHasArrived) {
  Scattering source({8, 8, 8, 40, 8}, 0);
  EXPECT_THAT(source.sent_to(), ElementsAre(1, 2));
  EXPECT_THAT(source.run.waiting_for(), ElementsAre(1, 2));
  EXPECT_TRUE(source.run.depends_on(2)) << "who is to be told of rank 2's end, or nothing goes on";
  EXPECT_FALSE(source.run.depends_on(3));
  EXPECT_EQ(source.acknowledge(2, 2), nullptr);
  EXPECT_THAT(source.sent_to(), ElementsAre(3));
  EXPECT_EQ(source.acknowledge(1, 2), nullptr);
  EXPECT_THAT(source.sent_to(), ElementsAre(4)) << "always two of them, however large";
  EXPECT_FALSE(source.run.done());
  EXPECT_EQ(source.acknowledge(3, 2), nullptr);
  EXPECT_THAT(source.sent_to(), ElementsAre(5));
  EXPECT_TRUE(source.run.done()) << "what is on its way needs nothing of the source any more";
  EXPECT_FALSE(source.run.depends_on(4));
}

TEST(Scatter, SlowWaysGoFirstAndQuickOnesBesideThem) {
  const forest::BlockLanes lanes{
      {0, 0, 0, 0, 1, 2}, {{100, 0, {{0, forest::kWholeLane}}}, {10, 0, {{0, 100}}}, {5, 0, {{0, 50}}}}, 1};
  Scattering source({8, 8, 8, 8, 8}, 0, lanes);
  EXPECT_THAT(source.sent_to(), ElementsAre(5, 4, 1, 2));
  EXPECT_THAT(source.run.waiting_for(), ElementsAre(1, 2, 4, 5));
  EXPECT_TRUE(source.run.depends_on(5)) << "who is to be told of rank 5's end";
  EXPECT_EQ(source.acknowledge(4, 2), nullptr);
  EXPECT_TRUE(source.sent_to().empty());
  EXPECT_FALSE(source.run.depends_on(4));
  EXPECT_STREQ(source.acknowledge(4, 2), "acknowledgement of what was not sent");
  EXPECT_STREQ(source.acknowledge(3, 2), "acknowledgement of what was not sent");
  EXPECT_EQ(source.acknowledge(1, 2), nullptr);
  EXPECT_THAT(source.sent_to(), ElementsAre(3));
  EXPECT_TRUE(source.run.done());
  EXPECT_TRUE(source.run.waiting_for().empty());
  EXPECT_EQ(source.acknowledge(5, 2), nullptr) << "what comes late is no error";
}

TEST(Scatter, SmallBlocksAreNeitherHeldBackNorAcknowledged) {
  Scattering source({1, 8, 1, 8, 1, 8, 1}, 0);
  std::vector<NodeId> to = source.sent_to();
  std::sort(to.begin(), to.end());
  EXPECT_THAT(to, ElementsAre(1, 2, 3, 4, 5, 7));
  Scattering small({1, 8}, 1);
  ASSERT_EQ(chunk(small.run, false, 0, {.tree = 0}, {3}, small.actions), nullptr);
  EXPECT_TRUE(small.run.done());
  EXPECT_TRUE(small.actions.credits.empty());
}

TEST(Scatter, WhoGetsABlockSaysOnceThatAllOfItIsThere) {
  Scattering receiver({8, 8}, 2);
  ASSERT_EQ(chunk(receiver.run, false, 0, {.tree = 1}, {1, 2, 3, 4}, receiver.actions), nullptr);
  EXPECT_TRUE(receiver.actions.credits.empty());
  ASSERT_EQ(chunk(receiver.run, false, 0, {.tree = 1, .chunk = 1}, {5, 6, 7, 8}, receiver.actions), nullptr);
  ASSERT_EQ(receiver.actions.credits.size(), 1U);
  EXPECT_EQ(receiver.actions.credits[0].to, 0);
  EXPECT_EQ(receiver.actions.credits[0].tree, 1U);
  EXPECT_EQ(receiver.actions.credits[0].granted, 2U);
  EXPECT_TRUE(receiver.run.done());
}

TEST(Scatter, FalseAcknowledgementsAreRefused) {
  Scattering source({8, 8, 8}, 0);
  source.sent_to();
  EXPECT_STREQ(source.acknowledge(1, 1), "acknowledgement of what was not sent");
  EXPECT_STREQ(source.acknowledge(3, 2), "acknowledgement of what was not sent");
  EXPECT_NE(source.run.on_frame(2, encode(wire::CallId{}, wire::Credit{0, 2}), nullptr, source.actions),
            nullptr);
  EXPECT_TRUE(source.sent_to().empty());
  EXPECT_EQ(source.acknowledge(1, 2), nullptr);
  EXPECT_STREQ(source.acknowledge(1, 2), "acknowledgement of what was not sent");
}

TEST(LocalPlan, ChunksThatNoFrameCanCarryAreRefused) {
  EXPECT_THROW(make_local_plan(chain(2, 1 << 20, 1 << 20), 0), Error);
}

}  // namespace
}  // namespace talweg::protocol
