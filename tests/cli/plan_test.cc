// `talweg plan` as a user runs it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <sstream>

#include "cli/program.h"
#include "forest/forest.h"
#include "forest/planner.h"
#include "forest/verify.h"

namespace talweg::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kClusterFolder = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/";
const std::vector<std::string> kExamples = {
    "even4.yaml",         "uneven4.yaml",           "pairwise4.yaml",
    "four_gpus.nccl.xml", "two_servers.adapcc.xml", "torus_switch.astra_sim.yml",
    "rack8.topo",         "dgx1_1MB.taccl.json",    "aggregator4.yaml",
    "racks2x2.yaml"};

class Plan : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-plan-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string saved(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  // A star of `n` hosts.
  std::string star(int n, const std::string& capacity = "1Gbit/s") const {
    std::ostringstream nodes, links;
    for (int i = 0; i < n; ++i) {
      nodes << "  - {name: h" << i << ", kind: worker}\n";
      links << "  - {between: [h" << i << ", sw], capacity: " << capacity << ", latency: 30us}\n";
    }
    return saved("star.yaml",
                 "nodes:\n" + nodes.str() + "  - {name: sw, kind: switch}\nlinks:\n" + links.str());
  }
  static json parsed(const std::vector<std::string>& arguments) {
    std::vector<std::string> line{"plan"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    line.insert(line.end(), {"--json", "-"});
    const Outcome outcome = talweg(line);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out);
  }

 private:
  std::filesystem::path folder_;
};

std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(part) != std::string::npos) return line;
  return {};
}

TEST_F(Plan, SaysWhyAPlannerHasNoTimeForASize) {
  const std::string small = talweg({"plan", star(4), "--bytes", "4K"}).out,
                    all = talweg({"plan", star(4)}).out;
  EXPECT_THAT(all, HasSubstr("\n-: one_hop, recursive_doubling: it is meant for up to 256 KiB"));
  EXPECT_THAT(small, Not(HasSubstr("\n-: ")));
}

TEST_F(Plan, TheTableSaysTheNetworkTheBoundAndATimeForEachSize) {
  const Outcome outcome = talweg({"plan", kClusterFolder + "uneven4.yaml", "--bytes", "4K,64M", "--wide"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(line_with(outcome.out, "network"), HasSubstr("(talweg): 4 workers, 1 switch, 8 links"));
  // Of the slow hosts' links each has to carry the whole vector: 200 Mbit/s, and trees through the fast ones
  // do.
  EXPECT_THAT(line_with(outcome.out, "bound"), AllOf(HasSubstr("0.2 Gbit/s (0.025 GB/s)"), HasSubstr("h2's"),
                                                     HasSubstr("proved: some trees reach it")));
  EXPECT_THAT(outcome.out, testing::ContainsRegex(
                               "\nsize +taken +time +rate +of bound +limit\n +\\(s\\) +\\(GB/s\\) +\\(%\\)\n"
                               "4 KiB +[a-z_]+ +0\\.00[0-9]+ +"));
  // Each size has a unit of its own, and one planner that is marked.
  EXPECT_THAT(outcome.out, testing::ContainsRegex("\n +4 KiB +64 MiB\n +\\(us\\) +\\(s\\)\n"));
  EXPECT_EQ(std::ranges::count(outcome.out.substr(outcome.out.find("* is what a group takes")), '*'), 3);
}

TEST_F(Plan, NoLineIsWiderThan120CharactersUnlessAskedFor) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  const std::vector<std::string> many{"plan", network, "--bytes", "1K..256M",
                                      "-f",   "2",     "--algo",  "ring,star"};
  const Outcome narrow = talweg(many);
  EXPECT_EQ(narrow.exit_code, 0) << narrow.err;
  const std::string table = narrow.out.substr(narrow.out.find("\n\n"));
  const Outcome noted = talweg({"plan", network, "--bytes", "4K", "--patience", "0s"});
  EXPECT_THAT(noted.out, testing::ContainsRegex("\nnote        [^\n]*\n            [^ ]"))
      << "over two lines";
  std::istringstream lines(narrow.out + noted.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
  const std::string sizes = line_with(table.substr(table.find("predicted time of each")), " KiB");
  EXPECT_THAT(sizes, AllOf(HasSubstr("  1 KiB  "), HasSubstr("  256 MiB")));
  EXPECT_THAT(sizes, Not(HasSubstr(" 128 MiB")));
  EXPECT_THAT(table, HasSubstr("--wide shows "));
  std::vector<std::string> all = many;
  all.emplace_back("--wide");
  const Outcome wide = talweg(all);
  EXPECT_THAT(wide.out, Not(HasSubstr("--wide")));
  EXPECT_THAT(line_with(wide.out.substr(wide.out.find("predicted time of each")), " KiB"),
              AllOf(HasSubstr("  2 KiB  "), HasSubstr("  128 MiB  ")));
  EXPECT_THAT(line_with(wide.out, "bound  "), HasSubstr("; proved: some trees reach it"));
}

TEST_F(Plan, TakesAGeneratedNetworkInPlaceOfAFile) {
  const json found = parsed({"--topology", "star:hosts=4,rate=1G,latency=30us", "--bytes", "1M"});
  EXPECT_EQ(found["network"]["file"], "star:hosts=4,rate=1G,latency=30us");
  EXPECT_EQ(found["network"]["format"], "topology");
  EXPECT_EQ(found["sizes"], parsed({star(4), "--bytes", "1M"})["sizes"]);
  EXPECT_THAT(
      talweg({"plan", "--topology", "star:hosts=4", star(4)}).err,
      HasSubstr("--topology star:hosts=4: the file " + file("star.yaml") + " describes a network, too"));
  EXPECT_THAT(talweg({"plan", "--topology", "star:hosts=4", "--from", "htsim"}).err,
              HasSubstr("--from htsim: --topology names no file"));
  const Outcome none = talweg({"plan"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("expected a file of the network, or --topology such as"));
}

TEST_F(Plan, SaysWhichOptionsDoNothing) {
  const std::string network = kClusterFolder + "even4.yaml";
  EXPECT_EQ(parsed({network, "--bytes", "1M", "--factor", "8"})["notes"],
            json({"--factor: there is no range in --bytes 1M"}));
  EXPECT_EQ(parsed({network, "--op", "barrier", "--bytes", "1M..4M", "--factor", "2"})["notes"],
            json({"--bytes: a barrier moves no data", "--factor: a barrier moves no data"}));
  EXPECT_EQ(parsed({network, "--bytes", "1M..4M", "--factor", "2"})["notes"], json::array());
}

TEST_F(Plan, EveryExampleHasABoundAndNobodyIsPredictedToBeatIt) {
  for (const std::string& name : kExamples) {
    SCOPED_TRACE(name);
    const json document = parsed({kClusterFolder + name, "--bytes", "1M,256M"});
    EXPECT_EQ(document["format"], "talweg plan");
    EXPECT_EQ(document["sizes"].size(), 2u);
    EXPECT_GT(document["bound"]["algbw_GB_per_s"].get<double>(), 0);
    EXPECT_FALSE(document["bound"]["set_by"].get<std::string>().empty());
    EXPECT_FALSE(document["bound"]["proof"]["links"].empty() && document["bound"]["proof"]["groups"].empty());
    for (const json& size : document["sizes"]) {
      std::vector<std::string> names;
      for (const json& candidate : size["candidates"]) {
        names.push_back(candidate["algorithm"]);
        if (candidate.contains("left_out_because")) continue;
        EXPECT_GT(candidate["predicted_us"].get<double>(), 0) << candidate;
        EXPECT_LE(candidate["part_of_bound"].get<double>(), 1.0) << candidate;
        EXPECT_NEAR(candidate["algbw_GB_per_s"].get<double>(),
                    size["size_bytes"].get<double>() / candidate["predicted_us"].get<double>() * 1e-3,
                    0.01 * candidate["algbw_GB_per_s"].get<double>());
      }
      EXPECT_THAT(names, testing::Contains(size["taken"].get<std::string>()));
      EXPECT_EQ(names.size(), document["planners"].size());
      EXPECT_EQ(names.size() + document["planners_left_out"].size(), forest::planners().size());
    }
  }
}

TEST_F(Plan, KnowsEveryCollectiveAndItsRoot) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  for (const char* op : {"all_gather", "reduce_scatter", "broadcast", "reduce"})
    EXPECT_GT(parsed({network, "--op", op, "--bytes", "1M"})["bound"]["rate_Gbit_per_s"].get<double>(), 0)
        << op;
  // From a slow host's downlink on, a broadcast from a fast one is as slow; the root makes no difference
  // here.
  const json reduce = parsed({network, "--op", "reduce", "--root", "2", "--bytes", "1M"});
  EXPECT_EQ(reduce["root"], 2);
  const json none = parsed({network, "--op", "send_recv", "--bytes", "1M"});
  EXPECT_EQ(none["bound"]["none_because"], "no bound is known for send_recv");
  EXPECT_TRUE(none["sizes"][0]["candidates"][0]["part_of_bound"].is_null());
  // As perf has it, of one rank's row: three of its four blocks leave a host of 200 Mbit/s.
  const json exchange = parsed({network, "--op", "all_to_all", "--bytes", "1M"});
  EXPECT_NEAR(exchange["bound"]["rate_Gbit_per_s"].get<double>(), 0.8 / 3, 1e-12);
  EXPECT_EQ(exchange["bound"]["set_by"], "h2's uplink");
  const json& direct = exchange["sizes"][0]["candidates"][0];
  EXPECT_NEAR(direct["algbw_GB_per_s"].get<double>() * direct["predicted_us"].get<double>() * 1000, 1 << 20,
              64);
  for (const char* op : {"all_to_all", "gather", "scatter"}) {
    const json document = parsed({network, "--op", op, "--bytes", "16M"});
    EXPECT_EQ(document["bound"]["reached_by_some_trees"], true) << op;
    EXPECT_THAT(document["sizes"][0]["candidates"][0]["part_of_bound"].get<double>(),
                AllOf(testing::Gt(0.9), testing::Le(1)))
        << op;
  }
}

TEST_F(Plan, SaysOfEachPlanWhatLimitsIt) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  const json document = parsed({network, "--bytes", "4K,64M"});
  for (const json& size : document["sizes"]) {
    for (const json& candidate : size["candidates"]) {
      if (candidate.contains("left_out_because")) continue;
      const json& spent = candidate["spent_us"];
      double sum = 0;
      for (const char* part : {"links", "processors", "latency"}) sum += spent[part].get<double>();
      EXPECT_NEAR(sum / candidate["predicted_us"].get<double>(), 1, 1e-9) << candidate;
      // Less by the part that it takes, or by a little less, where something else takes nearly as long.
      const double limit = spent[candidate["limit"].get<std::string>()].get<double>();
      EXPECT_GE(candidate["without_limit_us"].get<double>() + limit, (1 - 1e-9) * sum) << candidate;
      EXPECT_LT(candidate["without_limit_us"].get<double>(), sum) << candidate;
      EXPECT_THAT(candidate["limit_reason"].get<std::string>(),
                  testing::StartsWith(candidate["limit"].get<std::string>() + " limit"));
    }
  }
  const Outcome table = talweg({"plan", network, "--bytes", "64M", "--algo", "ring"});
  EXPECT_THAT(line_with(table.out, "64 MiB  ring"), testing::EndsWith("  links"));
  EXPECT_THAT(line_with(table.out, "links limit"), AllOf(testing::StartsWith("64 MiB, ring: links limit: h"),
                                                         HasSubstr("carries 108 MB of the ")));
}

TEST_F(Plan, TakesWhatAGroupTakes) {
  const json document = parsed({kClusterFolder + "uneven4.yaml", "--bytes", "4K,4M"});
  for (const json& size : document["sizes"]) {
    const Outcome forest =
        talweg({"convert", kClusterFolder + "uneven4.yaml", "-", "--to", "json", "--collective", "all_reduce",
                "--size", std::to_string(size["size_bytes"].get<int>())});
    EXPECT_EQ(json::parse(forest.out)["planner"], size["taken"]);
  }
}

// Sums of which a part may be lost do not push and pull at once, as trees do, have equal parts, and a line
// that says what they are.
TEST_F(Plan, KnowsBoundedSumsWhereTheyAreNamed) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  const json document =
      parsed({network, "--bytes", "4K,4M", "--algo", "ring,bounded,sharded_star", "--html", file("b.html")});
  for (const json& size : document["sizes"]) {
    std::map<std::string, double> us;
    for (const json& candidate : size["candidates"]) us[candidate["algorithm"]] = candidate["predicted_us"];
    ASSERT_EQ(us.size(), 3U);
    EXPECT_GT(us["bounded"], 1.25 * us["sharded_star"]);
    EXPECT_NE(us["bounded"], us["ring"]);
    const std::string bytes = std::to_string(size["size_bytes"].get<int>());
    const json all_named = parsed({network, "--bytes", bytes, "--algo", "bounded", "--servers", "3,0,1,2"});
    EXPECT_EQ(us["bounded"], all_named["sizes"][0]["candidates"][0]["predicted_us"]);
  }
  EXPECT_THAT(text("b.html"), HasSubstr("<th>bounded</th>"));
  const Outcome alone = talweg({"plan", network, "--bytes", "4M", "--algo", "bounded"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("bounded: sums of which a part may be lost"));
  EXPECT_THAT(talweg({"plan", network}).out, testing::Not(HasSubstr("bounded")));
  EXPECT_THAT(talweg({"plan", network, "--algo", "bounded", "-o", file("b.yaml")}).err,
              HasSubstr("follow no forest; the nearest one is of --algo sharded_star"));
  EXPECT_THAT(talweg({"plan", network, "--op", "broadcast", "--algo", "bounded"}).err,
              HasSubstr("bounded does not serve broadcast"));
}

TEST_F(Plan, ConsidersThePlannersThatAreNamedAndNoOthers) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  const json document = parsed({network, "--bytes", "4K,4M", "--algo", "star,ring"});
  ASSERT_EQ(document["planners"].size(), 2u);
  for (const json& size : document["sizes"]) {
    ASSERT_EQ(size["candidates"].size(), 2u);
    const auto us = [&](int i) { return size["candidates"][i]["predicted_us"].get<double>(); };
    EXPECT_EQ(size["taken"], size["candidates"][us(0) <= us(1) ? 0 : 1]["algorithm"]);
  }
  const Outcome table =
      talweg({"plan", network, "--bytes", "4M", "--algo", "ring", "--html", file("r.html")});
  EXPECT_THAT(table.out, AllOf(HasSubstr("the quickest of these"), Not(HasSubstr("star"))));
  EXPECT_THAT(text("r.html"), HasSubstr("the quickest of these"));
}

TEST_F(Plan, ABarrierHasOneLineAndNoSizeOrRate) {
  const std::string network = kClusterFolder + "even4.yaml";
  const Outcome outcome =
      talweg({"plan", network, "--op", "barrier", "--bytes", "1M,4M", "--html", file("b.html")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(line_with(outcome.out, "collective"), "collective  barrier");
  EXPECT_THAT(outcome.out, Not(HasSubstr("iB")));
  // Neither a rate nor a part of a bound.
  EXPECT_THAT(outcome.out, testing::ContainsRegex("\n-     [a-z_]+ +[0-9.]+ +- +- +latency\n"));
  EXPECT_THAT(text("b.html"), AllOf(HasSubstr("<th>-</th>"), HasSubstr("a barrier moves no bytes")));
}

TEST_F(Plan, FindsOutBeforeTheWorkWhatItCannotWrite) {
  const std::string network = kClusterFolder + "even4.yaml";
  for (const char* flag : {"--json", "--html", "-o"}) {
    const Outcome outcome = talweg({"plan", network, "--bytes", "1M", flag, "/nowhere/p.json"});
    EXPECT_NE(outcome.exit_code, 0) << flag;
    EXPECT_EQ(outcome.out, "") << flag;  // no table: nothing was worked out
    EXPECT_THAT(outcome.err, HasSubstr("cannot write /nowhere/p.json")) << flag;
  }
  // To ask neither makes a file nor empties one.
  const std::string kept = saved("kept.html", "kept");
  const Outcome outcome = talweg({"plan", network, "--bytes", "1M", "--json", file("new.json"), "--html",
                                  kept, "-o", "/nowhere/p.json"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(file("new.json")));
  EXPECT_EQ(text("kept.html"), "kept");
}

TEST_F(Plan, WritesTheForestOfTheLargestSize) {
  const std::string network = kClusterFolder + "four_gpus.nccl.xml";
  EXPECT_EQ(talweg({"plan", network, "--bytes", "4K,64M", "--algo", "ring", "-o", file("f.yaml")}).exit_code,
            0);
  const forest::Forest ring = forest::load_forest(file("f.yaml"));
  EXPECT_EQ(ring.planner, "ring");
  EXPECT_THAT(ring.request.counts, ElementsAre(16 << 20));
  forest::verify(ring);
  EXPECT_EQ(talweg({"plan", network, "--bytes", "1M", "--algo", "ring", "-o", file("f.xml")}).exit_code, 0);
  EXPECT_THAT(text("f.xml"), HasSubstr("<algo name=\"ring-allreduce\""));
}

TEST_F(Plan, ThePageIsWellFormedAndHasEveryNodeAndTree) {
  for (const std::string& name : kExamples) {
    SCOPED_TRACE(name);
    const Outcome outcome =
        talweg({"plan", kClusterFolder + name, "--bytes", "4K,16M", "--html", file("p.html")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    pugi::xml_document page;
    const std::string html = text("p.html");
    const auto result = page.load_string(html.c_str(), pugi::parse_full);
    ASSERT_TRUE(result) << result.description() << " at " << html.substr(result.offset, 80);
    const auto network = page.select_node("//*[@id='network']").node();
    const auto data = json::parse(page.select_node("//*[@id='data']").node().text().get());
    ASSERT_TRUE(network);
    EXPECT_EQ(network.select_nodes(".//*[@id='nodes']/*").size(), data["nodes"].size());
    EXPECT_EQ(network.select_nodes(".//*[@id='links']/*").size(), data["plans"][0]["busy"].size());
    EXPECT_GT(network.select_nodes(".//*[@class='priced']").size(), 0u);
    for (const json& node : data["nodes"])
      EXPECT_THAT(html, HasSubstr("<title>" + node[0].get<std::string>() + ", "));
    // One line for each planner, and one for each size.
    EXPECT_EQ(page.select_nodes("//*[@id='plans']/tr").size(), data["curves"]["planners"].size() + 1);
    EXPECT_EQ(page.select_nodes("//*[@id='predicted']/tr").size(), 3u);
    const bool sums = name == "aggregator4.yaml" || name == "racks2x2.yaml";
    EXPECT_EQ(page.select_nodes("//*[@id='plans']/tr[th='switch' and td[4]!='']").size(), sums ? 1u : 0u);
    EXPECT_EQ(page.select_nodes("//*[@id='predicted']/tr/th[.='switch']").size(), sums ? 1u : 0u);
    for (const auto& row : page.select_nodes("//*[@id='predicted']/tr"))
      EXPECT_EQ(row.node().select_nodes("td | th").size(), data["curves"]["planners"].size() + 3);
    EXPECT_EQ(data["curves"]["planners"].size(), data["curves"]["times"].size());
    EXPECT_EQ(page.select_nodes("//*[@id='plans']/tr[td[1]!='-' and td[4]='']").size(), 0u) << "no limit";
    EXPECT_EQ(page.select_nodes("//*[@id='plans']/tr[@class='taken']").size(), 1u);
    EXPECT_TRUE(data["plans"][0]["taken"].get<bool>());
    for (const json& plan : data["plans"]) {
      double parts = 0;
      for (const json& tree : plan["trees"]) {
        parts += tree["part"].get<double>();
        EXPECT_FALSE(tree["up"].empty() && tree["down"].empty());
        for (const char* way : {"up", "down"})
          for (const json& edge : tree[way])
            EXPECT_TRUE(data["routes"].contains(edge[0].dump() + "," + edge[1].dump())) << edge;
      }
      EXPECT_GE(parts, 0.999) << plan["name"];
      for (const json& busy : plan["busy"])
        EXPECT_THAT(busy.get<double>(), AllOf(testing::Ge(0), testing::Le(1.001)));
    }
    EXPECT_THAT(html, Not(HasSubstr("http://www.w3.org/2000/svg\" src")));
    EXPECT_EQ(page.select_nodes("//script[@src] | //link | //img").size(), 0u) << "it must stand alone";
  }
}

TEST_F(Plan, ThePageShowsAllWaysThatCarryAPart) {
  std::string nodes, links;
  for (int h = 0; h < 4; ++h) {
    nodes += fmt::format("  - {{name: h{}, kind: worker}}\n", h);
    links += fmt::format("  - {{between: [h{}, l{}], capacity: 1G}}\n", h, h / 2);
  }
  for (const char* inner : {"l0", "l1", "s0", "s1", "s2"})
    nodes += fmt::format("  - {{name: {}, kind: switch}}\n", inner);
  for (int leaf = 0; leaf < 2; ++leaf)
    for (int spine = 0; spine < 3; ++spine)
      links +=
          fmt::format("  - {{between: [l{}, s{}], capacity: {}}}\n", leaf, spine, spine < 2 ? "1G" : "2G");
  const std::string network = saved("spines.yaml", "nodes:\n" + nodes + "links:\n" + links);
  ASSERT_EQ(talweg({"plan", network, "--bytes", "1M", "--op", "all_to_all", "--algo", "direct", "--html",
                    file("spines.html")})
                .exit_code,
            0);
  pugi::xml_document page;
  ASSERT_TRUE(page.load_string(text("spines.html").c_str()));
  const json data = json::parse(page.select_node("//*[@id='data']").node().text().get());
  const pugi::xpath_node_set titles = page.select_nodes("//*[@id='links']/*/title");
  const auto ways = [&](const std::string& ends) {
    std::vector<std::string> found;
    for (const json& link : data.at("routes").at(ends)) {
      const json& alike = data.at("alike");
      for (const json& each : alike.value(link.dump(), json::array({link}))) {
        const std::string name = titles[each.get<std::size_t>()].node().text().get();
        found.push_back(name.substr(0, name.find(':')));
      }
    }
    return found;
  };
  const auto between = [](const char* a, const char* b) { return fmt::format("{} \u2192 {}", a, b); };
  EXPECT_THAT(ways("0,1"), testing::UnorderedElementsAre(between("h0", "l0"), between("l0", "h1")));
  std::vector<std::string> all{between("h0", "l0"), between("l1", "h2")};
  for (const char* spine : {"s0", "s1", "s2"}) {
    all.push_back(between("l0", spine));
    all.push_back(between(spine, "l1"));
  }
  EXPECT_THAT(ways("0,2"), testing::UnorderedElementsAreArray(all));
}

TEST_F(Plan, ThePageSaysWhatLimitsEachPlanAndWhyItIsTakenOrNot) {
  pugi::xml_document page;
  const auto cell = [&](const std::string& row, int column) {
    const std::string path = fmt::format("//*[@id='plans']/{}/*[{}]", row, column);
    return std::string(page.select_node(path.c_str()).node().text().get());
  };
  for (const char* size : {"1K", "64M"}) {
    ASSERT_EQ(talweg({"plan", kClusterFolder + "uneven4.yaml", "--bytes", size, "--json", file("w.json"),
                      "--html", file("w.html")})
                  .exit_code,
              0);
    ASSERT_TRUE(page.load_string(text("w.html").c_str()));
    const json document = json::parse(text("w.json"));
    for (const json& candidate : document["sizes"][0]["candidates"]) {
      if (candidate.contains("left_out_because")) continue;
      const std::string row = fmt::format("tr[th='{}']", candidate["algorithm"].get<std::string>());
      EXPECT_EQ(cell(row, 5), candidate["limit_reason"].get<std::string>()) << row;
    }
    EXPECT_EQ(cell("tr[@class='taken']", 6), "taken: what a group takes");
    EXPECT_THAT(cell("tr[1]", 2), testing::MatchesRegex("time, [mu]?s"));
    EXPECT_THAT(cell("tr[@class='taken']", 2), testing::MatchesRegex("[0-9.]+")) << "the head has the unit";
  }
  EXPECT_THAT(cell("tr[th='ring']", 6), testing::ContainsRegex("takes 1.[0-9]+ times as long as "));
}

TEST_F(Plan, NamesThatMeanSomethingInHtmlAreHarmless) {
  const std::string network =
      saved("odd.yaml",
            "nodes:\n  - {name: \"a<b>&'\", kind: worker}\n  - {name: \"</script>\", kind: worker}\n"
            "links:\n  - {between: [\"a<b>&'\", \"</script>\"], capacity: 1Gbit/s}\n");
  EXPECT_EQ(talweg({"plan", network, "--bytes", "1M", "--html", file("odd.html")}).exit_code, 0);
  pugi::xml_document page;
  EXPECT_TRUE(page.load_string(text("odd.html").c_str()));
  EXPECT_EQ(json::parse(page.select_node("//*[@id='data']").node().text().get())["nodes"][1][0], "</script>");
}

TEST_F(Plan, OneWorkerNeedsNoNetwork) {
  const Outcome outcome = talweg({"plan", saved("one.yaml", "nodes:\n  - {name: a, kind: worker}\n"),
                                  "--bytes", "4K", "--html", file("one.html")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("nothing moves"));
}

TEST_F(Plan, AHugeNetworkHasTheBoundOfItsNarrowestWorkerAndSaysWhatIsLeftOut) {
  const std::string network = star(10'000);
  const json document = parsed({network, "--html", file("huge.html")});
  EXPECT_NEAR(document["bound"]["rate_Gbit_per_s"].get<double>(), 1, 1e-9);
  EXPECT_EQ(document["bound"]["reached_by_some_trees"], false);
  EXPECT_TRUE(document["sizes"].empty());
  EXPECT_THAT(document["notes"].dump(),
              AllOf(HasSubstr("10001"), HasSubstr("times are predicted for networks of up to")));
  EXPECT_THAT(text("huge.html"), HasSubstr("Not drawn"));
  const json gather = parsed({network, "--op", "all_gather"});
  EXPECT_NEAR(gather["bound"]["rate_Gbit_per_s"].get<double>(), 10000.0 / 9999, 1e-9);
  EXPECT_THAT(gather["bound"]["set_by"].get<std::string>(), HasSubstr("downlink"));
  const json exchange = parsed({network, "--op", "all_to_all"});
  EXPECT_NEAR(exchange["bound"]["rate_Gbit_per_s"].get<double>(), 10000.0 / 9999, 1e-9);
}

TEST_F(Plan, WhatAHugeNetworkHasNoAnswerToIsRefused) {
  const std::string network = star(2600);
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{"--algo", "ring"}, {"--op", "barrier"}}) {
    const Outcome outcome = talweg({"plan", network, what[0], what[1]});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("networks of up to 2500 nodes, and this one has 2601"));
  }
  EXPECT_THAT(talweg({"plan", "--help"}).out, HasSubstr("up to 2500 nodes"));
}

TEST_F(Plan, AThousandHostsHaveTimes) {
  const json document =
      parsed({star(1343), "--algo", "chain,binomial", "--bytes", "64M", "--patience", "300s"});
  for (const json& candidate : document["sizes"][0]["candidates"])
    EXPECT_GT(candidate["predicted_us"].get<double>(), 0) << candidate;
  EXPECT_EQ(document["sizes"][0]["taken"], "chain");
}

TEST_F(Plan, AllIsEveryPlannerAndWhatAGroupTakes) {
  const std::string network = kClusterFolder + "uneven4.yaml";
  EXPECT_EQ(parsed({network, "--bytes", "4K,4M", "--algo", "all"}), parsed({network, "--bytes", "4K,4M"}));
}

TEST_F(Plan, WithoutTimeToPredictNoForestIsWritten) {
  const std::string network = kClusterFolder + "even4.yaml";
  for (const std::string planner : {"all", "ring"}) {
    const Outcome outcome = talweg(
        {"plan", network, "--bytes", "1M", "--patience", "1ns", "--algo", planner, "-o", file("late.yaml")});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(file("late.yaml")));
    EXPECT_THAT(outcome.out, HasSubstr("none is marked (*)"));
    EXPECT_THAT(outcome.err,
                HasSubstr(planner == "all" ? "not written, as it is not known by whom to plan"
                                           : "--algo ring: no time is predicted: not done within"));
  }
}

TEST_F(Plan, NeverWritesOverItsNetwork) {
  const std::string network = star(3), before = text("star.yaml");
  for (const char* flag : {"--json", "--html", "-o"}) {
    const Outcome outcome = talweg({"plan", network, "--bytes", "1M", flag, file("./star.yaml")});
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr("over the file that is read")) << flag;
    EXPECT_EQ(text("star.yaml"), before) << flag;
  }
}

TEST_F(Plan, PlannersThatTakeTooLongAreLeftOutAndNamed) {
  const json document = parsed({star(8), "--bytes", "4K,1M", "--patience", "0s"});
  for (const json& candidate : document["sizes"][0]["candidates"])
    EXPECT_EQ(candidate["left_out_because"], "not done within 0 s");
  EXPECT_TRUE(document["sizes"][0]["taken"].is_null());
  EXPECT_THAT(document["notes"].dump(), HasSubstr("ring: not done within 0 s"));
  EXPECT_NEAR(document["bound"]["rate_Gbit_per_s"].get<double>(), 1, 1e-9) << "that of a worker's link";
}

TEST_F(Plan, ARangeGoesFromSizeToSizeByTheFactor) {
  const auto sizes = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{star(4), "--bytes", "4K..64K", "--algo", "ring"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parsed(arguments)["sizes"].size();
  };
  EXPECT_EQ(sizes({}), 3u);
  EXPECT_EQ(sizes({"-f", "2"}), 5u);
}

TEST_F(Plan, WhatCannotBeIsRefusedInOneLineWithExitCode2) {
  const auto about = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    const Outcome outcome = talweg(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    return outcome.err;
  };
  const std::string network = kClusterFolder + "even4.yaml";
  EXPECT_THAT(about({file("none.yaml")}), HasSubstr("cannot read it"));
  EXPECT_THAT(about({network, "--op", "all_everything"}),
              HasSubstr("no collective is called \"all_everything\": expected all_reduce, reduce, broadcast, "
                        "reduce_scatter, all_gather, all_to_all, gather, scatter, send_recv or barrier"));
  EXPECT_THAT(about({network, "--op", "broadcast", "--root", "4"}), HasSubstr("--root 4: there are 4 ranks"));
  EXPECT_THAT(about({network, "--root", "1"}), HasSubstr("all_reduce has no root"));
  EXPECT_THAT(about({network, "--bytes", "lots"}), HasSubstr("lots"));
  EXPECT_THAT(about({network, "--bytes", "1M..4K"}), HasSubstr("the first size is larger"));
  EXPECT_THAT(about({network, "--bytes", "0"}), HasSubstr("0 B is less than one element of float"));
  EXPECT_THAT(about({network, "--bytes", ""}), HasSubstr("--bytes"));
  EXPECT_THAT(about({network, "--factor", "1"}), HasSubstr("--factor: expected a whole number from 2"));
  EXPECT_THAT(about({network, "--algo", "magic"}), HasSubstr("algorithm \"magic\""));
  EXPECT_THAT(about({network, "--algo", "star,ring", "--op", "broadcast"}),
              HasSubstr("--algo star,ring: ring does not serve broadcast"));
  EXPECT_THAT(about({network, "--algo", "star,ring", "-o", file("f.yaml")}),
              HasSubstr("it takes one forest, and --algo names 2 planners"));
  EXPECT_THAT(about({network, "--bytes", "3,4K"}),
              HasSubstr("--bytes: 3 B is less than one element of float (4 B)"));
  EXPECT_THAT(about({network, "--bytes", "4K..1G", "--algo", "recursive_doubling", "-o", file("f.yaml")}),
              HasSubstr("recursive_doubling: it is not meant for 1 GiB"));
  EXPECT_THAT(about({star(5000), "-o", file("f.yaml")}),
              HasSubstr("forests are planned for networks of up to"));
  EXPECT_THAT(about({network, "--bytes", "1M", "-o", file("forest.txt")}), HasSubstr("which format?"));
  EXPECT_THAT(about({network, "--bytes", "1M", "-o", "/nowhere/f.yaml"}),
              HasSubstr("cannot write /nowhere/f.yaml"));
  EXPECT_THAT(about({network, "--bytes", "1M", "--html", "/nowhere/p.html"}),
              HasSubstr("cannot write /nowhere/p.html"));
  EXPECT_THAT(about({network, "--bytes", "1M", "--json", "/nowhere/p.json"}),
              HasSubstr("cannot write /nowhere/p.json"));
  EXPECT_THAT(about({network, "--html", file("")}), HasSubstr("cannot write"));
  EXPECT_THAT(about({star(2, "0Gbit/s")}), HasSubstr("capacity"));
  EXPECT_THAT(about({star(2, "-1Gbit/s")}), HasSubstr("capacity"));
  EXPECT_THAT(about({star(2, "nan")}), HasSubstr("capacity"));
  EXPECT_THAT(
      about({saved("apart.yaml", "nodes:\n  - {name: a, kind: worker}\n  - {name: b, kind: worker}\n")}),
      HasSubstr("worker b is cut off from a, and every collective needs it"));
  EXPECT_EQ(talweg({"plan", network, "--bytes", "1M", "--algo", "ring", "-o", file("f.yaml")}).exit_code, 0);
  EXPECT_THAT(about({file("f.yaml")}), HasSubstr("expected a network, and this is a forest"));
}

}  // namespace
}  // namespace talweg::cli
