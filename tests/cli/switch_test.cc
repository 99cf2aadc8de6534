// `talweg switch` as its users start it, and `talweg perf --switch` through it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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

TEST(SwitchCommand, SumsRowsThatPerfMeasures) {
  const Outcome outcome = shell(with_switch("", R"(
set -e
export TALWEG_SWITCH=$AT
rows() { "$TALWEG" run -n 3 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce -n 3 -c 2 "$@"; }
for times in 20 200 1000 5000; do
  TALWEG_ALGO=switch rows -b 64K -e 1M -f 16 -w $times --sparse-rows 16 --sparse-density 0.1 --json rows.json >first
  if grep -q '"plan": "switch"' rows.json; then break; fi  # joined while calls went on
done
cat first
TALWEG_ALGO=direct rows -b 64K -e 64K -d double --sparse-rows 7 --sparse-density 0.2 --overlap none
rows -b 64K -e 64K -d bfloat16 -w 0 --sparse-rows 8 --overlap all
cat rows.json
kill $pid)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  int right = 0;
  for (std::size_t at = 0;
       (at = outcome.out.find("# Out of bounds values : 0 OK\n", at)) != std::string::npos; ++at)
    ++right;
  EXPECT_EQ(right, 3) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("# rows of 16 elements: 0.1 of them on each rank, overlap random: 0.27"),
                    HasSubstr("# rows of 7 elements: 0.2 of them on each rank, overlap none: 0.599 on any"),
                    HasSubstr("overlap all: 1 on any")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\"plan\": \"switch\""), HasSubstr("\"in_place\": null")))
      << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("# Algorithm            : trees"));
}

TEST(SwitchCommand, OfAGroupPerfMeasuresNothingBeforeItHasJoinedIt) {
  const Outcome outcome = shell(with_switch("", R"(
TALWEG_SWITCH=$AT TALWEG_ALGO=switch "$TALWEG" run -n 3 --no-tag-output --timeout 100s -- "$TALWEG" perf all_reduce -b 1M -e 1M -n 2 -w 0
kill $pid)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("switch: 127.0.0.1:"), Not(HasSubstr("not now: ")),
                                 HasSubstr("# Algorithm            : switch\n")));
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
perf 3 -b 1M -e 1M --sparse-density 0.05 --sparse-run 1 --sparse-as pairs
perf 2 -b 4 -e 1M -f 16 --sparse-as pairs
perf 2 -b 1M -e 1M --sparse-density 0.05 --sparse-run 1 --sparse-as dense
perf 3 -b 1M -e 1M --sparse-density 0.1 --switch-block 1000 --ordered
perf 3 -b 4 -e 1M -f 64 -c 3 --switch-format block8
perf 2 -b 1M -e 1M -c 2 --switch-format block4 --sparse-density 0.2 --ordered
perf 2 -b 1M -e 1M -c 2 --switch-format block4 --may-lose 0.1
perf 2 -b 4 -e 1M -f 512 --may-lose 0.1 -c 3 --json lost.json; grep lost_part lost.json
"$TALWEG" switch status --listen $AT
"$TALWEG" run -n 2 --no-tag-output --timeout 150s -- sh -c '
  test $RANK = 0 && as=pairs || as=blocks
  "$TALWEG" perf all_reduce --switch '$AT' -b 4K -e 4K --sparse-density 0.5 --sparse-as $as' 2>&1
"$TALWEG" switch drain --listen $AT
wait $pid; echo ended $?; cat said prom)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  int right = 0;
  for (std::size_t at = 0;
       (at = outcome.out.find("# Out of bounds values : 0 OK\n", at)) != std::string::npos; ++at)
    ++right;
  EXPECT_EQ(right, 13) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# switch: 2 threads x "));
  EXPECT_THAT(outcome.out, HasSubstr("# sparse: 0.1 of the blocks on each rank, overlap none: 0.2"));
  EXPECT_THAT(
      outcome.out,
      HasSubstr("# sparse: 0.05 of the elements on each rank, overlap random: 0.143 on any, as pairs"));
  EXPECT_THAT(outcome.out, HasSubstr(" on any, all of them sent"));
  EXPECT_THAT(outcome.out, HasSubstr("# float as block8, each rank with a residual\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" columns of 1000 elements"));
  EXPECT_THAT(outcome.out, HasSubstr(" 1024 elements of pairs, sparse"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\n# 1 MiB, switch: "), HasSubstr("\"lost_part\": 0"),
                                 HasSubstr("at most 10 % of a worker's")));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_jobs_opened_total 13\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_jobs_failed_total 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ndraining: 0 jobs are still there\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nended 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nmemory: at most "));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_draining 1\n"));
}

// Until the ranks have joined it, which is long before they are timed, these go by datagrams.
TEST(SwitchCommand, MakesTheBoundedSumsOfAGroup) {
  const Outcome outcome = shell(with_switch("", R"(
export TALWEG_SWITCH=$AT TALWEG_ALGO=switch
"$TALWEG" run -n 3 --no-tag-output --timeout 150s -- \
  "$TALWEG" perf all_reduce --may-lose 0.1 -b 64K -e 64K -w 1000 -n 5 -c 2 --json -
code=$?; "$TALWEG" switch drain --listen $AT >&2; exit $code)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto line = nlohmann::json::parse(outcome.out)["results"][0];
  EXPECT_EQ(line["algorithm"], "switch");
  EXPECT_GT(line["by_switch"].get<int>(), 0);
  EXPECT_LE(line["lost_part"].get<double>(), 0.1);
  EXPECT_EQ(line["out_of_place"]["wrong_elements"], 0);
  EXPECT_EQ(line["in_place"]["wrong_elements"], 0);
}

// Ranks 0 and 1 name one rack's switch, ranks 2 and 3 the other's.
TEST(SwitchCommand, OfARackPassesOneStreamToTheSwitchAbove) {
  const Outcome outcome = shell(with_switch("--threads 2", R"(
rack() {
  "$TALWEG" switch --listen 127.0.0.1:0 --above $AT >$1 2>&1 & racks="$racks $!"
  until grep -q memory: $1 || ! kill -0 $!; do sleep 0.05; done
}
trap 'kill -9 $pid $racks 2>/dev/null; rm -r $d' EXIT
rack r0; rack r1; cat r0
of() { sed -n 's/^switch at \([0-9.:]*\),.*/\1/p' r$1; }
export R0=$(of 0) R1=$(of 1)
at_rack() {
  "$TALWEG" run -n 4 --no-tag-output --timeout 150s -- \
    sh -c 'test $RANK -lt 2 && at=$R0 || at=$R1; export at; '"$1"
}
at_rack '"$TALWEG" perf all_reduce -n 3 -b 4 -e 1M -f 64 --switch $at'
at_rack '"$TALWEG" perf all_reduce -n 3 -b 1M -e 1M --sparse-density 0.1 --exact --switch $at'
at_rack '"$TALWEG" perf all_reduce -n 3 -b 4 -e 1M -f 512 -c 2 --switch-format block4 --switch $at'
at_rack 'TALWEG_SWITCH=$at TALWEG_ALGO=switch "$TALWEG" perf all_reduce -n 2000 -b 64K -e 64K'
"$TALWEG" switch status --listen $R0
"$TALWEG" switch status --listen $AT | grep -E "opened|failed" | sed 's/^/above: /'
for r in $R0 $R1 $AT; do "$TALWEG" switch drain --listen $r; done
wait $racks $pid; echo ended $?)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  // The last joins the switch while its calls go on.
  const std::string right = "# Algorithm            : switch\n# Out of bounds values : 0 OK\n";
  EXPECT_THAT(outcome.out,
              testing::ContainsRegex(right + "(.|\n)*" + right + "(.|\n)*" + right + "(.|\n)*" + right))
      << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\njobs of several racks: summed by the switch above, 127.0.0.1:"));
  EXPECT_THAT(outcome.out, HasSubstr("# switch: one for each of 2 racks, and one above: 1 thread x "));
  EXPECT_THAT(outcome.out, HasSubstr("\ntalweg_switch_above{address=\"127.0.0.1:"));
  EXPECT_THAT(outcome.out, HasSubstr("\nabove: talweg_switch_jobs_opened_total 4\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" jobs x 137 KiB for the switch above"));
  EXPECT_THAT(outcome.out, HasSubstr("\nended 0\n"));
}

TEST(SwitchCommand, OfARackNamesWhatItIsToldOfTheOneAboveThatCannotBe) {
  const Outcome outcome = shell(R"(
say() { "$TALWEG" switch --listen 127.0.0.1:4711 "$@" 2>&1; echo "exit $?"; }
say --above nowhere
say --above 127.0.0.1:4711
say --above-key-file key
say --above 10.0.0.9:4711
"$TALWEG" switch --listen 0.0.0.0:4711 --above 127.0.0.1:4711 2>&1
)");
  EXPECT_THAT(outcome.out,
              HasSubstr("--above: expected an address and a port, such as 127.0.0.1:4711, got \"nowhere\""));
  const std::string itself = "--above: a switch is not above itself: 127.0.0.1:4711\n";
  EXPECT_THAT(outcome.out, testing::ContainsRegex(itself + "(.|\n)*" + itself));
  EXPECT_THAT(outcome.out, HasSubstr("--above-key-file is for --above, which names the switch above"));
  EXPECT_THAT(outcome.out, HasSubstr("give that of 10.0.0.9:4711 in --above-key-file"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("exit 0")));
}

// The ranks' own group, which agrees on what is measured, leaves the cluster file's switch alone.
TEST(SwitchCommand, IsMeasuredWhateverTheClusterFileNames) {
  const Outcome outcome = shell(with_switch("", R"(
cat >net.yaml <<END
nodes: [{name: h0}, {name: h1}, {name: box, kind: switch, switch: "10.255.255.9:4711"}]
links: [{between: [h0, box], capacity: 1Gbit/s}, {between: [h1, box], capacity: 1Gbit/s}]
END
run() { "$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" "$@"; }
TALWEG_CLUSTER=net.yaml run perf all_reduce --switch $AT -b 64K -e 64K &&
TALWEG_SWITCH=$AT TALWEG_ALGO=switch run perf all_reduce --switch $AT -b 64K -e 64K &&
TALWEG_CLUSTER=net.yaml TALWEG_SWITCH=none TALWEG_ALGO=switch run perf all_reduce -b 64K -e 64K
)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string right = "# Out of bounds values : 0 OK\n";
  EXPECT_THAT(outcome.out, testing::ContainsRegex(right + "(.|\n)*" + right + "(.|\n)*" + right));
}

TEST(SwitchCommand, ServesWhoHoldsItsKeyAndNobodyElse) {
  const Outcome outcome = shell(with_switch("--key-file key", R"(
( umask 077; echo a-secret-of-somebody-else > other )
perf() { "$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce -b 64K -e 64K --switch $AT "$@"; }
perf --switch-key-file key
perf --switch-key-file other
perf
"$TALWEG" switch reload --listen $AT
"$TALWEG" switch reload --listen $AT --key-file key
kill $pid; wait $pid; echo ended $?)"));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("# Out of bounds values : 0 OK\n"), HasSubstr("datagrams with a tag"),
                    HasSubstr("the key has been read again\n"), HasSubstr("ended 0\n")))
      << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("joining job perf at the switch 127.0.0.1:"));
  EXPECT_THAT(outcome.err,
              HasSubstr("the two sides do not hold the same job key: give the switch's secret in "
                        "--switch-key-file"));
  EXPECT_THAT(outcome.err,
              HasSubstr("the two sides do not hold the same job key: give the switch's secret in "
                        "--key-file, TALWEG_KEY_FILE or TALWEG_KEY"));
  EXPECT_THAT(outcome.err, HasSubstr("no order to a switch at 127.0.0.1:"));
}

TEST(SwitchCommand, ThatIsKilledIsAnErrorOfItsWorkersThatNamesIt) {
  const Outcome outcome = shell(with_switch("", R"(
"$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce -b 1M -e 1M -N 0 --switch $AT >out 2>err & perf=$!
until ! kill -0 $perf || { grep -q switch out && "$TALWEG" switch status --listen $AT | grep -q 'rounds_total{job="perf"} [1-9]'; }; do sleep 0.05; done
kill -9 $pid; wait $perf; echo perf ended $?; cat err)"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("perf ended 0")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("perf ended "), HasSubstr("of job perf at the switch 127.0.0.1:"),
                                 HasSubstr("the switch has ended the connection")))
      << outcome.err;
}

TEST(SwitchCommand, SumsForWorkersThatSpeakSwitchmlsPackets) {
  const Outcome outcome =
      shell(with_switch("--switchml 127.0.0.1 --switchml-port 0 --switchml-elements 64 --slots 8", R"(
until grep -q ^switchml: said; do sleep 0.05; done
cat said
PORT=$(sed -n 's/^switchml: .*ports \([0-9]*\) to .*/\1/p' said)
{ printf '\061\011\001\002\003\004\000\005\000\000'; head -c 256 /dev/zero; } >packet
bash -c 'exec 3<>/dev/udp/127.0.0.1/'$PORT'; cat packet >&3; head -c 8 <&3 | od -An -tx1'
"$TALWEG" switch status --listen $AT | grep -i switchml
"$TALWEG" switch drain --listen $AT; wait $pid; echo ended $?)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("switchml: 1 workers of 64 elements a packet, UDP ports "));
  EXPECT_THAT(outcome.out, HasSubstr(" MiB for SwitchML's workers\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\n 31 09 01 02 03 04 00 05\n"));
  EXPECT_THAT(outcome.out, HasSubstr("talweg_switch_rounds_total{job=\"SwitchML's workers\"} 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("talweg_switch_job_slots{job=\"SwitchML's workers\"} 8\n"));
  EXPECT_THAT(outcome.out, HasSubstr("talweg_switch_switchml_received_total 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("ended 0\n"));
}

TEST(SwitchCommand, RefusesInOneLineWhatItCannotServeWith) {
  const Outcome outcome = shell(R"(
d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d; mkfifo pipe
try() { timeout 20 "$TALWEG" switch --listen 127.0.0.1:0 "$@"; echo "ended $?"; }
try --status pipe; try --status /dev/null; try --job-rate 100000000; try --job-rate 7.9kbit/s; try --memory 2K
try --switchml-open; try --switchml 127.0.0.1,127.0.0.1; try --switchml 127.0.0.1 --slots 40000)");
  std::size_t refused = 0;
  for (std::size_t at = 0; (at = outcome.out.find("ended 2\n", at)) != std::string::npos; ++at) ++refused;
  EXPECT_EQ(refused, 8U) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--status: pipe is a pipe or a device"),
                                 HasSubstr("--status: /dev/null is a pipe or a device"),
                                 HasSubstr("--job-rate: bandwidth \"100000000\": which unit?"),
                                 HasSubstr("at least 8 kbit/s"), HasSubstr("lends at least ")));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("are for --switchml, which names"), HasSubstr("two workers have one host"),
                    HasSubstr("--slots: SwitchML's packets can name 32768")));
}

TEST(SwitchCommand, ReadsTheRatesOfResultsAgainAndRefusesThoseThatAreNone) {
  const Outcome outcome = shell(R"(
d=$(mktemp -d); cd $d; printf 'perf 1 Gbit/s\nother fast\n' >bad
try() { timeout 20 "$TALWEG" switch --listen 127.0.0.1:0 "$@"; echo "ended $?"; }
try --result-rate 7.9kbit/s; try --result-rates bad; try --result-rates nowhere; mkfifo pipe; try --result-rates pipe
printf 'perf 16 Mbit/s\n' >rates
)" + with_switch("--result-rate 16Gbit/s --result-rates $OLDPWD/rates", R"(
"$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce --switch $AT -b 256K -e 256K -n 4 -w 1 & perf=$!
until "$TALWEG" switch status --listen $AT >status; grep 'delayed_total{job="perf"} [1-9]' status || ! kill -0 $perf; do sleep 0.02; done
grep job_result_rate status; wait $perf
printf 'perf none\n' >$OLDPWD/rates
"$TALWEG" switch reload --listen $AT
echo perf >$OLDPWD/rates
"$TALWEG" switch reload --listen $AT
echo other >$OLDPWD/rates; kill -HUP $pid; until grep "\"other 2 Gbit" said || ! kill -0 $pid; do sleep 0.02; done
kill $pid; wait $pid; echo ended $?; rm -r $OLDPWD)"));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("--result-rate: a rate of results \"7.9kbit/s\": expected at least 8 kbit/s"),
                    HasSubstr("--result-rates: bad:2: a rate of results \"fast\""),
                    HasSubstr("--result-rates: pipe is a pipe or a device"),
                    HasSubstr("--result-rates: nowhere"), HasSubstr("rates:1: expected the name of a job")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("talweg_switch_delayed_total{job=\"perf\"} "),
                                 HasSubstr("talweg_switch_job_result_rate{job=\"perf\"} 2000000\n"),
                                 HasSubstr("# Out of bounds values : 0 OK\n"),
                                 HasSubstr("the rates of results have been read again\n"),
                                 HasSubstr("talweg switch: --result-rates: "), HasSubstr("ended 0\n")))
      << outcome.err;
}

TEST(SwitchCommand, SaysInOneLineEachWhichGroupsOfResultsCannotBe) {
  const Outcome outcome = shell(R"(
say() { timeout 20 "$TALWEG" switch --key-file key --listen "$@" 2>&1; echo "ended $?"; }
cd $(mktemp -d); ( umask 077; echo a-secret-of-its-workers >key )
say 127.0.0.1:0 --multicast 10.0.0.1
say 127.0.0.1:0 --multicast ff15::1
say 127.0.0.1:0 --multicast 239.255.255.250
say 127.0.0.1:0 --multicast-hops 2
say 0.0.0.0:0 --multicast 239.1.2.0
rm -r $PWD)");
  const std::string refused = "ended 2\n";
  EXPECT_THAT(outcome.out, testing::MatchesRegex(
                               "[^\n]*--multicast: expected a multicast address[^\n]*\"10.0.0.1\"\n" +
                               refused + "[^\n]*--multicast: ff15::1 is a group of IPv6[^\n]*\n" + refused +
                               "[^\n]*--multicast: 16 jobs have as many groups[^\n]*\n" + refused +
                               "[^\n]*--multicast-hops is for --multicast[^\n]*\n" + refused +
                               "[^\n]*--multicast: a switch at 0.0.0.0 has no interface[^\n]*\n" + refused))
      << outcome.err;
}

// Whether or not this host passes multicast over loopback.
TEST(SwitchCommand, SendsResultsToTheGroupOfTheirJob) {
  const Outcome outcome = shell(with_switch(
      "--max-jobs 2 --multicast-hops 3 --multicast 239.$(($$ / 256 % 250 + 1)).$(($$ % 256)).0", R"(
"$TALWEG" run -n 3 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce --switch $AT -b 64K -e 64K -n 300 & perf=$!
until "$TALWEG" switch status --listen $AT >status; grep 'job_multicast{job="perf"}' status || ! kill -0 $perf; do sleep 0.02; done
wait $perf; echo ended $?; grep multicast: said)"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("# Out of bounds values : 0 OK\n"), HasSubstr("\nended 0\n"),
                                 HasSubstr("talweg_switch_job_multicast{job=\"perf\"} ")))
      << outcome.err;
  EXPECT_THAT(outcome.out,
              testing::ContainsRegex("\nmulticast: results of a job once to its group, 239[.][0-9.]*[.]0 to "
                                     "239[.][0-9.]*[.]1, UDP ports 61000 to 61001, 3 hops\n"));
}

// The limit of a file's size stands for a full disk: the status has no room, and what the switch says has.
TEST(SwitchCommand, OnAFullDiskSaysOnceThatItsStatusIsNotWrittenAndGoesOn) {
  const Outcome outcome = shell("trap '' XFSZ\n" + with_switch("--status prom", R"(
until test -s prom; do sleep 0.05; done
lines=$(wc -l <prom)
prlimit --pid $pid --fsize=2048:unlimited
until grep -q prom said; do sleep 0.05; done
"$TALWEG" run -n 2 --no-tag-output --timeout 150s -- "$TALWEG" perf all_reduce --switch $AT -n 3 -b 1M -e 1M
sleep 6  # it tries again every 5 s
sed -n '/prom/s/^/said: /p' said
test $(wc -l <prom) -ge $lines && echo the last one is whole
prlimit --pid $pid --fsize=unlimited:unlimited
until grep -q '^talweg_switch_jobs_opened_total 1$' prom; do sleep 0.05; done
kill $pid; wait $pid; echo ended $?; ls)"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(outcome.out, HasSubstr("said: talweg switch: --status: cannot write prom: File too large\n"
                                     "the last one is whole\nended 0\nkey\nprom\nsaid\n"))
      << "once";
}

TEST(SwitchCommand, GoesOnWhenNobodyReadsWhatItPrints) {
  const Outcome outcome = shell(R"(
d=$(mktemp -d); trap 'kill -9 $pid 2>/dev/null; rm -r $d' EXIT; cd $d; mkfifo pipe
head -n 1 <pipe & head=$!
"$TALWEG" switch --listen 127.0.0.1:0 --status - >pipe 2>err & pid=$!
wait $head; kill $pid; wait $pid; echo "ended $?"; cat err)");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("switch at 127.0.0.1:"), HasSubstr("ended 1\n"),
                                 HasSubstr("cannot write to standard output: Broken pipe")))
      << outcome.err;
}

}  // namespace
}  // namespace talweg::cli
