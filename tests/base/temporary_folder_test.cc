#include "base/temporary_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace talweg {
namespace {

TEST(TemporaryFolder, IsTheOneThatIsNamedIfItIsThere) {
  const char* const before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", "/proc/self", 1);
  EXPECT_EQ(temporary_folder(), "/proc/self");
  for (const char* none : {"/nowhere/at/all", "/proc/self/stat"}) {
    setenv("TMPDIR", none, 1);
    EXPECT_EQ(temporary_folder(), "/tmp") << none;
  }
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace talweg
