// How the log is told of ranks whose datagrams bring no answer.
#include "live/either/silent_ranks.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>

namespace talweg::live {
namespace {

using ::testing::EndsWith;

std::string logged(const std::function<void()>& what) {
  ::testing::internal::CaptureStderr();
  what();
  return ::testing::internal::GetCapturedStderr();
}

TEST(SilentRanks, ThoseThatAreFoundTogetherAreOneLine) {
  SilentRanks silent(0, "TALWEG_TRANSPORT=udp");
  EXPECT_EQ(logged([&] {
              silent.add(7, 1000);
              silent.add(2, 1000 + SilentRanks::kGatherNs - 1);
              silent.look(1000 + SilentRanks::kGatherNs - 1);
            }),
            "");
  EXPECT_THAT(
      logged([&] { silent.look(1000 + SilentRanks::kGatherNs); }),
      EndsWith("WARN net: TALWEG_TRANSPORT=udp: datagrams to ranks 2, 7 bring no answer: is UDP blocked on "
               "the way? calls go on over TCP\n"));
  EXPECT_EQ(logged([&] { silent.look(2'000'000'000); }), "") << "once";
}

TEST(SilentRanks, AJobThatEndsBeforeTellsOfThemAtItsEnd) {
  EXPECT_THAT(
      logged([] {
        SilentRanks silent(0, "TALWEG_TRANSPORT=auto");
        silent.add(1, 1000);
        silent.look(2000);
      }),
      EndsWith("TALWEG_TRANSPORT=auto: datagrams to rank 1 bring no answer: is UDP blocked on the way? calls "
               "go on over TCP\n"));
}

}  // namespace
}  // namespace talweg::live
