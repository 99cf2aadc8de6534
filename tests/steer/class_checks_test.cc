// What is said of datagrams that were counted; the counts are invented.
#include "steer/class_checks.h"

#include <gmock/gmock.h>

#include <utility>

namespace talweg::steer {
namespace {

using testing::HasSubstr;

constexpr int kNotEct = 0, kEct = 1, kCe = 2;  // of kProbedEcn

// Four of each class, which arrive as they left.
ClassesSeen untouched() {
  ClassesSeen seen;
  for (auto& counts : seen.of)
    for (std::size_t e = 0; e < counts.size(); ++e) {
      counts[e].sent = counts[e].received = counts[e].same_dscp = 4;
      counts[e].by_ecn[kProbedEcn[e]] = 4;
    }
  seen.known_bytes = seen.tried_bytes = seen.largest_bytes = 1500;
  seen.packet_bytes = 1392;
  return seen;
}

void lose(ClassCount& count) {
  count.received = count.same_dscp = 0;
  count.by_ecn = {};
}

// Of those of one ECN, in all DSCPs.
void turn(ClassesSeen& seen, int ecn, std::uint8_t as, std::uint16_t how_many) {
  for (auto& counts : seen.of) {
    ClassCount& count = counts[static_cast<std::size_t>(ecn)];
    count.by_ecn = {};
    count.by_ecn[kProbedEcn[static_cast<std::size_t>(ecn)]] = static_cast<std::uint16_t>(4 - how_many);
    count.by_ecn[as] = how_many;
  }
}

TEST(ClassChecks, WhatArrivesAsItLeftPasses) {
  const ClassesSeen seen = untouched();
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::pass);
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::pass);
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::pass);
  EXPECT_EQ(check_mtu(seen).seen, "1500 bytes pass: packet_bytes up to 1392");
  for (const FabricCheck& check : {check_dscp(seen), check_ecn(seen), check_mtu(seen)})
    EXPECT_EQ(check.to_do, "") << check.what;
}

TEST(ClassChecks, ADscpThatIsDroppedIsNamed) {
  ClassesSeen seen = untouched();
  for (ClassCount& count : seen.of[0]) lose(count);
  for (ClassCount& count : seen.of[7]) lose(count);
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_dscp(seen).seen, "dropped: CS5, LE");
  EXPECT_THAT(check_dscp(seen).to_do, HasSubstr("firewall"));
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::pass) << "of those that come";
}

TEST(ClassChecks, ADscpThatArrivesAsAnotherIsNamedWithIt) {
  ClassesSeen seen = untouched();
  for (ClassCount& count : seen.of[1]) count.same_dscp = 0;
  for (ClassCount& count : seen.of[2]) {
    count.same_dscp = 1;
    count.other_dscp = 46;
  }
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_dscp(seen).seen, "arrive changed: AF41 as best effort, AF31 as DSCP 46");
  EXPECT_THAT(check_dscp(seen).to_do, HasSubstr("trust"));
}

TEST(ClassChecks, ADscpThatTheOwnKernelRefusesIsNoFaultOfTheNetwork) {
  ClassesSeen seen = untouched();
  for (ClassCount& count : seen.of[0]) {
    lose(count);
    count.refused = std::exchange(count.sent, std::uint16_t{0});
  }
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_dscp(seen).seen, "not sent: CS5");
  EXPECT_THAT(check_dscp(seen).to_do, HasSubstr("own host"));
}

TEST(ClassChecks, StraysDecideNothing) {
  ClassesSeen seen = untouched();
  for (auto& counts : seen.of) {
    counts[kNotEct].received = counts[kNotEct].same_dscp = counts[kNotEct].by_ecn[0] = 1;  // three are lost
    counts[kEct].by_ecn = {0, 0, 2, 2};  // two were marked on their way
    counts[kCe].same_dscp = 2;
  }
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::pass);
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::pass);
}

TEST(ClassChecks, EcnThatIsBleachedIsSaidOfEachCodepoint) {
  ClassesSeen seen = untouched();
  turn(seen, kEct, 0, 4);
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_ecn(seen).seen, "ECT(0) arrives as Not-ECT");
  turn(seen, kCe, wire::kEcnCapable, 3);
  EXPECT_EQ(check_ecn(seen).seen, "ECT(0) arrives as Not-ECT; CE arrives as ECT(0)");
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::pass);

  seen = untouched();
  turn(seen, kNotEct, wire::kEcnCapable, 4);
  EXPECT_EQ(check_ecn(seen).seen, "Not-ECT arrives as ECT(0)");
  turn(seen, kNotEct, 1, 4);
  EXPECT_EQ(check_ecn(seen).seen, "Not-ECT arrives as ECT(1)");
}

TEST(ClassChecks, EcnThatIsBleachedOfSomeDscpsNamesThese) {
  ClassesSeen seen = untouched();
  for (const std::size_t p : {0, 3}) {
    seen.of[p][kEct].by_ecn = {};
    seen.of[p][kEct].by_ecn[0] = 4;
  }
  EXPECT_EQ(check_ecn(seen).seen, "ECT(0) arrives as Not-ECT (CS5, AF21)");
}

TEST(ClassChecks, AnEcnThatIsDroppedIsSaid) {
  ClassesSeen seen = untouched();
  for (auto& counts : seen.of) lose(counts[kCe]);
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_ecn(seen).seen, "CE is dropped");
}

TEST(ClassChecks, WhereNothingArrivesOneLineFailsAndTheOthersCannotTell) {
  ClassesSeen seen = untouched();
  for (auto& counts : seen.of)
    for (ClassCount& count : counts) lose(count);
  seen.largest_bytes = 0;
  EXPECT_EQ(check_dscp(seen).verdict, Verdict::fail);
  EXPECT_EQ(check_ecn(seen).verdict, Verdict::cannot_tell);
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::cannot_tell);
  EXPECT_EQ(check_dscp(seen).seen, "no datagram arrives");
}

TEST(ClassChecks, LargePacketsThatVanishAreToldFromThoseThatNobodySends) {
  ClassesSeen seen = untouched();
  seen.known_bytes = seen.tried_bytes = 9000;
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::fail);
  EXPECT_THAT(check_mtu(seen).seen, HasSubstr("1500 bytes pass: packet_bytes up to 1392; 9000 are lost"));
  seen.known_bytes = 1500;  // a router has said so
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::pass);
  seen.known_bytes = 65536;  // more than is ever tried
  seen.tried_bytes = seen.largest_bytes = 16384;
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::pass);
  seen.known_bytes = 0;  // the kernel knows nothing
  seen.largest_bytes = 1400;
  EXPECT_EQ(check_mtu(seen).verdict, Verdict::fail);
}

TEST(ClassChecks, AHostSaysWhatItLacks) {
  HostSeen host{true, true, true, 4 << 20, ""};
  EXPECT_EQ(check_host(host).verdict, Verdict::pass);
  EXPECT_EQ(check_host(host).seen, "sets DSCP and ECN, receives 4 MiB, GSO on, GRO on");
  host.shortage = "the kernel gives less";
  EXPECT_EQ(check_host(host).verdict, Verdict::fail);
  EXPECT_EQ(check_host(host).to_do, "the kernel gives less.");
  host = {true, false, true, 4 << 20, ""};
  EXPECT_EQ(check_host(host).verdict, Verdict::fail);
  EXPECT_THAT(check_host(host).seen, HasSubstr("GSO off, GRO on"));
  host = {true, true, false, 4 << 20, ""};
  EXPECT_EQ(check_host(host).verdict, Verdict::fail);
  host = {false, true, true, 4 << 20, ""};
  EXPECT_EQ(check_host(host).verdict, Verdict::fail);
  EXPECT_THAT(check_host(host).seen, HasSubstr("may not set DSCP and ECN"));
}

}  // namespace
}  // namespace talweg::steer
