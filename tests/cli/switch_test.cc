// `talweg switch` as its users start it, and `talweg perf --switch` through it.
#include <gmock/gmock.h>

#include "cli/program.h"

namespace talweg::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A switch on a port of its own, $AT, in the background; what it says is in the file said. Ends with its exit
// code. Nothing here takes as long as its time limit.
std::string with_switch(const std::string& flags, const std::string& then) {
  return R"(
d=$(mktemp -d); trap 'kill -9 $pid 2>/dev/null; rm -r $d' EXIT; cd $d
( umask 077; echo a-secret-of-its-workers > key )
"$TALWEG" switch --listen 127.0.0.1:0 )" +
         flags + R"( >said 2>&1 & pid=$!
until grep -q memory: said || ! kill -0 $pid; do sleep 0.05; done
AT=$(sed -n 's/^switch at \([0-9.:]*\),.*/\1/p' said)
)" + then;
}

TEST(SwitchCommand, SumsForTwoJobsAndIsDrainedWithThem) {
  const Outcome outcome = shell(with_switch("--threads 2 --status prom", R"(
perf() { n=$1; shift; "$TALWEG" run -n $n --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce --switch $AT -n 3 "$@"; }
perf 2 --switch-job one -b 4 -e 1M -f 16 >one & one=$!
perf 3 --switch-job two -b 1M -e 1M -d half >two; wait $one
cat one two
perf 2 -b 1M -e 1M --sparse-density 0.1 --overlap none -d int32
perf 3 -b 1M -e 1M --sparse-density 0.2 --overlap random --exact
perf 2 -b 1M -e 1M --sparse-density 0.2 --overlap all -d bfloat16
"$TALWEG" switch status --listen $AT
"$TALWEG" switch drain --listen $AT
wait $pid; echo ended $?; cat said prom)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  int right = 0;
  for (std::size_t at = 0;
       (at = outcome.out.find("# Out of bounds values : 0 OK\n", at)) != std::string::npos; ++at)
    ++right;
  EXPECT_EQ(right, 5) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# switch: 2 threads x "));
  EXPECT_THAT(outcome.out, HasSubstr("# sparse: 0.1 of the blocks on each rank, overlap none: 0.2"));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_jobs_opened_total 5\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_jobs_failed_total 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ndraining: 0 jobs are still there\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nended 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nmemory: at most "));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_draining 1\n"));
}

TEST(SwitchCommand, ServesWhoHoldsItsKeyAndNobodyElse) {
  const Outcome outcome = shell(with_switch("--key-file key", R"(
( umask 077; echo a-secret-of-somebody-else > other )
perf() { "$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce -b 64K -e 64K --switch $AT "$@"; }
perf --switch-key-file key
perf --switch-key-file other
"$TALWEG" switch reload --listen $AT
"$TALWEG" switch reload --listen $AT --key-file key
kill $pid; wait $pid; echo ended $?)"));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("# Out of bounds values : 0 OK\n"), HasSubstr("datagrams with a tag"),
                    HasSubstr("the key has been read again\n"), HasSubstr("ended 0\n")))
      << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("joining job perf at the switch 127.0.0.1:"));
  EXPECT_THAT(outcome.err, HasSubstr("the two sides do not hold the same job key"));
  EXPECT_THAT(outcome.err, HasSubstr("no order to a switch at port "));
}

TEST(SwitchCommand, ThatIsKilledIsAnErrorOfItsWorkersThatNamesIt) {
  const Outcome outcome = shell(with_switch("", R"(
"$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce -b 1M -e 1M -N 0 --switch $AT >out 2>err & perf=$!
until grep -q switch out && "$TALWEG" switch status --listen $AT | grep -q 'rounds_total{job="perf"} [1-9]'; do sleep 0.05; done
kill -9 $pid; wait $perf; echo perf ended $?; cat err)"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("perf ended 0")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("perf ended "), HasSubstr("of job perf at the switch 127.0.0.1:"),
                                 HasSubstr("the switch has ended the connection")))
      << outcome.err;
}

}  // namespace
}  // namespace talweg::cli
