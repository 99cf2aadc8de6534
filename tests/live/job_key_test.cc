#include "live/join/job_key.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "talweg/error.h"

namespace talweg::live {
namespace {

using ::testing::HasSubstr;

class TheJobKey : public ::testing::Test {
 protected:
  TheJobKey() {
    ::unsetenv("TALWEG_KEY");
    ::unsetenv("TALWEG_KEY_FILE");
    char name[] = "/tmp/talweg-key-XXXXXX";
    ::close(::mkstemp(name));
    path = name;
  }
  ~TheJobKey() override {
    ::unsetenv("TALWEG_KEY");
    ::unsetenv("TALWEG_KEY_FILE");
    std::filesystem::remove(path);
  }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  static std::string complaint() {
    try {
      find_job_key();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      return e.what();
    }
    return "no complaint";
  }
  std::string path;
};

TEST_F(TheJobKey, ComesFromTheFileOrElseFromTheEnvironment) {
  EXPECT_FALSE(find_job_key());
  ::setenv("TALWEG_KEY", "the key of the environment", 1);
  EXPECT_EQ(find_job_key()->text, "the key of the environment");
  ::setenv("TALWEG_KEY_FILE", path.c_str(), 1);
  write("  the key of the file\n");
  EXPECT_EQ(find_job_key()->text, "the key of the file");
  EXPECT_THAT(find_job_key()->origin, HasSubstr(path));
}

TEST_F(TheJobKey, IsNotTakenFromAFileThatOthersMayTouch) {
  ::setenv("TALWEG_KEY_FILE", path.c_str(), 1);
  write("the key of the file");
  for (const unsigned mode : {0640U, 0604U, 0620U, 0602U, 0601U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(complaint(), HasSubstr("chmod 600 " + path)) << mode;
  }
  ASSERT_EQ(::chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(find_job_key());
}

TEST_F(TheJobKey, ThatIsTooShortOrNotThereIsRefused) {
  ::setenv("TALWEG_KEY", "fifteen letters", 1);
  EXPECT_THAT(complaint(), HasSubstr("at least 16 characters"));
  EXPECT_THAT(complaint(), ::testing::Not(HasSubstr("fifteen letters"))) << "errors end up in logs";
  ::setenv("TALWEG_KEY_FILE", path.c_str(), 1);
  EXPECT_THAT(complaint(), HasSubstr("at least 16 characters")) << "an empty file does not mean: no key";
  ::setenv("TALWEG_KEY_FILE", "/no/such/file", 1);
  EXPECT_THAT(complaint(), HasSubstr("/no/such/file"));
  ::setenv("TALWEG_KEY_FILE", "/tmp", 1);
  EXPECT_THAT(complaint(), HasSubstr("expected a file"));
}

}  // namespace
}  // namespace talweg::live
