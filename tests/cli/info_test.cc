#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

TEST(Info, SaysEverySettingWithItsValueAndOrigin) {
  const auto outcome = talweg({"info"}, {"TALWEG_TIMEOUT=7s"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("TALWEG_TIMEOUT         7s              (environment)"));
  EXPECT_THAT(outcome.out, HasSubstr("(default)"));
  for (const char* key : {"SIMD", "CPUs", "memory", "congestion control", "interface", "network namespaces"})
    EXPECT_THAT(outcome.out, HasSubstr(key));
}

TEST(Info, MarksWhatARunWouldRefuseAndEndsWith1) {
  const auto outcome = talweg(
      {"info"}, {"TALWEG_TIMEOUT=foo", "TALWEG_CHECKSUM=maybe", "TALWEG_ALGO=rign", "TALWEG_DUMP_SIGNAL=HUP",
                 "TALWEG_DEBUG_SUBSYS=plam", "TALWEG_METRICS_FILE=/no/such/folder/%r.prom"});
  EXPECT_EQ(outcome.exit_code, 1);
  for (const char* wrong :
       {"wrong: TALWEG_TIMEOUT: expected a time", "wrong: TALWEG_CHECKSUM: expected 1 or on",
        "wrong: TALWEG_DUMP_SIGNAL: expected USR1",
        "wrong: TALWEG_METRICS_FILE: cannot write /no/such/folder/0.prom", "rign",
        "no sub-system is called \"PLAM\""})
    EXPECT_THAT(outcome.out, HasSubstr(wrong));
  const auto json = talweg({"info", "--json", "-"}, {"TALWEG_CLUSTER=/no/such/file"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_THAT(json.out, HasSubstr("\"complaint\": \"/no/such/file: cannot read it"));
}

TEST(Info, MarksASwitchOfTheClusterFileThatARunWouldRefuse) {
  const char* const kBox =
      "d=$(mktemp -d); trap 'rm -r $d' EXIT; echo 'nodes: [{name: h0}, {name: box, kind: switch, switch: "
      "\"10.0.0.9:4711\"}]' >$d/net.yaml; export TALWEG_CLUSTER=$d/net.yaml; ";
  const auto info = [&](const char* how) { return shell(std::string(kBox) + how + " \"$TALWEG\" info"); };
  const auto outcome = info("");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("net.yaml: node box: switch: a switch that is not on loopback has a"));
  EXPECT_THAT(outcome.out,
              HasSubstr(" name its file in TALWEG_SWITCH_KEY_FILE, or set TALWEG_SWITCH=none\n"));
  for (const char* how : {"TALWEG_SWITCH=none", "TALWEG_ALGO=ring", "TALWEG_SWITCH=127.0.0.1:4711"})
    EXPECT_EQ(info(how).exit_code, 0) << how << info(how).out;
}

TEST(Info, NamesVariablesThatAreNoSettings) {
  EXPECT_THAT(talweg({"info"}, {"TALWEG_TIMOUT=7s"}).out, HasSubstr("TALWEG_TIMOUT          is in the"));
  EXPECT_THAT(talweg({"info"}, {"TALWEG_TIMEOUT=7s"}).out,
              testing::Not(HasSubstr("TALWEG_TIMEOUT         is in the")));
}

TEST(Info, SaysWhereTheJobKeyComesFromAndNeverWhatItIs) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"info"}, {"info", "--json", "-"}}) {
    const auto outcome = talweg(words, {"TALWEG_KEY=the-key-of-this-job"});
    EXPECT_THAT(outcome.out, HasSubstr("from TALWEG_KEY"));
    EXPECT_THAT(outcome.out, HasSubstr("(not shown)"));
    EXPECT_THAT(outcome.out + outcome.err, testing::Not(HasSubstr("the-key-of-this-job")));
  }
}

TEST(Info, JsonIsValidAndHasUnitsInItsNames) {
  const auto outcome = talweg({"info", "--json", "-"});
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_GT(document["memory_bytes"], 0);
  EXPECT_GE(document["settings"].size(), 9u);
}

TEST(Info, SaysWhichAlgorithmIsTakenForWhichSize) {
  const auto outcome = talweg({"info", "all_reduce", "-n", "4", "--json", "-"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["sizes"].size(), 8u);
  EXPECT_GT(document["sizes"][7]["candidates"][0]["predicted_us"], 0);
}

TEST(Info, NamesTheAggregatorsOfTheNetworkWhichAreNoRanks) {
  const std::string file = TALWEG_SOURCE_DIR "/examples/clusters/aggregator4.yaml";
  EXPECT_THAT(talweg({"info", "all_reduce", "--cluster", file}).out, HasSubstr("\naggregators: agg\n"));
  const auto document =
      nlohmann::json::parse(talweg({"info", "all_reduce", "--cluster", file, "--json", "-"}).out);
  EXPECT_EQ(document["aggregators"], nlohmann::json::array({"agg"}));
  EXPECT_EQ(document["ranks"], 4);
  EXPECT_THAT(talweg({"info", "all_reduce", "-n", "4"}).out, testing::Not(HasSubstr("aggregators")));
}

TEST(Info, TakesAsManyRanksAsItPlansForAndSaysHowMany) {
  EXPECT_THAT(talweg({"info", "--help"}).out, HasSubstr("INT in [1 - 2499]"));
  const auto more = talweg({"info", "all_reduce", "-n", "2500"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("2499"));
  const auto hosts = talweg({"info", "all_reduce", "-n", "2000", "--ranks-per-host", "2"});
  EXPECT_EQ(hosts.exit_code, 2);
  EXPECT_THAT(hosts.err, HasSubstr("up to 2500 nodes, hosts and switches too, and this one has 3001"));
}

TEST(Info, RanksThatDoNotFitTheClusterFileAreRefused) {
  const auto outcome = shell(
      "f=$(mktemp); trap 'rm $f' EXIT; cat >$f <<'END'\n"
      "nodes: [{name: a, kind: worker}, {name: b, kind: worker}]\n"
      "links: [{between: [a, b], capacity: 1Gbit/s, latency: 30us}]\n"
      "END\n\"$TALWEG\" info all_reduce --cluster $f && \"$TALWEG\" info all_reduce -n 3 --cluster $f");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("64 MiB"));
  EXPECT_THAT(outcome.err, HasSubstr("has 2 workers"));
}

TEST(Info, SaysWhatBoundedSumsTakeWhereItIsAsked) {
  const Outcome outcome = talweg({"info", "all_reduce", "-n", "4", "--may-lose", "0.01"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("BoundedSums with p = 0.01, where nothing is lost"));
  const auto json = nlohmann::json::parse(
      talweg({"info", "all_reduce", "-n", "4", "--may-lose", "0.01", "--json", "-"}).out);
  EXPECT_EQ(json["bounded"]["predicted_us"].size(), json["sizes"].size());
  EXPECT_GT(json["bounded"]["predicted_us"][0].get<double>(), 0);
  EXPECT_THAT(talweg({"info", "broadcast", "-n", "4", "--may-lose", "0.01"}).err,
              HasSubstr("--may-lose: a part may be lost of all_reduce, not of broadcast"));
}

// Stars that nothing was set on, of 100 Mbit/s to 2 Gbit/s: where links limit, and where processors do.
TEST(SimulateBounded, TakesAboutWhatIsPlanned) {
  Random random(19, 4);
  for (int i = 0; i < 6; ++i) {
    const std::string star = "star:hosts=" + std::to_string(2 + random.below(9)) +
                             ",rate=" + std::to_string(100 + random.below(1900)) + "M";
    std::vector<std::string> line{"simulate", "--topology", star,        "--algo", "bounded", "--processors",
                                  "tcp",      "-b",         "4K,64K,1M", "-n",     "3",       "--json",
                                  "-"};
    if (i % 2 == 1) line.insert(line.end(), {"--servers", "1"});
    const auto said = nlohmann::json::parse(talweg(line).out);
    EXPECT_EQ(said["results"].size(), 3U);
    for (const auto& row : said["results"]) {
      const double planned = row["planned"]["predicted_us"], took = row["out_of_place"]["time_us"];
      EXPECT_GT(planned, 0.65 * took) << star << ", " << row["size_bytes"] << " bytes, " << i % 2;
      EXPECT_LT(planned, 1.15 * took) << star << ", " << row["size_bytes"] << " bytes, " << i % 2;
    }
  }
}

// One server's link carries what all three others have, there and back, where others' carry three quarters.
TEST(Plan, KnowsTheServersOfBoundedSums) {
  const std::string network = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/even4.yaml";
  const auto seconds = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line{"plan", network, "--algo", "bounded", "-b", "4M", "--json", "-"};
    line.insert(line.end(), more.begin(), more.end());
    return nlohmann::json::parse(talweg(line).out)["sizes"][0]["candidates"][0]["predicted_us"].get<double>();
  };
  EXPECT_GT(seconds({"--servers", "0"}), 3.5 * seconds({}));
  EXPECT_THAT(talweg({"plan", network, "--algo", "bounded", "--servers", "0,9"}).err,
              HasSubstr("--servers 0,9: rank 9 as a server: expected 0 to 3"));
  EXPECT_THAT(talweg({"plan", network, "-b", "4M", "--algo", "ring", "--servers", "0"}).out,
              HasSubstr("--servers: only --algo bounded has servers"));
}

}  // namespace
}  // namespace talweg::cli
