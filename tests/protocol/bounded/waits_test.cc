// Bounded-loss transfers, with hand-made packets: how long either end waits, what it learns of how long
// rounds take, and what it does not believe or send.
#include <gmock/gmock.h>

#include "protocol/bounded/pair.h"

namespace talweg::protocol {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using wire::BoundedType;

// Times are counted in what a pair's gap takes.
constexpr std::int64_t kFifth = kMs / 5;
constexpr std::int64_t kFirst = 50, kOfAMs = 15;  // waits: at first, and once a round is known to take 1 ms

// Time passes for one end alone, until it speaks.
std::int64_t until_holes_are_named(BoundedPair& pair, SentMessage& holes) {
  for (std::int64_t fifths = 1; fifths < 1000; ++fifths) {
    pair.now += kFifth;
    pair.receiver.on_time(pair.now);
    const auto control = pair.all_down();
    if (control.empty()) continue;
    EXPECT_THAT(control, SizeIs(1));
    holes = control[0];
    return fifths;
  }
  return 0;
}

std::int64_t until_a_probe_leaves(BoundedPair& pair, SentMessage& probe) {
  for (std::int64_t fifths = 1; fifths < 1000; ++fifths) {
    pair.now += kFifth;
    pair.sender.on_time(pair.now);
    const auto m = pair.next_up();
    if (!m) continue;
    EXPECT_TRUE(m->is(BoundedType::probe));
    probe = *m;
    return fifths;
  }
  return 0;
}

template <class Until>
std::vector<std::int64_t> waits(BoundedPair& pair, Until until) {
  std::vector<std::int64_t> found;
  SentMessage m;
  while (found.size() < 6) found.push_back(until(pair, m));
  return found;
}

TEST(BoundedWaits, HolesAreNamedAgainInATimeThatDoublesUpToTheLongest) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5});
  EXPECT_THAT(waits(pair, until_holes_are_named), ElementsAre(1, 50, 100, 200, 200, 200));
  EXPECT_EQ(pair.inflow().counters().in_vain, 5U);
}

TEST(BoundedWaits, ASenderAsksAgainInATimeThatDoublesUpToTheLongest) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5});
  EXPECT_THAT(waits(pair, until_a_probe_leaves), ElementsAre(50, 50, 100, 200, 200, 200));
  EXPECT_EQ(pair.outflow().counters().in_vain, 5U);
}

// How long a receiver waits after holes were named so often, and the first of three filled 1 ms after the
// last.
std::int64_t wait_after_holes(int times) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5, 6, 7});
  SentMessage holes;
  for (int i = 0; i < times; ++i) until_holes_are_named(pair, holes);
  pair.down(holes);
  pair.now += kMs;
  const auto again = pair.next_up();
  EXPECT_TRUE(again && again->data().again && !again->data().last);
  if (again) pair.up(*again);
  return until_holes_are_named(pair, holes);
}

// And a sender, after so many probes of which the last was answered 1 ms later.
std::int64_t wait_after_probes(int times) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5});
  SentMessage probe;
  for (int i = 0; i < times; ++i) until_a_probe_leaves(pair, probe);
  pair.up(probe);
  const auto control = pair.all_down();
  EXPECT_THAT(control, SizeIs(1));
  pair.now += kMs;
  for (const auto& m : control) pair.down(m);
  EXPECT_THAT(pair.all_up(), SizeIs(1));
  return until_a_probe_leaves(pair, probe);
}

TEST(BoundedWaits, BothEndsLearnHowLongARoundTakes) {
  EXPECT_EQ(wait_after_holes(1), kOfAMs);
  EXPECT_EQ(wait_after_probes(1), kOfAMs);
}

// Karn: which of the questions was answered, nobody knows.
TEST(BoundedWaits, NothingIsLearntFromAQuestionThatWasRepeated) {
  for (const int times : {2, 3}) {
    EXPECT_EQ(wait_after_holes(times), kFirst) << times;
    EXPECT_EQ(wait_after_probes(times), kFirst) << times;
  }
}

TEST(BoundedWaits, WhatIsHeardEndsTheDoubling) {
  BoundedPair pair({});
  run_first_pass(pair, 1, {5, 6});
  SentMessage m;
  for (int i = 0; i < 3; ++i) until_holes_are_named(pair, m);
  pair.down(m);
  pair.up(*pair.next_up());
  EXPECT_EQ(until_holes_are_named(pair, m), kFirst);
  EXPECT_EQ(pair.inflow().counters().in_vain, 2U) << "the last one was not: something had come";

  BoundedPair asking({});
  run_first_pass(asking, 1, {5});
  for (int i = 0; i < 3; ++i) until_a_probe_leaves(asking, m);
  until_holes_are_named(asking, m);
  asking.down(m);
  EXPECT_THAT(asking.all_up(), SizeIs(1));
  EXPECT_EQ(until_a_probe_leaves(asking, m), kFirst);
  EXPECT_EQ(asking.outflow().counters().in_vain, 2U);
}

TEST(BoundedWaits, AHintIsOverOnceHolesWereNamed) {
  BoundedPair pair({}, {1, 1000 * 40, 40});
  run_first_pass(pair, 1, {7, 500});
  SentMessage holes;
  EXPECT_EQ(until_holes_are_named(pair, holes), 1);
  EXPECT_EQ(until_holes_are_named(pair, holes), kFirst);
}

TEST(BoundedWaits, AnotherNumberOfPacketsThatMustArriveIsRefused) {
  BoundedPair pair({100'000, 100'000, 100'000, 1});
  PacketSet important(100);
  for (std::uint32_t i = 0; i < 30; ++i) important.add(i);
  pair.expect(1);
  pair.begin(1, {.priority = 3, .important = &important, .must = true});
  const auto sent = pair.all_up();
  ASSERT_THAT(sent, SizeIs(100));
  pair.up(sent[0]);
  SentMessage other = sent[1];
  wire::BoundedData data = other.data();
  data.must = 0;
  encode(data, 1, other.header, other.payload.data());
  pair.up(other);
  EXPECT_EQ(pair.inflow().counters().malformed, 1U);
  EXPECT_EQ(pair.inflow().counters().packets, 1U);
  EXPECT_TRUE(pair.inflow().missing().has(data.packet));
  SentMessage probe;
  probe.payload.resize(wire::kProbeBytes);
  encode(wire::BoundedProbe{1, 1, 100, 29}, 1, probe.header, probe.payload.data());
  probe.header.sender = BoundedPair::kFrom;
  pair.up(probe);
  EXPECT_EQ(pair.inflow().counters().malformed, 2U);
  EXPECT_EQ(pair.inflow().counters().probes, 0U);
  EXPECT_THAT(pair.all_down(), testing::IsEmpty());
  for (const auto& m : sent) pair.up(m);
  EXPECT_EQ(pair.out, pair.in);
}

TEST(BoundedWaits, AStopIsSaidOnceMoreAfterAWhile) {
  BoundedPair pair({});
  for (std::uint32_t iteration = 1; iteration < 4; ++iteration) {
    run_first_pass(pair, iteration, {});
    ASSERT_THAT(pair.all_down(), SizeIs(1));  // and is lost
    EXPECT_EQ(pair.receiver.next_time_ns(), pair.now + BoundedTimes{}.stop_again_ns);
    pair.pass(BoundedTimes{}.stop_again_ns - 1);
    EXPECT_THAT(pair.all_down(), testing::IsEmpty());
    pair.pass(1);
    const auto again = pair.all_down();
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_TRUE(again[0].is(BoundedType::stop));
    pair.down(again[0]);
    EXPECT_FALSE(pair.outflow().open());
    pair.pass(100 * kMs);
    EXPECT_THAT(pair.all_down(), testing::IsEmpty()) << "no third time";
    EXPECT_EQ(pair.receiver.next_time_ns(), kNeverNs);
    EXPECT_EQ(pair.inflow().counters().stops_unasked, iteration);
  }
  run_first_pass(pair, 4, {});
  pair.down(pair.all_down().at(0));
  pair.expect(5);  // before that
  pair.pass(BoundedTimes{}.stop_again_ns);
  EXPECT_THAT(pair.all_down(), testing::IsEmpty());
}

TEST(BoundedWaits, WhatIsAssumedOfAQuestionCountsUntilOneWasAnswered) {
  const auto asked_after = [](std::int64_t assumed_ns, bool measured) {
    BoundedPair pair({});
    SentMessage m;
    if (measured) {  // a tenth of a millisecond
      run_first_pass(pair, 1, {});
      pair.all_down();
      until_a_probe_leaves(pair, m);
      pair.pass(kMs / 10);
      pair.up(m);
      pair.down(pair.all_down().at(0));
    }
    if (assumed_ns > 0) pair.sender.assume_round(0, assumed_ns);
    pair.expect(2);
    pair.begin(2);
    pair.all_up();
    return until_a_probe_leaves(pair, m);
  };
  EXPECT_EQ(asked_after(0, false), kFirst);
  EXPECT_EQ(asked_after(kMs, false), 15) << "three times as long, as for a first one that was measured";
  EXPECT_EQ(asked_after(9 * kMs, true), asked_after(0, true));
}

// Who waits for less than answers take repeats every question; it has to find out all the same.
TEST(BoundedWaits, WhatIsAssumedMayBeFarTooShort) {
  BoundedPair pair({});
  std::uint64_t before = 0;
  for (std::uint32_t iteration = 1; iteration < 5; ++iteration) {
    pair.sender.assume_round(0, 60'000);
    run_first_pass(pair, iteration, {});
    pair.all_down();  // lost
    std::vector<SentMessage> probes;
    std::int64_t answer_ns = kNeverNs;
    for (int i = 0; i < 2000 && pair.outflow().open(); ++i, pair.now += 50'000) {
      pair.sender.on_time(pair.now);
      if (const auto m = pair.next_up()) {
        if (probes.empty()) answer_ns = pair.now + 2 * kMs;
        probes.push_back(*m);
      }
      if (pair.now < answer_ns) continue;
      pair.up(probes.back());
      for (const auto& m : pair.all_down()) pair.down(m);
    }
    EXPECT_FALSE(pair.outflow().open());
    const std::uint64_t asked = pair.outflow().counters().probes - before;
    before = pair.outflow().counters().probes;
    if (iteration == 1)
      EXPECT_GT(asked, 2U);
    else
      EXPECT_EQ(asked, 1U) << iteration;
  }
}

TEST(BoundedWaits, AHoleThatIsFilledBeforeItIsSentAgainIsNotSentAgain) {
  for (const bool must : {false, true}) {
    BoundedPair pair({});
    pair.expect(1);
    pair.begin(1, {.priority = 3, .must = must});
    const auto sent = pair.all_up();
    ASSERT_THAT(sent, SizeIs(100));
    constexpr std::size_t kLate = 1, kLost = 50;  // the late one would be sent again first
    for (std::size_t i = 0; i < sent.size(); ++i)
      if (i != kLate && i != kLost) pair.up(sent[i]);
    const std::uint32_t late = sent[kLate].data().packet, lost = sent[kLost].data().packet;
    SentMessage holes;
    until_holes_are_named(pair, holes);
    EXPECT_THAT(holes.named(), UnorderedElementsAre(late, lost));
    pair.down(holes);
    pair.up(sent[kLate]);
    until_holes_are_named(pair, holes);
    EXPECT_THAT(holes.named(), ElementsAre(lost));
    pair.down(holes);
    const auto again = pair.all_up();
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].data().packet, lost);
  }
}

}  // namespace
}  // namespace talweg::protocol
