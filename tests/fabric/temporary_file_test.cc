#include "fabric/temporary_file.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>

#include "fabric/launch_fixture.h"
#include "talweg/error.h"
#include "text/small_files.h"

namespace talweg::fabric {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::StartsWith;

class TemporaryFiles : public InScratchFolder {
 protected:
  TemporaryFiles() {
    if (const char* const before = getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", path("").c_str(), 1);
  }
  ~TemporaryFiles() override {
    if (before_)
      setenv("TMPDIR", before_->c_str(), 1);
    else
      unsetenv("TMPDIR");
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(path("")), {}); }
  static std::string failure_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::system);
      return error.what();
    }
    return "";
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(TemporaryFiles, AreThereForAllToReadAsLongAsTheObjectIs) {
  {
    const TemporaryFile one(".yaml", "a\nb"), other(".yaml", "c");
    EXPECT_TRUE(fs::path(one.path()).is_absolute());
    EXPECT_THAT(one.path(), StartsWith(path("")));
    EXPECT_THAT(one.path(), EndsWith(".yaml"));
    EXPECT_EQ(read(fs::path(one.path()).filename()), "a\nb");
    EXPECT_EQ(read(fs::path(other.path()).filename()), "c");
    EXPECT_EQ(fs::status(one.path()).permissions(), fs::perms{0644});
    const TemporaryFile secret(".key", "d", TemporaryFile::For::owner);
    EXPECT_EQ(fs::status(secret.path()).permissions(), fs::perms{0600});
    EXPECT_EQ(read(fs::path(secret.path()).filename()), "d");
    EXPECT_EQ(files(), 3);
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(TemporaryFiles, ThatCannotBeWrittenSayWhyAndAreNotLeftBehind) {
  const std::string cut = failure_of([] {
    const text::SmallFiles only(10);
    TemporaryFile(".yaml", std::string(100, 'x'));
  });
  EXPECT_THAT(cut, StartsWith("cannot write the file " + path("talweg-")));
  EXPECT_THAT(cut, EndsWith(": No space left on device"));
  EXPECT_EQ(files(), 0);
}

TEST_F(TemporaryFiles, AreInTmpWhereTheFolderForThemIsNone) {
  setenv("TMPDIR", path("none").c_str(), 1);
  const TemporaryFile file(".yaml", "a");
  EXPECT_THAT(file.path(), StartsWith("/tmp/talweg-"));
  EXPECT_TRUE(fs::exists(file.path()));
}

}  // namespace
}  // namespace talweg::fabric
