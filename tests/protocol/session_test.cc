// Whole groups in one thread over a network with random delays and interleavings, against a serial reference.
#include "protocol/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/collectives.h"
#include "memory_network.h"
#include "random_calls.h"
#include "sanitized.h"

namespace talweg::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Operation operation_for(MemoryNetwork& net, const RandomCall& call, int rank, Buffers& b, Result& result) {
  const forest::Request& q = call.request;
  const bool one_buffer =
      facts(q.op).one_buffer ? rank == q.root : call.in_place && b.in.size() == b.out.size();
  if (one_buffer) b.out = b.in;
  Operation op = make_operation({.op = q.op,
                                 .type = DataType::i32,
                                 .reduction = call.reduction,
                                 .in = one_buffer ? b.out.data() : b.in.data(),
                                 .out = b.out.data()},
                                rank, q);
  op.plan = net.plan(q, call.planner, rank, call.chunk);
  op.deadline_ns = 1'000'000'000;
  op.priority = call.priority;
  op.user = &result;
  return op;
}

// Every rank starts the same calls, each at its own pace, all at once in flight.
void run_group(std::uint64_t seed) {
  Random choice(seed * 977 + 5);
  const int size = 2 + static_cast<int>(choice.below(seed % 10 == 0 ? 15 : 6));
  MemoryNetwork net(size, seed);
  const std::size_t calls = 1 + choice.below(6);
  std::vector<RandomCall> script;
  for (std::size_t c = 0; c < calls; ++c) script.push_back(random_call(choice, size));
  std::vector<std::vector<Buffers>> buffers(static_cast<std::size_t>(size), std::vector<Buffers>(calls));
  std::vector<std::vector<Result>> results(static_cast<std::size_t>(size), std::vector<Result>(calls));
  std::vector<std::size_t> next(static_cast<std::size_t>(size), 0);
  for (int r = 0; r < size; ++r)
    for (std::size_t c = 0; c < calls; ++c)
      buffers[static_cast<std::size_t>(r)][c] = buffers_for(script[c], r, c);
  for (;;) {
    const bool moved = net.random().below(4) != 0 && net.step();
    const auto r = static_cast<std::size_t>(net.random().below(static_cast<std::uint64_t>(size)));
    if (next[r] < calls && net.random().below(3) == 0) {
      const std::size_t c = next[r]++;
      net.session(static_cast<int>(r))
          .start(operation_for(net, script[c], static_cast<int>(r), buffers[r][c], results[r][c]));
    } else if (!moved && std::all_of(next.begin(), next.end(), [&](std::size_t n) { return n == calls; })) {
      if (!net.step()) break;
    }
  }
  for (int r = 0; r < size; ++r) {
    for (std::size_t c = 0; c < calls; ++c) {
      const auto rank = static_cast<std::size_t>(r);
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " rank " << r << " of " << size << " call " << c
                                        << " " << name(script[c].request.op) << " by " << script[c].planner);
      ASSERT_TRUE(results[rank][c].done) << "never ended";
      ASSERT_TRUE(results[rank][c].outcome.ok) << results[rank][c].outcome.text;
      ASSERT_EQ(buffers[rank][c].out, buffers[rank][c].expected);
      if (!script[c].in_place) {
        ASSERT_EQ(buffers[rank][c].in, buffers_for(script[c], r, c).in) << "input changed";
      }
    }
    EXPECT_EQ(net.node(r).pool.bytes_in_use(), 0U) << "buffers lost, seed " << seed;
    EXPECT_EQ(net.session(r).in_flight(), 0U);
  }
}

TEST(Session, GroupsOfTwoToSixteenComputeEveryCollectiveUnderAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < fewer(250U); ++seed) {
    run_group(seed);
    if (HasFatalFailure()) return;
  }
}

struct Pair {
  explicit Pair(int size = 2, std::uint64_t seed = 3, int helpers = 0)
      : net(size, seed, helpers),
        buffers(static_cast<std::size_t>(size)),
        results(static_cast<std::size_t>(size)) {}
  void start(int rank, std::int64_t count, Collective op = Collective::all_reduce,
             const std::string& planner = "chain") {
    RandomCall call;
    call.request = {op, net.size(), 0, 0, {count}, 4};
    call.planner = planner;
    const auto r = static_cast<std::size_t>(rank);
    buffers[r] = buffers_for(call, rank, 0);
    Operation operation = operation_for(net, call, rank, buffers[r], results[r]);
    operation.question_ns = question_ns;
    operation.signature.plan = plan;
    if (!has_plan) operation.plan = nullptr;
    net.session(rank).start(std::move(operation));
  }
  MemoryNetwork net;
  std::vector<Buffers> buffers;
  std::vector<Result> results;
  std::int64_t question_ns = 0;
  std::uint32_t plan = 0;  // its digest, of what is started next
  bool has_plan = true;
};

TEST(Session, RanksThatFollowDifferentPlansDisagree) {
  Pair group(2);
  group.plan = 0xaaaa;
  group.start(0, 10);
  group.plan = 0xbbbb;
  group.start(1, 10);
  group.net.run();
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(group.results[r].outcome.code, ErrorCode::mismatch);
    EXPECT_THAT(group.results[r].outcome.text, HasSubstr("plan 0000aaaa"));
    EXPECT_THAT(group.results[r].outcome.text, HasSubstr("plan 0000bbbb"));
    EXPECT_THAT(group.buffers[r].out, ::testing::Each(-1));
  }
}

TEST(Session, APlanThatIsNotToldAgreesWithAny) {
  Pair group(2);
  group.plan = 0xaaaa;
  group.start(0, 10);
  group.plan = 0;
  group.start(1, 10);
  group.net.run();
  for (std::size_t r = 0; r < 2; ++r)
    EXPECT_TRUE(group.results[r].outcome.ok) << group.results[r].outcome.text;
}

TEST(Session, WhatHasComeForACallThatFailsBeforeItsPlanIsKnownIsDropped) {
  Pair group(2);
  group.has_plan = false;
  group.start(0, 10);
  group.has_plan = true;
  group.start(1, 10);
  group.net.run();
  EXPECT_GT(group.net.session(0).early_bytes(), 0U);
  group.net.session(0).on_time(1'000'000'000);
  EXPECT_EQ(group.net.session(0).early_bytes(), 0U);
}

TEST(Session, WhoOnlyHelpsHearsThatCallsArePastWhenTheyHaveEnded) {
  Pair group(2, 3, 1);
  group.start(0, 10);
  group.net.session(0).renew_plans(1);
  group.net.session(1).renew_plans(1);
  int told = 0;
  const auto look = [&](int rank) {
    for (const Node::Frame& frame : group.net.node(rank).to_[2]) {
      if (frame.header.type != wire::FrameType::past) continue;
      EXPECT_TRUE(group.results[static_cast<std::size_t>(rank)].done);
      EXPECT_EQ(wire::past_of(frame.header).call, 1u);
      ++told;
    }
  };
  for (int r = 0; r < 2; ++r) look(r);
  group.net.run();
  for (int r = 0; r < 2; ++r) look(r);
  EXPECT_EQ(told, 0) << "rank 1 has not called it";
  group.start(1, 10);
  do {
    for (int r = 0; r < 2; ++r) look(r);
  } while (told < 2 && group.net.step());
  EXPECT_GE(told, 2);
}

TEST(Session, AGroupThatIsTooLargeForTheWireIsRefused) {
  MemoryNetwork net(2, 1);
  Node& node = net.node(0);
  const std::vector<std::string> hosts(static_cast<std::size_t>(wire::kMaxRanks) + 1);
  try {
    Session(ranks_only(0, hosts), 1, node, node.pool, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("at most 65536 ranks, not 65537"));
  }
}

TEST(Session, RanksThatDisagreeAllHearBothSidesAndNothingIsWritten) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {100, 101}, {100, 200}, {100, 0}, {5, 4000}, {4000, 5}};
  for (const auto& [a, b] : sizes)
    for (const char* planner : {"chain", "ring", "one_hop", "recursive_doubling", "double_binary_tree"})
      for (int odd = 0; odd < 4; ++odd)
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
          SCOPED_TRACE(::testing::Message()
                       << planner << " " << a << " vs " << b << " on rank " << odd << " seed " << seed);
          Pair group(4, seed);
          for (int r = 0; r < 4; ++r) group.start(r, r == odd ? b : a, Collective::all_reduce, planner);
          group.net.run();
          for (std::size_t r = 0; r < 4; ++r) {
            ASSERT_TRUE(group.results[r].done);
            ASSERT_FALSE(group.results[r].outcome.ok);
            EXPECT_EQ(group.results[r].outcome.code, ErrorCode::mismatch);
            EXPECT_THAT(group.results[r].outcome.text, HasSubstr(std::to_string(a) + " elements"));
            EXPECT_THAT(group.results[r].outcome.text, HasSubstr(std::to_string(b) + " elements"));
            EXPECT_THAT(group.buffers[r].out, ::testing::Each(-1));
            EXPECT_EQ(group.net.node(static_cast<int>(r)).pool.bytes_in_use(), 0U);
          }
          // The group stays usable.
          for (int r = 0; r < 4; ++r) group.results[static_cast<std::size_t>(r)] = {};
          for (int r = 0; r < 4; ++r) group.start(r, 64, Collective::all_reduce, planner);
          group.net.run();
          for (std::size_t r = 0; r < 4; ++r) {
            ASSERT_TRUE(group.results[r].outcome.ok) << group.results[r].outcome.text;
            EXPECT_EQ(group.buffers[r].out, group.buffers[r].expected);
          }
        }
}

TEST(Session, RanksThatChoseDifferentForestsAllHearOfIt) {
  const char* const planners[] = {"chain", "ring", "one_hop", "recursive_doubling", "star"};
  for (const int size : {3, 4, 6})
    for (const char* planner : planners)
      for (const char* other : planners)
        for (int odd = 0; odd < size; ++odd) {
          if (planner == other) continue;
          SCOPED_TRACE(::testing::Message()
                       << planner << ", " << other << " on rank " << odd << " of " << size);
          Pair group(size, static_cast<std::uint64_t>(odd));
          for (int r = 0; r < size; ++r)
            group.start(r, r == odd ? 101 : 100, Collective::all_reduce, r == odd ? other : planner);
          group.net.run();
          for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
            ASSERT_TRUE(group.results[r].done) << r;
            EXPECT_EQ(group.results[r].outcome.code, ErrorCode::mismatch);
            EXPECT_THAT(group.buffers[r].out, ::testing::Each(-1));
          }
        }
}

TEST(Session, DifferentOperationsAreAMismatchToo) {
  Pair group;
  group.start(0, 10, Collective::broadcast);
  group.start(1, 10, Collective::all_reduce);
  group.net.run();
  for (const Result& r : group.results) {
    ASSERT_TRUE(r.done);
    EXPECT_EQ(r.outcome.code, ErrorCode::mismatch);
    EXPECT_THAT(r.outcome.text, HasSubstr("broadcast"));
    EXPECT_THAT(r.outcome.text, HasSubstr("all_reduce"));
  }
}

TEST(Session, ABroadcastThatOneRankGetsWrongReachesNobody) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair group(3, seed);
    group.start(0, 10, Collective::broadcast);
    group.start(1, 10, Collective::broadcast);
    group.start(2, 11, Collective::broadcast);
    group.net.run();
    for (const Result& r : group.results) EXPECT_EQ(r.outcome.code, ErrorCode::mismatch);
    EXPECT_THAT(group.buffers[1].out, ::testing::Each(-1));
  }
}

TEST(Session, ADeadlineNamesWhoHasNotStarted) {
  Pair group(3);
  group.start(0, 10);
  group.start(2, 10);
  group.net.run();
  group.net.session(0).on_time(999'999'999);
  EXPECT_FALSE(group.results[0].done);
  group.net.session(0).on_time(1'000'000'000);
  ASSERT_TRUE(group.results[0].done);
  EXPECT_EQ(group.results[0].outcome.code, ErrorCode::timeout);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("rank 1 (h1)"));
  group.net.run();
  EXPECT_EQ(group.results[2].outcome.code, ErrorCode::timeout) << "the others are told";
  // The late rank learns at once that its collective has failed already.
  group.start(1, 10);
  ASSERT_TRUE(group.results[1].done);
  EXPECT_EQ(group.results[1].outcome.code, ErrorCode::timeout);
}

TEST(Session, ADeadlineNamesWhoDoesNotAnswerAndNotWhoWaitsToo) {
  // In a chain each rank waits for its neighbour: 0 for 1, and 1 for 2, which has not started.
  Pair group(4);
  for (const int r : {0, 1, 3}) {
    group.question_ns = 500;
    group.start(r, 10);
  }
  group.net.run();
  group.net.session(0).on_time(499);
  EXPECT_EQ(group.net.session(0).next_deadline_ns(), 500);
  group.net.session(0).on_time(500);
  EXPECT_EQ(group.net.session(0).next_deadline_ns(), 1'000'000'000);
  group.net.run();
  group.net.session(0).on_time(1'000'000'000);
  ASSERT_TRUE(group.results[0].done);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("timed out: rank 2 (h2) has not started it"));
  EXPECT_THAT(group.results[0].outcome.text, Not(HasSubstr("rank 1")));
}

TEST(Session, ARankThatDiesFailsEverythingInFlightAndAllThatFollows) {
  Pair group(3);
  group.start(0, 10);
  group.start(1, 10);
  group.net.session(0).on_peer_gone(2, ErrorCode::peer_failed, "it closed the connection");
  ASSERT_TRUE(group.results[0].done);
  EXPECT_EQ(group.results[0].outcome.code, ErrorCode::peer_failed);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("rank 2 (h2) failed"));
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("#0"));
  group.net.run();
  EXPECT_EQ(group.results[1].outcome.code, ErrorCode::peer_failed) << "told by rank 0";
  EXPECT_THAT(group.results[1].outcome.text, HasSubstr("noticed by rank 0 (h0)"));
  group.results[0] = {};
  group.start(0, 10);
  EXPECT_EQ(group.results[0].outcome.code, ErrorCode::peer_failed);
}

TEST(Session, ADeathIsPassedOnToARankThatTheNoticerDoesNotReach) {
  // The link between 1 and 2 is cut: 1 takes 2 for dead and tells 0, and 0 tells 2.
  Pair group(3);
  for (int r = 0; r < 3; ++r) group.start(r, 10);
  group.net.session(1).on_peer_gone(2, ErrorCode::peer_failed, "its host has not answered for 15 s");
  group.net.run();
  EXPECT_THAT(group.results[2].outcome.text, HasSubstr("noticed by rank 1 (h1)"));
}

TEST(Session, ARankThatLeavesOnlyFailsWhatStillNeedsIt) {
  Pair group(2);
  group.start(0, 10);
  group.start(1, 10);
  group.net.run();
  EXPECT_TRUE(group.results[0].outcome.ok);
  group.net.session(0).on_peer_gone(1, std::nullopt, "");
  group.results[0] = {};
  group.start(0, 10);
  ASSERT_TRUE(group.results[0].done);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("has left the group"));
}

TEST(Session, ARankThatLeavesBetweenItsAnnouncementAndItsDataIsNotWaitedFor) {
  Pair group(3);
  group.start(0, 10, Collective::reduce, "star");
  group.start(1, 10, Collective::reduce, "star");
  group.net.run();
  group.net.session(1).close();
  group.net.session(0).on_peer_gone(1, std::nullopt, "");
  EXPECT_FALSE(group.results[0].done) << "it had announced it";
  group.start(2, 10, Collective::reduce, "star");
  group.net.run();
  ASSERT_TRUE(group.results[0].done);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("rank 1 (h1) has left the group"));
  EXPECT_TRUE(group.results[2].done) << "whose part was to send";
}

TEST(Session, AReceiveFromARankThatLeavesFailsAtOnce) {
  MemoryNetwork net(3, 0);
  std::vector<std::int32_t> into(10, -1);
  std::vector<Result> results(3);
  Message message;
  message.tag = 4;
  message.signature = {Collective::send_recv, DataType::i32, ReduceOp::sum, 0, 10, 0};
  message.receive = reinterpret_cast<std::byte*>(into.data());
  message.deadline_ns = 1'000'000'000;
  const int sources[] = {1, 2, kAnySource};
  for (std::size_t i = 0; i < 3; ++i) {
    message.peer = sources[i];
    message.user = &results[i];
    net.session(0).receive(message);
  }
  net.session(0).on_peer_gone(1, std::nullopt, "");
  ASSERT_TRUE(results[0].done);
  EXPECT_THAT(results[0].outcome.text, HasSubstr("from rank 1 (h1) tag 4 on rank 0"));
  EXPECT_THAT(results[0].outcome.text, HasSubstr("rank 1 (h1) has left the group"));
  EXPECT_FALSE(results[1].done || results[2].done) << "others may still send";
}

TEST(Session, WhoHasLeftIsWaitedForNoMore) {
  Pair group(2);
  group.start(0, 10);
  group.net.session(0).on_frame(1, encode(wire::Leave{1}), nullptr);
  ASSERT_TRUE(group.results[0].done);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("has left the group"));
}

TEST(Session, AbortReachesEveryRank) {
  Pair group(3);
  for (int r = 0; r < 2; ++r) group.start(r, 10);
  group.net.session(1).abort("enough");
  group.net.run();
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(group.results[r].outcome.code, ErrorCode::aborted);
    EXPECT_THAT(group.results[r].outcome.text, HasSubstr("rank 1 (h1) aborted the group: enough"));
  }
  group.start(2, 10);
  EXPECT_EQ(group.results[2].outcome.code, ErrorCode::aborted);
}

TEST(Session, ManySmallCollectivesAheadOfASlowRankStayWithinTheEagerBudget) {
  constexpr std::size_t kCalls = 200;
  constexpr std::int64_t kElements = 4000;
  MemoryNetwork net(2, 1);
  RandomCall call;
  call.request = {Collective::all_reduce, 2, 0, 0, {kElements}, 4};
  call.planner = "one_hop";
  call.chunk = kElements;
  std::vector<Buffers> buffers(2 * kCalls);
  std::vector<Result> results(2 * kCalls);
  const auto start = [&](int rank, std::size_t c) {
    const std::size_t i = c * 2 + static_cast<std::size_t>(rank);
    buffers[i] = buffers_for(call, rank, c);
    net.session(rank).start(operation_for(net, call, rank, buffers[i], results[i]));
  };
  for (std::size_t c = 0; c < kCalls; ++c) start(0, c);
  std::size_t ahead = 0;
  for (const auto& f : net.node(0).to_[1]) ahead += f.header.length;
  EXPECT_GT(ahead, kEagerBudget / 2);
  EXPECT_LE(ahead, kEagerBudget);
  net.run();
  for (std::size_t c = 0; c < kCalls; ++c) start(1, c);
  net.run();
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i].done && results[i].outcome.ok) << i;
    ASSERT_EQ(buffers[i].out, buffers[i].expected);
  }
}

TEST(Session, ALeafOutOfBudgetAsksARootThatWouldTellItNothing) {
  // A star: the root sends nothing to a leaf before it has heard from all, and names only its successor.
  constexpr std::size_t kCalls = 150;
  constexpr std::int64_t kElements = 4000;
  MemoryNetwork net(4, 2);
  RandomCall call;
  call.request = {Collective::all_reduce, 4, 0, 0, {kElements}, 4};
  call.planner = "star";
  call.chunk = kElements;
  std::vector<Buffers> buffers(4 * kCalls);
  std::vector<Result> results(4 * kCalls);
  for (int rank = 3; rank >= 0; --rank) {
    for (std::size_t c = 0; c < kCalls; ++c) {
      const std::size_t i = c * 4 + static_cast<std::size_t>(rank);
      buffers[i] = buffers_for(call, rank, c);
      net.session(rank).start(operation_for(net, call, rank, buffers[i], results[i]));
    }
    net.run();
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i].done && results[i].outcome.ok) << i;
    ASSERT_EQ(buffers[i].out, buffers[i].expected);
  }
}

TEST(Session, FailuresOfManyEarlyCollectivesDoNotUseUpWhatASenderMayHave) {
  constexpr std::int64_t kElements = 15000;
  for (int round = 0; round < 2; ++round) {
    Pair group(2);
    for (int c = 0; c < 300; ++c) {
      group.results = std::vector<Result>(2);
      group.start(1, kElements, Collective::all_reduce, "one_hop");
      group.net.run();
      group.net.session(1).on_time(2'000'000'000);  // fails there before rank 0 has started it
      group.net.run();
      group.start(0, kElements, Collective::all_reduce, "one_hop");
      ASSERT_EQ(group.results[0].outcome.code, ErrorCode::timeout)
          << c << ": " << group.results[0].outcome.text;
    }
  }
}

TEST(Session, AMessageGivenUpByItsSenderIsNotReceivedLater) {
  MemoryNetwork net(2, 0);
  std::vector<std::int32_t> data(10, 1);
  std::vector<std::int32_t> into(10, -1);
  Result first;
  Result second;
  Result received;
  Message message;
  message.peer = 1;
  message.signature = {Collective::send_recv, DataType::i32, ReduceOp::sum, 0, 10, 0};
  message.send = reinterpret_cast<const std::byte*>(data.data());
  message.deadline_ns = 1;
  message.user = &first;
  net.session(0).send(message);
  net.run();
  net.session(0).on_time(5);
  EXPECT_EQ(first.outcome.code, ErrorCode::timeout);
  net.run();
  message.deadline_ns = 100;
  message.user = &second;
  data.assign(10, 2);
  net.session(0).send(message);
  message.peer = 0;
  message.send = nullptr;
  message.receive = reinterpret_cast<std::byte*>(into.data());
  message.user = &received;
  net.session(1).receive(message);
  net.run();
  EXPECT_TRUE(second.done && second.outcome.ok);
  EXPECT_TRUE(received.done && received.outcome.ok) << received.outcome.text;
  EXPECT_THAT(into, ::testing::Each(2));
}

TEST(Session, ASenderThatIgnoresItsBudgetIsCutOff) {
  Pair group;
  wire::Header h;
  h.type = wire::FrameType::up;
  h.group = 1;
  h.length = 1000;
  const std::vector<std::byte> payload(h.length);
  for (std::uint64_t s = 0; s < 16000; ++s) {
    h.sequence = 100 + s;
    group.net.session(0).on_frame(1, h, payload.data());
  }
  group.start(0, 10);
  EXPECT_EQ(group.results[0].outcome.code, ErrorCode::corrupted);
  EXPECT_THAT(group.results[0].outcome.text, HasSubstr("eager budget"));
}

TEST(Session, MessagesFindTheirReceiversInOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    MemoryNetwork net(3, seed);
    constexpr std::size_t kMessages = 12;
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<std::vector<std::int32_t>> received;
    std::vector<Result> results(2 * kMessages);
    for (std::size_t m = 0; m < kMessages; ++m) {
      sent.emplace_back(m * 40, static_cast<std::int32_t>(m));
      received.emplace_back(m * 40, -1);
    }
    std::size_t next_send = 0;
    std::size_t next_receive = 0;
    while (next_send < kMessages || next_receive < kMessages || net.step()) {
      if (next_send < kMessages && net.random().below(3) == 0) {
        const std::size_t m = next_send++;
        Message message;
        message.peer = 1;
        message.tag = static_cast<std::uint32_t>(m % 2);
        message.signature = {
            Collective::send_recv, DataType::i32, ReduceOp::sum, 0, static_cast<std::int64_t>(m * 40), 0};
        message.send = reinterpret_cast<const std::byte*>(sent[m].data());
        message.deadline_ns = 1;
        message.user = &results[m];
        net.session(0).send(message);
      }
      if (next_receive < kMessages && net.random().below(3) == 0) {
        const std::size_t m = next_receive++;
        Message message;
        message.peer = m % 3 == 0 ? kAnySource : 0;
        message.tag = static_cast<std::uint32_t>(m % 2);
        message.signature = {
            Collective::send_recv, DataType::i32, ReduceOp::sum, 0, static_cast<std::int64_t>(m * 40), 0};
        message.receive = reinterpret_cast<std::byte*>(received[m].data());
        message.deadline_ns = 1;
        message.user = &results[kMessages + m];
        net.session(1).receive(message);
      }
    }
    for (std::size_t m = 0; m < kMessages; ++m) {
      ASSERT_TRUE(results[m].done && results[m].outcome.ok) << results[m].outcome.text;
      ASSERT_TRUE(results[kMessages + m].done && results[kMessages + m].outcome.ok);
      EXPECT_EQ(results[kMessages + m].outcome.source, 0);
      ASSERT_EQ(received[m], sent[m]);
    }
  }
}

TEST(Session, AMessageOfAnotherSizeFailsOnBothSidesUnwritten) {
  MemoryNetwork net(2, 0);
  Result sent;
  Result received;
  std::vector<std::int32_t> data(10, 1);
  std::vector<std::int32_t> into(12, -1);
  Message message;
  message.peer = 1;
  message.signature = {Collective::send_recv, DataType::i32, ReduceOp::sum, 0, 10, 0};
  message.send = reinterpret_cast<const std::byte*>(data.data());
  message.deadline_ns = 1;
  message.user = &sent;
  net.session(0).send(message);
  message.peer = 0;
  message.signature.count = 12;
  message.receive = reinterpret_cast<std::byte*>(into.data());
  message.user = &received;
  net.session(1).receive(message);
  net.run();
  EXPECT_EQ(sent.outcome.code, ErrorCode::mismatch);
  EXPECT_EQ(received.outcome.code, ErrorCode::mismatch);
  EXPECT_THAT(sent.outcome.text, HasSubstr("12 elements"));
  EXPECT_THAT(into, ::testing::Each(-1));
}

}  // namespace
}  // namespace talweg::protocol
