// Which connection has which pace, while calls come and go.
#include "protocol/pacer.h"

#include <gmock/gmock.h>

#include <map>
#include <vector>

namespace talweg::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kPacedSecond = 1'000'000'000;

// What is set, of those that have a pace.
struct Connections {
  std::map<forest::NodeId, double> paces;
  Pacer pacer{[this](forest::NodeId to, double rate) {
    paces.erase(to);
    if (rate > 0) paces[to] = rate;
  }};
};

TEST(Pacer, HoldsConnectionsWhileACallIsInFlightThatHasPaces) {
  Connections c;
  c.pacer.begin(std::vector<forest::Pace>{{0, 1, 100}, {0, 2, 300}, {0, 3, 0}}, 0);
  EXPECT_THAT(c.paces, ElementsAre(Pair(1, 100), Pair(2, 300)));
  c.pacer.end(0, 1);
  EXPECT_THAT(c.paces, IsEmpty());
}

TEST(Pacer, TheCallThatStartedLastCountsUntilAllHaveEnded) {
  Connections c;
  c.pacer.begin(std::vector<forest::Pace>{{0, 1, 100}, {0, 2, 300}}, 0);
  c.pacer.begin(std::vector<forest::Pace>{{0, 1, 50}, {0, 2, 0}, {0, 3, 70}}, 1);
  EXPECT_THAT(c.paces, ElementsAre(Pair(1, 50), Pair(3, 70)));
  c.pacer.end(0, 2);
  EXPECT_THAT(c.paces, ElementsAre(Pair(1, 50), Pair(3, 70))) << "one is still in flight";
  c.pacer.end(0, 3);
  EXPECT_THAT(c.paces, IsEmpty());
}

TEST(Pacer, CallsThatEndTooSoonShowThatLinksCarryMoreThanPlansKnow) {
  Connections c;
  const std::vector<forest::Pace> paces{{0, 1, 100}};
  const auto call = [&](std::int64_t begin, double needed, double took) {
    c.pacer.begin(paces, begin);
    const double held = c.paces.at(1);
    c.pacer.end(needed, begin + static_cast<std::int64_t>(took * 1e9));
    return held;
  };
  EXPECT_EQ(call(0, 10, 10), 100);
  EXPECT_EQ(call(20 * kPacedSecond, 10, 9.6), 100) << "bursts";
  EXPECT_EQ(call(40 * kPacedSecond, 10, 9), 100);
  EXPECT_EQ(call(60 * kPacedSecond, 10, 4), 200);
  EXPECT_EQ(call(80 * kPacedSecond, 10, 12), 400);
  EXPECT_EQ(call(100 * kPacedSecond, 0, 0.001), 400) << "one that has failed shows nothing";
  EXPECT_EQ(call(120 * kPacedSecond, 10, 12), 400);
  c.pacer.renew();
  EXPECT_EQ(call(140 * kPacedSecond, 10, 12), 100);
}

// What calls need they need of the same links: two that take as long together as both need are no sooner than
// they can be, though each is sooner than both.
TEST(Pacer, CallsInFlightTogetherNeedTheirTimesOneAfterTheOther) {
  Connections c;
  const std::vector<forest::Pace> paces{{0, 1, 100}};
  for (const std::int64_t took : {20, 16}) {
    c.pacer.begin(paces, 0);
    c.pacer.begin(paces, 0);
    c.pacer.end(10, (took - 1) * kPacedSecond);
    c.pacer.end(10, took * kPacedSecond);
    c.pacer.begin(paces, 0);
    EXPECT_EQ(c.paces.at(1), took == 20 ? 100 : 200) << took;
    c.pacer.end(0, kPacedSecond);
  }
}

}  // namespace
}  // namespace talweg::protocol
