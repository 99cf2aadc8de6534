// SwitchML's conformance cases, on its wire, with packets made by hand. Each test's comment has the case's
// name in the published suite, or its number among those added to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernel/blocks.h"
#include "protocol/aggregation/switch.h"

namespace talweg::protocol {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::SwitchmlHeader;

// What a switch has answered, unpacked.
struct Answer {
  bool to_all = false;
  std::vector<Peer> peers;
  SwitchmlHeader header;
  std::vector<std::int32_t> values;
};

struct Network {
  explicit Network(std::size_t workers, std::uint16_t elements = 64, std::uint16_t slots = 8)
      : elements_(elements), box({64 << 20, 8, 1e12}) {
    for (std::size_t w = 0; w < workers; ++w) hosts.push_back(100 + w);
    EXPECT_FALSE(box.open(SwitchmlTerms{1, hosts, slots, elements, 1e11, 1e9}));
  }

  std::vector<std::byte> packet(std::uint16_t slot, bool version, std::int32_t value, std::uint8_t job = 1,
                                std::uint32_t number = 77, std::int8_t exponent = 0) const {
    std::vector<std::byte> bytes(wire::switchml_bytes(elements_));
    wire::encode({3, job, number, slot, version, {exponent, static_cast<std::int8_t>(-exponent)}, elements_},
                 bytes.data());
    const std::vector<std::int32_t> values(elements_, value);
    kernel::swap_words(bytes.data() + wire::kSwitchmlHeaderBytes, values.data(), elements_);
    return bytes;
  }
  std::vector<Answer> send(std::size_t worker, const std::vector<std::byte>& bytes,
                           std::uint16_t port = 5000) {
    std::vector<Answer> answers;
    for (const SwitchAction& action : box.on_switchml(bytes, {100 + worker, port}, now_ns)) {
      Answer answer;
      answer.to_all = action.to == SwitchAction::To::all;
      answer.peers.assign(action.peers.begin(), action.peers.end());
      EXPECT_EQ(wire::decode(action.payload, answer.header), nullptr);
      answer.values.resize(answer.header.elements);
      kernel::swap_words(answer.values.data(), action.payload.data() + wire::kSwitchmlHeaderBytes,
                         answer.values.size());
      answers.push_back(std::move(answer));
    }
    return answers;
  }
  std::vector<Answer> send(std::size_t worker, std::uint16_t slot, bool version, std::int32_t value) {
    return send(worker, packet(slot, version, value));
  }
  // All but the last contribute, and the last, whose answer this is.
  std::vector<Answer> reduce(std::uint16_t slot, bool version, std::int32_t value) {
    for (std::size_t w = 0; w + 1 < hosts.size(); ++w)
      EXPECT_THAT(send(w, slot, version, value), IsEmpty()) << "worker " << w;
    return send(hosts.size() - 1, slot, version, value);
  }

  std::uint16_t elements_;
  AggregationSwitch box;
  std::vector<std::uint64_t> hosts;
  std::int64_t now_ns = 0;
};

void expect_result(const std::vector<Answer>& answers, std::int32_t value, std::size_t to) {
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers[0].values, Each(value));
  EXPECT_TRUE(answers[0].to_all || to == 1);
  EXPECT_EQ(answers[0].peers.size(), to);
}
void expect_only_to(const std::vector<Answer>& answers, std::size_t worker, std::int32_t value) {
  expect_result(answers, value, 1);
  if (answers.empty()) return;
  EXPECT_EQ(answers[0].peers[0].host, 100 + worker);
}

// BasicReduction, with 2 and 3 workers and both sizes of packets
TEST(Switchml, TheLastContributionSendsTheSumToAllWorkers) {
  for (const std::size_t workers : {2, 3})
    for (const std::uint16_t elements : {std::uint16_t{64}, std::uint16_t{256}}) {
      Network net(workers, elements);
      const auto answers = net.reduce(3, false, 5);
      expect_result(answers, static_cast<std::int32_t>(5 * workers), workers);
      EXPECT_EQ(answers.at(0).header.slot, 3);
      EXPECT_FALSE(answers.at(0).header.version);
      EXPECT_EQ(answers.at(0).header.kind, 3);
    }
}

TEST(Switchml, TheLargestOfEachExponentComesBackWithJobAndNumberOfThePacket) {
  Network net(3);
  net.send(0, net.packet(0, false, 1, 9, 1234, -7));
  net.send(1, net.packet(0, false, 1, 9, 1234, 20));
  const auto answers = net.send(2, net.packet(0, false, 1, 9, 1234, -100));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers[0].header.exponents, ElementsAre(20, 100));
  EXPECT_EQ(answers[0].header.job, 9);
  EXPECT_EQ(answers[0].header.packet, 1234U);
}

// RetransmitAfterReduction; C2 (a result lost to 1 of n)
TEST(Switchml, AResultIsSentAgainToWhoAsksAndToNobodyElse) {
  Network net(3);
  net.reduce(0, false, 7);
  for (int again = 0; again < 3; ++again)
    for (std::size_t worker = 0; worker < 3; ++worker)
      expect_only_to(net.send(worker, 0, false, 7), worker, 21);
}

// OtherSetReduction
TEST(Switchml, TheOtherVersionIsSummedAsTheFirstIs) {
  Network net(2);
  expect_result(net.reduce(0, true, 4), 8, 2);
}

// BothSetsReduction
TEST(Switchml, VersionsOfASlotDoNotMix) {
  Network net(2);
  expect_result(net.reduce(0, false, 1), 2, 2);
  expect_result(net.reduce(0, true, 10), 20, 2);
  expect_only_to(net.send(1, 0, true, 10), 1, 20);
}

// SlotReuse; C7 (versions carried on from one tensor to the next)
TEST(Switchml, ASlotIsUsedAgainAndAgainInTurn) {
  Network net(3);
  for (int round = 0; round < 6; ++round) expect_result(net.reduce(2, round % 2 == 1, round), 3 * round, 3);
}

// IgnoreRetransmissions
TEST(Switchml, ARepeatedContributionToARoundThatFillsChangesNothingAndIsNotAnswered) {
  Network net(2);
  net.send(0, 0, false, 5);
  EXPECT_THAT(net.send(0, 0, false, 5), IsEmpty());
  EXPECT_THAT(net.send(0, 0, false, 1000), IsEmpty());
  expect_result(net.send(1, 0, false, 6), 11, 2);
}

// RetransmitFromPreviousSet
TEST(Switchml, TheResultBeforeIsServedWhileTheNextRoundFills) {
  Network net(3);
  net.reduce(0, false, 2);
  net.send(0, 0, true, 9);
  net.send(1, 0, true, 9);
  expect_only_to(net.send(2, 0, false, 2), 2, 6);
  expect_result(net.send(2, 0, true, 9), 27, 3);
}

// SlotReuseAndRetransmit
TEST(Switchml, AReusedSlotServesItsNewResultOnly) {
  Network net(2);
  net.reduce(0, false, 1);
  net.reduce(0, true, 2);
  net.reduce(0, false, 3);
  expect_only_to(net.send(0, 0, false, 3), 0, 6);
  net.send(0, 0, true, 4);
  expect_only_to(net.send(1, 0, false, 3), 1, 6);
  expect_result(net.send(1, 0, true, 4), 8, 2);
}

// NonSwitchML: a switch of hardware forwards what is not its own; to this one it is not sent
TEST(Switchml, WhatIsNoPacketOfItsWorkersIsNotAnswered) {
  Network net(2);
  EXPECT_THAT(net.send(0, std::vector<std::byte>(66, std::byte{0x60})), IsEmpty());
  EXPECT_EQ(net.box.counters(1)->malformed, 1U);
  EXPECT_THAT(net.send(5, 0, false, 1), IsEmpty()) << "a host that is no worker";
  EXPECT_EQ(net.box.strays().strangers, 1U);
}

// DifferentPorts
TEST(Switchml, EachWorkerIsAnsweredWhereItSpokeToTheSlotFromLast) {
  Network net(2);
  net.send(0, net.packet(0, false, 1), 4000);
  net.send(0, net.packet(1, false, 1), 4001);  // another thread
  const auto answers = net.send(1, net.packet(0, false, 1), 6000);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers[0].peers, ElementsAre(Peer{100, 4000}, Peer{101, 6000}));
  net.send(0, net.packet(1, false, 1), 4002);  // which has moved
  const auto others = net.send(1, net.packet(1, false, 1), 6001);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_THAT(others[0].peers, ElementsAre(Peer{100, 4002}, Peer{101, 6001}));
}

// C1
TEST(Switchml, ALostContributionHoldsItsRoundUntilItIsSentAgain) {
  Network net(3);
  net.send(0, 0, false, 1);
  net.send(2, 0, false, 1);
  EXPECT_THAT(net.send(0, 0, false, 1), IsEmpty());
  EXPECT_THAT(net.send(2, 0, false, 1), IsEmpty());
  expect_result(net.send(1, 0, false, 1), 3, 3);
}

// C3
TEST(Switchml, AResultThatWasLostToAllIsServedToEach) {
  Network net(3);
  net.reduce(0, false, 5);
  for (std::size_t worker = 0; worker < 3; ++worker)
    expect_only_to(net.send(worker, 0, false, 5), worker, 15);
}

// C8, the half that can be told
TEST(Switchml, ALateCopyChangesNothingWhileTheOtherVersionFills) {
  Network net(2);
  net.reduce(0, false, 3);
  net.send(0, 0, true, 50);
  EXPECT_THAT(net.send(0, 0, false, 3), IsEmpty()) << "of the round before, when its sender has gone on";
  EXPECT_EQ(net.box.counters(1)->late, 1U);
  EXPECT_THAT(net.send(0, 0, true, 50), IsEmpty()) << "it is still known to have contributed";
  expect_only_to(net.send(1, 0, false, 3), 1, 6);
  expect_result(net.send(1, 0, true, 60), 110, 2);
}

// C8, the other half: nothing on this wire tells such a copy from the next round's first contribution. Ours
// has operations and blocks for it.
TEST(Switchml, ALateCopyAfterTheOtherVersionHasEndedCountsAsTheNextRound) {
  Network net(2);
  net.reduce(0, false, 3);
  net.reduce(0, true, 5);
  EXPECT_THAT(net.send(0, 0, false, 3), IsEmpty());
  expect_result(net.send(1, 0, false, 100), 103, 2);
}

// C9
TEST(Switchml, TheJobByteMayWrapAndSaysNothingToTheSwitch) {
  Network net(2);
  for (int tensor = 0; tensor < 600; ++tensor) {
    const auto job = static_cast<std::uint8_t>(tensor);
    const bool version = tensor % 2 == 1;
    net.send(0, net.packet(0, version, tensor, job, 0));
    const auto answers = net.send(1, net.packet(0, version, tensor, job, 0));
    expect_result(answers, 2 * tensor, 2);
    ASSERT_EQ(answers.at(0).header.job, job);
  }
}

// C10
TEST(Switchml, OneWorkerIsEchoedAndThirtyTwoAreTheMost) {
  Network alone(1);
  for (int round = 0; round < 4; ++round) expect_result(alone.send(0, 0, round % 2 == 1, round), round, 1);
  expect_result(alone.send(0, 0, true, 3), 3, 1);
  Network most(32);
  expect_result(most.reduce(0, false, 2), 64, 32);
  expect_result(most.reduce(0, true, 1 << 26), static_cast<std::int32_t>(1U << 31), 32);
  std::vector<std::uint64_t> hosts(33);
  for (std::size_t w = 0; w < hosts.size(); ++w) hosts[w] = 500 + w;
  const auto refused = most.box.open(SwitchmlTerms{2, hosts, 8, 64, 1e9});
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->busy);
  EXPECT_EQ(refused->text, "job 2: SwitchML's protocol has at most 32 workers");
}

// C12
TEST(Switchml, IntegersWrap) {
  Network net(2);
  net.send(0, 0, false, std::numeric_limits<std::int32_t>::max());
  expect_result(net.send(1, 0, false, 2), std::numeric_limits<std::int32_t>::min() + 1, 2);
}

// C13; bug (c) of the published client: its reset wipes all sessions
TEST(Switchml, AJobThatIsClosedWithARoundHalfFullLeavesOthersAsTheyAre) {
  Network net(2);
  ASSERT_FALSE(net.box.open(SwitchmlTerms{2, {300, 301}, 8, 64, 1e9}));
  net.send(0, 0, false, 7);
  const auto other = [&](std::uint64_t host, std::int32_t value) {
    const auto actions = net.box.on_switchml(net.packet(0, false, value), {host, 1}, 0);
    return std::vector<SwitchAction>(actions.begin(), actions.end());
  };
  EXPECT_THAT(other(300, 1), IsEmpty());
  const std::size_t memory = net.box.memory_bytes();
  net.box.close(1);
  EXPECT_LT(net.box.memory_bytes(), memory);
  EXPECT_THAT(net.send(1, 0, false, 7), IsEmpty()) << "of a job that is closed";
  EXPECT_EQ(other(301, 1).size(), 1U) << "the other job's round has kept its first half";
}

// C14
TEST(Switchml, AJobThatIsOpenedAgainSeesNothingOfItsFormerRounds) {
  Network net(2);
  net.send(0, 0, false, 7);
  net.box.close(1);
  ASSERT_FALSE(net.box.open(SwitchmlTerms{1, net.hosts, 8, 64, 1e11, 1e9}));
  EXPECT_THAT(net.send(1, 0, false, 5), IsEmpty());
  expect_result(net.send(0, 0, false, 5), 10, 2);
}

// C15
TEST(Switchml, JobsHaveSlotsOfTheirOwnAndNoneBeyondThem) {
  Network net(2, 64, 4);
  ASSERT_FALSE(net.box.open(SwitchmlTerms{2, {300, 301}, 4, 64, 1e9}));
  net.send(0, 1, false, 7);
  EXPECT_TRUE(net.box.on_switchml(net.packet(1, false, 9), {300, 1}, 0).empty());
  expect_result(net.send(1, 1, false, 7), 14, 2);
  for (const std::uint16_t slot : {std::uint16_t{4}, std::uint16_t{5}, std::uint16_t{0x7fff}})
    for (std::size_t worker = 0; worker < 2; ++worker)
      EXPECT_THAT(net.send(worker, slot, false, 1), IsEmpty());
  EXPECT_EQ(net.box.counters(1)->out_of_range, 6U);
  const auto taken = net.box.open(SwitchmlTerms{3, {301}, 4, 64, 1e9});
  ASSERT_TRUE(taken);
  EXPECT_THAT(taken->text, ::testing::HasSubstr("one of its hosts is a worker of another job"));
}

// C17
TEST(Switchml, APacketOfAnotherSizeOrCutShortIsDropped) {
  Network net(2, 64);
  Network large(2, 256);
  EXPECT_THAT(net.send(0, large.packet(0, false, 1)), IsEmpty());
  EXPECT_EQ(net.box.counters(1)->out_of_range, 1U);
  auto bytes = net.packet(0, false, 1);
  for (std::size_t n = 0; n < bytes.size(); n += 7)
    EXPECT_THAT(
        net.send(0, std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n))),
        IsEmpty());
  EXPECT_EQ(net.box.counters(1)->contributions, 0U);
}

// C18
TEST(Switchml, MemoryThatGoesBackIsZero) {
  std::vector<std::byte> arena(1 << 16, std::byte{0});
  std::pmr::monotonic_buffer_resource memory(arena.data(), arena.size(), std::pmr::null_memory_resource());
  AggregationSwitch box({1 << 20, 4, 1e12}, &memory);
  Network net(2);
  ASSERT_FALSE(box.open(SwitchmlTerms{1, {100, 101}, 4, 64, 1e12}));
  (void)box.on_switchml(net.packet(0, false, 0x5a5a5a5a), {100, 1}, 0);
  const auto any = [&] {
    return std::any_of(arena.begin(), arena.end(), [](std::byte b) { return b != std::byte{0}; });
  };
  EXPECT_TRUE(any());
  box.close(1);
  EXPECT_FALSE(any());
}

TEST(Switchml, WhatExceedsAJobsRateIsDroppedAndTakenLater) {
  Network net(1);
  net.box.close(1);
  const double bytes = static_cast<double>(wire::switchml_bytes(64));
  ASSERT_FALSE(net.box.open(SwitchmlTerms{1, net.hosts, 8, 64, 1000 * bytes, 2 * bytes}));
  for (std::uint16_t slot = 0; slot < 2; ++slot) expect_result(net.send(0, slot, false, 1), 1, 1);
  EXPECT_THAT(net.send(0, 2, false, 1), IsEmpty());
  EXPECT_EQ(net.box.counters(1)->busy, 1U);
  net.now_ns = 1'000'001;
  expect_result(net.send(0, 2, false, 1), 1, 1);
}

}  // namespace
}  // namespace talweg::protocol
