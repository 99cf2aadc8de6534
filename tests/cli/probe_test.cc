#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "cluster/cluster.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

class ProbeProgram : public testing::Test {
 protected:
  ProbeProgram() {
    char name[] = "/tmp/talweg-probe-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ProbeProgram() override { std::filesystem::remove_all(folder_); }

  // Ranks that do not share memory count as hosts.
  Outcome probe(int ranks, std::vector<std::string> arguments, const std::string& shm = "0") {
    std::vector<std::string> line = {
        "run",          "-n",   std::to_string(ranks), "--no-tag-output", "--timeout", "100s", "--",
        TALWEG_PROGRAM, "probe"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    return talweg(line, {"TALWEG_SHM=" + shm});
  }

  std::string folder_;
};

TEST_F(ProbeProgram, WritesAClusterFileThatTellsWhatTheTableTells) {
  const std::string file = folder_ + "/cluster.yaml";
  const auto outcome = probe(3, {"-o", file, "--budget", "100ms", "--confidence", "0.5"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const auto network = cluster::load_cluster(file);
  EXPECT_EQ(network.workers(), 3);
  EXPECT_FALSE(network.measured.empty());
  EXPECT_GT(network.confidence, 0);
  EXPECT_THAT(outcome.out, HasSubstr("# 3 ranks on 3 hosts: "));
  EXPECT_THAT(outcome.out, HasSubstr("# traffic: at most 64 MiB from a host in one measurement"));
  EXPECT_THAT(outcome.out, HasSubstr("rates are sure to "));
  EXPECT_THAT(outcome.out, HasSubstr("TALWEG_CLUSTER=" + file));
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  const auto use = talweg({"info", "all_reduce", "--cluster", file});
  EXPECT_EQ(use.exit_code, 0) << use.err;
}

// Of which one has a name that could steer a terminal.
TEST_F(ProbeProgram, SaysThatAggregatorsAreNotProbed) {
  const std::string known = folder_ + "/known.yaml";
  const auto outcome =
      shell("sed 's/\\bagg\\b/\"agg\\\\e[2J\"/g' " TALWEG_SOURCE_DIR "/examples/clusters/aggregator4.yaml >" +
            known + "; TALWEG_SHM=0 TALWEG_CLUSTER=" + known +
            " \"$TALWEG\" run -n 4 --timeout 100s -- \"$TALWEG\" probe --budget 100ms --confidence 0.5");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.out,
      HasSubstr("aggregators are not probed: agg\\x1b[2J and its links are to be added by hand, as in " +
                known));
}

TEST_F(ProbeProgram, JsonOnStandardOutputIsAllThatIsThere) {
  const auto outcome = probe(2, {"--json", "--budget", "100ms", "--confidence", "0.5"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["format"], "talweg probe");
  EXPECT_EQ(document["hosts"].size(), 2u);
  EXPECT_GT(document["hosts"][0]["up"]["bit_per_s"], 0);
  EXPECT_GT(document["traffic_bytes"], 0);
  EXPECT_EQ(cluster::parse_cluster(document["cluster"].dump(), "json").workers(), 2);
  EXPECT_THAT(outcome.err, HasSubstr("rates are sure to "));
}

TEST_F(ProbeProgram, WithoutANetworkItSaysSo) {
  const auto alone = talweg({"probe"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err,
              HasSubstr("there is one rank: a network is measured between ranks on several hosts"));
  const auto together = probe(2, {}, "1");
  EXPECT_EQ(together.exit_code, 2);
  EXPECT_THAT(together.err, HasSubstr("all 2 ranks are on one host, "));
}

TEST_F(ProbeProgram, AFileThatCannotBeWrittenIsToldBeforeAnythingIsMeasured) {
  for (const std::string& file : {folder_ + "/none/cluster.yaml", folder_}) {
    const auto outcome = probe(2, {"-o", file});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("-o: cannot write " + file));
    EXPECT_EQ(outcome.out.find("measurements"), std::string::npos);
  }
}

TEST_F(ProbeProgram, AFailureLeavesAnOlderFileAlone) {
  const std::string file = folder_ + "/cluster.yaml";
  EXPECT_EQ(shell("echo old >" + file).exit_code, 0);
  EXPECT_EQ(probe(2, {"-o", file}, "1").exit_code, 2);
  EXPECT_EQ(shell("cat " + file).out, "old\n");
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
}

TEST_F(ProbeProgram, WrongValuesAreUsageErrors) {
  for (const char* wrong : {"0", "1", "2", "-0.1", "much"})
    EXPECT_EQ(probe(2, {"--confidence", wrong}).exit_code, 2) << wrong;
  EXPECT_EQ(probe(2, {"--budget", "soon"}).exit_code, 2);
}

}  // namespace
}  // namespace talweg::cli
