// Which way frames to a rank take, by what both have carried.
#include "live/either/transport_choice.h"

#include <gtest/gtest.h>

#include <cmath>

namespace talweg::live {
namespace {

// A way that carries so many bytes in a second for which it is busy, and sends a part of them once more.
struct Road {
  double bytes_per_second = 1e7;
  double again = 0;
  PeerStatistics seen{};
  void carry(double busy_seconds) {
    const double bytes = bytes_per_second * busy_seconds;
    seen.acked_bytes += static_cast<std::uint64_t>(bytes);
    seen.resent_bytes += static_cast<std::uint64_t>(std::ceil(bytes * again));
    seen.busy_seconds += busy_seconds;
  }
};

class Choosing : public ::testing::Test {
 protected:
  static constexpr std::int64_t kStepNs = 50'000'000;
  // Of each look's time the way that is taken is busy for half.
  void go(double seconds) {
    for (const std::int64_t until = now_ + static_cast<std::int64_t>(seconds * 1e9); now_ < until;) {
      now_ += kStepNs;
      (choice_.way() == Way::tcp ? tcp_ : datagrams_).carry(0.5e-9 * kStepNs);
      choice_.look(tcp_.seen, datagrams_.seen, pass_, now_);
    }
  }
  // The part of what was carried that went in datagrams.
  double in_datagrams() const {
    const auto tcp = static_cast<double>(tcp_.seen.acked_bytes);
    const auto datagrams = static_cast<double>(datagrams_.seen.acked_bytes);
    return datagrams / (tcp + datagrams);
  }

  TransportChoice choice_;
  Road tcp_, datagrams_;
  bool pass_ = true;
  std::int64_t now_ = 0;
};

TEST_F(Choosing, TcpIsLeftAloneWhereNothingIsLost) {
  datagrams_.bytes_per_second = 1e9;
  go(100);
  EXPECT_EQ(choice_.trials(), 0U);
  EXPECT_EQ(in_datagrams(), 0);
}

TEST_F(Choosing, DatagramsAreTakenWhereTcpSendsAgainAndTheyAreQuicker) {
  tcp_.again = 0.01;
  datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(20);
  EXPECT_EQ(choice_.way(), Way::datagrams);
  EXPECT_EQ(choice_.trials(), 1U);
  go(600);
  EXPECT_EQ(choice_.trials(), 1U) << "what still loses packets would be no better for TCP";
  EXPECT_GT(in_datagrams(), 0.98);
}

TEST_F(Choosing, TcpStaysWhereDatagramsAreHardlyQuickerAndIsDisturbedEverLess) {
  tcp_.again = 0.01;
  datagrams_.bytes_per_second = 1.05e7;
  go(10);
  EXPECT_EQ(choice_.trials(), 1U);
  EXPECT_EQ(choice_.way(), Way::tcp);
  go(1000);
  EXPECT_LE(choice_.trials(), 6U) << "after 30, 60, 120, 240, 480 s";
  EXPECT_GE(choice_.trials(), 4U);
  EXPECT_LT(in_datagrams(), 0.02);
}

TEST_F(Choosing, TcpIsTakenBackWhenNothingIsLostAnyMore) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  tcp_ = {.bytes_per_second = 3e7, .seen = tcp_.seen};
  datagrams_.again = 0;
  go(40);
  EXPECT_EQ(choice_.way(), Way::tcp);
}

TEST_F(Choosing, DatagramsStayWhereTcpIsStillSlowerWithoutALoss) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  tcp_ = {.bytes_per_second = 2.5e7, .seen = tcp_.seen};
  datagrams_.again = 0;
  go(1000);
  EXPECT_GE(choice_.trials(), 3U) << "TCP is tried again";
  EXPECT_EQ(choice_.way(), Way::datagrams);
  EXPECT_GT(in_datagrams(), 0.95);
}

// As when others, who do not care for delay, take their part of the way.
TEST_F(Choosing, TcpIsTakenBackWhenDatagramsHaveBecomeSlow) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  datagrams_.bytes_per_second = 5e6;
  go(60);
  EXPECT_EQ(choice_.way(), Way::tcp);
}

TEST_F(Choosing, TcpIsTakenBackWhenDatagramsPassNoMore) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  datagrams_.bytes_per_second = 0;
  pass_ = false;
  go(2);
  EXPECT_EQ(choice_.way(), Way::tcp);
}

TEST_F(Choosing, NothingIsTriedWhereDatagramsDoNotPass) {
  tcp_.again = 0.1;
  datagrams_.bytes_per_second = 1e9;
  pass_ = false;
  go(100);
  EXPECT_EQ(choice_.trials(), 0U);
  pass_ = true;
  go(10);
  EXPECT_EQ(choice_.trials(), 1U);
  EXPECT_EQ(choice_.way(), Way::datagrams);
}

// As where what went by TCP is long in arriving.
TEST_F(Choosing, AChangeThatCouldNotBeMadeIsTriedAgainAfterAPause) {
  tcp_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  while (choice_.way() == Way::tcp) go(0.05);
  choice_.stay(Way::tcp, tcp_.seen, datagrams_.seen, now_);
  EXPECT_EQ(choice_.way(), Way::tcp);
  const std::int64_t then = now_;
  while (choice_.way() == Way::tcp) go(0.05);
  EXPECT_GE(now_ - then, TransportChoice::kLeastPauseNs);
  go(20);
  EXPECT_EQ(choice_.way(), Way::datagrams);
}

// A few bytes that wait for a timer each are slow, too.
TEST_F(Choosing, FewBytesAreComparedByTheTimeThatTheyTake) {
  tcp_ = {.bytes_per_second = 1e4, .again = 0.01};
  datagrams_ = {.bytes_per_second = 2e4, .again = 0.01};
  go(60);
  EXPECT_EQ(choice_.way(), Way::datagrams);
}

}  // namespace
}  // namespace talweg::live
