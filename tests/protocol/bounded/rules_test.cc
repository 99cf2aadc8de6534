// Bounded-loss transfers, a rule at a time, with hand-made packets.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "protocol/bounded/pair.h"

namespace talweg::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using wire::BoundedType;

constexpr LossBounds kTenth{100'000, 100'000, 100'000, 1};

TEST(BoundedRules, WithoutALossEverythingArrivesOnceAndNothingElseIsSaid) {
  BoundedPair pair({});
  pair.expect(1);
  pair.begin(1);
  const auto sent = pair.all_up();
  ASSERT_THAT(sent, SizeIs(100));
  for (const auto& m : sent) pair.up(m);
  EXPECT_FALSE(pair.inflow().open());
  EXPECT_FALSE(pair.inflow().failure());
  EXPECT_EQ(pair.out, pair.in);
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  EXPECT_TRUE(control[0].is(BoundedType::stop));
  pair.down(control[0]);
  EXPECT_FALSE(pair.outflow().open());
  EXPECT_TRUE(pair.outflow().lost().empty());
  EXPECT_EQ(pair.outflow().counters().again, 0U);
  EXPECT_EQ(pair.outflow().counters().probes, 0U);
}

TEST(BoundedRules, AsMuchAsTheBoundAllowsIsZeroAtTheEndAndBothEndsKnowWhat) {
  BoundedPair pair(kTenth);
  const std::vector<std::uint32_t> lost{0, 1, 2, 30, 31, 32, 33, 97, 98, 99};
  run_first_pass(pair, 1, lost);
  EXPECT_TRUE(pair.inflow().open());  // more may be on its way
  pair.pass(2 * kMs);
  ASSERT_FALSE(pair.inflow().open());
  for (std::uint32_t p = 0; p < 100; ++p) {
    const bool is_lost = std::ranges::find(lost, p) != lost.end();
    EXPECT_EQ(pair.inflow().missing().has(p), is_lost) << p;
    for (std::size_t i = p * 40; i < (p + 1) * 40; ++i)
      ASSERT_EQ(pair.out[i], is_lost ? std::byte{0} : pair.in[i]) << i;
  }
  for (const auto& m : pair.all_down()) pair.down(m);
  EXPECT_FALSE(pair.outflow().open());
  EXPECT_EQ(pair.outflow().lost(), pair.inflow().missing());
}

TEST(BoundedRules, OnePacketMoreAndTheHolesAreNamedAndOnlyTheseAreSentAgain) {
  BoundedPair pair(kTenth);
  const std::vector<std::uint32_t> lost{0, 1, 2, 30, 31, 32, 33, 60, 97, 98, 99};
  run_first_pass(pair, 1, lost);
  pair.pass(20 * kMs);
  EXPECT_TRUE(pair.inflow().open());
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  EXPECT_TRUE(control[0].is(BoundedType::holes));
  EXPECT_EQ(control[0].named(), lost);
  pair.down(control[0]);
  std::vector<std::uint32_t> again;
  for (const auto& m : pair.all_up())
    if (m.is(BoundedType::data)) {
      EXPECT_TRUE(m.data().again);
      again.push_back(m.data().packet);
      pair.up(m);
    }
  std::ranges::sort(again);
  EXPECT_EQ(again, lost);
  EXPECT_FALSE(pair.inflow().open());
  EXPECT_EQ(pair.out, pair.in);
}

TEST(BoundedRules, AStopEndsWhatIsBeingSentAtOnce) {
  BoundedTimes times;
  times.linger_ns = 0;
  BoundedPair pair(kTenth, {1, 100 * 40, 40}, times);
  pair.expect(1);
  pair.begin(1);
  int sent = 0;
  std::vector<SentMessage> control;
  while (auto m = pair.next_up()) {
    ++sent;
    pair.up(*m);
    control = pair.all_down();
    for (const auto& c : control) pair.down(c);
  }
  EXPECT_EQ(sent, 90);
  EXPECT_FALSE(pair.sender.has_data());
  EXPECT_EQ(pair.outflow().lost().count(), 10U);
  EXPECT_EQ(pair.outflow().counters().spared, 10U);
}

TEST(BoundedRules, OfAnExactIterationNothingMayBeMissing) {
  BoundedPair pair(kTenth);
  for (const bool exact : {true, false}) {
    const std::uint32_t iteration = exact ? 1 : 2;
    pair.receiver.begin(iteration, exact);
    pair.receiver.expect(0, pair.out.data(), 10'000 * kMs, pair.now);
    pair.begin(iteration);
    for (const auto& m : pair.all_up())
      if (m.data().packet != 5) pair.up(m);
    pair.pass(20 * kMs);
    EXPECT_EQ(pair.inflow().open(), exact);
    for (const auto& c : pair.all_down()) pair.down(c);
    for (const auto& m : pair.all_up()) pair.up(m);
    for (const auto& c : pair.all_down()) pair.down(c);
    EXPECT_FALSE(pair.inflow().open());
    EXPECT_EQ(pair.inflow().missing().count(), exact ? 0U : 1U);
  }
}

TEST(BoundedRules, ALingerMayBeAnotherOneFromNowOn) {
  BoundedPair pair(kTenth);
  pair.receiver.set_linger(5 * kMs);
  pair.expect(1);
  pair.begin(1);
  // Nobody hears that they were the last.
  auto sent = pair.all_up();
  sent.resize(95);
  for (const auto& m : sent) pair.up(m);
  pair.pass(4 * kMs);
  EXPECT_TRUE(pair.inflow().open());
  pair.pass(2 * kMs);
  EXPECT_FALSE(pair.inflow().open());
  EXPECT_EQ(pair.inflow().counters().at_linger, 1U);
}

TEST(BoundedRules, HolesThatAreNamedTwiceAreSentAgainOnce) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5});
  pair.pass(20 * kMs);
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  pair.down(control[0]);
  EXPECT_THAT(pair.all_up(), SizeIs(1));
  pair.down(control[0]);
  EXPECT_THAT(pair.all_up(), testing::IsEmpty());
  EXPECT_EQ(pair.outflow().counters().old_reports, 1U);
}

TEST(BoundedRules, WhatHasNotLeftYetIsNoHole) {
  BoundedPair pair({});
  pair.expect(1);
  pair.begin(1);
  for (int i = 0; i < 50; ++i) {
    const auto m = pair.next_up();
    if (i != 10) pair.up(*m);
  }
  pair.pass(20 * kMs);
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  EXPECT_THAT(control[0].named(), SizeIs(51));
  pair.down(control[0]);
  EXPECT_EQ(pair.outflow().counters().early_holes, 50U);
  EXPECT_THAT(pair.all_up(), SizeIs(51));
}

TEST(BoundedRules, ThePacketsOfTheEndSayThatTheyAreAndASilenceBehindThemIsShort) {
  BoundedPair pair({}, {1, 1000 * 40, 40});
  pair.expect(1);
  pair.begin(1);
  const auto sent = pair.all_up();
  ASSERT_THAT(sent, SizeIs(1000));
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i].data().last, i >= 990) << i;
  for (std::size_t i = 0; i < 990; ++i)
    if (i != 7) pair.up(sent[i]);
  pair.pass(300'000);
  EXPECT_THAT(pair.all_down(), testing::IsEmpty());  // without a hint it waits for a round's time
  pair.up(sent[995]);
  pair.pass(300'000);
  EXPECT_THAT(pair.all_down(), SizeIs(1));
}

TEST(BoundedRules, AProbeIsAnsweredOnceAndALostAnswerIsAskedForAgain) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {40});
  pair.pass(5 * kMs);
  (void)pair.all_down();  // these holes are lost
  pair.pass(10 * kMs);
  auto probe = pair.next_up();
  ASSERT_TRUE(probe && probe->is(BoundedType::probe));
  EXPECT_EQ(probe->header.service, wire::kControlClass);
  (void)pair.all_down();
  pair.up(*probe);
  EXPECT_THAT(pair.all_down(), SizeIs(1));
  pair.up(*probe);
  EXPECT_THAT(pair.all_down(), testing::IsEmpty());
  pair.pass(20 * kMs);
  probe = pair.next_up();
  ASSERT_TRUE(probe && probe->is(BoundedType::probe));
  (void)pair.all_down();
  pair.up(*probe);
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  EXPECT_THAT(control[0].named(), ElementsAre(40));
}

TEST(BoundedRules, ALostStopIsSaidAgainToWhoeverAsksWithWhatWasLost) {
  BoundedPair pair(kTenth);
  run_first_pass(pair, 1, {8, 9});
  pair.pass(2 * kMs);
  ASSERT_THAT(pair.all_down(), SizeIs(1));
  pair.expect(2);  // of the next iteration nothing has come
  pair.pass(30 * kMs);
  const auto probe = pair.next_up();
  ASSERT_TRUE(probe && probe->is(BoundedType::probe));
  pair.up(*probe);
  const auto control = pair.all_down();
  ASSERT_THAT(control, SizeIs(1));
  EXPECT_TRUE(control[0].is(BoundedType::stop));
  EXPECT_THAT(control[0].named(), ElementsAre(8, 9));
  pair.down(control[0]);
  EXPECT_FALSE(pair.outflow().open());
  EXPECT_EQ(pair.outflow().lost().count(), 2U);
}

TEST(BoundedRules, LateAndRepeatedPacketsChangeNothing) {
  BoundedPair pair(kTenth);
  pair.expect(1);
  pair.begin(1);
  const auto sent = pair.all_up();
  for (const auto& m : sent) {
    pair.up(m);
    pair.up(m);
  }
  EXPECT_EQ(pair.inflow().counters().packets, 100U);
  for (const auto& m : pair.all_down()) pair.down(m);
  std::ranges::fill(pair.in, std::byte{9});
  pair.expect(2);
  pair.begin(2);
  for (const auto& m : sent) pair.up(m);  // of iteration 1
  EXPECT_EQ(pair.inflow().missing().count(), 100U);
  EXPECT_EQ(pair.inflow().counters().stale, 100U + 1U);  // with the last one's repetition
  for (const auto& m : pair.all_up()) pair.up(m);
  EXPECT_EQ(pair.out, pair.in);
}

TEST(BoundedRules, APacketThatMustArriveIsSentAgainFirstAndWaitedFor) {
  BoundedPair pair(kTenth);
  PacketSet important(100);
  important.add(50);
  important.add(99);
  run_first_pass(pair, 1, {1, 2, 50}, {.priority = 3, .important = &important, .must = true});
  pair.pass(20 * kMs);
  EXPECT_TRUE(pair.inflow().open()) << "three may be missing, but not these three";
  for (const auto& m : pair.all_down()) pair.down(m);
  const auto first = pair.next_up();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->data().packet, 50U);
  EXPECT_TRUE(first->data().is_must);
  EXPECT_EQ(first->header.service, 3);
  pair.up(*first);
  pair.pass(2 * kMs);
  ASSERT_FALSE(pair.inflow().open());
  EXPECT_EQ(pair.inflow().missing().count(), 2U);
}

TEST(BoundedRules, HowManyMustArriveIsSaidAnewInEachIteration) {
  BoundedPair pair({});
  for (std::uint32_t iteration = 1; iteration < 4; ++iteration) {
    PacketSet important(100);
    for (std::uint32_t i = 0; i < iteration * 10; ++i) important.add(i);
    pair.expect(iteration);
    pair.begin(iteration, {.priority = 3, .important = &important, .must = true});
    for (const auto& m : pair.all_up()) {
      EXPECT_EQ(m.data().must, iteration * 10);
      pair.up(m);
    }
    for (const auto& m : pair.all_down()) pair.down(m);
    EXPECT_FALSE(pair.outflow().open());
  }
  EXPECT_EQ(pair.inflow().counters().malformed, 0U);
}

TEST(BoundedRules, HolesAndLossesOfManyPacketsAreToldAWindowAtATime) {
  const std::uint32_t packets = 2 * wire::kHoleWindow + 100;
  const std::vector<std::uint32_t> lost{3, wire::kHoleWindow, wire::kHoleWindow + 1, packets - 1};
  for (const bool bound : {false, true}) {
    BoundedPair pair(bound ? LossBounds{1000, 1000, 1000, 1} : LossBounds{}, {1, packets * 4, 4});
    run_first_pass(pair, 1, lost);
    pair.pass(20 * kMs);
    EXPECT_EQ(pair.inflow().open(), !bound);
    const auto control = pair.all_down();
    ASSERT_THAT(control, SizeIs(3));
    EXPECT_THAT(control[0].named(), ElementsAre(3));
    EXPECT_THAT(control[1].named(), ElementsAre(wire::kHoleWindow, wire::kHoleWindow + 1));
    EXPECT_THAT(control[2].named(), ElementsAre(packets - 1));
    // A part of a stop is not enough to know what was lost.
    for (const auto& m : control) {
      EXPECT_TRUE(pair.outflow().open());
      pair.down(m);
    }
    EXPECT_EQ(pair.outflow().open(), !bound);
    EXPECT_EQ(pair.outflow().lost().count(), bound ? 4U : 0U);
    EXPECT_THAT(pair.all_up(), SizeIs(bound ? 0 : 4));
  }
}

TEST(BoundedRules, OnlyUnimportantPacketsAreDroppableAndOnlyTheFirstTime) {
  BoundedPair pair({});
  PacketSet important(100);
  for (std::uint32_t i = 0; i < 50; ++i) important.add(i);
  pair.expect(1);
  pair.begin(1, {.priority = 2, .important = &important});
  for (const auto& m : pair.all_up()) {
    const bool droppable = (m.header.service & wire::kDroppable) != 0;
    EXPECT_EQ(droppable, m.data().packet >= 50);
    EXPECT_EQ(m.header.service & wire::kPriorityMask, 2);
    if (m.data().packet != 80) pair.up(m);
  }
  pair.pass(20 * kMs);
  for (const auto& m : pair.all_down()) pair.down(m);
  const auto again = pair.all_up();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].header.service, 2);
}

TEST(BoundedRules, WhatAnotherTransferHasLostOfAnIterationIsGone) {
  const BoundedTimes times;
  BoundedReceiver receiver({100'000, 100'000, 50'000, 1}, times);
  const BoundedShape shape{1, 100 * 40, 40};
  BoundedSender a(0, 9, times), b(1, 9, times);
  receiver.add(0, shape);
  receiver.add(1, shape);
  a.add(shape);
  b.add(shape);
  std::vector<std::byte> in(shape.bytes, std::byte{1}), out_a(shape.bytes), out_b(shape.bytes);
  receiver.begin(1);
  receiver.expect(0, out_a.data(), 1000 * kMs, 0);
  receiver.expect(1, out_b.data(), 1000 * kMs, 0);
  a.begin(0, 1, in.data(), {}, 1000 * kMs, 0);
  b.begin(0, 1, in.data(), {}, 1000 * kMs, 0);
  const auto send_but = [&](BoundedSender& from, std::uint16_t id, int lost) {
    wire::DatagramHeader header;
    std::vector<std::byte> payload(100);
    for (int i = 0; from.next(0, header, payload.data()); ++i) {
      header.sender = id;
      if (i >= lost) receiver.on(header, std::span(payload).first(header.length), 0);
    }
  };
  send_but(a, 0, 8);  // of 10 that may be missing in the iteration
  send_but(b, 1, 3);
  receiver.on_time(20 * kMs);
  EXPECT_FALSE(receiver.stream(0).open());
  EXPECT_TRUE(receiver.stream(1).open());
  EXPECT_EQ(receiver.stream(1).counters().held_by_iteration, 1U);
}

TEST(BoundedRules, ASenderThatLosesInEachIterationHasNothingLeftToLose) {
  LossBudget budget({100'000, 20'000, 1'000'000 - 1, 3});
  budget.add(4, 1000);
  budget.add(5, 1000);
  std::uint64_t lost = 0;
  for (int iteration = 0; iteration < 10; ++iteration) {
    budget.begin();
    const std::uint64_t most = budget.allowance(4, 1000);
    EXPECT_EQ(most, 20U);
    budget.spend(4, most);
    lost += most;
  }
  EXPECT_EQ(lost, 200U);
  EXPECT_EQ(budget.allowance(5, 1000), 60U) << "what was not lost is kept for three iterations";
  EXPECT_EQ(budget.allowance(6, 1000), 0U);
  EXPECT_EQ(budget.allowance(5, 100), 10U);
}

TEST(BoundedRules, BoundsAreWholeBytesRoundedDown) {
  LossBudget budget({10'000, 10'000, 10'000, 1});
  budget.add(0, 199);
  budget.begin();
  EXPECT_EQ(budget.allowance(0, 199), 1U);
  EXPECT_EQ(budget.allowance(0, 99), 0U);
  EXPECT_THROW(LossBudget({1'000'000, 0, 0, 1}), Error);
  EXPECT_THROW(LossBudget({0, 0, 0, 0}), Error);
  EXPECT_THROW(LossBudget({0, 0, 0, 17}), Error);
  EXPECT_THROW(budget.add(1, kMostBoundedBytes), Error);
}

TEST(BoundedRules, BoundsAreAsUsersSayThem) {
  const LossBounds alike = bounds_of({0.1, {}, {}});
  EXPECT_EQ(alike.tensor_ppm, 100'000U);
  EXPECT_EQ(alike.sender_ppm, 100'000U);
  EXPECT_EQ(alike.iteration_ppm, 100'000U);
  const LossBounds less = bounds_of({0.1, 0.02, 0.05});
  EXPECT_EQ(less.tensor_ppm, 100'000U);
  EXPECT_EQ(less.sender_ppm, 20'000U);
  EXPECT_EQ(less.iteration_ppm, 50'000U);
  EXPECT_EQ(less.burst, kMostBurst);
  for (const LossParts& none : {LossParts{0.1, 0.0, {}}, LossParts{0.1, {}, 9e-7}, LossParts{0, {}, {}}})
    EXPECT_EQ(bounds_of(none).tensor_ppm, 0U) << "nothing can be missing";
  EXPECT_EQ(complaint_about({0.1, 0.1, 0.0}, "a", "b"), "");
  EXPECT_EQ(complaint_about({0.1, 0.2, {}}, "a", "b"),
            "a = 0.2: expected 0 to 0.1, the part of any data that may be missing");
  EXPECT_THAT(complaint_about({0.1, {}, -0.1}, "a", "b"),
              ::testing::HasSubstr("b = -0.1: expected 0 to 0.1"));
  EXPECT_NE(complaint_about({0.1, {}, std::numeric_limits<double>::quiet_NaN()}, "a", "b"), "");
}

// Invariant: what is cut off at the end is another tenth each time. The same tail would be lost in all of
// them.
TEST(BoundedRules, OverFiftyIterationsNoPacketIsCutOffMuchMoreOftenThanOthers) {
  for (const std::uint16_t sender : std::to_array<std::uint16_t>({0, 1, 7, 63})) {
    for (const std::uint32_t packets : {27U, 100U, 1000U}) {
      std::map<std::uint32_t, int> lost;
      const std::uint32_t cut = packets / 10;
      for (std::uint32_t iteration = 1000; iteration < 1050; ++iteration) {
        const std::uint32_t first = first_to_leave(packets, iteration, sender, 5);
        ASSERT_LT(first, packets);
        for (std::uint32_t i = packets - cut; i < packets; ++i) ++lost[(first + i) % packets];
      }
      const double mean = 50.0 * cut / packets;
      for (const auto& [packet, times] : lost) EXPECT_LE(times, 2 * mean) << packet << " of " << packets;
    }
  }
}

TEST(BoundedRules, TransfersLeaveInAnotherOrderInEachIterationAndFromEachSender) {
  BoundedPair pair({});
  std::vector<std::uint32_t> firsts;
  for (std::uint32_t iteration = 1; iteration < 6; ++iteration) {
    pair.expect(iteration);
    pair.begin(iteration);
    const auto sent = pair.all_up();
    firsts.push_back(sent[0].data().packet);
    for (std::size_t i = 1; i < sent.size(); ++i)
      EXPECT_EQ(sent[i].data().packet, (sent[i - 1].data().packet + 1) % 100);
    for (const auto& m : sent) pair.up(m);
    for (const auto& m : pair.all_down()) pair.down(m);
  }
  std::ranges::sort(firsts);
  EXPECT_EQ(std::ranges::adjacent_find(firsts), firsts.end());
  EXPECT_NE(first_to_leave(100, 1, 0, 1), first_to_leave(100, 1, 1, 1));
}

TEST(BoundedRules, ADeadlineNamesTheSenderAndWhatIsMissing) {
  BoundedPair pair(kTenth);
  pair.expect(1, 50 * kMs);
  pair.begin(1, {}, 60 * kMs);
  const auto sent = pair.all_up();
  for (std::size_t i = 0; i < 80; ++i) pair.up(sent[i]);
  pair.pass(60 * kMs);
  ASSERT_TRUE(pair.inflow().failure());
  EXPECT_EQ(pair.inflow().failure()->code, ErrorCode::timeout);
  EXPECT_THAT(pair.inflow().failure()->text,
              HasSubstr("tensor 1 of iteration 1 from rank 3: 20 of 100 packets are missing at the deadline, "
                        "800 bytes where at most 400 may be"));
  EXPECT_EQ(pair.receiver.take_ended(), std::optional<std::size_t>(0));
  ASSERT_TRUE(pair.outflow().failure());
  EXPECT_THAT(pair.outflow().failure()->text, HasSubstr("to rank 9: nothing was heard from it"));
}

TEST(BoundedRules, WhoIsNeverHeardOfIsSaidToBeSo) {
  BoundedPair pair(kTenth);
  pair.expect(1, 50 * kMs);
  pair.pass(50 * kMs);
  ASSERT_TRUE(pair.inflow().failure());
  EXPECT_TRUE(pair.inflow().failure()->silent);
  EXPECT_THAT(pair.inflow().failure()->text, HasSubstr("from rank 3: nothing has come by the deadline"));
}

TEST(BoundedRules, ItIsAskedWhetherLargeDatagramsPassWhereOnlySmallOnesDo) {
  BoundedPair pair(kTenth);
  pair.expect(1, 50 * kMs);
  pair.begin(1, {}, 60 * kMs);
  for (int i = 0; i < 60; ++i) {
    for (const auto& m : pair.all_up())
      if (m.payload.size() < wire::kBoundedHeadBytes) pair.up(m);
    for (const auto& m : pair.all_down()) pair.down(m);
    pair.pass(kMs);
  }
  ASSERT_TRUE(pair.inflow().failure());
  EXPECT_FALSE(pair.inflow().failure()->silent);
  EXPECT_THAT(
      pair.inflow().failure()->text,
      HasSubstr("from rank 3: none of 100 packets has come by the deadline, though probes have: does the "
                "path take datagrams that carry 64 bytes?"));
}

TEST(BoundedRules, ASenderIsToldThatItsReceiverHasGivenUp) {
  BoundedPair pair({});
  pair.expect(1, 5 * kMs);
  pair.pass(10 * kMs);
  (void)pair.all_down();
  pair.begin(1);
  pair.pass(20 * kMs);
  pair.up(*pair.next_up());
  for (const auto& m : pair.all_down()) pair.down(m);
  ASSERT_TRUE(pair.outflow().failure());
  EXPECT_EQ(pair.outflow().failure()->code, ErrorCode::peer_failed);
  EXPECT_THAT(pair.outflow().failure()->text, HasSubstr("was given up by its receiver, rank 9"));
  EXPECT_FALSE(pair.sender.has_data());
}

TEST(BoundedRules, EndsThatCutATensorInAnotherWayFailAtOnce) {
  BoundedPair pair({});
  pair.expect(1);
  BoundedSender other(BoundedPair::kFrom, BoundedPair::kTo, {});
  other.add({1, 99 * 40, 40});
  other.begin(0, 1, pair.in.data(), {}, 1000 * kMs, 0);
  SentMessage m;
  m.payload.resize(100);
  ASSERT_TRUE(other.next(0, m.header, m.payload.data()));
  m.payload.resize(m.header.length);
  m.header.sender = BoundedPair::kFrom;
  pair.up(m);
  ASSERT_TRUE(pair.inflow().failure());
  EXPECT_EQ(pair.inflow().failure()->code, ErrorCode::mismatch);
  EXPECT_THAT(pair.inflow().failure()->text, HasSubstr("sends 99 packets of 40 bytes, the last of 40; "
                                                       "expected 100 of 40, the last of 40"));
  EXPECT_EQ(pair.out[0], std::byte{0x77});
}

TEST(BoundedRules, MessagesOfStrangersAreCountedAndIgnored) {
  BoundedPair pair({});
  pair.expect(1);
  pair.begin(1);
  SentMessage m = *pair.next_up();
  m.header.sender = 77;
  EXPECT_FALSE(pair.receiver.on(m.header, m.payload, pair.now));
  m.header.sender = BoundedPair::kFrom;
  EXPECT_FALSE(pair.receiver.on(m.header, std::span(m.payload).first(10), pair.now));
  EXPECT_FALSE(pair.sender.on(m.header, m.payload, pair.now));
  EXPECT_EQ(pair.receiver.refused(), 2U);
  EXPECT_EQ(pair.sender.refused(), 1U);
  EXPECT_EQ(pair.inflow().missing().count(), 100U);
}

TEST(BoundedRules, WhatWasThereCanBeKeptWhereNothingCame) {
  BoundedPair pair(kTenth, {1, 100 * 40, 40}, {}, LossFill::keep);
  run_first_pass(pair, 1, {4});
  pair.pass(20 * kMs);
  ASSERT_FALSE(pair.inflow().open());
  EXPECT_EQ(pair.out[4 * 40], std::byte{0x77});
  EXPECT_EQ(pair.out[5 * 40], pair.in[5 * 40]);
}

TEST(BoundedRules, ControlLeavesBeforeDataAndUrgentDataBeforeOthers) {
  const BoundedTimes times{200'000, 0, {kMs, 200'000, 40 * kMs}};
  BoundedSender sender(0, 1, times);
  const std::vector<std::byte> in(400, std::byte{1});
  for (std::uint32_t t = 0; t < 3; ++t) sender.add({t, 400, 40});
  sender.begin(0, 1, in.data(), {.priority = 4}, 1000 * kMs, 0);
  wire::DatagramHeader header;
  std::vector<std::byte> payload(100);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(sender.next(0, header, payload.data()));
  sender.begin(1, 1, in.data(), {.priority = 5}, 1000 * kMs, 0);
  sender.begin(2, 1, in.data(), {.priority = 2}, 1000 * kMs, 0);
  sender.on_time(2 * kMs);  // the first one probes
  ASSERT_TRUE(sender.next(2 * kMs, header, payload.data()));
  EXPECT_EQ(header.type, static_cast<std::uint8_t>(BoundedType::probe));
  EXPECT_FALSE(sender.next(2 * kMs, header, payload.data(), BoundedSender::What::control));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(sender.next(2 * kMs, header, payload.data()));
    EXPECT_EQ(header.service, i < 10 ? 2 : 5);
  }
}

TEST(BoundedRules, WhatCannotBeIsRefused) {
  BoundedPair pair({});
  EXPECT_THROW(pair.sender.add({1, 40, 40}), Error);
  EXPECT_THROW(pair.receiver.add(BoundedPair::kFrom, {1, 40, 40}), Error);
  EXPECT_THROW(pair.sender.add({2, 40, 0}), Error);
  EXPECT_THROW(pair.sender.add({2, kMostBoundedBytes + 1, 1000}), Error);
  EXPECT_THROW(pair.receiver.expect(0, pair.out.data(), 1, 0), Error);
  pair.expect(1);
  EXPECT_THROW(pair.expect(2), Error);
  EXPECT_THROW(pair.receiver.expect(0, pair.out.data(), 1, 0), Error);
  pair.begin(1);
  EXPECT_THROW(pair.begin(2), Error);
  BoundedPair other({});
  EXPECT_THROW(other.begin(1, {.priority = 0}), Error);
  EXPECT_THROW(other.begin(1, {.priority = 8}), Error);
  const PacketSet few(3);
  EXPECT_THROW(other.begin(1, {.priority = 3, .important = &few}), Error);
}

}  // namespace
}  // namespace talweg::protocol
