// talweg doctor as a program, on what a real job left behind.
#include <gmock/gmock.h>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::HasSubstr;

TEST(Doctor, FindsTheKilledRankFromTheRecordOfTheOther) {
  const auto found = shell(R"(
d=$(mktemp -d); trap 'rm -r $d' EXIT
TALWEG_RECORDER_DIR=$d "$TALWEG" run -n 2 -- sh -c '
  if [ $RANK = 0 ]; then exec "$TALWEG" perf all_reduce -b 4 -e 4 -n 100000000; fi
  "$TALWEG" perf all_reduce -b 4 -e 4 -n 100000000 & sleep 2; kill -9 $!; wait' >/dev/null 2>&1
"$TALWEG" doctor $d)");
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("1 of 2 ranks have left a record"));
  EXPECT_THAT(found.out, HasSubstr("rank 1"));
}

TEST(Doctor, SaysWhatItCannotRead) {
  const auto outcome = talweg({"doctor", "/nonexistent/records"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/records"));
}

}  // namespace
}  // namespace talweg::cli
