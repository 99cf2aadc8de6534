#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace talweg {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Log, PutsProcessRankLevelAndSubsystemBeforeTheText) {
  const std::string line = Logger(2, LogLevel::warn).line(LogLevel::warn, "live", "rank 1 is slow");
  EXPECT_THAT(line, StartsWith("talweg: "));
  EXPECT_THAT(line, EndsWith(fmt::format(":{} [2] WARN live: rank 1 is slow\n", getpid())));
}

TEST(Log, LeavesTheRankOutWhileItIsUnknown) {
  EXPECT_THAT(Logger(-1, LogLevel::warn).line(LogLevel::info, "group", "x"),
              EndsWith(fmt::format(":{} INFO group: x\n", getpid())));
}

TEST(Log, KeepsATextOfSeveralLinesOnOne) {
  EXPECT_THAT(Logger(0, LogLevel::warn).line(LogLevel::warn, "live", "a\nb"), EndsWith("live: a b\n"));
}

TEST(Log, ShowsItsLevelAndWhatIsMoreUrgent) {
  const Logger logger(0, LogLevel::info);
  EXPECT_TRUE(logger.shows(LogLevel::version));
  EXPECT_TRUE(logger.shows(LogLevel::warn));
  EXPECT_TRUE(logger.shows(LogLevel::info));
  EXPECT_FALSE(logger.shows(LogLevel::trace));
  EXPECT_FALSE(Logger(0, LogLevel::none).shows(LogLevel::version));
}

TEST(Log, WritesToStandardErrorOnlyWhatItShows) {
  testing::internal::CaptureStderr();
  const Logger logger(0, LogLevel::warn);
  logger.log(LogLevel::info, "live", "hidden {}", 1);
  logger.log(LogLevel::warn, "live", "shown {}", 2);
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_THAT(output, HasSubstr("shown 2\n"));
  EXPECT_THAT(output, testing::Not(HasSubstr("hidden")));
}

TEST(Log, ReadsLevelsInAnyCase) {
  EXPECT_EQ(parse_log_level("INFO"), LogLevel::info);
  EXPECT_EQ(parse_log_level("trace"), LogLevel::trace);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

}  // namespace
}  // namespace talweg
