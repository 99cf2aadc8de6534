#include "text/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "small_files.h"
#include "talweg/error.h"

namespace talweg::text {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    std::string name = testing::TempDir() + "output_file_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(OutputFileTest, IsThereWhenItIsWrittenAndNotBefore) {
  const OutputFile file("--json", path("a.json"));
  EXPECT_EQ(files(), 0);
  file.write("text");
  EXPECT_EQ(content(path("a.json")), "text");
  EXPECT_EQ(files(), 1);  // no draft is left
}

TEST_F(OutputFileTest, KeepsWhatWasThereUntilThen) {
  std::ofstream(path("a")) << "old";
  const OutputFile file("-o", path("a"));
  EXPECT_EQ(content(path("a")), "old");
  file.write("new");
  EXPECT_EQ(content(path("a")), "new");
}

TEST_F(OutputFileTest, ALinkStaysALink) {
  std::ofstream(path("real")) << "old";
  fs::create_symlink(path("real"), path("link"));
  OutputFile("-o", path("link")).write("new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("real")), "new");
}

TEST_F(OutputFileTest, ALinkThatLeadsNowhereIsRefusedAndStays) {
  fs::create_symlink(path("nothing"), path("link"));
  EXPECT_THROW(OutputFile("-o", path("link")), Error);
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, ADeviceIsWrittenToAndStays) {
  OutputFile("-o", "/dev/null").write("text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(OutputFile("-o", "/dev/full").write("text"), Error);
}

TEST_F(OutputFileTest, APipeIsWrittenToAndNotWaitedForBefore) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const OutputFile file("-o", path("pipe"));  // nobody reads yet
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  file.write("text");
  char got[8];
  EXPECT_EQ(read(reader, got, sizeof got), 4);
  EXPECT_EQ(std::string(got, 4), "text");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, SaysThatAPipeWaitsForWhoeverIsToReadIt) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const auto said_of = [&](const std::string& name) {
    testing::internal::CaptureStderr();
    const PipeOpening opening("--json", path(name));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of("pipe"), "talweg: --json: waiting for somebody to read " + path("pipe") + "\n");
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(said_of("pipe"), "");
  close(reader);
  EXPECT_EQ(said_of("file"), "");
}

// As in a folder in which nothing may be made.
TEST_F(OutputFileTest, AFileBesideWhichNoDraftCanBeIsWrittenInPlace) {
  const std::string longest = path(std::string(255, 'a'));
  const OutputFile file("-o", longest);
  file.write("text");
  EXPECT_EQ(content(longest), "text");
  EXPECT_THROW(file.write([](std::ostream&) { throw Error(ErrorCode::bad_file, "no more"); }), Error);
  EXPECT_EQ(files(), 1);
}

// Whoever can guess a draft's name has nothing from it.
TEST_F(OutputFileTest, ADraftIsNotWrittenThroughALinkThatIsThere) {
  std::ofstream(path("precious")) << "kept";
  fs::create_symlink(path("precious"), path("a") + "." + std::to_string(getpid()) + ".part");
  OutputFile("-o", path("a")).write("text");
  EXPECT_EQ(content(path("a")), "text");
  EXPECT_FALSE(fs::is_symlink(path("a")));
  EXPECT_EQ(content(path("precious")), "kept");
}

TEST_F(OutputFileTest, WhatIsCutOrGivenUpReplacesNothing) {
  std::ofstream(path("a")) << "old";
  const OutputFile file("-o", path("a"));
  {
    const SmallFiles only(1000);
    EXPECT_THROW(file.write(std::string(100'000, 'x')), Error);
  }
  EXPECT_EQ(files(), 1);
  EXPECT_THROW(file.write([](std::ostream& out) {
    out << "half";
    throw Error(ErrorCode::bad_file, "no more");
  }),
               Error);
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsToldBefore) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {path("no/such"), "No such file or directory"}, {folder_.string(), "it is a directory"}};
  for (const auto& [bad, why] : all) {
    try {
      const OutputFile file("--csv", bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.what(), "--csv: cannot write " + bad + ": " + why);
    }
  }
  const OutputFile none("--csv", "");
  EXPECT_FALSE(none.wanted());
  none.write("nothing");
}

TEST_F(OutputFileTest, TwoOutputsOrAnInputCannotBeOneFile) {
  std::ofstream(path("in")) << "x";
  EXPECT_THROW(check_outputs({path("in")}, {path("in")}), Error);
  EXPECT_THROW(check_outputs({path("o"), folder_.string() + "/./o"}, {}), Error);
  fs::create_symlink(path("in"), path("link"));
  fs::create_hard_link(path("in"), path("same"));
  for (const char* const name : {"link", "same"}) {
    EXPECT_THROW(check_outputs({path(name)}, {path("in")}), Error) << name;
    EXPECT_THROW(check_outputs({path("in"), path("o"), path(name)}, {}), Error) << name;
  }
  check_outputs({"-", "-", "", "/dev/null", "/dev/null"}, {path("in")});
}

}  // namespace
}  // namespace talweg::text
