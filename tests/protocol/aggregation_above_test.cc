// A rack's switch and the one above it, with datagrams made by hand: what it passes up, once more where that
// switch was too busy, and what it believes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "protocol/one_switch.h"

namespace talweg::protocol {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using wire::AggregationReason;

TEST(AggregationAbove, ARacksSwitchPassesOneContributionUpAndTheResultDown) {
  JobTerms rack = terms_of(2);
  rack.above = SwitchAbove{5, 1000};
  OneSwitch leaf(rack);
  leaf.send(0, 1, {0, 4, {1}});
  const auto up = leaf.send(1, 1, {0, 8, {2}});
  ASSERT_THAT(up, SizeIs(1));
  EXPECT_EQ(up[0].to, To::above);
  EXPECT_EQ(up[0].type(), AggregationType::contribution);
  EXPECT_EQ(up[0].header.sender, 5);
  EXPECT_EQ(up[0].entries[0].next, 4U);
  EXPECT_THAT(up[0].values<std::int32_t>(), Each(3));

  // Lost on the way: it goes again when a worker speaks again, but not for each of them.
  EXPECT_THAT(leaf.send(0, 1, {0, 4, {1}}), IsEmpty());
  leaf.now_ns = 2000;
  EXPECT_EQ(leaf.send(0, 1, {0, 4, {1}}).at(0).to, To::above);
  EXPECT_THAT(leaf.send(1, 1, {0, 8, {2}}), IsEmpty());
  EXPECT_EQ(leaf.counters().passed_again, 1U);
  const auto asked = leaf.ask(0, 1, {0});
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_TRUE(asked[0].entries[0].above);
  EXPECT_FALSE(asked[0].entries[0].yours);

  wire::DatagramHeader h = leaf.header(900, 1);
  h.type = static_cast<std::uint8_t>(AggregationType::missing);
  std::vector<std::byte> buffer(200);
  wire::AggregationWriter writer(buffer);
  writer.begin(AggregationFormat::i32);
  AggregationEntry missing;
  missing.block = 0;
  missing.yours = true;
  writer.add(missing);
  EXPECT_EQ(unpacked(leaf.box.on_above(h, writer.payload(), 2000)).at(0).to, To::above) << "it is asked for";

  h.type = static_cast<std::uint8_t>(AggregationType::result);
  const auto result = OneSwitch::payload({{0, 2, {50}}});
  const auto down = unpacked(leaf.box.on_above(h, result, 3000));
  expect_sum(down, To::all, 50);
  EXPECT_EQ(down.at(0).entries[0].next, 2U);
  EXPECT_THAT(unpacked(leaf.box.on_above(h, result, 3000)), IsEmpty()) << "once more";
  expect_sum(leaf.send(0, 1, {0, 4, {1}}), To::one, 50);
}

struct LeafBelow : OneSwitch {
  static JobTerms terms() {
    JobTerms rack = terms_of(1);
    rack.above = SwitchAbove{5, 1000};
    return rack;
  }
  explicit LeafBelow(const JobTerms& terms = LeafBelow::terms()) : OneSwitch(terms) {}
  std::vector<Said> pass(std::uint16_t slot, const std::vector<Part>& parts) {
    return hand(header(0, 1, slot), payload(parts));
  }
  void refuse(std::uint16_t slot, std::uint32_t wait_us, AggregationReason reason = AggregationReason::busy) {
    wire::DatagramHeader h = header(900, 1, slot);
    h.type = static_cast<std::uint8_t>(AggregationType::refusal);
    std::array<std::byte, wire::kRefusalBytes> bytes{};
    wire::encode(wire::AggregationRefusal{reason, wait_us, AggregationType::contribution}, bytes);
    EXPECT_THAT(unpacked(box.on_above(h, bytes, now_ns)), IsEmpty());
  }
  std::vector<Said> at(std::int64_t when_ns) {
    now_ns = when_ns;
    std::vector<Said> all;
    while (box.next_time_ns() <= now_ns)
      for (Said& said : unpacked(box.on_time(now_ns))) all.push_back(said);
    return all;
  }
};

TEST(AggregationAbove, WhatTheSwitchAboveIsTooBusyForIsSentWhenItHasSaid) {
  LeafBelow leaf;
  leaf.pass(0, {{0, 4, {1}}, {1, 5, {2}, 1}});
  leaf.pass(1, {{4, 8, {3}}});
  leaf.pass(2, {{8, 12, {4}}});
  leaf.refuse(1, 300);
  leaf.refuse(0, 200);
  EXPECT_EQ(leaf.box.next_time_ns(), 200'000);
  EXPECT_THAT(leaf.at(199'999), IsEmpty());
  // Not before, when a worker asks: that slot is the one that is held back.
  EXPECT_THAT(leaf.ask(0, 1, {0}), SizeIs(1));
  const auto said = leaf.at(200'000);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].to, To::above);
  EXPECT_EQ(said[0].header.own16, 0);
  EXPECT_EQ(said[0].header.own32, 1U);
  ASSERT_THAT(said[0].entries, SizeIs(2));
  EXPECT_THAT(said[0].values<std::int32_t>(1), Each(2));
  EXPECT_EQ(leaf.box.next_time_ns(), 300'000);
  // Refused once more, and later than the other.
  leaf.refuse(0, 400);
  const auto other = leaf.at(300'000);
  ASSERT_THAT(other, SizeIs(1));
  EXPECT_EQ(other[0].header.own16, 1);
  EXPECT_THAT(leaf.at(600'000), SizeIs(1));
  EXPECT_THAT(leaf.at(10'000'000), IsEmpty()) << "what was not refused is not sent again";
  EXPECT_EQ(leaf.counters().passed_again, 5U) << "columns: two, those two again, and one";
}

TEST(AggregationAbove, WhatHasBeenAnsweredFromAboveIsNotSentThereAgain) {
  LeafBelow leaf;
  leaf.pass(0, {{0, 4, {1}}});
  leaf.refuse(0, 200);
  wire::DatagramHeader h = leaf.header(900, 1);
  h.type = static_cast<std::uint8_t>(AggregationType::result);
  expect_sum(unpacked(leaf.box.on_above(h, OneSwitch::payload({{0, 4, {50}}}), 1000)), To::all, 50);
  EXPECT_THAT(leaf.at(200'000), IsEmpty());
  leaf.refuse(77, 200);
  EXPECT_EQ(leaf.counters().out_of_range, 1U);
  EXPECT_EQ(leaf.box.next_time_ns(), std::numeric_limits<std::int64_t>::max());
}

// The smallest of jobs: its times lie in its memory where they may, as sanitizers see.
TEST(AggregationAbove, HoldsBackTheOnlyColumnOfTheOnlySlot) {
  JobTerms small = LeafBelow::terms();
  small.slots = small.columns = 1;
  EXPECT_EQ((memory_of(small).total - memory_of(small).packets) % alignof(std::int64_t), 0U);
  LeafBelow leaf(small);
  leaf.pass(0, {{0, 4, {1}}});
  leaf.refuse(0, 200);
  EXPECT_THAT(leaf.at(200'000), SizeIs(1));
}

TEST(AggregationAbove, AWorkerThatSpeaksForTheSwitchAboveIsNotBelieved) {
  JobTerms rack = terms_of(2);
  rack.above = SwitchAbove{5, 1000};
  OneSwitch leaf(rack);
  leaf.send(0, 1, {0, 4, {1}});
  leaf.send(1, 1, {0, 4, {2}});
  wire::DatagramHeader h = leaf.header(0, 1);
  h.type = static_cast<std::uint8_t>(AggregationType::result);
  EXPECT_THAT(leaf.hand(h, OneSwitch::payload({{0, 2, {999}}})), IsEmpty());
  EXPECT_EQ(leaf.counters().malformed, 1U);
}

}  // namespace
}  // namespace talweg::protocol
