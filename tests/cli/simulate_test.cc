#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>

#include "cli/program.h"
#include "sanitized.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kUneven = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/uneven4.yaml";

class Simulate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-simulate-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string written(const std::string& name, const std::string& what) const {
    std::ofstream(file(name)) << what;
    return file(name);
  }

 private:
  std::filesystem::path folder_;
};

const std::vector<std::string> kSmall{"simulate", "--topology", "star:hosts=4", "-b", "64K..256K", "-n", "2"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(Simulate, PrintsTheTableOfPerfAndTheSameOneAgain) {
  const Outcome first = talweg(kSmall);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("# Collective test starting: all_reduce\n"));
  EXPECT_THAT(first.out, HasSubstr("\n       65536        16384      float     sum      -1"));
  EXPECT_THAT(first.out, HasSubstr("\n      262144        65536      float     sum      -1"));
  EXPECT_THAT(first.out, HasSubstr("# Dropped"));
  EXPECT_THAT(first.err, StartsWith("talweg simulate: "));
  EXPECT_THAT(first.err, HasSubstr("M link-hops/s, peak memory"));
  EXPECT_EQ(count_lines(first.err), 1);
  EXPECT_EQ(talweg(kSmall).out, first.out);
}

TEST_F(Simulate, NoLineIsWiderThan120CharactersUnlessAskedFor) {
  const std::vector<std::string> perf{"perf", "all_reduce", "-b", "64K",   "-e",
                                      "64K",  "-n",         "1",  "--sim", kUneven};
  const std::vector<std::string> sweep{"--sweep", "loss=0,0.01", "--sweep",
                                       "queue=1000000,123456789012345678"};
  const std::vector<std::vector<std::string>> commands{kSmall, perf, with(kSmall, sweep)};
  for (const auto& command : commands) {
    const Outcome narrow = talweg(command);
    EXPECT_EQ(narrow.exit_code, 0) << narrow.err;
    std::istringstream lines(narrow.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# nRanks")) continue;  // as nccl-tests writes it
      EXPECT_LE(line.size(), line.find("\u2026") == std::string::npos ? 120U : 130U) << line;
    }
    EXPECT_THAT(narrow.out, HasSubstr("--wide shows "));
    const Outcome wide = talweg(with(command, {"--wide"}));
    EXPECT_THAT(wide.out, Not(HasSubstr("--wide shows ")));
  }
  EXPECT_THAT(talweg(kSmall).out, Not(HasSubstr("in-place")));
  EXPECT_THAT(talweg(with(kSmall, {"--wide"})).out, HasSubstr("in-place"));
  EXPECT_THAT(talweg(perf).out, AllOf(HasSubstr("in-place"), HasSubstr("\n# Algorithm            : ")));
}

TEST_F(Simulate, RunsEveryAlgorithmThatServesOnAFileOfANetwork) {
  const Outcome outcome =
      talweg({"simulate", kUneven, "--algo", "all", "-b", "64K", "-n", "1", "--csv", "-"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* algorithm : {",ring\n", ",halving_doubling\n", ",one_hop\n", ",double_binary_tree\n"})
    EXPECT_THAT(outcome.out, HasSubstr(algorithm));
  EXPECT_THAT(outcome.out, StartsWith("collective,size_bytes,"));
  EXPECT_EQ(talweg({"simulate", kUneven, "--op", "broadcast", "--algo", "all", "-b", "64K"}).exit_code, 0);
}

TEST_F(Simulate, WritesJsonTraceAndAPage) {
  const Outcome outcome =
      talweg(with(kSmall, {"--json", file("a.json"), "--trace", file("t.json"), "--html", file("p.html")}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(text("a.json"));
  EXPECT_EQ(json["results"].size(), 3U);
  EXPECT_GT(json["report"]["link_hops"], 0);
  EXPECT_EQ(json["report"]["dropped_by_priority"].size(), 8U);
  const auto trace = nlohmann::json::parse(text("t.json"));
  EXPECT_GT(trace.size(), 100U);
  const std::string page = text("p.html");
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(page.c_str()));
  EXPECT_EQ(document.select_nodes("//*[@id='links']/*").size(), 8u);
  EXPECT_EQ(document.select_nodes("//script[@src] | //link | //img").size(), 0u) << "it must stand alone";
}

nlohmann::json page_data(const std::string& page) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(page.c_str()));
  return nlohmann::json::parse(document.select_node("//*[@id='data']").node().text().get());
}

std::map<std::string, std::string> cards_of(const nlohmann::json& run) {
  std::map<std::string, std::string> cards;
  for (const auto& card : run["cards"])
    cards[card["name"].get<std::string>()] = card["value"].get<std::string>();
  return cards;
}

TEST_F(Simulate, ThePageHasTheNumbersOfEachRunItsRanksItsLinksAndWhatFailed) {
  const Outcome outcome = talweg({"simulate", "--topology", "leaf-spine:leaves=2,hosts=4,spines=2", "-b",
                                  "64K,1M", "--algo", "ring,chain", "--fail", "leaf0->spine1@100us..300us",
                                  "--json", file("a.json"), "--html", file("p.html")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto runs = page_data(text("p.html"))["runs"];
  const auto json = nlohmann::json::parse(text("a.json"));
  ASSERT_EQ(runs.size(), 4u);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    SCOPED_TRACE(run["title"]);
    EXPECT_NEAR(run["call"]["time"].get<double>() * 1e6,
                json["results"][i]["out_of_place"]["time_us"].get<double>(), 1e-3);
    auto cards = cards_of(run);
    for (const char* name : {"time of a call", "busbw", "of the bound", "planned", "busiest link"})
      EXPECT_THAT(cards[name], testing::ContainsRegex("^[0-9.]+ ")) << name;
    EXPECT_THAT(cards["limit of the plan"], testing::AnyOf("links", "processors", "latency"));
    EXPECT_LE(run["call"]["bound"].get<double>(), run["call"]["time"].get<double>());
    EXPECT_EQ(run["lanes"]["rows"].size(), 8u);
    EXPECT_GE(run["lanes"]["path"].size(), 7u);
    EXPECT_EQ(run["ends"].size(), 4u);  // a warm-up and three calls
    EXPECT_EQ(run["mean"].size(), 24u);
    EXPECT_EQ(run["use"].size(), 24u);
    ASSERT_EQ(run["changes"].size(), 2u);
    EXPECT_EQ(run["changes"][0][1], "leaf0->spine1");
    EXPECT_EQ(run["changes"][0][2], "failed");
    EXPECT_NEAR(run["changes"][1][0].get<double>(), 300e-6, 1e-12);
    std::vector<std::string> tiers;
    for (const auto& tier : run["tiers"]) tiers.push_back(tier[0]);
    EXPECT_THAT(tiers, ElementsAre("hosts \u2192 leaves", "leaves \u2192 hosts", "leaves \u2192 spines",
                                   "spines \u2192 leaves"));
  }
}

TEST_F(Simulate, ThePageOfAMatrixHasItsFlowsAndThatOfAWorkloadItsSteps) {
  const std::string cm = written(
      "a.cm", "Nodes 4\nConnections 2\n0->3 id 7 start 0 size 1000000\n1->3 id 8 start 0 size 1000000\n");
  ASSERT_EQ(
      talweg({"simulate", "--topology", "star:hosts=4", "--cm", cm, "--html", file("f.html")}).exit_code, 0);
  const auto flows = page_data(text("f.html"))["runs"][0];
  EXPECT_EQ(flows["flows"]["completion"].size(), 2u);
  EXPECT_EQ(flows["flows"]["completion"][1][1], 1.0);
  ASSERT_EQ(flows["flows"]["by_size"].size(), 1u);
  EXPECT_NEAR(flows["flows"]["by_size"][0][3].get<double>(), 2, 0.3);  // two share a link
  EXPECT_FALSE(flows.contains("lanes"));
  const std::string w = written("w.yaml",
                                "groups: [{name: job, ranks: all, repeat: 3, steps: [{compute: 1ms}, {op: "
                                "all_reduce, bytes: 1MiB, algo: ring}]}]\n"
                                "changes: [{at: 1ms, fail: switch->h0}, {at: 1500us, repair: switch->h0}]\n");
  ASSERT_EQ(
      talweg({"simulate", "--topology", "star:hosts=4", "--workload", w, "--html", file("w.html")}).exit_code,
      0);
  const auto steps = page_data(text("w.html"))["runs"][0];
  ASSERT_EQ(steps["lanes"]["rows"].size(), 4u);
  EXPECT_THAT(steps["lanes"]["rows"][0][3].get<std::string>(), StartsWith("44"));
  EXPECT_EQ(steps["ends"].size(), 3u);
  EXPECT_EQ(steps["ends"][2][1], "job: end of iteration 3");
  EXPECT_EQ(steps["changes"].size(), 2u);
  EXPECT_FALSE(steps.contains("flows"));
}

// What has a part for each flow, link or node is sampled, shortened or left out.
TEST_F(Simulate, ThePageOfAHundredThousandFlowsAmongAThousandHostsStaysSmall) {
  if (kSanitized) GTEST_SKIP() << "nothing here that other simulations do not run through";
  std::string flows = "Nodes 1024\nConnections 100000\n";
  for (int i = 0; i < 100'000; ++i) {
    const int from = i % 1024;
    flows += std::to_string(from) + "->" + std::to_string((from + 1 + i / 1024 * 7) % 1024) + " id " +
             std::to_string(i + 1) + " start " + std::to_string(i * 10'000LL) + " size " +
             std::to_string(1000 + i % 3 * 2000) + "\n";
  }
  const Outcome outcome = talweg({"simulate", "--topology", "fat-tree:hosts=1024", "--cm",
                                  written("b.cm", flows), "--html", file("b.html")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(std::filesystem::file_size(file("b.html")), 5'000'000u);
  EXPECT_THAT(text("b.html"), HasSubstr("lines are left out here"));
}

TEST_F(Simulate, RunsTheFlowsOfAMatrix) {
  const std::string cm = written(
      "a.cm", "Nodes 4\nConnections 2\n0->3 id 7 start 0 size 1000000\n1->3 id 8 start 0 size 1000000\n");
  const Outcome outcome =
      talweg({"simulate", "--topology", "star:hosts=4", "--cm", cm, "--json", file("f.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# 2 flows took least "));
  const auto json = nlohmann::json::parse(text("f.json"));
  EXPECT_EQ(json["flows"].size(), 2U);
  EXPECT_EQ(json["flows"][0]["from"], "h0");
  // Both through one link of 10 Gbit/s: 2 MB and headers take 1.67 ms, and no flow has less than its half.
  EXPECT_NEAR(json["flows"][1]["took_us"].get<double>(), 1673, 170);
}

TEST_F(Simulate, RunsPatternsOfFlowsOverEachTransport) {
  for (const std::string transport : {"dctcp", "ndp", "eqds", "pfabric", "pias"}) {
    const Outcome outcome = talweg({"simulate", "--topology", "star:hosts=9", "--flows", "incast:size=200KB",
                                    "--transport", transport, "--json", file("i.json")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("# 8 flows took least "));
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    const auto json = nlohmann::json::parse(text("i.json"));
    EXPECT_EQ(json["transport"], transport);
    EXPECT_TRUE(json["notes"].empty());
    ASSERT_EQ(json["flows"].size(), 8U);
    for (const auto& flow : json["flows"])
      EXPECT_NEAR(flow["end_us"].get<double>() - flow["start_us"].get<double>(),
                  flow["took_us"].get<double>(), 1e-6);
    EXPECT_EQ(json["report"]["trimmed"] == 0, transport != "ndp" && transport != "eqds");
  }
}

TEST_F(Simulate, RunsFlowsWithoutPackets) {
  const Outcome outcome = talweg({"simulate", "--topology", "star:hosts=5", "--flows", "incast:size=10MB",
                                  "--fluid", "--json", file("i.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(text("i.json"));
  EXPECT_EQ(json["fluid"], true);
  EXPECT_EQ(json["report"]["link_hops"], 0);
  // 40 MB and headers through one link of 10 Gbit/s, evenly.
  for (const auto& flow : json["flows"]) EXPECT_NEAR(flow["took_us"].get<double>(), 33459, 10);
  EXPECT_NEAR(json["report"]["busiest_utilisation"].get<double>(), 1, 0.001);
}

TEST_F(Simulate, SaysWhichOptionsDoNothing) {
  const Outcome outcome = talweg({"simulate", "--topology", "star:hosts=3", "--flows", "incast:size=20KB",
                                  "--priorities", "2", "--trim", "--json", file("n.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(count_lines(outcome.err), 2) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("talweg simulate: note: --priorities, --trim: data and answers have"));
  EXPECT_EQ(nlohmann::json::parse(text("n.json"))["notes"].size(), 1U);

  const auto said = [](const std::vector<std::string>& more) {
    const Outcome call = talweg(with({"simulate", "--topology", "star:hosts=3"}, more));
    EXPECT_EQ(call.exit_code, 0) << call.err;
    return call.err;
  };
  EXPECT_THAT(said({"--bytes", "4K", "--factor", "8"}),
              StartsWith("talweg simulate: note: --factor: there is no range in --bytes 4K\n"));
  EXPECT_THAT(said({"--op", "barrier", "--factor", "8", "--type", "half"}),
              StartsWith("talweg simulate: note: --factor, --type: a barrier moves no data\n"));
  EXPECT_THAT(said({"--bytes", "4K", "--fluid", "--transport", "eqds"}),
              StartsWith("talweg simulate: note: --transport: --fluid takes of eqds only its routing, spray, "
                         "and how often it acknowledges\n"));
  EXPECT_EQ(count_lines(said({"--bytes", "4K..64K", "--factor", "16"})), 1);
}

TEST_F(Simulate, RunsAWorkloadWithFailures) {
  const std::string w =
      written("w.yaml",
              "groups: [{name: job, ranks: all, repeat: 2, steps: [{compute: 1ms}, {op: all_reduce, "
              "bytes: 1MiB, algo: ring}]}]\n");
  const Outcome outcome = talweg({"simulate", "--topology", "leaf-spine:leaves=2,hosts=2,spines=2",
                                  "--workload", w, "--fail", "spine1@500us..1500us"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\n  job        4           2  "));
}

TEST_F(Simulate, AWorkloadOfBoundedSumsHasTheirPriorities) {
  const auto said = [&](const std::string& queues) {
    const std::string w =
        written("w.yaml", "groups: [{name: job, ranks: all, repeat: 21" + queues +
                              ", steps: [{op: all_reduce, bytes: 1MB, algorithm: bounded}]}]\n");
    return talweg({"simulate", "--topology", "star:hosts=2", "--workload", w, "--priorities", "8",
                   "--class-limits", "0,1M,0,0,1M", "--json", "-"});
  };
  const Outcome plain = said(""), layers = said(", queues: 4, droppable: 50%");
  EXPECT_THAT(plain.err, HasSubstr("--class-limits: no packet has priority 1\n"));
  EXPECT_THAT(plain.err, Not(HasSubstr("priority 4")));
  EXPECT_THAT(layers.err, Not(HasSubstr("no packet has")));
  const auto group = nlohmann::json::parse(layers.out)["groups"][0];
  EXPECT_TRUE(group.contains("lost_part"));
  EXPECT_TRUE(group.contains("lost_important_part"));
}

// Trees that cross on links of very different rates keep to their shares only where what is least far along
// in its tree goes first; in the order of arrival 0.73 of the bound is reached here.
TEST_F(Simulate, TheTreesOfAnUnevenMeshKeepToTheirShares) {
  if (kSanitized) GTEST_SKIP() << "nothing here that other simulations do not run through";
  constexpr std::array<int, 28> kMbit{10,  100, 100, 10,  25, 100, 50,  200, 100, 5,   100, 5,  50,  25,
                                      100, 10,  10,  200, 50, 100, 100, 50,  50,  200, 10,  10, 200, 10};
  std::string yaml = "nodes:\n";
  for (int h = 0; h < 8; ++h) yaml += "  - {name: h" + std::to_string(h) + ", kind: worker}\n";
  yaml += "links:\n";
  std::size_t next = 0;
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b, ++next)
      for (const auto& [from, to] : {std::pair{a, b}, {b, a}})
        yaml += "  - {from: h" + std::to_string(from) + ", to: h" + std::to_string(to) +
                ", capacity: " + std::to_string(kMbit[next]) + "Mbit/s, latency: 3us}\n";
  const std::string network = written("mesh.yaml", yaml);
  const Outcome plan = talweg({"plan", network, "--bytes", "16M", "--algo", "packed", "--json", "-"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const double bound = nlohmann::json::parse(plan.out)["bound"]["algbw_GB_per_s"];
  const Outcome outcome =
      talweg({"simulate", network, "-b", "16M", "-n", "1", "--mark", "8K", "--json", "-"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const double rate = nlohmann::json::parse(outcome.out)["results"][0]["out_of_place"]["algbw_GB_per_s"];
  EXPECT_GT(rate / bound, 0.77) << "of the bound; 0.956 of it is the most that TCP's headers leave";
}

TEST_F(Simulate, SweepsOverAllCombinationsAndMergesWhatSeveralProcessesDid) {
  const auto sweep = [&](const std::vector<std::string>& more, const std::vector<std::string>& environment) {
    return talweg(with({"simulate", "--topology", "star:hosts=4", "-b", "64K", "-n", "1", "--sweep",
                        "algo=ring,one_hop", "--sweep", "loss=0,0.01", "--csv", "-"},
                       more),
                  environment);
  };
  const Outcome alone = sweep({}, {});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(count_lines(alone.out), 5);
  EXPECT_THAT(alone.out, StartsWith("algo,loss,"));
  EXPECT_THAT(alone.out, HasSubstr("\nring,0,"));
  EXPECT_THAT(alone.out, HasSubstr("\none_hop,0.01,"));
  EXPECT_EQ(sweep({"--jobs", "1"}, {}).out, alone.out);
  const std::vector<std::string> folder{"--sweep-folder", file("points")};
  EXPECT_EQ(sweep(folder, {"RANK=0", "WORLD_SIZE=2"}).out, "");
  EXPECT_EQ(sweep(folder, {"RANK=1", "WORLD_SIZE=2"}).out, alone.out);
  const std::vector<std::string> other{"--sweep-folder", file("array")};
  const auto array = [](const std::string& id) {
    return std::vector<std::string>{"SLURM_ARRAY_TASK_ID=" + id, "SLURM_ARRAY_TASK_MIN=5",
                                    "SLURM_ARRAY_TASK_COUNT=2"};
  };
  EXPECT_EQ(sweep(other, array("6")).out, "");
  EXPECT_EQ(sweep(other, array("5")).out, alone.out);
}

TEST_F(Simulate, APointOfASweepWhoseRecordCannotBeWrittenSaysWhereAndWhy) {
  ASSERT_EQ(::mkdir(file("full").c_str(), 0700), 0);
  const std::string record = file("full") + "/point-00001.json";
  ASSERT_EQ(::symlink("/dev/full", record.c_str()), 0);
  const auto sweep = [&](const std::vector<std::string>& environment) {
    return talweg({"simulate", "--topology", "star:hosts=2", "-b", "64K", "-n", "1", "--sweep", "loss=0,0.01",
                   "--sweep-folder", file("full"), "--csv", "-"},
                  environment);
  };
  const std::string why = "--sweep-folder: cannot write " + record + ": No space left on device";
  const Outcome alone = sweep({});
  EXPECT_EQ(alone.exit_code, 1) << alone.err;
  EXPECT_EQ(count_lines(alone.out), 3) << alone.out;
  EXPECT_THAT(alone.out, HasSubstr(why));
  EXPECT_EQ(sweep({"RANK=0", "WORLD_SIZE=2"}).exit_code, 0);
  const Outcome second = sweep({"RANK=1", "WORLD_SIZE=2"});
  EXPECT_EQ(second.exit_code, 1) << second.out;
  EXPECT_THAT(second.err, HasSubstr(why));
  EXPECT_EQ(count_lines(second.err), 1) << second.err;
}

TEST_F(Simulate, SweepsOverRangesOfSizesAndAllPlannersThatServe) {
  // The options' values of each line of the table, after the header.
  const auto points = [](const std::vector<std::string>& more, int keys) {
    const Outcome outcome =
        talweg(with({"simulate", "--topology", "star:hosts=4", "-n", "1", "--csv", "-"}, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    std::vector<std::string> lines;
    std::istringstream table(outcome.out);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::size_t end = 0;
      for (int k = 0; k < keys; ++k) end = line.find(',', end + 1);
      lines.push_back(line.substr(0, end));
    }
    return lines;
  };
  EXPECT_THAT(points({"--sweep", "bytes=4K..16K,1M"}, 1), ElementsAre("4096", "8192", "16384", "1M"));
  EXPECT_THAT(points({"--sweep", "bytes=4K..64K;2K,1K", "--factor", "16"}, 1),
              ElementsAre("4096", "65536", "2K", "1K"));
  EXPECT_THAT(points({"-b", "4K", "--op", "all_gather", "--sweep", "algo=all"}, 1),
              ElementsAre("halving_doubling", "ring", "direct", "packed"));
  EXPECT_THAT(points({"-b", "4K", "--sweep", "op=gather,all_gather", "--sweep", "algo=ring;all"}, 2),
              ElementsAre("gather,direct", "all_gather,ring", "all_gather,halving_doubling",
                          "all_gather,direct", "all_gather,packed"));
  // Without --sweep they would be several lines.
  EXPECT_THAT(points({"-b", "4K..8K", "--algo", "ring,star", "--sweep", "seed=1"}, 3),
              ElementsAre("1,ring,4096", "1,ring,8192", "1,star,4096", "1,star,8192"));
}

TEST_F(Simulate, ASweepThatCannotBeRunIsRefusedBeforeItsFirstPoint) {
  const auto refused = [](std::vector<std::string> sweeps) {
    std::vector<std::string> words = {"simulate", "--topology", "star:hosts=2", "-b", "64K"};
    words.insert(words.end(), sweeps.begin(), sweeps.end());
    const Outcome outcome = talweg(words);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(refused({"--sweep", "algo=ring,bogus"}), HasSubstr("algorithm \"bogus\": expected one of"));
  EXPECT_THAT(refused({"--sweep", "bytes=64K", "--sweep", "bytes=1M"}),
              HasSubstr("--sweep bytes: it is swept twice"));
}

TEST_F(Simulate, ASweepsNumbersAreNumbers) {
  const Outcome outcome = talweg({"simulate", "--topology", "star:hosts=2", "-b", "64K", "-n", "1", "--sweep",
                                  "loss=0,0.001", "--json", "-"});
  const auto numbers = nlohmann::json::parse(outcome.out)["points"][0]["numbers"];
  EXPECT_GT(numbers["time_us"], 0);
  EXPECT_EQ(numbers["dropped"], 0);
  EXPECT_TRUE(numbers["algorithm"].is_string()) << numbers;
}

TEST_F(Simulate, APointThatFailsIsNamedAndTheOthersAreThere) {
  const Outcome outcome = talweg({"simulate", "--topology", "star:hosts=2", "-b", "64K", "-n", "1", "--sweep",
                                  "horizon=1us,1s", "--csv", "-"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.out), 3);
  EXPECT_THAT(outcome.out, HasSubstr("had not ended"));
}

TEST_F(Simulate, PerfSimulatesOnAFile) {
  const Outcome outcome = talweg({"perf", "all_reduce", "--sim", kUneven, "-b", "1M", "-e", "4M", "-f", "2",
                                  "-n", "2", "--json", file("p.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# simulated network: " + kUneven));
  const auto json = nlohmann::json::parse(text("p.json"));
  EXPECT_EQ(json["results"].size(), 3U);
  EXPECT_EQ(json["iterations"], 2);
}

TEST_F(Simulate, InPlaceIsTheSameRunWhereThereIsSuchAForm) {
  const auto sides = [](const std::string& op) {
    const auto json = nlohmann::json::parse(
        talweg({"perf", op, "-b", "64K", "-e", "64K", "--sim", kUneven, "--json", "-"}).out);
    return std::pair{json["results"][0]["out_of_place"], json["results"][0]["in_place"]};
  };
  const auto [apart, in_place] = sides("all_reduce");
  EXPECT_GT(apart["time_us"], 0);
  EXPECT_EQ(in_place, apart);
  EXPECT_TRUE(sides("all_to_all").second.is_null());
}

TEST_F(Simulate, AveragesOverTheRanksAsAsked) {
  const auto time_of = [&](const std::string& average) {
    const auto json = nlohmann::json::parse(
        talweg({"simulate", "--topology", "star:hosts=4", "--op", "broadcast", "--algo", "binomial", "-b",
                "1M", "-n", "1", "-w", "0", "--average", average, "--json", "-"})
            .out);
    return json["results"][0]["out_of_place"]["time_us"].get<double>();
  };
  EXPECT_LT(time_of("min"), time_of("mean"));
  EXPECT_LT(time_of("mean"), time_of("max"));
}

TEST_F(Simulate, OptionsAndFilesAreCheckedBeforeAnythingIsPrinted) {
  const std::string w = written("w.yaml", "groups: [{ranks: all, steps: [{op: juggle, bytes: 1K}]}]\n");
  const std::string other = written("o.yaml",
                                    "groups: [{ranks: all, steps: [{op: broadcast, bytes: 1K, algorithm: "
                                    "ring}]}]\n");
  const std::string noise = written("n.yaml", "background: [{from: all, to: random, rate: 1Gbit/s}]\n");
  const std::string cm = written("c.cm", "Nodes 4\nConnections 1\n0->3 id 1 start 0 size 1000\n");
  struct Bad {
    std::vector<std::string> more;
    const char* said;
  };
  const Bad all[] = {
      {{"--trim"}, "--trim: it needs --priorities of at least 2 and a --queue above 0"},
      {{"--trim", "--priorities", "2", "--queue", "0"}, "--trim: it needs --priorities"},
      {{"--red", "20K,10K,0.1"}, "--red 20K,10K,0.1: expected most to be more than least"},
      {{"--red", "10K,20K,1.5"}, "--red: expected a probability, got \"1.5\""},
      {{"--burst-loss", "4,0.5"}, "--burst-loss: expected two probabilities"},
      {{"--reorder", "2,1us"}, "--reorder: expected a share"},
      {{"--reorder", "1,20000000s"}, "--reorder 20000000s: expected at most 10 days"},
      {{"--fail", "switch@20000000s"}, "--fail 20000000s: expected at most 10 days"},
      {{"--algo", "ring", "--op", "broadcast"}, "--algo ring: it does not serve broadcast"},
      {{"--algo", "ring,one_hop", "--op", "gather"}, "--algo ring,one_hop: it does not serve gather"},
      {{"--bytes", "1"}, "--bytes: 1 B is less than one element of float (4 B)"},
      {{"--bytes", "0..8", "--factor", "2"}, "--bytes: a size of 0 never grows"},
      {{"--bytes", "0"}, "--bytes: 0 B is less than one element of float (4 B)"},
      {{"--bytes", "4", "--op", "all_gather"},
       "--bytes: 4 B is less than one element of float (4 B) for each of 2 ranks, 8 B"},
      {{"--seed", "-1"}, "--seed: expected a whole number from 0 to 18446744073709551615, got \"-1\""},
      {{"--seed", "18446744073709551616"}, "--seed: expected a whole number from 0 to 18446744073709551615"},
      {{"--loss", "nan"}, "--loss: expected a number from 0 to 1, got \"nan\""},
      {{"--bit-errors", "nan"}, "--bit-errors: expected a number from 0 to 1"},
      {{"--duplicate", "inf"}, "--duplicate: expected a number from 0 to 1"},
      {{"--damage", "-nan"}, "--damage: expected a number from 0 to 1"},
      {{kUneven}, "uneven4.yaml describes a network, too: expected only one of them"},
      {{"--sweep", "algo=all", "--op", "juggle"}, "--op: no collective is called \"juggle\""},
      {{"--sweep", "bytes=8K..4K"}, "--bytes: 8K..4K: the first size is larger than the last"},
      {{"--jobs", "2"}, "--jobs: it needs --sweep"},
      {{"--sweep-folder", "points"}, "--sweep-folder: it needs --sweep"},
      {{"--sweep", "factor=2,4"}, "--sweep factor: it leads from size to size"},
      {{"--workload", w}, "--workload: "},
      {{"--workload", w}, "w.yaml:1: groups[0].steps[0].op: expected a collective"},
      {{"--workload", other}, "ring does not serve broadcast"},
      {{"--workload", noise, "--horizon", "1ms", "--fluid"},
       "background traffic is packets, which meet no flows"},
      {{"--workload", noise}, "background traffic alone goes on for ever: give a --horizon"},
      {{"--cm", cm}, "the matrix is for 4 hosts, the network has 2"},
      {{"--cm", file("none.cm")}, "--cm: "},
      {{"-d", "quad"}, "--type: no data type is called \"quad\""},
      {{"--cm", cm, "--bytes", "4K"}, "--bytes: not with --cm"},
      {{"--workload", w, "--op", "broadcast"}, "--op: not with --workload"},
      {{"--flows", "incast", "--op", "broadcast"}, "--op: not with --flows"},
      {{"--flows", "incast", "--cm", cm}, "--flows excludes --cm and --workload"},
      {{"--flows", "ring"}, "--flows: ring: expected permutation, shuffle, incast or mixed"},
      {{"--flows", "incast:to=2"}, "--flows: incast:to=2: to: expected a number from 0 to 1, got \"2\""},
      {{"--transport", "tcp"}, "--transport: expected one of dctcp,ndp,eqds,pfabric,pias, got \"tcp\""},
      {{"--type", "float128"}, "expected uint8, int8, uint16, "},
  };
  for (const Bad& bad : all) {
    const Outcome outcome = talweg(with({"simulate", "--topology", "star:hosts=2"}, bad.more));
    EXPECT_EQ(outcome.exit_code, 2) << bad.said;
    EXPECT_EQ(outcome.out, "") << bad.said;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(bad.said));
  }
}

TEST_F(Simulate, WhatCannotBeIsRefusedInOneLine) {
  const auto about = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = talweg(arguments);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    return outcome.err;
  };
  const std::vector<std::string> star{"simulate", "--topology", "star:hosts=2"};
  EXPECT_THAT(about({"simulate"}), HasSubstr("expected a file of the network, or --topology"));
  EXPECT_THAT(about({"simulate", "--topology", "star:rate=0G"}), HasSubstr("0G"));
  EXPECT_THAT(about({"simulate", "--topology", "torus:dims=4x"}), HasSubstr("dims: expected a number"));
  EXPECT_THAT(about(with(star, {"--op", "juggle"})), HasSubstr("juggle"));
  EXPECT_THAT(about(with(star, {"-b", "4M..1M"})), HasSubstr("--bytes"));
  EXPECT_THAT(about(with(star, {"--algo", "best"})), HasSubstr("best"));
  EXPECT_THAT(about(with(star, {"--root", "2", "--op", "broadcast"})), HasSubstr("there are 2 ranks"));
  EXPECT_THAT(about(with(star, {"--root", "1"})), HasSubstr("--root 1: all_reduce has no root"));
  EXPECT_THAT(about(with(star, {"--red", "1K,2K"})), HasSubstr("expected least,most,probability"));
  EXPECT_THAT(about(with(star, {"--fail", "h7@1ms"})), HasSubstr("--fail: there is no node \"h7\""));
  EXPECT_THAT(about(with(star, {"--fail", "h0@2ms..1ms"})), HasSubstr("a repair after the failure"));
  // What is cut off for good ends all the same: in a day of virtual time.
  EXPECT_THAT(about(with(star, {"--fail", "h0@0s"})), HasSubstr("had not ended on h0, h1 at 86400"));
  EXPECT_THAT(about({"simulate", "--fail", "h0@0s", kUneven}), HasSubstr("had not ended on h0, h1"));
  EXPECT_THAT(about(with(star, {"--fail", "h1@3us", "--horizon", "5ms"})),
              HasSubstr("h1 failed at 3 us and was not repaired: all_reduce of "));
  EXPECT_THAT(about(with(star, {"--queue", "1K"})),
              HasSubstr("--queue 1024: no packet of 1514 bytes would ever pass"));
  EXPECT_THAT(about(with(star, {"--bytes", "900T"})), HasSubstr("more than can be simulated here"));
  EXPECT_THAT(about(with(star, {"--trace", "/dev/full"})), HasSubstr("cannot write /dev/full"));
  EXPECT_THAT(about(with(star, {"--rest", "1ms", "-w", "0"})), HasSubstr("--rest comes after warm-up calls"));
  EXPECT_THAT(about(with(star, {"--horizon", "1us"})), HasSubstr("had not ended on h0, h1"));
  EXPECT_THAT(about(with(star, {"--sweep", "speed=1,2"})), HasSubstr("there is no option --speed"));
  EXPECT_THAT(about(with(star, {"--sweep", "loss"})), HasSubstr("expected option=value"));
  EXPECT_THAT(about(with(star, {"--html", "/nowhere/x.html"})), HasSubstr("cannot write /nowhere/x.html"));
  const std::string cm = written("a.cm", "Nodes 4\nConnections 1\n0->9 id 1 start 0 size 1000\n");
  EXPECT_THAT(about({"simulate", "--topology", "star:hosts=4", "--cm", cm}),
              HasSubstr("a.cm:3: there is no host 9"));
  const std::string big = written("b.cm", "Nodes 4\nConnections 1\n0->3 id 1 start 0 size 1000000000\n");
  EXPECT_THAT(about(with(star, {"--cm", big})), HasSubstr("the matrix is for 4 hosts, the network has 2"));
  const std::string lost = written("lost.yaml",
                                   "groups: [{name: t, ranks: all, steps: [{op: all_reduce, bytes: 4MiB}]}]\n"
                                   "changes: [{at: 500us, fail: h1}]\n");
  EXPECT_THAT(about({"simulate", "--topology", "star:hosts=4", "--workload", lost}),
              HasSubstr("h1 failed at 500 us and was not repaired: group t had not ended"));
  EXPECT_THAT(about({"simulate", "--topology", "star:hosts=4", "--cm", big, "--horizon", "1ms"}),
              HasSubstr("1 of 1 flows had not ended: 1 (0->3)"));
  EXPECT_THAT(about({"perf", "all_reduce", "--sim", kUneven, "-z", "0"}), HasSubstr("--sim: -z must be 1"));
}

}  // namespace
}  // namespace talweg::cli
