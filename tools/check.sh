#!/usr/bin/env bash
# What must hold before a change is taken, in stages: tools/check.sh [long] [STAGE ...]
# Without a stage, all that belong to a check: to the quick one, or with `long` to all the rest of it. All stages run,
# whatever fails on the way. Tests wait much of their time: what builds for stages to come, and what only reads, goes on
# beside them, at the lowest priority. The last line sums up every test of every stage; a stage without tests of its own
# (setup, a build, the format, the linter) counts as one. Ends with 0 only if all passed. JUnit files stay in build/results.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
first_stages=(setup format build)
quick_stages=("${first_stages[@]}" test core lint)
long_stages=(setup build long asan tsan fuzz alone lint_all)
stages=("${quick_stages[@]}")
results=build/results/quick
if [[ ${1-} == long ]]; then
  stages=("${long_stages[@]}") results=build/results/long
  shift
fi
if (($#)); then stages=("$@"); fi
for stage in "${stages[@]}"; do
  if [[ " ${quick_stages[*]} ${long_stages[*]} " != *" $stage "* ]]; then
    echo "check: there is no stage '$stage'; stages: ${quick_stages[*]}; long: ${long_stages[*]}" >&2
    exit 2
  fi
done

# Records the outcome of a step that is not itself a set of tests.
record() { echo "$2" >"$results/$1.step"; }

step() {
  local name=$1
  shift
  if "$@"; then record "$name" passed; else
    record "$name" failed
    return 1
  fi
}

# run_ctest NAME BUILD_FOLDER [ctest arguments ...], with the words of `under` in front.
under=()
run_ctest() {
  local name=$1 folder=$2 status=0
  shift 2
  rm -rf "$folder/cases"
  mkdir "$folder/cases"
  # Many tests wait most of their time: one more than there are cores.
  "${under[@]}" ctest --test-dir "$folder" --output-on-failure --no-tests=error -j"$((jobs + 1))" --timeout 120 \
    --output-junit "$PWD/$results/$name.xml" "$@" || status=1
  cp -r "$folder/cases" "$results/$name.cases"
  # A run that left no list of tests failed as a whole.
  if [[ ! -s $results/$name.xml ]]; then
    record "$name" failed
    status=1
  fi
  return "$status"
}

stage_setup() { step setup tools/setup.sh check; }

stage_format() { step format bash -o pipefail -c 'tools/sources.sh | xargs -r clang-format-14 --dry-run --Werror'; }

stage_build() { step build tools/build.sh release "$jobs"; }

stage_test() { run_ctest test build --label-exclude long; }

stage_long() { run_ctest long build --label-regex long; }

# Not with detect_stack_use_after_return: GCC 12 misplaces 64-byte vectors on the stack then (GCC PR 110027).
run_asan() { UBSAN_OPTIONS=print_stacktrace=1 run_ctest "$@"; }

# What everything stands on: AddressSanitizer and UndefinedBehaviorSanitizer on the rooms that take what comes from others.
beside_core() { tools/build.sh asan "$jobs" core; }
stage_core() { run_asan core build-asan --label-regex core; }

beside_asan() { tools/build.sh asan "$jobs"; }
stage_asan() { run_asan asan build-asan --label-exclude 'core|no_sanitizers'; }

# ThreadSanitizer wants addresses that are not shuffled: newer kernels shuffle further than it can follow.
beside_tsan() { tools/build.sh tsan "$jobs"; }
stage_tsan() {
  local under=()
  if setarch -R true 2>/dev/null; then under=(setarch -R); fi
  TSAN_OPTIONS=halt_on_error=1 run_ctest tsan build-tsan --label-exclude no_sanitizers
}

# Each fuzzer for a while, from its corpus; `make fuzz` is the long way.
beside_fuzz() { tools/build.sh fuzz "$jobs"; }
stage_fuzz() { TALWEG_FUZZ_SECONDS=${TALWEG_FUZZ_SECONDS:-20} run_ctest fuzz build-fuzz --label-regex fuzz; }

beside_alone() { tools/lint.sh alone "$jobs"; }
beside_lint() { tools/lint.sh changed "$jobs"; }
beside_lint_all() { tools/lint.sh all "$jobs"; }

# Sets `cpu` to the processor time, in seconds, of all that this shell has waited for; not to be called in a subshell.
read_cpu() {
  times >"$results/$1.times"
  cpu=$(awk -F'[ms ]' 'NR == 2 { printf "%d", 60 * ($1 + $4) + $2 + $5 }' "$results/$1.times")
}

# timed NAME COMMAND ...: with how long it took.
timed() {
  local name=$1 begun=$SECONDS cpu cpu_begun status=0
  shift
  read_cpu "$name"
  cpu_begun=$cpu
  echo "=== $name (at $((begun - started)) s)"
  "$@" || status=1
  read_cpu "$name"
  echo "$name $((SECONDS - begun)) $((cpu - cpu_begun))" | tee -a "$results/seconds.txt" |
    sed -E 's/(.*) (.*) (.*)/=== \1 took \2 s, \3 s of processor time/'
  return "$status"
}

rm -rf "$results"
mkdir -p "$results"
started=$SECONDS
failed_stages=()
run() { timed "$1" "stage_$1" || failed_stages+=("$1"); }
is_function() { declare -F "$1" >/dev/null; }

# What is done beside the tests, one after the other: a stage's build, or all of a stage that has no tests. What it is
# to be called is the stage's name, or STAGE-build; what it says comes when it has ended.
beside() {
  local stage name status=0
  renice -n 19 "$BASHPID" >/dev/null
  for stage in "${stages[@]}"; do
    if ! is_function "beside_$stage"; then continue; fi
    name=$stage
    if is_function "stage_$stage"; then name+=-build; fi
    timed "$name" step "$name" "beside_$stage" >"$results/$name.log" 2>&1 || status=1
    cat "$results/$name.log"
  done
  return "$status"
}

for stage in "${stages[@]}"; do
  if [[ " ${first_stages[*]} " == *" $stage "* ]]; then run "$stage"; fi
done
set -m  # a group of processes of its own, so that nothing of it is left when this ends early
beside </dev/null &
lane=$!
set +m
trap 'kill -- "-$lane" 2>/dev/null' EXIT
for stage in "${stages[@]}"; do
  if [[ " ${first_stages[*]} " == *" $stage "* ]] || ! is_function "stage_$stage"; then continue; fi
  if is_function "beside_$stage"; then
    while [[ ! -s $results/$stage-build.step ]] && kill -0 "$lane" 2>/dev/null; do sleep 0.2; done
    # A build that failed has been counted.
    if ! grep -qs passed "$results/$stage-build.step"; then continue; fi
  fi
  run "$stage"
done
wait "$lane" || failed_stages+=("what went on beside them")
# What ended before it said how, as where the system had no memory, is for the last line too.
for stage in "${stages[@]}"; do
  if ! is_function "beside_$stage"; then continue; fi
  name=$stage
  if is_function "stage_$stage"; then name+=-build; fi
  if [[ ! -s $results/$name.step ]]; then record "$name" failed; fi
done
read_cpu together
echo "together $((SECONDS - started)) $cpu" >>"$results/seconds.txt"
if ((${#failed_stages[@]})); then echo "=== failed: ${failed_stages[*]}"; fi
python3 tools/sum_tests.py "$results" && ((${#failed_stages[@]} == 0))
