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

  explicit Choosing(Preference preference = Preference::the_quicker) : choice_(preference) {}

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

// Over their lifeline (udp_link.h), for which they were not chosen.
TEST_F(Choosing, TcpIsTakenBackWhenDatagramsPassNoMoreAndAreCarriedOverTcp) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  pass_ = false;
  go(0.2);
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

class Preferring : public Choosing {
 protected:
  Preferring() : Choosing(Preference::datagrams) {}
};

TEST_F(Preferring, DatagramsAreTakenWhereverTheyPassHoweverSlow) {
  datagrams_.bytes_per_second = 1e3;
  datagrams_.again = 0.5;
  EXPECT_TRUE(choice_.wants_datagrams(tcp_.seen));
  go(0.05);
  EXPECT_EQ(choice_.way(), Way::datagrams);
  EXPECT_FALSE(choice_.wants_datagrams(tcp_.seen)) << "it has them";
  const std::uint64_t over_tcp = tcp_.seen.acked_bytes;
  go(100);
  EXPECT_EQ(tcp_.seen.acked_bytes, over_tcp);
}

TEST_F(Preferring, TcpIsTakenOnlyForAsLongAsTheyDoNotPass) {
  pass_ = false;
  go(10);
  EXPECT_EQ(in_datagrams(), 0);
  pass_ = true;
  go(0.05);
  EXPECT_EQ(choice_.way(), Way::datagrams);
  pass_ = false;
  go(0.05);
  EXPECT_EQ(choice_.way(), Way::tcp);
  choice_.stay(Way::datagrams, tcp_.seen, datagrams_.seen, now_);
  EXPECT_EQ(choice_.way(), Way::datagrams);
  go(0.05);
  EXPECT_EQ(choice_.way(), Way::tcp) << "what could not be done is tried again at once";
  EXPECT_EQ(choice_.trials(), 0U);
}

TEST_F(Choosing, OneInAThousandSentAgainIsSuspicious) {
  datagrams_.bytes_per_second = 3e7;
  tcp_.again = 0.0008;
  go(100);
  EXPECT_EQ(choice_.trials(), 0U);
  EXPECT_FALSE(choice_.wants_datagrams(tcp_.seen));
  tcp_.again = 0.0012;
  go(2);
  EXPECT_EQ(choice_.trials(), 1U);
}

TEST_F(Choosing, AWindowIsAQuarterOfASecondOfWorkAndATrialFourOfThem) {
  tcp_.again = 0.01;
  go(0.4);
  EXPECT_EQ(choice_.trials(), 0U);
  go(0.2);
  EXPECT_EQ(choice_.trials(), 1U);
  go(10);
  EXPECT_EQ(choice_.trials(), 1U);
  EXPECT_NEAR(datagrams_.seen.busy_seconds, 0.5, 0.06) << "every other one";
}

TEST_F(Choosing, AWindowOfFewBytesIsTwoSeconds) {
  tcp_ = {.bytes_per_second = 1e5, .again = 0.01};
  go(3.8);
  EXPECT_EQ(choice_.trials(), 0U);
  go(0.4);
  EXPECT_EQ(choice_.trials(), 1U);
}

TEST_F(Choosing, AWindowOf256KiBSaysSomething) {
  tcp_ = {.bytes_per_second = 0.5e6, .again = 0.01};
  go(0.9);
  EXPECT_EQ(choice_.trials(), 0U);
  go(0.3);
  EXPECT_EQ(choice_.trials(), 1U);
}

TEST_F(Choosing, ATenthIsGainedWhereDatagramsAreTaken) {
  tcp_.again = 0.01;
  datagrams_.bytes_per_second = 1.10e7;
  go(10);
  ASSERT_EQ(choice_.trials(), 1U);
  EXPECT_EQ(choice_.way(), Way::tcp);
  datagrams_.bytes_per_second = 1.12e7;
  go(40);
  ASSERT_EQ(choice_.trials(), 2U);
  EXPECT_EQ(choice_.way(), Way::datagrams);
}

TEST_F(Choosing, ThreeHundredthsOfGainKeepThem) {
  for (const double tcp : {0.96, 0.98}) {
    choice_.stay(Way::datagrams, tcp_.seen, datagrams_.seen, now_);
    tcp_.bytes_per_second = tcp * datagrams_.bytes_per_second;
    const std::uint64_t before = choice_.trials();
    go(4000);
    EXPECT_GT(choice_.trials(), before) << "nothing is lost any more";
    EXPECT_EQ(choice_.way(), tcp < 0.97 ? Way::datagrams : Way::tcp);
  }
}

TEST_F(Choosing, HalfAsMuchTimeAgainAsWhenTheyWereTakenIsSuspicious) {
  tcp_.again = datagrams_.again = 0.01;
  datagrams_.bytes_per_second = 3e7;
  go(60);
  ASSERT_EQ(choice_.way(), Way::datagrams);
  datagrams_.bytes_per_second = 3e7 / 1.4;
  go(1000);
  EXPECT_EQ(choice_.trials(), 1U);
  datagrams_.bytes_per_second = 3e7 / 1.6;
  go(2);
  EXPECT_EQ(choice_.trials(), 2U);
}

TEST_F(Choosing, NoPauseIsLongerThanHalfAnHour) {
  tcp_.again = 0.01;
  go(30 + 60 + 120 + 240 + 480 + 960 + 1800 + 100);
  const std::uint64_t before = choice_.trials();
  go(3 * 1820);
  EXPECT_EQ(choice_.trials(), before + 3);
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
