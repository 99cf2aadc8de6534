#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
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

TEST(Log, SpellsOutWhatATextHasThatCouldSteerATerminal) {
  const Logger logger(0, LogSettings{LogLevel::warn, LogFilter(), 2, "at\t"});
  const std::string line = logger.line(LogLevel::warn, "live", "a\x1b[2J\tb\r\xe2\x80\xae");
  EXPECT_THAT(line, StartsWith("at\t talweg: "));
  EXPECT_THAT(line, EndsWith("live: a\\x1b[2J\\x09b\\x0d\\u202e\n"));
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

TEST(Log, FilterNamesWhoSpeaksOrWhoDoesNot) {
  EXPECT_TRUE(LogFilter().passes("plan"));
  EXPECT_TRUE(LogFilter("ALL").passes("plan"));
  EXPECT_TRUE(LogFilter("call,PLAN").passes("plan"));
  EXPECT_FALSE(LogFilter("call,live").passes("plan"));
  EXPECT_FALSE(LogFilter("^plan,call").passes("call"));
  EXPECT_TRUE(LogFilter("^plan,call").passes("live"));
}

TEST(Log, ASubSystemThatNoLineHasIsNamed) {
  EXPECT_EQ(LogFilter("plan,CALL,all").unknown(), "");
  EXPECT_EQ(LogFilter("").unknown(), "");
  EXPECT_THAT(LogFilter("^plan,pla").unknown(), HasSubstr("no sub-system is called \"PLA\": expected all, "));
  testing::internal::CaptureStderr();
  ::setenv("TALWEG_DEBUG_SUBSYS", "stal", 1);
  read_log_settings();
  ::unsetenv("TALWEG_DEBUG_SUBSYS");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("TALWEG_DEBUG_SUBSYS: no sub-system"));
}

TEST(Log, AFilterNeverHidesWarnings) {
  testing::internal::CaptureStderr();
  const Logger logger(0, LogSettings{LogLevel::info, LogFilter("plan"), 2, {}});
  logger.log(LogLevel::info, "live", "hidden");
  logger.log(LogLevel::info, "plan", "chosen");
  logger.log(LogLevel::warn, "live", "slow");
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_THAT(output,
              testing::AllOf(HasSubstr("chosen"), HasSubstr("slow"), testing::Not(HasSubstr("hidden"))));
}

TEST(Log, PutsTheTimeInFrontWhereAsked) {
  EXPECT_THAT(Logger(0, LogSettings{LogLevel::warn, LogFilter(), 2, "at %%"}).line(LogLevel::warn, "x", "y"),
              StartsWith("at % talweg: "));
}

TEST(Log, FileNamesAreExpanded) {
  EXPECT_EQ(expand_file_name("a%p.%r%%%x%", 3), "a" + std::to_string(getpid()) + ".3%%x%");
  EXPECT_EQ(expand_file_name("%r", -1), "-");
}

TEST(Log, GoesToTheFileThatIsNamed) {
  char name[] = "/tmp/talweg-test-XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_GE(file, 0);
  ::setenv("TALWEG_DEBUG_FILE", name, 1);
  ::setenv("TALWEG_DEBUG", "info", 1);
  const LogSettings settings = read_log_settings();
  ::unsetenv("TALWEG_DEBUG_FILE");
  ::unsetenv("TALWEG_DEBUG");
  Logger(1, settings).log(LogLevel::info, "plan", "ring");
  std::string text(1000, '\0');
  text.resize(static_cast<std::size_t>(::read(file, text.data(), text.size())));
  ::close(file);
  ::close(settings.file);
  ::unlink(name);
  EXPECT_THAT(text, EndsWith("[1] INFO plan: ring\n"));
}

TEST(Log, APipeThatNobodyReadsIsNotWaitedFor) {
  const std::string pipe = testing::TempDir() + "talweg-log-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::setenv("TALWEG_DEBUG_FILE", pipe.c_str(), 1);
  const int before = read_log_settings().file;
  EXPECT_EQ(before, STDERR_FILENO);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  const LogSettings read = read_log_settings();
  ::unsetenv("TALWEG_DEBUG_FILE");
  EXPECT_NE(read.file, before);
  EXPECT_EQ(::fcntl(read.file, F_GETFL) & O_NONBLOCK, 0);
  ::close(read.file);
  ::close(reader);
  ::unlink(pipe.c_str());
}

}  // namespace
}  // namespace talweg
