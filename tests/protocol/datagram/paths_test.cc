// By which of several paths datagrams leave, and that reordering among paths is no loss.
#include "protocol/datagram/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "protocol/datagram/lossy_pipe.h"
#include "sanitized.h"
#include "talweg/error.h"

namespace talweg::protocol {
namespace {

constexpr std::int64_t kMilli = 1'000'000;
constexpr double kGigabit = 1.25e8;

// A stream from one end to the other by several paths.
class Spray {
 public:
  Spray(std::size_t paths, std::vector<PipeNature::Way> ways, FlowOptions options = {}, double loss = 0)
      : pipe(with(options, paths), nature(std::move(ways), loss), 7) {}

  // Sends so many bytes more; false: they did not all arrive, once and in order.
  bool send(std::uint64_t bytes, std::int64_t limit_ns = 60'000 * kMilli) {
    const std::int64_t end = pipe.now() + limit_ns;
    to_write_ += bytes;
    while (read_ < to_write_ || !sender().all_arrived()) {
      write();
      if (!read()) return false;
      for (int side = 0; side < 2; ++side) pipe.send_all(side);
      if (!pipe.step() || pipe.now() > end) return false;
      most_missed_ = std::max(most_missed_, sender().missed());
    }
    return true;
  }
  // Questions in a row that brought no answer.
  unsigned most_missed() const { return most_missed_; }
  DatagramFlow& sender() { return pipe.ends[0].flow; }
  const FlowStatistics& sent() { return sender().statistics(); }
  std::uint64_t by(std::size_t path) const {
    const auto at = pipe.by_path(0).find(path);
    return at == pipe.by_path(0).end() ? 0 : at->second;
  }

  LossyPipe pipe;

 private:
  static FlowOptions with(FlowOptions options, std::size_t paths) {
    options.paths = paths;
    return options;
  }
  static PipeNature nature(std::vector<PipeNature::Way> ways, double loss) {
    PipeNature nature;
    nature.ways = std::move(ways);
    nature.loss = loss;
    return nature;
  }
  void write() {
    std::byte some[4096];
    while (written_ < to_write_) {
      const std::size_t n = std::min<std::uint64_t>(sizeof some, to_write_ - written_);
      bytes_of(0, 0, written_, {some, n});
      const std::size_t taken = sender().write(0, {some, n});
      written_ += taken;
      if (taken < n) return;
    }
  }
  bool read() {
    DatagramFlow& flow = pipe.ends[1].flow;
    for (auto bytes = flow.readable(0); !bytes.empty(); bytes = flow.readable(0)) {
      sent_.resize(bytes.size());
      bytes_of(0, 0, read_, sent_);
      if (std::memcmp(bytes.data(), sent_.data(), bytes.size()) != 0) return false;
      read_ += bytes.size();
      flow.consumed(0, bytes.size());
    }
    return true;
  }

  std::uint64_t to_write_ = 0, written_ = 0, read_ = 0;
  unsigned most_missed_ = 0;
  std::vector<std::byte> sent_;
};

std::vector<PipeNature::Way> equal_ways(std::size_t n) {
  return std::vector<PipeNature::Way>(n, {.rate = kGigabit});
}

TEST(Paths, EqualOnesGetEqualShares) {
  constexpr std::size_t kPaths = 8;
  Spray s(kPaths, equal_ways(kPaths));
  const std::uint64_t datagrams = fewer(100'000);
  ASSERT_TRUE(s.send(datagrams * 1392));
  std::uint64_t least = UINT64_MAX, most = 0;
  for (std::size_t p = 0; p < kPaths; ++p) {
    least = std::min(least, s.by(p));
    most = std::max(most, s.by(p));
  }
  EXPECT_LE(static_cast<double>(most), 1.1 * static_cast<double>(least));
  EXPECT_EQ(s.sent().bytes_sent_again, 0U);
  EXPECT_EQ(s.sent().timeouts, 0U);
}

TEST(Paths, SeveralCarryWhatOneCannot) {
  Spray one(1, equal_ways(4)), four(4, equal_ways(4));
  ASSERT_TRUE(one.send(20'000'000));
  ASSERT_TRUE(four.send(20'000'000));
  EXPECT_LT(four.pipe.now() * 2, one.pipe.now());
}

TEST(Paths, ADeadOneIsLeft) {
  auto ways = equal_ways(4);
  ways[2].dead_from_ns = 20 * kMilli;
  ways[2].dead_until_ns = INT64_MAX;
  Spray s(4, ways);
  ASSERT_TRUE(s.send(2'000'000));
  ASSERT_GT(s.pipe.now(), 2 * kMilli);
  ASSERT_TRUE(s.send(2'000'000));
  while (s.pipe.now() < 18 * kMilli) ASSERT_TRUE(s.send(100'000));
  const FlowStatistics before = s.sent();
  EXPECT_EQ(before.bytes_sent_again, 0U);
  const std::uint64_t by_it = s.by(2);
  ASSERT_TRUE(s.send(40'000'000));
  EXPECT_FALSE(s.sender().paths().in_use(2));
  EXPECT_EQ(s.sender().paths().left(), 1U);
  EXPECT_EQ(s.sender().paths().times_left(), 1U);
  // No more than what was on its way by it when it died, and a datagram of no bytes now and then.
  EXPECT_LT(s.by(2) - by_it, 1'000'000U);
  EXPECT_LT(s.sent().bytes_sent_again, 40'000'000U / 40);
  EXPECT_GT(s.sent().lost_by_silence, 0U);
  EXPECT_GT(s.sent().trials, before.trials);
  EXPECT_LT(s.sent().trials, before.trials + 20);
  const std::uint64_t then = s.by(2);
  ASSERT_TRUE(s.send(40'000'000));
  EXPECT_LT(s.by(2) - then, 2000U);
}

TEST(Paths, OneThatWasDeadFromTheBeginningGetsNothing) {
  for (const std::size_t dead : {0U, 3U}) {
    auto ways = equal_ways(4);
    ways[dead].dead_until_ns = INT64_MAX;
    Spray s(4, ways);
    ASSERT_TRUE(s.send(20'000'000));
    EXPECT_FALSE(s.sender().paths().in_use(dead));
    EXPECT_LT(s.by(dead), dead == 0 ? 100'000U : 2000U) << dead;
  }
}

TEST(Paths, OneThatComesBackIsTakenBack) {
  auto ways = equal_ways(4);
  ways[1].dead_from_ns = 20 * kMilli;
  ways[1].dead_until_ns = 200 * kMilli;
  Spray s(4, ways);
  while (s.pipe.now() < 150 * kMilli) ASSERT_TRUE(s.send(1'000'000));
  EXPECT_FALSE(s.sender().paths().in_use(1));
  while (s.pipe.now() < 1000 * kMilli) ASSERT_TRUE(s.send(1'000'000));
  EXPECT_TRUE(s.sender().paths().in_use(1));
  EXPECT_EQ(s.sender().paths().times_back(), 1U);
  const std::uint64_t by_it = s.by(1), by_other = s.by(2);
  ASSERT_TRUE(s.send(40'000'000));
  EXPECT_GT((s.by(1) - by_it) * 10, (s.by(2) - by_other) * 9);
}

TEST(Paths, ASlowOneGetsLittle) {
  auto far = equal_ways(4);
  far[3].longer_ns = 9 * (100'000 + 12'000) / 2;  // ten times the round trip
  Spray a(4, far);
  ASSERT_TRUE(a.send(40'000'000));
  EXPECT_LT(a.by(3) * 2, a.by(0));
  auto narrow = equal_ways(4);
  narrow[3].rate = kGigabit / 10;
  Spray b(4, narrow);
  ASSERT_TRUE(b.send(40'000'000));
  EXPECT_LT(b.by(3) * 5, b.by(0));
}

TEST(Paths, ALossyOneGetsLittle) {
  auto ways = equal_ways(4);
  ways[0].loss = 0.1;
  Spray four(4, ways), alone(1, ways);
  ASSERT_TRUE(four.send(40'000'000));
  EXPECT_LT(four.by(0) * 3, four.by(1));
  EXPECT_EQ(four.sender().paths().times_left(), 0U);
  ASSERT_TRUE(alone.send(40'000'000));
  EXPECT_LT(four.pipe.now() * 4, alone.pipe.now());
}

TEST(Paths, DifferentDelaysAreNoLosses) {
  for (const std::int64_t longer_ns : {20'000, 100'000, 300'000, 1'000'000, 5'000'000}) {
    for (const bool narrow : {false, true}) {
      auto ways = narrow ? equal_ways(4) : std::vector<PipeNature::Way>(4);
      for (std::size_t w = 0; w < ways.size(); ++w)
        ways[w].longer_ns = longer_ns * static_cast<std::int64_t>(w) / 3;
      FlowOptions options;
      options.rate.enabled = narrow;
      Spray s(4, ways, options);
      ASSERT_TRUE(s.send(narrow ? 10'000'000 : 3'000'000));
      EXPECT_EQ(s.sent().lost_by_gap, 0U) << longer_ns << narrow;
      EXPECT_EQ(s.sent().lost_by_silence, 0U) << longer_ns << narrow;
      EXPECT_EQ(s.sent().arrived_after_all, 0U) << longer_ns << narrow;
      EXPECT_EQ(s.sent().bytes_sent_again, 0U) << longer_ns << narrow;
      EXPECT_GT(s.by(3), 0U) << longer_ns << narrow;
    }
  }
}

TEST(Paths, LossesOfOneTakeItsPartOfTheWindow) {
  std::int64_t took_ns = 0;
  for (const double loss : {0.0, 0.02}) {
    auto ways = equal_ways(4);
    ways[1].loss = loss;
    Spray s(4, ways);
    ASSERT_TRUE(s.send(20'000'000));
    if (loss > 0) {
      EXPECT_LT(s.pipe.now() * 4, took_ns * 5);
    }
    took_ns = s.pipe.now();
  }
}

TEST(Paths, LossesAreFoundAsSoonAsByOne) {
  Spray s(4, equal_ways(4), {}, 0.01);
  ASSERT_TRUE(s.send(10'000'000));
  EXPECT_GT(s.sent().lost_by_gap, 20 * s.sent().lost_by_silence);
  EXPECT_EQ(s.sender().paths().times_left(), 0U);
}

// An acknowledgement that is lost is no delay of a path, though what it told of is told only after a timeout.
TEST(Paths, WhereMuchIsLostSeveralTakeNoLongerThanOne) {
  for (const double loss : {0.2, 0.3, 0.4}) {
    Spray one(1, equal_ways(4), {}, loss), four(4, equal_ways(4), {}, loss);
    ASSERT_TRUE(one.send(1 << 20)) << loss;
    ASSERT_TRUE(four.send(1 << 20)) << loss;
    EXPECT_LT(four.pipe.now(), 2 * one.pipe.now()) << loss;
    for (std::size_t path = 0; path < 4; ++path)
      EXPECT_LT(four.sender().paths().trip(path).smoothed_ns(), kMilli) << loss;
  }
}

TEST(Paths, ADeadOneIsLeftByMessagesOfOneDatagramToo) {
  for (const std::size_t dead : {0U, 2U}) {
    auto ways = equal_ways(4);
    ways[dead].dead_from_ns = 500 * kMilli;
    ways[dead].dead_until_ns = INT64_MAX;
    Spray s(4, ways);
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(s.send(1000));
      s.pipe.pause(50 * kMilli);
    }
    EXPECT_EQ(s.sender().paths().left(), 1U) << dead;
  }
}

// Not only the question may have taken the dead one, but the answer, too: what follows has to try both.
TEST(Paths, WhereOneOfTwoDiesFewQuestionsAreInVain) {
  unsigned most = 0;
  for (unsigned i = 0; i < 200; ++i) {
    auto ways = equal_ways(2);
    ways[i % 2].dead_from_ns = 5 * kMilli + i * 7'300;
    ways[i % 2].dead_until_ns = INT64_MAX;
    Spray s(2, ways);
    for (int k = 0; k < 30; ++k) ASSERT_TRUE(s.send(1 + i % 40 * 1000)) << i;
    most = std::max(most, s.most_missed());
  }
  EXPECT_LT(most, 8U);
}

TEST(Paths, AFlowThatHasNothingToSayLooksForNone) {
  auto ways = equal_ways(4);
  ways[1].dead_until_ns = INT64_MAX;
  Spray s(4, ways);
  ASSERT_TRUE(s.send(5000));
  int steps = 0;
  for (; steps < 200 && s.pipe.step(); ++steps)
    for (int side = 0; side < 2; ++side) s.pipe.send_all(side);
  EXPECT_LT(steps, 200);
}

// One side only acknowledges, by paths of its own that may be dead.
TEST(Paths, AcknowledgementsLeaveADeadOneToo) {
  auto ways = equal_ways(4);
  Spray s(4, ways);
  ASSERT_TRUE(s.send(5'000'000));
  for (std::size_t p = 0; p < 4; ++p) EXPECT_GT(s.pipe.by_path(1).at(p), 0U);
  ways[2].dead_until_ns = INT64_MAX;
  Spray d(4, ways);
  ASSERT_TRUE(d.send(40'000'000));
  EXPECT_LT(d.pipe.by_path(1).at(2) * 10, d.pipe.by_path(1).at(1));
}

// --- hand-made ---

struct ChooserTest : ::testing::Test {
  // All paths have answered once.
  explicit ChooserTest() {
    for (std::size_t p = 0; p < chooser.paths(); ++p) {
      chooser.arrived(p, 1U << 20, kMilli, now);
      chooser.heard(p, 0, now);
    }
  }
  std::size_t burst() {
    const std::size_t path = chooser.next(sent, now);
    for (std::size_t i = 0; i < PathChooser::kBurst; ++i) {
      EXPECT_EQ(chooser.next(sent, now), path) << i;
      put(path);
    }
    return path;
  }
  void put(std::size_t path, std::uint32_t bytes = 100) {
    sent.sent({.number = number++, .sent_ns = now, .bytes = bytes, .path = static_cast<std::uint8_t>(path)});
    chooser.took(bytes);
  }
  PathChooser chooser{4};
  SentPackets sent{1024};
  std::uint64_t number = 0;
  std::int64_t now = kMilli;
};

TEST_F(ChooserTest, ABurstGoesOneWayAndTheNextOneAnother) {
  std::vector<std::size_t> order;
  for (int i = 0; i < 8; ++i) order.push_back(burst());
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  const std::size_t path = chooser.next(sent, now);
  put(path);
  ++now;
  EXPECT_NE(chooser.next(sent, now), path) << "what leaves later is no part of a burst";
}

TEST_F(ChooserTest, IsLeftAfterSoManyLossesInARowAndTriedNowAndThen) {
  for (unsigned i = 1; i < PathChooser::kLeftAfter; ++i) chooser.lost(1, now);
  EXPECT_TRUE(chooser.in_use(1));
  chooser.arrived(1, 1U << 20, kMilli, now);
  chooser.heard(1, 0, now);
  for (unsigned i = 0; i < PathChooser::kLeftAfter; ++i) {
    EXPECT_TRUE(chooser.in_use(1)) << i;
    chooser.lost(1, now);
  }
  EXPECT_FALSE(chooser.in_use(1));
  EXPECT_EQ(chooser.times_left(), 1U);
  for (int i = 0; i < 12; ++i) EXPECT_NE(burst(), 1U);
  chooser.lost(1, now);  // which had left before
  // It has been in use for no time: twice the first.
  std::int64_t waited = 2 * PathChooser::kFirstTrialNs;
  for (int i = 0; i < 9; ++i) {
    for (std::size_t p : {0U, 2U, 3U}) chooser.arrived(p, 1U << 20, kMilli, now);
    now += waited - 1;
    for (std::size_t p : {0U, 2U, 3U}) chooser.arrived(p, 1U << 20, kMilli, now);
    EXPECT_EQ(chooser.trial(sent, now), std::nullopt) << i;
    ++now;
    EXPECT_EQ(chooser.trial(sent, now), 1U) << i;
    EXPECT_EQ(chooser.trial(sent, now), std::nullopt) << "one at a time";
    EXPECT_EQ(chooser.dead(), i < 4 ? 0U : 1U) << i;
    chooser.lost(1, now);
    waited = std::min(2 * waited, PathChooser::kMostTrialNs);
  }
  EXPECT_EQ(chooser.times_left(), 1U);
  EXPECT_EQ(chooser.dead(), 1U);
  chooser.arrived(1, 1U << 20, kMilli, now);
  chooser.heard(1, 0, now);
  EXPECT_TRUE(chooser.in_use(1));
  EXPECT_EQ(chooser.dead(), 0U);
  EXPECT_EQ(chooser.times_back(), 1U);
}

TEST_F(ChooserTest, OneInUseOfWhichNothingIsHeardIsTriedEachTimeThatLong) {
  for (int i = 0; i < 3; ++i) {
    for (std::size_t p : {0U, 2U, 3U}) chooser.arrived(p, 1U << 20, kMilli, now);
    now += PathChooser::kQuietNs - 1;
    for (std::size_t p : {0U, 2U, 3U}) chooser.arrived(p, 1U << 20, kMilli, now);
    EXPECT_EQ(chooser.trial(sent, now), std::nullopt) << i;
    EXPECT_EQ(chooser.trial(sent, ++now), 1U) << i;
    EXPECT_EQ(chooser.trial(sent, now), std::nullopt) << i;
  }
}

TEST(PathChooser, SaysHowMuchLongerAWayIsThanTheShortest) {
  PathChooser chooser(2);
  for (const std::size_t p : {1U, 0U}) {
    chooser.arrived(p, 100, p == 1 ? 3 * kMilli : kMilli, kMilli);
    chooser.heard(p, 0, kMilli);
  }
  EXPECT_EQ(chooser.detour_ns(1), 2 * kMilli);
  EXPECT_EQ(chooser.detour_ns(0), 0);
}

TEST_F(ChooserTest, OneIsAlwaysInUse) {
  for (int i = 0; i < 100; ++i)
    for (std::size_t p = 0; p < 4; ++p) chooser.lost(p, now);
  int in_use = 0;
  for (std::size_t p = 0; p < 4; ++p) in_use += chooser.in_use(p) ? 1 : 0;
  EXPECT_EQ(in_use, 1);
  std::set<std::size_t> taken;
  for (int i = 0; i < 64; ++i) taken.insert(chooser.next(sent, ++now));
  EXPECT_EQ(taken.size(), 4U) << "any may be the one that answers";
}

TEST_F(ChooserTest, AProbeTakesAnotherPathAndAcknowledgementsAvoidMisses) {
  for (int i = 0; i < 8; ++i) EXPECT_NE(chooser.beside(2, now), 2U);
  chooser.lost(3, now);
  for (int i = 0; i < 32; ++i) EXPECT_NE(chooser.unanswered(now), 3U);
  std::set<std::size_t> taken;
  for (int i = 0; i < 64; ++i) taken.insert(chooser.unanswered(now + 2 * PathChooser::kQuietNs));
  EXPECT_EQ(taken.size(), 4U) << "nothing has been heard for long";
}

// A trial says nothing of how much a path bears.
TEST_F(ChooserTest, AfterATrialLittleIsOnItsWayAtFirst) {
  for (unsigned i = 0; i < PathChooser::kLeftAfter; ++i) chooser.lost(1, now);
  now += 2 * PathChooser::kFirstTrialNs;
  ASSERT_EQ(chooser.trial(sent, now), 1U);
  chooser.arrived(1, 76, kMilli, now);
  chooser.heard(1, 0, now);
  std::size_t by_it = 0;
  for (int i = 0; i < 400; ++i) {
    const std::size_t path = chooser.next(sent, now);
    by_it += path == 1 ? 1 : 0;
    put(path, 1000);
  }
  EXPECT_EQ(by_it, PathChooser::kFirstRoom / 1000);
}

TEST(PathChooser, OneThatWasNotTriedIsNotUsed) {
  PathChooser chooser(3);
  const SentPackets sent(64);
  for (std::int64_t now = 0; now < 100; ++now) EXPECT_EQ(chooser.next(sent, now), 0U);
  EXPECT_TRUE(chooser.trial(sent, 0).has_value());
}

TEST(PathChooser, NumbersOutOfRangeAreRefused) {
  for (const std::size_t paths : {std::size_t{0}, kMostPaths + 1}) EXPECT_THROW(PathChooser{paths}, Error);
}

}  // namespace
}  // namespace talweg::protocol
