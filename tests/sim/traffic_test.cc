// Patterns of flows: who sends what to whom.
#include "sim/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/shapes.h"

namespace talweg::sim {
namespace {

using ::testing::HasSubstr;

TEST(Traffic, APermutationIsOneFlowFromAndToEachHost) {
  for (const char* text :
       {"permutation:size=30MB", "permutation:size=30MB,seed=9", "permutation:shift=4,size=30MB"}) {
    const Matrix m = parse_traffic(text, 16, 1);
    ASSERT_EQ(m.connections.size(), 16U) << text;
    std::set<int> from;
    std::set<int> to;
    for (const Connection& c : m.connections) {
      EXPECT_NE(c.from, c.to) << text;
      EXPECT_EQ(c.bytes, 30'000'000) << text;
      EXPECT_EQ(c.id, c.from + 1) << text;
      from.insert(c.from);
      to.insert(c.to);
    }
    EXPECT_EQ(from.size(), 16U) << text;
    EXPECT_EQ(to.size(), 16U) << text;
  }
  EXPECT_EQ(parse_traffic("permutation:shift=4", 16, 1).connections[13].to, 1);
}

TEST(Traffic, ASeedDrawsThePermutation) {
  const auto ends = [](const char* text, std::uint64_t seed) {
    std::vector<int> to;
    for (const Connection& c : parse_traffic(text, 64, seed).connections) to.push_back(c.to);
    return to;
  };
  EXPECT_EQ(ends("permutation", 1), ends("permutation", 1));
  EXPECT_NE(ends("permutation", 1), ends("permutation", 2));
  EXPECT_EQ(ends("permutation:seed=2", 1), ends("permutation", 2));
}

TEST(Traffic, AShuffleIsAllPairsAndAnIncastGoesToOneHost) {
  const Matrix shuffle = parse_traffic("shuffle:size=400KB,prio=1,start=2us", 5, 1);
  std::set<std::pair<int, int>> pairs;
  for (const Connection& c : shuffle.connections) {
    pairs.emplace(c.from, c.to);
    EXPECT_EQ(c.bytes, 400'000);
    EXPECT_EQ(c.priority, 1);
    EXPECT_EQ(c.start, 2'000'000);
  }
  EXPECT_EQ(shuffle.connections.size(), 20U);
  EXPECT_EQ(pairs.size(), 20U);

  std::vector<int> from;
  for (const Connection& c : parse_traffic("incast:to=2,from=3", 6, 1).connections) {
    EXPECT_EQ(c.to, 2);
    EXPECT_EQ(c.bytes, 1'000'000);
    from.push_back(c.from);
  }
  EXPECT_THAT(from, testing::ElementsAre(0, 1, 3));
  EXPECT_EQ(parse_traffic("incast", 16, 1).connections.size(), 15U);
  EXPECT_EQ(parse_traffic("incast", 16, 1).connections[0].to, 15);
}

TEST(Traffic, AMixHasMostlyShortFlowsThatStartAtRandomTimes) {
  const Matrix m = parse_traffic("mixed:size=2MB,flows=50,within=3ms", 20, 1);
  std::map<std::int64_t, int> sizes;
  for (const Connection& c : m.connections) {
    EXPECT_NE(c.from, c.to);
    EXPECT_GE(c.start, 0);
    EXPECT_LE(c.start, 3'000'000'000);
    ++sizes[c.bytes];
  }
  ASSERT_EQ(m.connections.size(), 1000U);
  ASSERT_EQ(sizes.size(), 3U);
  EXPECT_NEAR(sizes[20'000], 600, 62);  // four standard deviations
  EXPECT_NEAR(sizes[200'000], 300, 58);
  EXPECT_NEAR(sizes[2'000'000], 100, 38);
}

TEST(Traffic, WhatIsWrongIsSaidWithWhatWasExpected) {
  const auto about = [](const std::string& text, int hosts = 4) {
    return message_of([&] { parse_traffic(text, hosts, 1); });
  };
  EXPECT_EQ(about("ring"), "ring: expected permutation, shuffle, incast or mixed");
  EXPECT_THAT(about("incast:to=4"), HasSubstr("to: expected a number from 0 to 3, got \"4\""));
  EXPECT_THAT(about("shuffle:size=0"), HasSubstr("size: expected from 1 to 137438953472 bytes"));
  EXPECT_THAT(about("shuffle:size"), HasSubstr("expected name=value, got \"size\""));
  EXPECT_THAT(about("shuffle:size=,prio=1"), HasSubstr("size: expected a value"));
  EXPECT_THAT(about("shuffle:size=1K,size=2K"), HasSubstr("\"size\" is written twice"));
  EXPECT_THAT(about("shuffle:seed=1"), HasSubstr("\"seed\" is not known here: expected size, prio, start"));
  EXPECT_THAT(about("permutation:shift=1,seed=2"),
              HasSubstr("\"seed\" is not known here: expected size, prio, start"));
  EXPECT_THAT(about("mixed:within=2000000s"), HasSubstr("within: expected at most 86400 s"));
  EXPECT_THAT(about("permutation", 1), HasSubstr("at least two hosts"));
  EXPECT_THAT(about("shuffle:prio=8"), HasSubstr("prio: expected a number from 0 to 7"));
  EXPECT_THAT(about("shuffle", 4000), HasSubstr("15996000 flows: expected at most 8388608"));
}

}  // namespace
}  // namespace talweg::sim
