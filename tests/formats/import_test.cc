#include "formats/import.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "cluster/routing.h"
#include "talweg/error.h"
#include "text/yaml_reader.h"

namespace talweg::formats {
namespace {

using testing::HasSubstr;

const std::string kClusters = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/";

struct Example {
  Format format;
  const char* file;
};

constexpr Example kExamples[] = {{Format::talweg, "uneven4.yaml"},
                                 {Format::nccl, "four_gpus.nccl.xml"},
                                 {Format::taccl, "dgx1_1MB.taccl.json"},
                                 {Format::adapcc, "two_servers.adapcc.xml"},
                                 {Format::astra_sim, "torus_switch.astra_sim.yml"},
                                 {Format::htsim, "rack8.topo"}};

std::string text_of(formats::Format format) {
  for (const Example& example : kExamples)
    if (example.format == format) return text::read_file(kClusters + example.file);
  return "";
}

int node(const Cluster& cluster, const std::string& name) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
    if (cluster.nodes[i].name == name) return static_cast<int>(i);
  ADD_FAILURE() << "no node " << name;
  return 0;
}

// In Gbit/s; 0 where there is no link.
double gigabits(const Cluster& cluster, const std::string& from, const std::string& to) {
  for (const cluster::Link& link : cluster.links)
    if (link.from == node(cluster, from) && link.to == node(cluster, to))
      return link.capacity.bits_per_second / 1e9;
  return 0;
}

std::int64_t nanoseconds(const Cluster& cluster, const std::string& from, const std::string& to) {
  return cluster::Routes(cluster).latency(node(cluster, from), node(cluster, to)).value;
}

std::string complaint_about(formats::Format format, const std::string& text) {
  try {
    import_text(format, text, "f");
  } catch (const Error& error) {
    return error.code() == ErrorCode::bad_file ? error.what() : "wrong code";
  }
  return "accepted";
}

// What is said about the example with `from` replaced by `to`.
std::string complaint(formats::Format format, const std::string& from, const std::string& to) {
  std::string text = text_of(format);
  const auto at = text.find(from);
  if (at == std::string::npos) return "the example does not have " + from;
  return complaint_about(format, text.replace(at, from.size(), to));
}

TEST(Import, WantsUtf8AndNamesTheLine) {
  for (const Example& example : kExamples) {
    const std::string text = text_of(example.format);
    const auto second_line = text.find('\n') + 1;
    for (const char* bad :
         {"\x98", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe2\x82"}) {
      EXPECT_THAT(complaint_about(example.format, std::string(text).insert(second_line, bad)),
                  HasSubstr("f:2: expected UTF-8, got a byte 0x"))
          << example.file;
    }
  }
}

TEST(Import, WantsUtf8OfWhatTheParserMakesOfEscapesToo) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      to_yaml(cluster::parse_cluster(text, "f"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("nodes: [{name: \"h\\u00f6st\"}]\n"), "");
  EXPECT_EQ(complaint("nodes:\n- name: \"h\\Nst\"\n"), "f:2: expected YAML or JSON: a word that is no UTF-8");
}

TEST(Import, TakesCharactersOfEveryLength) {
  EXPECT_NO_THROW(text::require_utf8("aß€\U0001F600", "f"));
}

TEST(Import, EveryExampleIsRecognisedReadAndValid) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.file);
    const std::string path = kClusters + example.file;
    EXPECT_EQ(formats::recognise(text::read_file(path), path), example.format);
    EXPECT_EQ(formats::recognise(text::read_file(path), "without an ending"), example.format);
    const Cluster cluster = formats::load_any(path);
    EXPECT_EQ(find_problem(cluster), std::nullopt);
    EXPECT_EQ(cluster, load(example.format, path));
    EXPECT_EQ(cluster::parse_cluster(to_yaml(cluster), "again"), cluster) << "converted and read back";
  }
}

TEST(Import, NamesOfFormatsAreReadBackAndWrongOnesAreListed) {
  for (const Format format : formats()) EXPECT_EQ(parse_format(name(format)), format);
  try {
    formats::parse_format("ns3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("ns3"));
    EXPECT_THAT(error.what(), HasSubstr("astra_sim"));
  }
}

TEST(Import, WhatIsKnownButNoNetworkIsRefusedByName) {
  const auto refusal = [](const std::string& text, const char* origin = "f.xml") -> std::string {
    try {
      formats::recognise(text, origin);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const char* text :
       {"<!DOCTYPE html>\n<html><meta charset=utf-8>", "import torch\n\nif x:\n  y = {1: 2}\n", ""})
    EXPECT_THAT(refusal(text, "train.py"),
                HasSubstr("train.py: no known format was recognised: expected a network"));
  EXPECT_THAT(refusal("<graphs version='1'/>"), HasSubstr("rings and trees that NCCL found"));
  EXPECT_THAT(refusal("\n<trees/>"), HasSubstr("f.xml:2: <trees>: this is a strategy of AdapCC's"));
  EXPECT_THAT(refusal("<algo/>"), HasSubstr("a program for MSCCL"));
  EXPECT_THAT(refusal("<html/>"), HasSubstr("expected <system>"));
  EXPECT_THAT(refusal("<system>\n<cpu>\n</system>"), HasSubstr("f.xml:3: expected XML"));
}

TEST(ImportHtsim, MakesTheLeavesSpinesAndRatesThatItSays) {
  const Cluster cluster = formats::load_any(kClusters + "rack8.topo");
  EXPECT_EQ(cluster.workers(), 8);
  EXPECT_EQ(cluster.nodes.size(), 8u + 2 + 2);
  EXPECT_EQ(cluster.links.size(), 2u * (8 + 4));
  EXPECT_EQ(gigabits(cluster, "host3", "tor0"), 100);
  EXPECT_EQ(gigabits(cluster, "host4", "tor0"), 0);
  EXPECT_EQ(gigabits(cluster, "spine1", "tor1"), 100);
  EXPECT_EQ(nanoseconds(cluster, "host0", "host1"), 2 * 1000 + 500) << "two links and a switch";
  EXPECT_EQ(nanoseconds(cluster, "host0", "host7"), 4 * 1000 + 3 * 500) << "four links and three switches";
}

TEST(ImportHtsim, ThreeTiersJoinEveryPodToTheCoresOfItsAggregationSwitches) {
  const std::string text =
      "nodes 16\ntiers 3\npodsize 4\n"
      "tier 0\ndownlink_speed_gbps 10\ndownlink_latency_ns 1\nradix_down 2\nradix_up 2\n"
      "tier 1\ndownlink_speed_gbps 10\ndownlink_latency_ns 1\nradix_down 2\nradix_up 4\nbundle 1\n"
      "tier 2\ndownlink_speed_gbps 5\ndownlink_latency_ns 1\nradix_down 8\nbundle 2\n";
  const Cluster cluster = formats::import_text(Format::htsim, text, "f");
  EXPECT_EQ(cluster.workers(), 16);
  EXPECT_EQ(cluster.nodes.size(), 16u + 8 + 8 + 4);
  for (const char* pod_agg : {"agg0", "agg2", "agg4", "agg6"}) {
    EXPECT_EQ(gigabits(cluster, pod_agg, "core0"), 10) << "a bundle of two links at 5 Gbit/s";
    EXPECT_EQ(gigabits(cluster, pod_agg, "core2"), 10);
    EXPECT_EQ(gigabits(cluster, pod_agg, "core1"), 0);
  }
  EXPECT_EQ(gigabits(cluster, "agg1", "core3"), 10);
}

TEST(ImportHtsim, SaysInWhichLineWhatDoesNotFit) {
  const auto about = [](const std::string& from, const std::string& to) {
    return complaint(Format::htsim, from, to);
  };
  EXPECT_THAT(about("Nodes 8", "Nodes eight"), HasSubstr("f:2: nodes: expected one number"));
  EXPECT_THAT(about("Nodes 8", "Nodes 8 9"), HasSubstr("f:2: nodes: expected one number"));
  EXPECT_THAT(about("Nodes 8\n", ""), HasSubstr("expected a line \"nodes\""));
  EXPECT_THAT(about("Tiers 2", "Tiers 4"), HasSubstr("f:3: tiers: expected an integer from 2 to 3"));
  EXPECT_THAT(about("Podsize 8", "Podsize 3"), HasSubstr("f:4: 8 nodes are not whole pods of 3"));
  EXPECT_THAT(about("Podsize 8", "Podsize 4"), HasSubstr("f:4: two tiers make one pod"));
  EXPECT_THAT(about("Podsize 8", "Queue 8"), HasSubstr("f:4: queue: expected Nodes, Tiers, Podsize or Tier"));
  EXPECT_THAT(about("Switch_Latency_ns 500", "Queue_Down 8"),
              HasSubstr("f:9: queue_down: expected Downlink"));
  EXPECT_THAT(about("Downlink_speed_Gbps 100", "Downlink_speed_Gbps 0"),
              HasSubstr("f:7: downlink_speed_gbps"));
  EXPECT_THAT(about("Downlink_speed_Gbps 100", "Downlink_speed_Gbps nan"),
              HasSubstr("f:7: downlink_speed_gbps"));
  EXPECT_THAT(about("Radix_Down 4\n", ""), HasSubstr("f:6: expected a line \"radix_down\" for tier 0"));
  EXPECT_THAT(about("Radix_Down 4", "Radix_Down 3"),
              HasSubstr("a pod of 8 hosts is not whole switches of 3"));
  EXPECT_THAT(about("Radix_Down 2", "Radix_Down 4"),
              HasSubstr("radix_down 4: expected 2 for the switches below"));
  EXPECT_THAT(about("Radix_Down 2", "Radix_Up 2\nRadix_Down 2"), HasSubstr("topmost switches"));
  EXPECT_THAT(about("Oversubscribed 2", "Oversubscribed 1"), HasSubstr("oversubscribed 1"));
  EXPECT_THAT(about("Radix_Up 2", "Radix_Up 2\nRadix_Up 2"), HasSubstr("f:12: radix_up is written twice"));
  EXPECT_THAT(about("Nodes 8", "Nodes 999999999"), HasSubstr("expected an integer from 1 to"));
}

TEST(ImportAstraSim, JoinsThoseThatDifferInOneCoordinate) {
  const Cluster cluster = formats::load_any(kClusters + "torus_switch.astra_sim.yml");
  EXPECT_EQ(cluster.workers(), 16);
  EXPECT_EQ(cluster.nodes.size(), 16u + 4);
  EXPECT_EQ(gigabits(cluster, "npu0", "npu1"), 640);
  EXPECT_EQ(gigabits(cluster, "npu0", "npu3"), 640) << "the ring closes";
  EXPECT_EQ(gigabits(cluster, "npu0", "npu2"), 0);
  EXPECT_EQ(gigabits(cluster, "npu3", "npu4"), 0) << "another ring";
  EXPECT_EQ(gigabits(cluster, "npu1", "switch1.1"), 200);
  EXPECT_EQ(gigabits(cluster, "switch1.1", "npu13"), 200);
  EXPECT_EQ(nanoseconds(cluster, "npu1", "npu13"), 3000);
}

TEST(ImportAstraSim, ARingOfTwoHasOneLinkAndAFullDimensionAll) {
  const Cluster cluster = formats::import_text(Format::astra_sim,
                                               "topology: [Ring, FullyConnected]\nnpus_count: [2, 3]\n"
                                               "bandwidth: [1, 2]\nlatency: [1, 1]\n",
                                               "f");
  EXPECT_EQ(gigabits(cluster, "npu0", "npu1"), 8);
  EXPECT_EQ(gigabits(cluster, "npu0", "npu2"), 16);
  EXPECT_EQ(gigabits(cluster, "npu0", "npu4"), 16);
  EXPECT_EQ(cluster.links.size(), 2u * 3 + 2u * 6);
}

TEST(ImportAstraSim, SaysInWhichLineWhatDoesNotFit) {
  const auto about = [](const std::string& from, const std::string& to) {
    return complaint(Format::astra_sim, from, to);
  };
  EXPECT_THAT(about("Ring", "Torus"), HasSubstr("f:2: topology[0]: expected Ring, FullyConnected or Switch"));
  EXPECT_THAT(about("[ 4, 4 ]", "[ 4 ]"), HasSubstr("f:3: npus_count: expected 2 values"));
  EXPECT_THAT(about("[ 4, 4 ]", "[ 4, -4 ]"), HasSubstr("f:3: npus_count[1]: expected an integer"));
  EXPECT_THAT(about("[ 4, 4 ]", "[ 100000, 100000 ]"), HasSubstr("this makes more than"));
  EXPECT_THAT(about("80.0", ".nan"), HasSubstr("f:4: bandwidth[0]: expected a number above 0"));
  EXPECT_THAT(about("80.0", "0"), HasSubstr("f:4: bandwidth[0]"));
  EXPECT_THAT(about("500.0", "-1"), HasSubstr("f:5: latency[0]"));
  EXPECT_THAT(about("latency", "loss"), HasSubstr("unknown key \"loss\""));
  EXPECT_THAT(about("[ Ring, Switch ]", "[ FullyConnected, FullyConnected ]"), HasSubstr("accepted"));
  EXPECT_THAT(
      complaint_about(Format::astra_sim,
                      "topology: [FullyConnected]\nnpus_count: [9999]\nbandwidth: [1]\nlatency: [1]\n"),
      HasSubstr("this makes more than 1048576 links"));
}

TEST(ImportTaccl, TwoBetasMakeTheGraphOfDgx1) {
  const Cluster cluster = formats::load_any(kClusters + "dgx1_1MB.taccl.json");
  EXPECT_EQ(cluster.workers(), 8);
  EXPECT_EQ(cluster.nodes.size(), 8u);
  EXPECT_EQ(cluster.links.size(), 32u) << "four neighbours each";
  EXPECT_NEAR(gigabits(cluster, "gpu0", "gpu1"), 400, 1e-9) << "1 MB in 20 us";
  EXPECT_NEAR(gigabits(cluster, "gpu0", "gpu2"), 200, 1e-9);
  EXPECT_EQ(gigabits(cluster, "gpu0", "gpu5"), 0);
  EXPECT_EQ(nanoseconds(cluster, "gpu0", "gpu1"), 700);
}

TEST(ImportTaccl, OneBetaMakesAStarAndMatricesMakeWhatTheySay) {
  const Cluster star =
      formats::import_text(Format::taccl,
                           R"({"name": "x", "chunk": "1KB", "scale": 100, "gpus_per_node": 3, "alpha": 30,
                                       "node_betas_list": [2], "node_invbws_list": [32]})",
                           "f");
  EXPECT_EQ(star.nodes.size(), 4u);
  EXPECT_NEAR(gigabits(star, "gpu2", "switch"), 400, 1e-9) << "1 KB in 2 us / 100";
  EXPECT_EQ(nanoseconds(star, "gpu0", "gpu2"), 300);
  const Cluster chain =
      formats::import_text(Format::taccl,
                           R"({"name": "x_1MB", "gpus_per_node": 2, "alpha": 1, "links": [[0, 1], [1, 0]],
                                        "betas": [[0, 10], [20, 0]], "invbws": [[0, 11], [21, 0]]})",
                           "f");
  EXPECT_NEAR(gigabits(chain, "gpu1", "gpu0"), 800, 1e-9) << "rows receive";
  EXPECT_NEAR(gigabits(chain, "gpu0", "gpu1"), 400, 1e-9);
}

TEST(ImportTaccl, SaysInWhichLineWhatDoesNotFit) {
  const auto about = [](const std::string& from, const std::string& to) {
    return complaint(Format::taccl, from, to);
  };
  EXPECT_THAT(about("DGX1_1MB", "DGX1"), HasSubstr("f:2: name: expected the chunk size"));
  EXPECT_THAT(about("[20, 40]", "[20, 40, 60]"), HasSubstr("f:6: node_betas_list: 3 betas for 8 GPUs"));
  EXPECT_THAT(about("[20, 40]", "[0, 40]"), HasSubstr("f:6: node_betas_list[0]: expected a number above 0"));
  EXPECT_THAT(about("\"gpus_per_node\": 8", "\"gpus_per_node\": 4"), HasSubstr("2 betas for 4 GPUs"));
  EXPECT_THAT(about("\"gpus_per_node\": 8", "\"gpus_per_node\": 0"), HasSubstr("f:3: gpus_per_node"));
  EXPECT_THAT(about("nics_per_node", "switches"), HasSubstr("f:4: unknown key \"switches\""));
  EXPECT_THAT(about("\"alpha\": 0.7,", ""), HasSubstr("expected a key \"alpha\""));
  EXPECT_THAT(about("\"remote_beta\": 80", "\"remote_beta\": \"fast\""), HasSubstr("f:9: remote_beta"));
  EXPECT_THAT(complaint_about(Format::taccl, R"({"name": "x_1MB", "gpus_per_node": 2, "alpha": 1,
                                  "links": [[0, 1], [0, 0]], "betas": [[0, 1], [1, 0]]})"),
              HasSubstr("and every collective needs it: expected a path of links"));
  EXPECT_THAT(complaint_about(Format::taccl, R"({"name": "x_1MB", "gpus_per_node": 2, "alpha": 1,
                                  "links": [[0, 1]], "betas": [[0, 1], [1, 0]]})"),
              HasSubstr("links: expected 2 rows"));
}

TEST(ImportAdapcc, GpusShareTheNicThatTheGraphNames) {
  const Cluster cluster = formats::load_any(kClusters + "two_servers.adapcc.xml");
  EXPECT_EQ(cluster.workers(), 4);
  EXPECT_EQ(cluster.nodes[3].name, "gpu3");
  EXPECT_EQ(gigabits(cluster, "gpu0", "nic0"), 100);
  EXPECT_EQ(gigabits(cluster, "nic1", "network"), 10);
  EXPECT_EQ(nanoseconds(cluster, "gpu0", "gpu1"), 2000);
  EXPECT_EQ(nanoseconds(cluster, "gpu0", "gpu2"), 52'000);
}

TEST(ImportAdapcc, SaysInWhichLineWhatDoesNotFit) {
  const auto about = [](const std::string& from, const std::string& to) {
    return complaint(Format::adapcc, from, to);
  };
  EXPECT_THAT(about("<gpu id=\"1\"/>", "<gpu id=\"0\"/>"), HasSubstr("is taken"));
  EXPECT_THAT(about("<gpu id=\"1\"/>", "<gpu/>"), HasSubstr("f:5: <gpu>: expected an attribute \"id\""));
  EXPECT_THAT(about("<gpu id=\"1\"/>", "<gpu id=\"x\"/>"), HasSubstr("f:5: <gpu>: id: expected an integer"));
  EXPECT_THAT(about("<gpu id=\"1\"/>", "<tpu id=\"1\"/>"), HasSubstr("f:5: <tpu>: not understood in <nic>"));
  EXPECT_THAT(complaint_about(Format::adapcc, "<graph/>"), HasSubstr("at least one node of kind worker"));
}

TEST(ImportNccl, ReadsNvlinksPcieSocketsAndNics) {
  const Cluster cluster = formats::load_any(kClusters + "four_gpus.nccl.xml");
  EXPECT_EQ(cluster.workers(), 4);
  EXPECT_EQ(gigabits(cluster, "gpu0", "gpu1"), 4 * 20 * 8) << "four NVLinks of an A100";
  EXPECT_EQ(gigabits(cluster, "gpu0", "gpu2"), 0);
  EXPECT_EQ(gigabits(cluster, "gpu0", "pci-0000:10:00.0"), 24 * 8) << "PCIe 4.0 x16";
  EXPECT_EQ(gigabits(cluster, "cpu0", "cpu1"), 16 * 8) << "AMD";
  EXPECT_EQ(gigabits(cluster, "nic-0000:93:00.0", "network"), 100);
  EXPECT_EQ(gigabits(cluster, "nic-0000:13:00.0", "pci-0000:10:00.0"), 24 * 8);
}

TEST(ImportNccl, AnNvswitchIsOneNodeAndASingleNicLeadsNowhere) {
  const std::string text = R"(<system version="1"><cpu numaid="0">
    <pci busid="a" class="0x030200"><gpu dev="0" sm="90" rank="1">
      <nvlink target="s" count="5" tclass="0x068000"/><nvlink target="t" count="4" tclass="0x068000"/></gpu></pci>
    <pci busid="b" class="0x030200"><gpu dev="1" sm="90" rank="0"><nvlink target="s" count="9" tclass="0x068000"/>
      <nvlink target="missing" count="1" tclass="0x030200"/></gpu></pci>
    <pci busid="c" class="0x020000"><nic><net name="n" speed="400000"/></nic></pci></cpu></system>)";
  const Cluster cluster = formats::import_text(Format::nccl, text, "f");
  ASSERT_EQ(cluster.nodes.size(), 4u) << to_yaml(cluster);
  EXPECT_EQ(cluster.nodes[0].name, "gpu0");
  EXPECT_NEAR(gigabits(cluster, "gpu1", "nvswitch"), 9 * 20.6 * 8, 1e-9);
  EXPECT_NEAR(gigabits(cluster, "gpu0", "nvswitch"), 9 * 20.6 * 8, 1e-9);
  EXPECT_EQ(gigabits(cluster, "gpu0", "cpu0"), 12 * 8) << "PCIe 3.0 x16 where nothing is said";
}

TEST(ImportNccl, SaysInWhichLineWhatDoesNotFit) {
  const auto about = [](const std::string& from, const std::string& to) {
    return complaint(Format::nccl, from, to);
  };
  EXPECT_THAT(about("tclass=\"0x030200\"", "tclass=\"0x060400\""), HasSubstr("f:6: <nvlink>: tclass"));
  EXPECT_THAT(about("16.0 GT/s PCIe", "17 GT/s"), HasSubstr("f:3: <pci>: link_speed"));
  EXPECT_THAT(about("link_width=\"16\"", "link_width=\"-1\""), HasSubstr("f:3: <pci>: link_width"));
  EXPECT_THAT(about("count=\"4\"", "count=\"0\""), HasSubstr("f:6: <nvlink>: count"));
  EXPECT_THAT(about("rank=\"1\"", "rank=\"0\""), HasSubstr("\"gpu0\" is taken"));
  EXPECT_THAT(about("nvlink", "xgmi"),
              HasSubstr("f:6: <xgmi>: not understood in <gpu>: expected <nvlink>, <c2c>"));
  EXPECT_THAT(about("speed=\"100000\"", "speed=\"-5\""), HasSubstr("<net>: speed"));
  EXPECT_THAT(about("busid=\"0000:11:00.0\"", "busid=\"0000:12:00.0\""),
              HasSubstr("busid: expected another one"));
  EXPECT_THAT(about("busid=\"0000:11:00.0\"", "busid=\"ÿ:1\""),
              HasSubstr("f:4: <pci>: busid: expected one such"));
  EXPECT_THAT(complaint_about(Format::nccl, "<system/>"), HasSubstr("at least one <gpu>"));
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 100; ++i) deep += "<pci busid='x'>";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  EXPECT_THAT(complaint_about(Format::nccl, deep + "</cpu></system>"),
              HasSubstr("bridges behind each other"));
}

}  // namespace
}  // namespace talweg::formats
