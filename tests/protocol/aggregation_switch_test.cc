// The switch of streaming aggregation on Talweg's own wire, with datagrams made by hand. Comments have the
// numbers of SwitchML's conformance cases, here with what that wire cannot tell.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "protocol/one_switch.h"

namespace talweg::protocol {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using wire::AggregationReason;

TEST(AggregationSwitch, TheLastContributionSendsTheSumToAllAndWhereItGoesOn) {
  OneSwitch one(terms_of(3));
  EXPECT_THAT(one.send(0, 5, {2, 9, {1, 2}}), IsEmpty());
  EXPECT_THAT(one.send(2, 5, {2, 5, {10, 20}}), IsEmpty());
  const auto said = one.send(1, 5, {2, 7, {100, 200}});
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].to, To::all);
  EXPECT_THAT(said[0].peers, ElementsAre(Peer{100, 7000}, Peer{101, 7000}, Peer{102, 7000}));
  EXPECT_THAT(said[0].values<std::int32_t>(), ElementsAre(111, 222));
  EXPECT_EQ(said[0].entries[0].block, 2U);
  EXPECT_EQ(said[0].entries[0].next, 5U);
  EXPECT_EQ(said[0].header.own32, 5U);
  EXPECT_EQ(said[0].header.sender, 900);
  EXPECT_EQ(said[0].header.flags & wire::kDatagramToAll, wire::kDatagramToAll);
}

TEST(AggregationSwitch, AdvertsCountAndBringNothing) {
  OneSwitch one(terms_of(3));
  one.send(0, 1, {0, 4});
  one.send(1, 1, {0, kNeverNext, {7}});
  const auto said = one.send(2, 1, {0, 8});
  expect_sum(said, To::all, 7);
  EXPECT_EQ(said.at(0).entries[0].next, 4U);
  EXPECT_EQ(one.counters().adverts, 2U);
  one.send(0, 1, {4, kNeverNext, {}, 0, true});
  one.send(1, 1, {4, kNeverNext, {}, 0, true});
  const auto nothing = one.send(2, 1, {4, 8, {}, 0, true});
  ASSERT_THAT(nothing, SizeIs(1));
  EXPECT_FALSE(nothing[0].entries[0].data);
}

TEST(AggregationSwitch, TheLargestExponentOfThoseThatNameTheNextBlockCounts) {
  OneSwitch one(terms_of(3));
  one.send(0, 1, {wire::kNoBlock, 4, {}, 0, false, 100});
  one.send(1, 1, {wire::kNoBlock, 2, {}, 0, false, -5});
  const auto said = one.send(2, 1, {wire::kNoBlock, 2, {}, 0, false, 3});
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].entries[0].next, 2U);
  EXPECT_EQ(said[0].entries[0].exponent, 3);
}

TEST(AggregationSwitch, ColumnsOfASlotEndApart) {
  OneSwitch one(terms_of(2));
  one.hand(one.header(0, 1), OneSwitch::payload({{0, 4, {1}, 0}, {1, 5, {2}, 1}, {2, 6, {3}, 2}}));
  const auto first = one.hand(one.header(1, 1), OneSwitch::payload({{1, 5, {20}, 1}}));
  expect_sum(first, To::all, 22);
  EXPECT_EQ(first.at(0).entries[0].column, 1);
  const auto rest = one.hand(one.header(1, 1), OneSwitch::payload({{0, 4, {10}, 0}, {2, 6, {30}, 2}}));
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_THAT(rest[0].entries, SizeIs(2));
  EXPECT_THAT(rest[0].values<std::int32_t>(1), Each(33));
}

// C2, C3
TEST(AggregationSwitch, AResultIsSentAgainToWhoRepeatsItsContributionOrAsks) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, kNeverNext, {3}});
  one.send(1, 1, {0, kNeverNext, {4}});
  for (int again = 0; again < 2; ++again) {
    const auto repeated = one.send(0, 1, {0, kNeverNext, {3}});
    expect_sum(repeated, To::one, 7);
    EXPECT_THAT(repeated.at(0).peers, ElementsAre(Peer{100, 7000}));
    expect_sum(one.ask(1, 1, {0}), To::one, 7);
  }
}

TEST(AggregationSwitch, ARepeatedContributionToARoundThatFillsChangesNothing) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, kNeverNext, {3}});
  EXPECT_THAT(one.send(0, 1, {0, kNeverNext, {1000}}), IsEmpty());
  expect_sum(one.send(1, 1, {0, kNeverNext, {4}}), To::all, 7);
}

// C1
TEST(AggregationSwitch, WhoAsksIsToldWhoseContributionsAreMissing) {
  OneSwitch one(terms_of(4));
  one.send(0, 1, {0, kNeverNext, {3}});
  one.send(2, 1, {0, kNeverNext, {3}});
  const auto here = one.ask(0, 1, {0});
  ASSERT_THAT(here, SizeIs(1));
  EXPECT_EQ(here[0].type(), AggregationType::missing);
  EXPECT_FALSE(here[0].entries[0].yours);
  EXPECT_THAT(here[0].names, ElementsAre(1, 3));
  EXPECT_TRUE(one.ask(3, 1, {0}).at(0).entries[0].yours);
  const auto nobody = one.ask(1, 1, {4, kNeverNext, {}, 1});
  ASSERT_THAT(nobody, SizeIs(1));
  EXPECT_TRUE(nobody[0].entries[0].yours) << "of a round that nobody has been heard in";
  EXPECT_THAT(nobody[0].names, ElementsAre(0, 1, 2, 3));
}

TEST(AggregationSwitch, NamesTheDatagramsOfAWorkerThatHaveNotComeWhenLaterOnesHave) {
  OneSwitch one(terms_of(2));
  const auto send = [&](std::uint16_t worker, std::uint16_t number, std::uint16_t slot) {
    return one.hand(one.header(worker, 1, slot),
                    OneSwitch::payload({{0, kNeverNext, {1}}}, AggregationFormat::i32, number));
  };
  EXPECT_THAT(send(0, 1, 0), IsEmpty());
  EXPECT_THAT(send(0, 3, 1), IsEmpty()) << "2 may have been overtaken";
  EXPECT_THAT(send(0, 4, 2), IsEmpty());
  const auto said = send(0, 5, 3);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].type(), AggregationType::gap);
  EXPECT_EQ(said[0].to, To::one);
  EXPECT_THAT(said[0].peers, ElementsAre(Peer{100, 7000}));
  EXPECT_THAT(said[0].names, ElementsAre(2));
  EXPECT_EQ(one.counters().gaps, 1U);
  EXPECT_THAT(send(0, 6, 3), IsEmpty()) << "it is said once";
  EXPECT_THAT(send(1, 1, 0), SizeIs(1)) << "another worker's numbers are its own: this is the round's end";
}

TEST(AggregationSwitch, SendsAgainTheResultsThatAWorkerNamesByTheirNumbers) {
  OneSwitch one(terms_of(2));
  const auto round = [&](std::uint32_t operation, std::uint16_t slot, const Part& part) {
    one.hand(one.header(0, operation, slot), OneSwitch::payload({part}));
    const auto said = one.hand(one.header(1, operation, slot), OneSwitch::payload({part}));
    return said.empty() ? std::uint16_t{0} : said[0].number;
  };
  EXPECT_EQ(round(1, 2, {0, 4, {1}}), 1);
  EXPECT_EQ(round(1, 3, {0, kNeverNext, {2}}), 2);
  const auto again = one.miss(1, {1});
  expect_sum(again, To::one, 2);
  EXPECT_EQ(again[0].header.own16, 2);
  EXPECT_EQ(again[0].header.own32, 1U);
  EXPECT_EQ(again[0].number, 1) << "it is the same result";
  EXPECT_THAT(again[0].peers, ElementsAre(Peer{101, 7000}));
  EXPECT_THAT(one.miss(1, {7}), IsEmpty()) << "there is none of this number yet";
  // The next round but one takes the cell.
  EXPECT_EQ(round(1, 2, {4, 8, {1}, 0, true}), 3);
  expect_sum(one.miss(0, {1}), To::one, 2);
  EXPECT_EQ(round(1, 2, {8, kNeverNext, {1}, 0, false}), 4);
  EXPECT_THAT(one.miss(0, {1}), IsEmpty());
  // An answer for each: not more with one question.
  EXPECT_THAT(one.miss(0, {3, 4}), IsEmpty());
  EXPECT_EQ(one.counters().malformed, 1U);
}

TEST(AggregationSwitch, WhatItSendsAgainIsOfTheJobsRate) {
  JobTerms terms = terms_of(1);
  terms.bytes_per_second = 1000;
  terms.burst_bytes = 700;
  OneSwitch one(terms);
  const std::vector<std::int32_t> full(8, 1);
  one.send(0, 1, {0, kNeverNext, full});
  const auto answers = [&](auto&& question) {
    std::size_t n = 0;
    for (int i = 0; i < 100; ++i) {
      const auto said = question();
      n += said.size() == 1 && said[0].type() == AggregationType::result ? 1 : 0;
    }
    return n;
  };
  EXPECT_EQ(answers([&] { return one.miss(0, {1}); }), 5U) << "700 bytes of questions and answers";
  one.now_ns = 10'000'000'000;
  EXPECT_EQ(answers([&] { return one.ask(0, 1, {0}); }), 5U);
}

TEST(AggregationSwitch, OfAColumnThatHasLongBeenIdleNothingIsSentAgainForALaterResultOfTheSameNumber) {
  OneSwitch one(terms_of(1));
  constexpr std::uint8_t kIdle = 3;
  expect_sum(one.send(0, 1, {3, kNeverNext, {7}, kIdle}), To::all, 7);
  for (std::uint32_t i = 0; i < 0x10000; ++i)
    ASSERT_EQ(one.send(0, i + 2, {0, kNeverNext, {1}, 0, i % 2 == 1}).at(0).number, (i + 2) % 0x10000);
  const auto again = one.miss(0, {1});
  expect_sum(again, To::one, 1);
  EXPECT_EQ(again[0].header.own32, 0x10001U);
  EXPECT_EQ(again[0].entries[0].column, 0);
  expect_sum(one.miss(0, {0}), To::one, 1);
}

// C8 in full
TEST(AggregationSwitch, ALateCopyOfAnEarlierRoundOrOperationChangesNothing) {
  OneSwitch one(terms_of(2));
  const Part rounds[] = {{0, 4, {1}, 0, false}, {4, kNeverNext, {2}, 0, true}, {0, 4, {3}, 0, false}};
  const std::uint32_t operations[] = {1, 1, 2};
  for (int r = 0; r < 2; ++r)
    for (std::uint16_t worker = 0; worker < 2; ++worker) one.send(worker, operations[r], rounds[r]);
  EXPECT_THAT(one.send(0, 2, rounds[2]), IsEmpty()) << "the next operation's first round begins";
  for (std::uint16_t worker = 0; worker < 2; ++worker)
    EXPECT_THAT(one.send(worker, 1, rounds[0]), IsEmpty()) << "same slot and version, an operation ago";
  EXPECT_EQ(one.counters().late, 2U);
  expect_sum(one.send(1, 2, rounds[2]), To::all, 6);
}

TEST(AggregationSwitch, ARoundCannotBeginBeforeTheOneBeforeItHasEndedNorInItsCell) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, 4, {1}});
  EXPECT_THAT(one.send(0, 1, {4, kNeverNext, {2}, 0, true}), IsEmpty());
  EXPECT_EQ(one.counters().early, 1U);
  one.send(1, 1, {0, 4, {1}});
  EXPECT_THAT(one.send(0, 1, {4, kNeverNext, {2}, 0, false}), IsEmpty());
  EXPECT_EQ(one.counters().early, 2U);
  expect_sum(one.ask(0, 1, {0}), To::one, 2);
}

TEST(AggregationSwitch, OperationsAreNumberedRoundAndRound) {
  OneSwitch one(terms_of(1));
  expect_sum(one.send(0, 0xffffffff, {0, kNeverNext, {1}}), To::all, 1);
  expect_sum(one.send(0, 0, {0, kNeverNext, {2}, 0, true}), To::all, 2);
  expect_sum(one.send(0, 0xffffffff, {0, kNeverNext, {1}}), To::one, 1);
  expect_sum(one.send(0, 1, {0, kNeverNext, {3}}), To::all, 3);
  EXPECT_THAT(one.send(0, 0xffffffff, {0, kNeverNext, {1}}), IsEmpty());
  EXPECT_EQ(one.counters().late, 1U);
}

// C10
TEST(AggregationSwitch, OneWorkerOrHundredsAreSummedAndMoreThanAnnouncedAreRefused) {
  OneSwitch alone(terms_of(1));
  expect_sum(alone.send(0, 1, {0, kNeverNext, {5}}), To::all, 5);
  OneSwitch many(terms_of(333));
  for (std::uint16_t worker = 0; worker + 1 < 333; ++worker)
    EXPECT_THAT(many.send(worker, 1, {0, kNeverNext, {2}}), IsEmpty());
  const auto stranger = many.send(333, 1, {0, kNeverNext, {2}});
  ASSERT_THAT(stranger, SizeIs(1));
  EXPECT_EQ(stranger[0].type(), AggregationType::refusal);
  EXPECT_EQ(stranger[0].refusal.reason, AggregationReason::stranger);
  expect_sum(many.send(332, 1, {0, kNeverNext, {2}}), To::all, 666);
}

// C12
TEST(AggregationSwitch, IntegersWrap) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, kNeverNext, {std::numeric_limits<std::int32_t>::max()}});
  expect_sum(one.send(1, 1, {0, kNeverNext, {1}}), To::all, std::numeric_limits<std::int32_t>::min());
}

TEST(AggregationSwitch, SixteenBitFloatsAreRoundedOnceForAllWorkers) {
  OneSwitch one(terms_of(3));
  // 2048 + 1 is 2048 in float16; 2048 + 1 + 1 is not.
  const std::int32_t values[] = {2048, 1, 1};
  std::vector<Said> said;
  for (std::uint16_t worker = 0; worker < 3; ++worker)
    said = one.hand(one.header(worker, 1),
                    OneSwitch::payload({{0, kNeverNext, {values[worker]}}}, AggregationFormat::f16));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(kernel::f16_to_f32(said[0].values<std::uint16_t>().at(0)), 2050);
}

TEST(AggregationSwitch, OrderedSumsDoNotDependOnWhoComesFirst) {
  JobTerms terms = terms_of(3);
  terms.ordered = true;
  OneSwitch one(terms);
  // In float32 (2^26 + 1) - 2^26 is 0, and (2^26 - 2^26) + 1 is 1.
  const std::int32_t values[] = {1 << 26, 1, -(1 << 26)};
  const std::uint16_t orders[][3] = {{0, 1, 2}, {2, 0, 1}, {0, 2, 1}, {1, 2, 0}};
  std::uint32_t operation = 0;
  for (const auto& order : orders) {
    ++operation;
    std::vector<Said> said;
    for (const std::uint16_t worker : order)
      said = one.hand(one.header(worker, operation),
                      OneSwitch::payload({{0, kNeverNext, {values[worker]}, 0, operation % 2 == 0}},
                                         AggregationFormat::f32));
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(said[0].values<float>(), Each(0.0F));
  }
}

TEST(AggregationSwitch, WorkersThatDisagreeAreToldAndChangeNothing) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, kNeverNext, {3, 3}});
  const auto format =
      one.hand(one.header(1, 1), OneSwitch::payload({{0, kNeverNext, {4, 4}}}, AggregationFormat::f32));
  const auto count = one.send(1, 1, {0, kNeverNext, {4, 4, 4}});
  for (const auto& said : {format, count}) {
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_EQ(said[0].refusal.reason, AggregationReason::disagreement);
  }
  expect_sum(one.send(1, 1, {0, kNeverNext, {4, 4}}), To::all, 7);
}

// C13, C14
TEST(AggregationSwitch, AnEpochSeesNothingOfTheOneBefore) {
  OneSwitch one(terms_of(2));
  one.send(0, 1, {0, kNeverNext, {3}});
  EXPECT_THAT(one.box.open(terms_of(2, 1, 1))->text, HasSubstr("the next one has a higher epoch than 1"));
  ASSERT_FALSE(one.box.open(terms_of(2, 1, 2)));
  const auto old = one.send(1, 1, {0, kNeverNext, {4}});
  ASSERT_THAT(old, SizeIs(1));
  EXPECT_EQ(old[0].refusal.reason, AggregationReason::old_epoch);
  EXPECT_EQ(old[0].header.epoch, 1U) << "who has gone on must not take it for its own";
  one.epoch = 2;
  EXPECT_THAT(one.send(1, 1, {0, kNeverNext, {40}}), IsEmpty());
  expect_sum(one.send(0, 1, {0, kNeverNext, {30}}), To::all, 70);
}

// C15
TEST(AggregationSwitch, JobsDoNotMeetAndNobodyReachesBeyondItsQuota) {
  OneSwitch one(terms_of(2));
  ASSERT_FALSE(one.box.open(terms_of(2, 2)));
  one.send(0, 1, {0, kNeverNext, {3}});
  one.job = 2;
  EXPECT_THAT(one.send(1, 1, {0, kNeverNext, {50}}), IsEmpty());
  one.job = 1;
  expect_sum(one.send(1, 1, {0, kNeverNext, {4}}), To::all, 7);
  EXPECT_THAT(one.hand(one.header(0, 2, 4), OneSwitch::payload({{0, kNeverNext, {1}}})), IsEmpty()) << "slot";
  EXPECT_THAT(one.hand(one.header(0, 2, 0xffff), OneSwitch::payload({{0, kNeverNext, {1}}})), IsEmpty())
      << "slot";
  EXPECT_THAT(one.send(0, 2, {0, kNeverNext, {1}, 4}), IsEmpty()) << "column";
  EXPECT_THAT(one.send(0, 2, {0, kNeverNext, std::vector<std::int32_t>(9, 1)}), IsEmpty()) << "block";
  EXPECT_EQ(one.counters().out_of_range, 4U);
  one.job = 3;
  const auto unknown = one.send(0, 1, {0, kNeverNext, {1}});
  ASSERT_THAT(unknown, SizeIs(1));
  EXPECT_EQ(unknown[0].refusal.reason, AggregationReason::unknown_job);
}

// C17
TEST(AggregationSwitch, WhatIsMalformedOrNotAWorkersToSayIsDropped) {
  OneSwitch one(terms_of(2));
  const auto good = OneSwitch::payload({{0, kNeverNext, {1}}});
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_THAT(one.hand(one.header(0, 1), {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}),
                IsEmpty());
  for (const AggregationType type :
       {AggregationType::result, AggregationType::missing, AggregationType::refusal}) {
    auto h = one.header(0, 1);
    h.type = static_cast<std::uint8_t>(type);
    EXPECT_THAT(one.hand(h, good), IsEmpty());
  }
  EXPECT_EQ(one.counters().malformed, good.size() + 3);
  EXPECT_EQ(one.counters().contributions, 0U);
}

// C18
TEST(AggregationSwitch, MemoryThatGoesBackIsZero) {
  std::vector<std::byte> arena(1 << 18, std::byte{0});
  std::pmr::monotonic_buffer_resource memory(arena.data(), arena.size(), std::pmr::null_memory_resource());
  AggregationSwitch box({1 << 20, 4, 1e12}, &memory);
  JobTerms terms = terms_of(2);
  terms.ordered = true;
  ASSERT_FALSE(box.open(terms));
  OneSwitch one(terms);
  for (std::uint16_t worker = 0; worker < 2; ++worker)
    (void)box.on(one.header(worker, 1),
                 OneSwitch::payload({{0, kNeverNext, {0x5a5a5a}}}, AggregationFormat::f32), {9, 9}, 0);
  const auto any = [&] {
    return std::any_of(arena.begin(), arena.end(), [](std::byte b) { return b != std::byte{0}; });
  };
  EXPECT_TRUE(any());
  box.close(1);
  EXPECT_FALSE(any());
}

TEST(AggregationSwitch, MemoryIsWhatTheFormulaSaysAndWhoAsksForMoreThanIsLeftIsRefused) {
  const JobTerms terms = terms_of(2);
  const JobMemory memory = memory_of(terms);
  EXPECT_EQ(memory.cells, 4U * 4 * 2);
  EXPECT_EQ(memory.cell, 128U);  // 48 of the round, 8 of contributors, 32 of sums, on whole lines
  EXPECT_EQ(memory.total,
            memory.cells * memory.cell + memory.peers + memory.gaps + memory.sent + memory.packets);
  EXPECT_EQ(
      explain(memory),
      "32 cells (slots x columns x 2 versions) x 128 bytes (48 round + 8 contributors + 32 sums + 0 ordered "
      "parts, on whole cache lines) + 32 peers + 32 gaps + 64 results sent + 2448 packets = 6672 bytes");
  JobTerms ordered = terms;
  ordered.ordered = true;
  EXPECT_EQ(memory_of(ordered).parts, 2U * 32);

  AggregationSwitch box({memory.total * 2, 3, 2.5e9});
  ASSERT_FALSE(box.open(terms));
  JobTerms greedy = terms_of(2, 2);
  greedy.slots = 6;
  auto refused = box.open(greedy);
  ASSERT_TRUE(refused);
  EXPECT_TRUE(refused->busy);
  EXPECT_THAT(refused->text, HasSubstr("of slots, and 6672 of 13344 are left"));
  greedy.slots = 4;
  greedy.bytes_per_second = 2e9;
  refused = box.open(greedy);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->text,
              HasSubstr("it asks for 2000000000 bytes per second, and 1500000000 of 2500000000 are left"));
  ASSERT_FALSE(box.open(terms_of(2, 3)));
  EXPECT_EQ(box.memory_bytes(), 2 * memory.total);
  ASSERT_FALSE(box.open(terms_of(2, 3, 2))) << "another epoch needs no more than the one before it";
  box.close(1);
  box.close(3);
  EXPECT_EQ(box.memory_bytes(), 0U);
  EXPECT_EQ(box.bytes_per_second(), 0);
}

// Within its limits, as where other processes have it all.
TEST(AggregationSwitch, WhereTheSystemHasNoMemoryAJobIsRefusedAndTheOthersGoOn) {
  std::vector<std::byte> arena(20'000);
  std::pmr::monotonic_buffer_resource memory(arena.data(), arena.size(), std::pmr::null_memory_resource());
  AggregationSwitch box({1 << 20, 4, 1e12}, &memory);
  ASSERT_FALSE(box.open(terms_of(2)));
  ASSERT_FALSE(box.open(terms_of(2, 2)));
  const std::size_t both = box.memory_bytes();
  auto refused = box.open(terms_of(2, 3));
  ASSERT_TRUE(refused);
  EXPECT_TRUE(refused->busy) << "others may leave";
  EXPECT_EQ(refused->text,
            fmt::format("job 3: the system has no memory for its {} bytes of slots", both / 2));
  EXPECT_EQ(box.memory_bytes(), both);
  ASSERT_TRUE(box.open(terms_of(2, 2, 2))) << "what a job has goes back first: then it has none";
  EXPECT_EQ(box.memory_bytes(), both / 2);
  EXPECT_EQ(box.jobs(), 1U);
  OneSwitch one(terms_of(2));
  EXPECT_THAT(box.on(one.header(0, 1), OneSwitch::payload({{0, kNeverNext, {1}}}), {9, 9}, 0), IsEmpty());
  EXPECT_THAT(box.on(one.header(1, 1), OneSwitch::payload({{0, kNeverNext, {1}}}), {9, 9}, 0), SizeIs(1));
}

TEST(AggregationSwitch, TermsThatCanNeverBeAreRefusedWithTheReason) {
  AggregationSwitch box({1 << 20, 4, 1e12});
  const auto why = [&](auto change) {
    JobTerms terms = terms_of(2);
    change(terms);
    const auto refused = box.open(terms);
    return refused && !refused->busy ? refused->text : std::string("taken, or busy");
  };
  EXPECT_EQ(why([](JobTerms& t) { t.slots = 0; }), "job 1: a quota of 0 slots: a job needs at least 1");
  EXPECT_EQ(why([](JobTerms& t) { t.bytes_per_second = 0; }),
            "job 1: a quota of 0 bytes per second: a job needs some");
  EXPECT_EQ(why([](JobTerms& t) { t.workers = 0; }), "job 1: a job has at least 1 worker");
  EXPECT_EQ(why([](JobTerms& t) { t.columns = 65; }), "job 1: a slot has 1 to 64 columns");
  EXPECT_EQ(why([](JobTerms& t) { t.block = 0; }), "job 1: a block has at least 1 element");
  EXPECT_EQ(why([](JobTerms& t) { t.block = 60000; }), "job 1: a slot's blocks do not fit into one datagram");
  EXPECT_EQ(why([](JobTerms& t) { t.burst_bytes = 100; }), "job 1: a burst smaller than one datagram");
}

TEST(AggregationSwitch, WhoExceedsItsRateIsToldWhenToComeAgain) {
  JobTerms terms = terms_of(1);
  terms.bytes_per_second = 1e6;
  terms.burst_bytes = 2000;
  OneSwitch one(terms);
  std::uint32_t operation = 0;
  std::vector<Said> said;
  do {
    ++operation;
    said = one.send(0, operation, {0, kNeverNext, {1}, 0, operation % 2 == 0});
  } while (said.at(0).type() == AggregationType::result);
  EXPECT_EQ(said[0].refusal.reason, AggregationReason::busy);
  EXPECT_EQ(said[0].refusal.of, AggregationType::contribution);
  EXPECT_EQ(operation, 33U) << "32 of 64 bytes are 2000 bytes and a little";
  const std::uint32_t wait_us = said[0].refusal.wait_us;
  EXPECT_GE(wait_us, 48U);
  EXPECT_LE(wait_us, 60U);
  one.now_ns = std::int64_t{wait_us} * 1000;
  expect_sum(one.send(0, operation, {0, kNeverNext, {1}, 0, operation % 2 == 0}), To::all, 1);
}

}  // namespace
}  // namespace talweg::protocol
