#include "study/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <thread>

namespace talweg::study {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string content(std::FILE* file) {
  std::rewind(file);
  std::array<char, 256> text{};
  return {text.data(), std::fread(text.data(), 1, text.size(), file)};
}

TEST(ProgressLine, ElsewhereThanOnATerminalEachWordIsALine) {
  const File file(std::tmpfile());
  ASSERT_TRUE(file);
  {
    ProgressLine line(hours(1), milliseconds(0), file.get());
    EXPECT_TRUE(line.due());
    line.say("half\x1b of it");
    EXPECT_TRUE(line.due());
    line.say("all of it");
  }
  EXPECT_EQ(content(file.get()), "half\\x1b of it\nall of it\n");
}

TEST(ProgressLine, IsSilentForAsLongAsItShould) {
  const File file(std::tmpfile());
  ASSERT_TRUE(file);
  ProgressLine late(milliseconds(0), hours(1), file.get());
  ProgressLine never(milliseconds(0), std::nullopt, file.get());
  late.begin();
  EXPECT_FALSE(late.due());
  EXPECT_FALSE(never.due());
}

// While another thread writes.
std::string written_so_far(std::FILE* file) {
  std::array<char, 256> text{};
  const ssize_t n = ::pread(::fileno(file), text.data(), text.size(), 0);
  return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

TEST(WaitingLine, SaysWhatGoesOnAndForHowLongUntilItEnds) {
  const File file(std::tmpfile());
  ASSERT_TRUE(file);
  ProgressLine line(hours(1), milliseconds(0), file.get());
  {
    const WaitingLine waiting(line, "planning it");
    while (written_so_far(file.get()).empty()) std::this_thread::sleep_for(milliseconds(1));
  }
  const std::string said = written_so_far(file.get());
  EXPECT_THAT(said, testing::MatchesRegex("(planning it: [0-9.]+ s\n)+"));
  std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(written_so_far(file.get()), said);
}

TEST(WaitingLine, EndsAtOnce) {
  const File file(std::tmpfile());
  ASSERT_TRUE(file);
  ProgressLine line(hours(1), hours(1), file.get());
  for (int i = 0; i < 100; ++i) const WaitingLine waiting(line, "planning it");
  EXPECT_EQ(content(file.get()), "");
}

TEST(ProgressLine, OnATerminalItIsRewrittenAndWipedOut) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(master, 0);
  ASSERT_EQ(::grantpt(master), 0);
  ASSERT_EQ(::unlockpt(master), 0);
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  termios raw{};
  ASSERT_EQ(::tcgetattr(slave, &raw), 0);
  ::cfmakeraw(&raw);
  ASSERT_EQ(::tcsetattr(slave, TCSANOW, &raw), 0);
  {
    const File file(::fdopen(slave, "w"));
    ASSERT_TRUE(file);
    ProgressLine line(milliseconds(0), std::nullopt, file.get());
    EXPECT_TRUE(line.due());
    line.say("one");
    line.say("two");
  }
  std::string shown;
  const std::string all = "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K";
  std::array<char, 256> part{};
  while (shown.size() < all.size()) {
    const ssize_t n = ::read(master, part.data(), part.size());
    if (n <= 0) break;
    shown.append(part.data(), static_cast<std::size_t>(n));
  }
  EXPECT_EQ(shown, all);
  ::close(master);
}

}  // namespace
}  // namespace talweg::study
