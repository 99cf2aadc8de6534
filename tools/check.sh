#!/usr/bin/env bash
# What must hold before a change is taken, in stages: tools/check.sh [long] [STAGE ...]
# Without a stage, all that belong to a check: to the quick one, or with `long` to all the rest of it. All stages run,
# whatever fails on the way. The last line sums up every test of every stage; a stage without tests of its own (setup,
# a build, the format, the linter) counts as one. Ends with 0 only if all passed. JUnit files stay in build/results.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
quick_stages=(setup format build test core lint)
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
  if ((status)) && [[ ! -s $results/$name.xml ]]; then record "$name" failed; fi
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
stage_core() { step core-build tools/build.sh asan "$jobs" core && run_asan core build-asan --label-regex core; }

stage_asan() {
  step asan-build tools/build.sh asan "$jobs" &&
    run_asan asan build-asan --label-exclude 'core|no_sanitizers'
}

# ThreadSanitizer wants addresses that are not shuffled: newer kernels shuffle further than it can follow.
stage_tsan() {
  local under=()
  if setarch -R true 2>/dev/null; then under=(setarch -R); fi
  step tsan-build tools/build.sh tsan "$jobs" &&
    TSAN_OPTIONS=halt_on_error=1 run_ctest tsan build-tsan --label-exclude no_sanitizers
}

# Each fuzzer for a while, from its corpus; `make fuzz` is the long way.
stage_fuzz() {
  step fuzz-build tools/build.sh fuzz "$jobs" &&
    TALWEG_FUZZ_SECONDS=${TALWEG_FUZZ_SECONDS:-20} run_ctest fuzz build-fuzz --label-regex fuzz
}

stage_alone() { step alone tools/lint.sh alone "$jobs"; }
stage_lint() { step lint tools/lint.sh changed "$jobs"; }
stage_lint_all() { step lint_all tools/lint.sh all "$jobs"; }

# What the shell's `times` says of all that has been waited for, in seconds of processor time.
cpu_seconds() { awk -F'[ms ]' 'NR == 2 { printf "%d", 60 * ($1 + $4) + $2 + $5 }' "$results/times"; }

rm -rf "$results"
mkdir -p "$results"
started=$SECONDS
failed_stages=()
for stage in "${stages[@]}"; do
  begun=$SECONDS
  times >"$results/times"
  cpu_begun=$(cpu_seconds)
  echo "=== $stage (at $((begun - started)) s)"
  "stage_$stage" || failed_stages+=("$stage")
  times >"$results/times"
  echo "$stage $((SECONDS - begun)) $(($(cpu_seconds) - cpu_begun))" | tee -a "$results/seconds.txt" |
    sed -E 's/(.*) (.*) (.*)/=== \1 took \2 s, \3 s of processor time/'
done

if ((${#failed_stages[@]})); then echo "=== failed: ${failed_stages[*]}"; fi
python3 tools/sum_tests.py "$results" && ((${#failed_stages[@]} == 0))
