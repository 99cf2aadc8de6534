#include <gmock/gmock.h>

#include <string>

#include "cluster/cluster.h"
#include "header_sample.h"
#include "talweg/error.h"

namespace talweg::cluster {
namespace {

using testing::HasSubstr;

const std::string kSourceDir = TALWEG_SOURCE_DIR;

constexpr const char* kGood = R"(nodes:
  - {name: sw, kind: switch, multicast: true}
  - {name: h0}
  - {name: h1, kind: worker}
  - {name: agg, kind: aggregator}
links:
  - {between: [h0, sw], capacity: 1Gbit/s, latency: 30us}
  - {from: h1, to: sw, capacity: 200Mbit/s, latency: 30us}
  - {from: sw, to: h1, capacity: 100Mbit/s}
  - {between: [sw, agg], capacity: 10Gbit/s, latency: 1500ns}
groups:
  - {name: nic0, capacity: 1Gbit/s, links: [h0->sw, sw->h0]}
)";

// What is said about the good file with `from` replaced by `to`.
std::string complaint(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const auto position = text.find(from);
  if (position == std::string::npos) return "the good file does not have " + from;
  try {
    parse_cluster(text.replace(position, from.size(), to), "c.yaml");
  } catch (const Error& error) {
    return error.code() == ErrorCode::bad_file ? error.what() : "wrong code";
  }
  return "accepted";
}

std::string complaint_about(const std::string& text) {
  try {
    parse_cluster(text, "c.yaml");
  } catch (const Error& error) {
    return error.code() == ErrorCode::bad_file ? error.what() : "wrong code";
  }
  return "accepted";
}

TEST(ClusterFile, TheSampleInTheHeaderIsRead) {
  const Cluster c = parse_cluster(header_sample(kSourceDir + "/src/cluster/cluster.h"), "cluster.h");
  ASSERT_EQ(c.nodes.size(), 7u);
  EXPECT_TRUE(c.nodes[4].can_aggregate);
  EXPECT_EQ(c.nodes[5].switch_at, "10.0.0.9:4711");
  EXPECT_EQ(c.nodes[6].above, "agg");
  ASSERT_EQ(c.links.size(), 8u);
  EXPECT_EQ(c.groups.size(), 1u);
  EXPECT_EQ(c.shared_cores, 2);
  EXPECT_DOUBLE_EQ(c.confidence, 0.03);
}

TEST(ClusterFile, ReadsEverythingItCanSay) {
  const Cluster cluster = parse_cluster(kGood, "c.yaml");
  ASSERT_EQ(cluster.nodes.size(), 4u);
  EXPECT_EQ(cluster.workers(), 2);
  EXPECT_EQ(cluster.nodes[0].name, "h0");
  EXPECT_EQ(cluster.nodes[2], (Node{.name = "sw", .kind = NodeKind::switch_, .can_multicast = true}));
  EXPECT_EQ(cluster.nodes[3], (Node{.name = "agg", .kind = NodeKind::aggregator}));
  ASSERT_EQ(cluster.links.size(), 6u);
  EXPECT_EQ(cluster.links[0], (Link{0, 2, {1e9}, {30000}}));
  EXPECT_EQ(cluster.links[1], (Link{2, 0, {1e9}, {30000}}));
  EXPECT_EQ(cluster.links[3], (Link{2, 1, {1e8}, {0}}));
  ASSERT_EQ(cluster.groups.size(), 1u);
  EXPECT_EQ(cluster.groups[0], (CapacityGroup{"nic0", {1e9}, {0, 1}}));
}

TEST(ClusterFile, WhatIsWrittenAsYamlOrJsonIsReadBackTheSame) {
  const Cluster clusters[] = {parse_cluster(kGood, "c.yaml"), uniform_star(5, {123456789.5}, {1}),
                              uniform_mesh(3, {1e11 / 3}, {999999937}), uniform_mesh(1, {1e9}, {0}),
                              load_cluster(kSourceDir + "/examples/clusters/pairwise4.yaml")};
  for (const Cluster& cluster : clusters) {
    EXPECT_EQ(parse_cluster(to_yaml(cluster), "y"), cluster) << to_yaml(cluster);
    EXPECT_EQ(parse_cluster(to_json(cluster), "j"), cluster) << to_json(cluster);
  }
}

TEST(ClusterFile, SaysWhenItWasMeasuredAndHowSurely) {
  const std::string measured = std::string(kGood) + "confidence: 0.03\nmeasured: 2026-03-01T12:00:00Z\n";
  const Cluster cluster = parse_cluster(measured, "c.yaml");
  EXPECT_DOUBLE_EQ(cluster.confidence, 0.03);
  EXPECT_EQ(cluster.measured, "2026-03-01T12:00:00Z");
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "y"), cluster) << to_yaml(cluster);
  EXPECT_EQ(parse_cluster(to_json(cluster), "j"), cluster);
  const int first_two[] = {0, 1};
  EXPECT_EQ(restrict_to(cluster, first_two).measured, cluster.measured);
  for (const char* wrong : {"1", "-0.1", "sure", "nan"})
    EXPECT_THAT(complaint_about(std::string(kGood) + "confidence: " + wrong + "\n"),
                HasSubstr("c.yaml:13: confidence: expected"))
        << wrong;
  for (const char* wrong : {"yesterday", "2026-03-01", "2026-13-01T12:00:00Z", "2026-03-01T25:00:00Z",
                            "2026-03-01T12:00:00+01:00", "20x6-03-01T12:00:00Z"})
    EXPECT_THAT(complaint_about(std::string(kGood) + "measured: " + wrong + "\n"),
                HasSubstr("c.yaml:13: measured: expected a time such as"))
        << wrong;
}

TEST(ClusterFile, NamesThatNeedQuotesSurvive) {
  Cluster cluster = uniform_mesh(2, {1e9}, {0});
  cluster.nodes[0].name = "a:\"{b}#'\\";
  cluster.nodes[1].name = "null";
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "y"), cluster);
  EXPECT_EQ(parse_cluster(to_json(cluster), "j"), cluster);
}

TEST(ClusterFile, TheExamplesAreWhatTheirNamesSay) {
  const std::string folder = kSourceDir + "/examples/clusters/";
  const Cluster even = load_cluster(folder + "even4.yaml");
  EXPECT_EQ(even.workers(), 4);
  for (const Link& link : even.links) EXPECT_EQ(link.capacity, Bandwidth{1e9});
  const Cluster uneven = load_cluster(folder + "uneven4.yaml");
  EXPECT_EQ(uneven.workers(), 4);
  for (const Link& link : uneven.links) {
    const int host = std::min(link.from, link.to);
    EXPECT_EQ(link.capacity, Bandwidth{host < 2 ? 1e9 : 2e8});
  }
  const Cluster pairwise = load_cluster(folder + "pairwise4.yaml");
  EXPECT_EQ(pairwise.workers(), 4);
  EXPECT_EQ(pairwise.nodes.size(), 4u);
  EXPECT_EQ(pairwise.links.size(), 12u);
}

TEST(ClusterFile, BadValuesAreNamedWithLineAndWhatWasExpected) {
  EXPECT_EQ(complaint("200Mbit/s", "fast"),
            "c.yaml:8: links[1].capacity: expected a bandwidth such as 1Gbit/s, got \"fast\"");
  EXPECT_EQ(complaint("200Mbit/s", "0Gbit/s"),
            "c.yaml:8: links[1].capacity: expected a bandwidth such as 1Gbit/s, got \"0Gbit/s\"");
  EXPECT_EQ(complaint("200Mbit/s", "-1Gbit/s"),
            "c.yaml:8: links[1].capacity: expected a bandwidth such as 1Gbit/s, got \"-1Gbit/s\"");
  EXPECT_EQ(complaint("200Mbit/s", "[1]"),
            "c.yaml:8: links[1].capacity: expected a bandwidth such as 1Gbit/s, got a list of 1");
  EXPECT_EQ(complaint("1500ns", "soon"),
            "c.yaml:10: links[3].latency: expected a time such as 30us, got \"soon\"");
  EXPECT_EQ(complaint("kind: aggregator", "kind: router"),
            "c.yaml:5: nodes[3].kind: expected worker, switch or aggregator, got \"router\"");
  EXPECT_EQ(complaint("multicast: true", "multicast: maybe"),
            "c.yaml:2: nodes[0].multicast: expected true or false, got \"maybe\"");
}

TEST(ClusterFile, ReadsAndWritesBurstsAndSharedCores) {
  const std::string text =
      "nodes: [{name: a}, {name: b}]\nlinks:\n  - {between: [a, b], capacity: 1Gbit/s, burst: 128KiB}\n"
      "shared_cores: 2\n";
  const Cluster cluster = parse_cluster(text, "c.yaml");
  EXPECT_EQ(cluster.links[1].burst, Bytes{128 << 10});
  EXPECT_EQ(cluster.shared_cores, 2);
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "again"), cluster);
  EXPECT_EQ(complaint_about("nodes: [{name: a}]\nshared_cores: 0\n").substr(0, 23),
            "c.yaml:2: shared_cores:");
}

TEST(ClusterFile, ReadsAndWritesWhatProcessorsCost) {
  const Cluster cluster = parse_cluster(
      "nodes: [{name: a}]\nprocessor: {message: 12us, copy: 8Gbit/s, sum: 64Gbit/s}\n", "c.yaml");
  EXPECT_EQ(cluster.processor, (Processor{Nanoseconds{12'000}, Bandwidth{8e9}, Bandwidth{64e9}}));
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "again"), cluster);
  const Cluster part = parse_cluster("nodes: [{name: a}]\nprocessor: {copy: 8Gbit/s}\n", "c.yaml");
  EXPECT_EQ(part.processor.message, Nanoseconds{0});
  EXPECT_EQ(parse_cluster(to_yaml(part), "again"), part);
  EXPECT_THAT(complaint_about("nodes: [{name: a}]\nprocessor: {frames: 12us}\n"),
              testing::HasSubstr("expected message, copy, sum"));
}

TEST(ClusterFile, UnknownKeysAreNamed) {
  EXPECT_EQ(complaint("groups:", "group:"),
            "c.yaml:11: unknown key \"group\": expected nodes, links, groups, shared_cores, processor, "
            "confidence, measured");
  EXPECT_EQ(
      complaint("latency: 1500ns", "delay: 1500ns"),
      "c.yaml:10: links[3]: unknown key \"delay\": expected between, from, to, capacity, latency, burst");
  EXPECT_EQ(
      complaint("{name: h0}", "{name: h0, rank: 0}"),
      "c.yaml:3: nodes[1]: unknown key \"rank\": expected name, kind, multicast, aggregate, switch, above");
  EXPECT_EQ(complaint("{name: h0}", "{name: h0, name: h0}"),
            "c.yaml:3: nodes[1]: key \"name\" is written twice: expected it once");
}

TEST(ClusterFile, ANodeSaysWhereItsSwitchListens) {
  std::string text = kGood;
  text.replace(text.find("{name: h0}"), 10, "{name: h0, switch: \"h0:4711\"}");
  const Cluster cluster = parse_cluster(text, "c.yaml");
  EXPECT_EQ(cluster.nodes[0].switch_at, "h0:4711");
  EXPECT_EQ(cluster.nodes[1].switch_at, "");
  EXPECT_EQ(parse_cluster(to_yaml(cluster), "c.yaml"), cluster);
  EXPECT_EQ(parse_cluster(to_json(cluster), "c.json"), cluster);
  for (const std::string wrong : {"h0", "\"h0:0\"", "4711", "\"\""})
    EXPECT_THAT(complaint("{name: h0}", "{name: h0, switch: " + wrong + "}"),
                testing::StartsWith("c.yaml:3: nodes[1].switch: expected an address and a port, such as "
                                    "\"10.0.0.9:4711\", got "))
        << wrong;
}

TEST(ClusterFile, MissingKeysAreNamed) {
  EXPECT_EQ(complaint("{name: h0}", "{kind: worker}"), "c.yaml:3: nodes[1]: expected a key \"name\"");
  EXPECT_EQ(complaint("capacity: 200Mbit/s, ", ""), "c.yaml:8: links[1]: expected a key \"capacity\"");
  EXPECT_EQ(complaint("to: sw, ", ""), "c.yaml:8: links[1]: expected a key \"to\"");
  EXPECT_EQ(complaint("from: h1, to: sw, ", ""),
            "c.yaml:8: links[1]: expected a key \"between\", or \"from\" and \"to\"");
  EXPECT_EQ(complaint("from: h1,", "between: [h1, sw],"),
            "c.yaml:8: links[1]: expected either \"between\", or \"from\" and \"to\"");
  EXPECT_EQ(complaint_about("links: []"), "c.yaml:1: expected a key \"nodes\"");
}

TEST(ClusterFile, WrongNodesAndLinksAreNamed) {
  EXPECT_EQ(complaint("name: h1", "name: h0"),
            "c.yaml:4: nodes[2]: node name \"h0\" is taken: expected every name once");
  EXPECT_EQ(complaint("from: h1", "from: h9"),
            "c.yaml:8: links[1].from: expected the name of a node, got \"h9\"");
  EXPECT_EQ(complaint("[h0, sw]", "[h0, h9]"),
            "c.yaml:7: links[0].between[1]: expected the name of a node, got \"h9\"");
  EXPECT_EQ(complaint("[h0, sw]", "[h0, h0]"),
            "c.yaml:7: links[0]: link h0->h0 leads from a node to itself: expected two nodes");
  EXPECT_EQ(complaint("[h0, sw]", "[h0]"),
            "c.yaml:7: links[0].between: expected two nodes such as [host0, switch], got a list of 1");
  EXPECT_EQ(complaint("from: h1, to: sw", "from: h0, to: sw"),
            "c.yaml:8: links[1]: link h0->sw is written twice: expected one link each way between two nodes");
  EXPECT_EQ(
      complaint("links: [h0->sw,", "links: [h0->h1,"),
      "c.yaml:12: groups[0].links[0]: expected a link such as host0->switch that is listed in \"links\", "
      "got \"h0->h1\"");
}

TEST(ClusterFile, WorkersThatCannotReachEachOtherAreNamedWhereOneIsWritten) {
  EXPECT_EQ(complaint("from: sw, to: h1", "from: h0, to: h1"), "accepted");
  EXPECT_EQ(complaint("from: sw, to: h1", "from: agg, to: h1"), "accepted");
  EXPECT_EQ(complaint("from: h1, to: sw", "from: agg, to: h1"),
            "c.yaml:4: nodes[2]: worker h1 cannot reach h0, and every collective needs it: expected a "
            "path of links");
}

TEST(ClusterFile, TextThatIsNoDocumentIsAnsweredWithItsLine) {
  EXPECT_THAT(complaint_about("nodes: [\n  {name: a"),
              testing::StartsWith("c.yaml:2: expected YAML or JSON:"));
  EXPECT_EQ(complaint_about(""),
            "c.yaml:1: expected a map with nodes, links, groups, shared_cores, processor, confidence, "
            "measured, got nothing");
  EXPECT_EQ(complaint_about("7"),
            "c.yaml:1: expected a map with nodes, links, groups, shared_cores, processor, confidence, "
            "measured, got \"7\"");
  EXPECT_EQ(complaint_about("nodes: 7"), "c.yaml:1: nodes: expected a list, got \"7\"");
  EXPECT_EQ(complaint_about("nodes: []"), "c.yaml:1: expected at least one node of kind worker");
  EXPECT_EQ(complaint_about("{\"nodes\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}"),
            "c.yaml:1: nodes[1]: worker b is cut off from a, and every collective needs it: expected a "
            "path of links");
}

TEST(ClusterFile, NamesThatCouldSteerATerminalAreWrittenWithoutDoingSoAndReadBackAsTheyWere) {
  const std::string name = "a\u202eb\u2066\x7f\u009b\x1b[2J_größe";
  Cluster cluster = parse_cluster("nodes: [{name: h, kind: worker}]", "c.yaml");
  cluster.nodes[0].name = name;
  for (const std::string& text : {to_yaml(cluster), to_json(cluster)}) {
    EXPECT_NE(text.find("a\\u202eb\\u2066\\u007f\\u009b\\u001b[2J_größe"), std::string::npos) << text;
    EXPECT_EQ(parse_cluster(text, "c.yaml").nodes[0].name, name);
  }
}

TEST(ClusterFile, AFileThatCannotBeReadIsAnsweredWithItsPath) {
  const auto complaint_about_file = [](const std::string& path) -> std::string {
    try {
      load_cluster(path);
    } catch (const Error& error) {
      return error.code() == ErrorCode::bad_file ? error.what() : "wrong code";
    }
    return "accepted";
  };
  EXPECT_EQ(complaint_about_file("/nonexistent/c.yaml"),
            "/nonexistent/c.yaml: cannot read it: No such file or directory");
  EXPECT_EQ(complaint_about_file("/"), "/: expected a file, got a directory");
}

TEST(ClusterFile, AFileThatTheParserWouldTakeVeryLongForIsRefusedAtOnce) {
  EXPECT_EQ(complaint_about("nodes: [" + std::string(20 << 20, ',') + "]"),
            "c.yaml: expected at most 8 MiB of YAML or JSON, got 20.0");
  EXPECT_EQ(complaint_about("nodes: [" + std::string(3 << 20, ',') + "]"),
            "c.yaml: expected YAML or JSON with at most 2097152 separators (, : [ {), got 3145730");
}

TEST(ClusterFile, WhatHasANameIsThereAgainWhereItIsNamed) {
  const Cluster cluster = parse_cluster(
      "nodes: [{name: a, kind: &k worker}, {name: b, kind: *k}, {name: s, kind: switch}]\n"
      "links:\n- {between: [a, s], capacity: &c 1G, latency: 30us}\n"
      "- {between: [b, s], capacity: *c, latency: 30us}\n",
      "c.yaml");
  EXPECT_EQ(cluster.nodes[1].kind, NodeKind::worker);
  ASSERT_EQ(cluster.links.size(), 4U);
  EXPECT_EQ(cluster.links[2].capacity, cluster.links[0].capacity);
  EXPECT_EQ(complaint_about("nodes: &a [{name: x, kind: worker}, *a]"),
            "c.yaml:1: nodes[1]: expected a map with name, kind, multicast, aggregate, switch, above, got a "
            "list of 2");
}

}  // namespace
}  // namespace talweg::cluster
