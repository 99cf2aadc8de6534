#include "study/probe_report.h"

#include <gmock/gmock.h>

namespace talweg::study {
namespace {

using testing::HasSubstr;
using testing::Not;

steer::ProbeResult found(int hosts) {
  steer::ProbeResult result;
  result.findings.hosts = hosts;
  result.findings.confidence = 0.021;
  result.findings.trials = 63;
  result.seconds = 4.25;
  result.bytes = 1'800'000'000;
  for (int h = 0; h < hosts; ++h) {
    result.host_names.push_back("h" + std::to_string(h));
    result.findings.out.push_back({1e9, 0.01});
    result.findings.in.push_back({2e8, 0.021});
    result.findings.both.emplace_back();
    result.findings.latency_ns.emplace_back(static_cast<std::size_t>(hosts), 30'000);
  }
  result.network = cluster::uniform_star(hosts, {2e8}, {30'000});
  return result;
}

TEST(ProbeReport, AStarIsATable) {
  const std::string text = probe_table(found(3), false);
  EXPECT_THAT(text, HasSubstr("host        up      down  to others\n"
                              "      (Gbit/s)  (Mbit/s)       (us)\n"
                              "h0        1.00       200       30.0\n"));
  EXPECT_THAT(text, HasSubstr("nothing is shared between hosts that was seen to hold flows up\n"));
  EXPECT_THAT(text, HasSubstr("rates are sure to 2.1 %: 63 measurements, 4.2 s, 1.8 GB\n"));
  EXPECT_THAT(text, Not(HasSubstr("pairs")));
  EXPECT_THAT(text, Not(HasSubstr("up + down")));
  EXPECT_THAT(text, Not(HasSubstr("chance")));
}

TEST(ProbeReport, WhatIsSharedAndWhatDiffersIsListed) {
  steer::ProbeResult result = found(4);
  result.findings.both[2] = steer::Estimate{1.1e9, 0.01};
  result.findings.pairs = {{{0, 3}, {1e8, 0.01}}, {{1, 3}, {1.95e8, 0.01}}};  // the second is as its ports
  result.findings.uplinks.push_back({{0, 1}, steer::Estimate{3e8, 0.02}, std::nullopt});
  result.findings.unexplained_flows = 2;
  result.findings.doubt = 0.00034;
  const std::string text = probe_table(result, false);
  EXPECT_THAT(text, HasSubstr("  to others  up + down\n"));
  EXPECT_THAT(text, HasSubstr("       30.0       1.10\nh3 "));
  EXPECT_THAT(text, HasSubstr("  h0 -> h3  100 Mbit/s\n"));
  EXPECT_THAT(text, Not(HasSubstr("h1 -> h3")));
  EXPECT_THAT(text, HasSubstr("  h0, h1  out 300 Mbit/s, in no limit found\n"));
  EXPECT_THAT(text, HasSubstr("the chance that something of what is shared is not there: at most 0.034 %\n"));
  EXPECT_THAT(text, HasSubstr("2 flows of the rounds were slower than all this explains"));
  const auto document = probe_json(result);
  EXPECT_EQ(document["doubt"], 0.00034);
  EXPECT_EQ(document["pairs"].size(), 1u);
  EXPECT_EQ(document["uplinks"][0]["hosts"], (nlohmann::json{"h0", "h1"}));
  EXPECT_EQ(document["uplinks"][0]["entering"], nullptr);
  EXPECT_EQ(document["hosts"][2]["up_and_down"]["bit_per_s"], 1.1e9);
}

TEST(ProbeReport, AHostCannotSteerTheTerminal) {
  steer::ProbeResult result = found(3);
  result.host_names[1] = "a\x1b\u009b";
  result.findings.pairs.push_back({{0, 1}, {1e8, 0.01}});
  result.findings.uplinks.push_back({{0, 1}, steer::Estimate{3e8, 0.02}, std::nullopt});
  const std::string text = probe_table(result, false);
  for (const char* there : {"\na\\x1b\\u009b ", "h0 -> a\\x1b\\u009b ", "h0, a\\x1b\\u009b "})
    EXPECT_THAT(text, HasSubstr(there));
  EXPECT_EQ(probe_json(result)["hosts"][1]["name"], result.host_names[1]);
}

}  // namespace
}  // namespace talweg::study
