// What is remembered of nodes that only help, and by them: each up to its limit, and what follows beyond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "forest/forest.h"
#include "protocol/forest/local_plan.h"
#include "protocol/session/session.h"

namespace talweg::protocol {
namespace {

constexpr NodeId kHelper = 2;  // of ranks 0 and 1

struct Counting : Outbox {
  bool send(int, const wire::Header& header, const std::byte*, const Token& token, int, bool) override {
    if (header.type == wire::FrameType::announce && wire::announce_of(header).ask) ++questions;
    return !token.data;
  }
  void send_text(int, const wire::Header&, const std::string&) override {}
  void cancel(std::uint64_t) override {}
  void look_at(std::int64_t) override {}
  void completed(void*, const Outcome&) override {}
  int questions = 0;
};

struct OneNode {
  explicit OneNode(NodeId self)
      : session({self, 2, {"rank 0", "rank 1", "aggregator a"}}, 1, out, pool, {}) {}
  Counting out;
  BufferPool pool;
  Session session;
};

TEST(HelperLimits, AnOperationThatManyOthersHaveOvertakenIsStillServedUpToALimit) {
  OneNode node(kHelper);
  std::vector<std::uint64_t> served;
  node.session.serve([&](std::uint64_t call, const wire::Signature&) {
    served.push_back(call);
    return std::optional<Operation>();
  });
  const auto call = [](std::uint64_t number) { return wire::CallId{1, number, {}}; };
  const auto fails = [&](std::uint64_t number) {
    node.session.on_frame(0, encode(call(number), wire::Failure{ErrorCode::timeout, false, 0}), nullptr);
  };
  const auto announced = [&](std::uint64_t number) {
    node.session.on_frame(0, encode(call(number), wire::Announce{}), nullptr);
  };
  for (std::uint64_t n = 1; n <= kRemembered; ++n) fails(n);
  announced(0);
  announced(1);
  announced(kRemembered);
  EXPECT_THAT(served, ::testing::ElementsAre(0)) << "the others have ended";
  fails(kRemembered + 1);
  announced(0);
  announced(1);
  EXPECT_THAT(served, ::testing::ElementsAre(0)) << "so late, it is none";
}

// More than it keeps of one sender comes in all; each time it goes before more comes.
TEST(HelperLimits, WhatIsKeptForAPlanThatNeverComesCountsUntilItsCallHasFailed) {
  constexpr std::size_t kPayload = 1U << 20;
  const std::vector<std::byte> payload(kPayload);
  OneNode node(kHelper);
  node.session.serve([](std::uint64_t, const wire::Signature&) { return std::optional<Operation>(); });
  const auto sends = [&](std::uint64_t number, std::uint32_t chunk) {
    node.session.on_frame(1, encode(wire::CallId{1, number, {}}, wire::Chunk{true, 0, chunk, kPayload}),
                          payload.data());
  };
  constexpr std::uint32_t kMost = kEarlyLimit / (kPayload + sizeof(wire::Header));
  std::uint64_t number = 0;
  for (; number < 3; ++number) {
    for (std::uint32_t chunk = 0; chunk < kMost; ++chunk) sends(number, chunk);
    ASSERT_EQ(node.session.early_bytes(), kMost * (kPayload + sizeof(wire::Header))) << "call " << number;
    node.session.on_frame(1, encode(wire::CallId{1, number, {}}, wire::Failure{ErrorCode::timeout, false, 0}),
                          nullptr);
    ASSERT_EQ(node.session.early_bytes(), 0U) << "call " << number;
  }
  for (std::uint32_t chunk = 0; chunk <= kMost; ++chunk) {
    EXPECT_TRUE(node.session.whole());
    sends(number, chunk);
  }
  EXPECT_FALSE(node.session.whole()) << "one more than it keeps";
  EXPECT_EQ(node.session.early_bytes(), 0U);
}

// Both ranks send all they have to node 2.
std::shared_ptr<const LocalPlan> helped_plan(std::int64_t count, std::uint32_t digest) {
  auto f = std::make_shared<forest::Forest>();
  f->request = forest::even_request(Collective::all_reduce, 2, 0, count, 4);
  f->nodes = 3;
  f->trees.push_back({.slice = {0, count},
                      .root = kHelper,
                      .contributors = {0, 1},
                      .receivers = {0, 1},
                      .up = {{0, kHelper}, {1, kHelper}},
                      .down = {{0, kHelper}, {1, kHelper}},
                      .chunk = count / 4});
  return make_local_plan(f, 0, {.window_bytes = 64, .nodes = 3, .digest = digest});
}

// Whether rank 0, once it has heard of so many plans that node 2 knows them, must ask whether it knows the
// first when it sends more than is sent unheard.
bool asks_again_after(std::uint32_t plans) {
  OneNode rank(0);
  const auto heard = [&](std::uint32_t plan) {
    wire::Signature signature;
    signature.plan = plan;
    rank.session.on_frame(kHelper, encode(wire::CallId{1, 1U << 20, signature}, wire::Announce{}), nullptr);
  };
  for (std::uint32_t plan = 1; plan <= plans; ++plan) heard(plan);
  constexpr std::int64_t kCount = kUnheardBudget / 8;
  const std::vector<std::int32_t> in(kCount);
  std::vector<std::int32_t> out(kCount);
  const auto plan = helped_plan(kCount, 1);
  for (int i = 0; i < 4; ++i) {  // half of the budget each
    Operation operation = make_operation(
        {.op = Collective::all_reduce, .type = DataType::i32, .in = in.data(), .out = out.data()}, 0,
        plan->forest->request);
    operation.plan = plan;
    rank.session.start(std::move(operation));
  }
  return rank.out.questions > 0;
}

TEST(HelperLimits, PlansThatAHelperIsKnownToKnowAreForgottenWhenThereAreTooMany) {
  EXPECT_TRUE(asks_again_after(0)) << "it was never heard to know it";
  EXPECT_FALSE(asks_again_after(1));
  EXPECT_FALSE(asks_again_after(kMostKnown));
  EXPECT_TRUE(asks_again_after(kMostKnown + 1));
}

}  // namespace
}  // namespace talweg::protocol
