#include "base/input_file.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/child_process.h"
#include "talweg/error.h"

namespace talweg {
namespace {

class InputFile : public testing::Test {
 protected:
  InputFile() {
    std::string name = testing::TempDir() + "input_file_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~InputFile() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ + "/" + name; }
  static std::string complaint(const std::string& path, std::size_t most = 1 << 10) {
    try {
      read_input(path, "it", most);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file);
      return error.what();
    }
    return "no complaint";
  }

  std::string folder_;
};

TEST_F(InputFile, IsReadWhole) {
  const std::string text(100'000, 'x');
  std::ofstream(path("a")) << text;
  EXPECT_EQ(read_input(path("a"), "a", 1 << 20), text);
  EXPECT_EQ(read_input("/dev/null", "null", 10), "");
}

TEST_F(InputFile, WithoutANameIsNoFile) {
  try {
    read_input("", "", 100);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "expected the name of a file, got an empty one");
  }
}

TEST_F(InputFile, IsReadFromAPipeToItsEnd) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  ChildProcess writer("write", [this] {
    std::ofstream pipe(path("pipe"));
    pipe << "one " << std::flush;
    usleep(1'200'000);  // longer than one look
    pipe << "two";
  });
  EXPECT_EQ(read_input(path("pipe"), "pipe", 10), "one two");
  writer.wait();
}

TEST_F(InputFile, ThatIsAPipeNobodyWritesIntoIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint(path("pipe")), "it: expected a file, got a pipe that nobody writes into");
}

TEST_F(InputFile, ThatNeverEndsIsReadUpToTheLimit) {
  EXPECT_EQ(complaint("/dev/zero"), "it: expected a file of at most 1 KiB");
}

TEST_F(InputFile, ThatIsNoneSaysWhatItIs) {
  EXPECT_EQ(complaint(folder_), "it: expected a file, got a directory");
  EXPECT_EQ(complaint(path("none")), "it: cannot read it: No such file or directory");
}

}  // namespace
}  // namespace talweg
