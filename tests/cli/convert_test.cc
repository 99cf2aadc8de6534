#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

const std::string kClusters = std::string(TALWEG_SOURCE_DIR) + "/examples/clusters/";

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("talweg-convert-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const {
    std::ifstream in(file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Convert, EveryFormatBecomesAClusterFileThatIsReadBackTheSame) {
  for (const char* name : {"uneven4.yaml", "four_gpus.nccl.xml", "dgx1_1MB.taccl.json",
                           "two_servers.adapcc.xml", "torus_switch.astra_sim.yml", "rack8.topo"}) {
    SCOPED_TRACE(name);
    const Outcome first = talweg({"convert", kClusters + name, file("a.yaml")});
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(talweg({"convert", file("a.yaml"), file("a.json")}).exit_code, 0);
    const Outcome again = talweg({"convert", file("a.json"), "-", "--to", "yaml"});
    EXPECT_EQ(again.out, text("a.yaml"));
    const Outcome info = talweg({"info", "all_reduce", "--cluster", kClusters + name});
    EXPECT_EQ(info.exit_code, 0) << info.err;
    EXPECT_THAT(talweg({"convert", kClusters + name, "-", "--to", "dot"}).out,
                HasSubstr("digraph cluster {"));
  }
}

TEST_F(Convert, NeverWritesOverWhatItReads) {
  std::filesystem::copy_file(kClusters + "uneven4.yaml", file("a.yaml"));
  std::filesystem::create_symlink(file("a.yaml"), file("link.yaml"));
  const std::string before = text("a.yaml");
  for (const char* out : {"a.yaml", "./a.yaml", "link.yaml"}) {
    const Outcome outcome = talweg({"convert", file("a.yaml"), file(out)});
    EXPECT_EQ(outcome.exit_code, 2) << out;
    EXPECT_EQ(outcome.err, "talweg convert: " + file(out) +
                               ": it would be written over the file that is read; give another name\n");
    EXPECT_EQ(text("a.yaml"), before) << out;
  }
  EXPECT_EQ(talweg({"convert", file("a.yaml"), file("b.yaml")}).exit_code, 0);
  EXPECT_EQ(talweg({"convert", file("a.yaml"), file("b.yaml")}).exit_code, 0) << "other files are replaced";
}

TEST_F(Convert, PlansOnANetworkAndWritesTheForestForMsccl) {
  const std::string topo = kClusters + "four_gpus.nccl.xml";
  const Outcome yaml = talweg({"convert", topo, file("f.yaml"), "--op", "all_reduce", "--algo", "ring"});
  EXPECT_EQ(yaml.exit_code, 0) << yaml.err;
  EXPECT_EQ(talweg({"convert", file("f.yaml"), file("f.xml")}).exit_code, 0);
  EXPECT_THAT(text("f.xml"), HasSubstr("<algo name=\"ring-allreduce\""));
  EXPECT_THAT(text("f.xml"), HasSubstr("ngpus=\"4\" coll=\"allreduce\""));
  const Outcome direct =
      talweg({"convert", topo, "-", "--to", "msccl", "--op", "all_reduce", "--algo", "ring"});
  EXPECT_EQ(direct.out, text("f.xml"));
  EXPECT_THAT(talweg({"convert", file("f.yaml"), "-", "--to", "dot"}).out, HasSubstr("digraph forest {"));
}

TEST_F(Convert, WhatCannotBeIsRefusedInOneLine) {
  const auto about = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = talweg(arguments);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    return outcome.err;
  };
  const std::string topo = kClusters + "rack8.topo";
  EXPECT_THAT(about({"convert", topo, "-"}), HasSubstr("which format?"));
  EXPECT_THAT(talweg({"convert", "--help"}).out, HasSubstr("- for standard output, which needs --to"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "--op", "all_reduce", "--bytes", "3"}),
              HasSubstr("--bytes: 3 B is less than one element of float (4 B)"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "--op", "all_gather", "--bytes", "4"}),
              HasSubstr("--bytes: 4 B is less than one element of float (4 B) for each of "));
  EXPECT_THAT(about({"convert", topo, file("x.xml")}), HasSubstr("give --op"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "--algo", "ring"}), HasSubstr("--algo: it needs --op"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "-b", "64M"}), HasSubstr("--bytes: it needs --op"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "--op", "all_reduce", "--root", "1"}),
              HasSubstr("--root 1: all_reduce has no root"));
  EXPECT_THAT(about({"convert", topo, file("x.yaml"), "--op", "reduce", "--root", "99"}),
              HasSubstr("--root 99: there are "));
  const std::string forest = file("f.yaml");
  EXPECT_EQ(talweg({"convert", topo, forest, "--op", "broadcast", "--root", "2"}).exit_code, 0);
  EXPECT_THAT(text("f.yaml"), HasSubstr("\"root\":2"));
  EXPECT_THAT(about({"convert", forest, "-", "--to", "dot", "--algo", "ring"}),
              HasSubstr("f.yaml is a forest, planned already"));
  EXPECT_THAT(about({"convert", file("none"), file("x.yaml")}), HasSubstr("cannot read it"));
  EXPECT_THAT(about({"convert", topo, "/nowhere/x.yaml"}), HasSubstr("cannot write /nowhere/x.yaml"));
  EXPECT_THAT(about({"convert", topo, "-", "--to", "yaml", "--from", "nccl"}),
              HasSubstr("expected XML: No document element"));
  EXPECT_THAT(about({"convert", topo, "-", "--to", "msccl", "--op", "all_to_all"}), HasSubstr("all_to_all"));
}

}  // namespace
}  // namespace talweg::cli
