// talweg doctor as a program, on what a real job left behind.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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

TEST(Doctor, GoesOnPastFilesThatItCannotRead) {
  const char* folder = R"(
d=$(mktemp -d); trap 'rm -r $d' EXIT
echo '{"talweg_flight_record":1,"reason":"asked","job":"j","group":"g","rank":0,"size":1,"hosts":["h"],
       "monotonic_ns":1,"wall_ns":1,"operations":[]}' > $d/record-good.json
head -c 60 $d/record-good.json > $d/record-cut.json
echo hello > $d/record-other.json
mkdir $d/record-folder.json
)";
  const auto found = shell(folder + std::string("\"$TALWEG\" doctor $d"));
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("1 of 1 ranks have left a record"));
  EXPECT_EQ(count_lines(found.err), 3) << found.err;
  for (const char* name :
       {"record-cut.json: expected", "record-other.json: expected", "record-folder.json: cannot"})
    EXPECT_THAT(found.err, HasSubstr(name));
  const auto none = shell(folder + std::string("rm $d/record-good.json; \"$TALWEG\" doctor $d"));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none of 3 files can be read"));
  EXPECT_EQ(count_lines(none.err), 1) << none.err;
}

TEST(Doctor, SaysBesideATraceOnStandardOutputWhatIsNotInIt) {
  const auto merged = shell(R"(
d=$(mktemp -d); trap 'rm -r $d' EXIT
cat >$d/trace-0.json <<END
[
{"name":"talweg_trace","ph":"M","pid":0,"args":{"job":"j","rank":0,"wall_ns":1,"monotonic_ns":1}},
{"name":"all_reduce","ph":"X","pid":0,"tid":0,"ts":1,"dur":1},
{"name":"talweg_events_left_out","ph":"M","pid":0,"args":{"count":7}}
]
END
"$TALWEG" doctor --trace - $d)");
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(nlohmann::json::accept(merged.out)) << merged.out;
  EXPECT_THAT(merged.err, HasSubstr("7 events were past TALWEG_TRACE_LIMIT"));
}

TEST(Doctor, SaysWhichNamesItLooksForInAFolder) {
  const auto none = shell("d=$(mktemp -d); trap 'rm -r $d' EXIT; touch $d/rank0.json; \"$TALWEG\" doctor $d");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(count_lines(none.err), 1) << none.err;
  EXPECT_THAT(none.err, HasSubstr("no record-*.json there (in a directory only such names are looked for)"));
}

TEST(Doctor, SaysWhatItCannotRead) {
  const auto outcome = talweg({"doctor", "/nonexistent/records"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/records"));
}

}  // namespace
}  // namespace talweg::cli
