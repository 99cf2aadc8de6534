#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/traces/protobuf_writer.h"
#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using testing::HasSubstr;

using ChakraImport = TraceFolder;

struct ChakraSample {
  std::string name;
  std::uint64_t type = 4, begin = 0, duration = 0;  // us
  std::int64_t collective = -1;
  std::uint64_t bytes = 0;
  bool of_host = false;
  std::vector<std::uint64_t> after{};  // ids, which count from 1
};

ProtobufWriter attribute(const char* name, std::uint32_t field, std::uint64_t value) {
  return ProtobufWriter().bytes(1, name).number(field, value);
}

std::string chakra_text(const std::vector<ChakraSample>& nodes) {
  ProtobufWriter file;
  file.delimited(ProtobufWriter().bytes(1, "0.0.4"));
  std::uint64_t id = 0;
  for (const ChakraSample& n : nodes) {
    ProtobufWriter node;
    ++id;
    node.number(1, id)
        .bytes(2, n.name)
        .number(3, n.type)
        .number(4, id - 1)
        .number(6, n.begin)
        .number(7, n.duration);
    for (const std::uint64_t before : n.after) node.number(5, before);
    node.message(10, attribute("is_cpu_op", 27, n.of_host ? 1 : 0));
    if (n.collective >= 0)
      node.message(10, attribute("comm_type", 9, static_cast<std::uint64_t>(n.collective)))
          .message(10, attribute("comm_size", 13, n.bytes));
    file.delimited(node);
  }
  return file.text();
}

const std::vector<ChakraSample> kNodes = {{"forward_conv", 4, 10, 100},
                                          {"host", 4, 5, 900, -1, 0, true},
                                          {"ConvolutionBackward0", 4, 120, 30},
                                          {"AddBackward0", 4, 150, 20},
                                          {"nccl:all_reduce", 7, 170, 55, 0, 4096},
                                          {"MulBackward0", 4, 175, 40},
                                          {"nccl:all_reduce", 7, 230, 60, 0, 1024},
                                          {"update", 4, 300, 7}};

TEST_F(ChakraImport, TakesWhatIsComputedBetweenTransfersAsLayers) {
  auto later = kNodes;
  later[4].duration = 35;  // it came last
  const std::vector<std::string> paths = {file("a.et", chakra_text(kNodes)),
                                          file("b.et.gz", gzipped(chakra_text(later)))};
  const Job job = read_job(paths).job;
  ASSERT_EQ(job.layers.size(), 4U);
  EXPECT_EQ(job.layers[0], (Layer{.name = "forward", .forward = {100'000}}));
  EXPECT_EQ(job.layers[1], (Layer{.name = "rest", .backward = {7000}}));
  EXPECT_EQ(job.layers[2], (Layer{.name = "run2", .backward = {40'000}, .gradient = {1024}}));
  EXPECT_EQ(job.layers[3], (Layer{.name = "run1", .backward = {50'000}, .gradient = {4096}}));
  ASSERT_EQ(job.exchanges.size(), 2U);
  EXPECT_EQ(job.exchanges[0], (Exchange{Collective::all_reduce, {3}, {4096}, {35'000}, {10'000}}));
  EXPECT_EQ(job.exchanges[1], (Exchange{Collective::all_reduce, {2}, {1024}, {60'000}, {}}));
}

TEST_F(ChakraImport, OfTransfersUnderWayTogetherEachCountsFromTheEndOfTheOneBeforeIt) {
  auto nodes = kNodes;
  nodes[4].duration = 100;  // until 270, while the second begins at 230 and ends at 290
  Job job = read_job({file("a.et", chakra_text(nodes))}).job;
  ASSERT_EQ(job.exchanges.size(), 2U);
  EXPECT_EQ(job.exchanges[0].time.value, 100'000);
  EXPECT_EQ(job.exchanges[1].time.value, 20'000);
  EXPECT_EQ(job.in_flight, 2);
  // Also where they do so on one rank alone.
  std::vector<ChakraSample> apart(nodes.begin(), nodes.end());
  for (ChakraSample& n : apart) n.begin = 0;
  EXPECT_EQ(
      read_job({file("apart.et", chakra_text(apart)), file("together.et", chakra_text(nodes))}).job.in_flight,
      2);
  // One around another: what ends first has its time first.
  nodes[4].duration = 200;  // until 370
  job = read_job({file("b.et", chakra_text(nodes))}).job;
  EXPECT_EQ(job.exchanges[0].time.value, 80'000);
  EXPECT_EQ(job.exchanges[1].time.value, 60'000);
  // Where some have no begin, none is known to overlap another.
  std::vector<ChakraSample> half(nodes.begin(), nodes.end());
  half[4].begin = 0;
  job = read_job({file("d.et", chakra_text(half))}).job;
  EXPECT_EQ(job.exchanges[0].time.value, 200'000);
  EXPECT_EQ(job.in_flight, 1);
  // Without begins nothing says that one was under way while another was.
  for (ChakraSample& n : nodes) n.begin = 0;
  job = read_job({file("c.et", chakra_text(nodes))}).job;
  EXPECT_EQ(job.exchanges[0].time.value, 200'000);
  EXPECT_EQ(job.exchanges[1].time.value, 60'000);
  EXPECT_EQ(job.in_flight, 1);
}

TEST_F(ChakraImport, RefusesWhatIsCutWhereverThatIs) {
  const std::string text = chakra_text(kNodes);
  std::size_t whole = 0;
  for (std::size_t end = 8; end < text.size(); end += 7) {
    const std::string said = refusal_of("cut.et", text.substr(0, end));
    if (said.empty() || said.find("expected nodes") != std::string::npos) {
      ++whole;  // between two messages
    } else {
      EXPECT_THAT(said, HasSubstr("byte")) << end;
    }
  }
  EXPECT_LE(whole, kNodes.size());
}

TEST_F(ChakraImport, RefusesWhatCannotBe) {
  auto nodes = kNodes;
  nodes[4].collective = 17;
  EXPECT_THAT(refusal_of("a.et", chakra_text(nodes)), HasSubstr("comm_type: expected 0 to 9, got 17"));
  nodes = kNodes;
  nodes[4].bytes = std::uint64_t{1} << 63;
  EXPECT_THAT(refusal_of("b.et", chakra_text(nodes)), HasSubstr("comm_size: expected 0 to"));
  nodes = kNodes;
  nodes[0].duration = std::uint64_t{1} << 62;
  EXPECT_THAT(refusal_of("c.et", chakra_text(nodes)),
              HasSubstr("expected a duration of at least 0 and at most an hour"));
  nodes[0].duration = static_cast<std::uint64_t>(-5);
  EXPECT_THAT(refusal_of("n.et", chakra_text(nodes)), HasSubstr("at least 0 and at most an hour, got -5 us"));
  nodes = kNodes;
  nodes[4].begin = std::uint64_t{1} << 63;
  EXPECT_THAT(refusal_of("l.et", chakra_text(nodes)), HasSubstr("node 5: expected a start of at most"));
  nodes = kNodes;
  nodes[6].bytes = 2048;
  EXPECT_THAT(refusal({file("d.et", chakra_text(kNodes)), file("e.et", chakra_text(nodes))}),
              HasSubstr("e.et: not of the run of d.et"));
}

TEST_F(ChakraImport, RefusesOneRankTwice) {
  const std::string path = file("a.et", chakra_text(kNodes)), copy = file("b.et", chakra_text(kNodes));
  EXPECT_THAT(refusal({path, path}),
              HasSubstr("a.et: is of the same rank as a.et: expected one file for each"));
  EXPECT_THAT(refusal({path, copy}), HasSubstr("b.et: is of the same rank as a.et"));
  // What nobody measured may be the same for all ranks.
  auto made_up = kNodes;
  for (ChakraSample& n : made_up) n.begin = 0;
  EXPECT_EQ(refusal({file("c.et", chakra_text(made_up)), file("d.et", chakra_text(made_up))}), "");
}

// 64 MiB of them fit into a few kilobytes of gzip.
TEST_F(ChakraImport, RefusesMessagesOfNothing) {
  EXPECT_THAT(refusal_of("a.et", chakra_text({}) + std::string(8, '\0')),
              HasSubstr("a.et: byte 9: expected a node, got a message of no bytes"));
}

TEST_F(ChakraImport, RefusesDependenciesThatCannotBe) {
  auto nodes = kNodes;
  nodes[2].after = {1, 1};
  nodes[6].after = {3};
  nodes[3].after = {7};  // which comes behind it
  const std::string text = chakra_text(nodes);
  EXPECT_EQ(refusal_of("good.et", text), "");
  nodes[0].after = {4};
  EXPECT_THAT(refusal_of("a.et", chakra_text(nodes)),
              HasSubstr("a.et: node 1 waits for itself, perhaps through"));
  nodes[0].after = {1};
  EXPECT_THAT(refusal_of("b.et", chakra_text(nodes)), HasSubstr("b.et: node 1 waits for itself"));
  nodes[0].after = {99};
  EXPECT_THAT(refusal_of("c.et", chakra_text(nodes)),
              HasSubstr("c.et: node 1 waits for node 99, which is not there"));
  const std::string again = chakra_text({kNodes[0]});
  EXPECT_THAT(refusal_of("d.et", text + again.substr(static_cast<std::size_t>(again[0]) + 1)),
              HasSubstr("d.et: node 1 is there twice"));
}

}  // namespace
}  // namespace talweg::train
