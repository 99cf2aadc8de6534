#!/usr/bin/env bash
# Everything that must hold before a change is taken, in stages: tools/check.sh [STAGE ...]
# Without arguments all stages run, whatever fails on the way. The last line sums up every test run of every stage;
# a stage without tests of its own (setup, a build, the format, the linter) counts as one. Ends with 0 only if all passed.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
results=$(mktemp --directory)
trap 'rm -rf "$results"' EXIT
started=$SECONDS
all_stages=(setup format build test tidy asan tsan fuzz)
failed_stages=()

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
  local name=$1 folder=$2
  shift 2
  "${under[@]}" ctest --test-dir "$folder" --output-on-failure --no-tests=error -j"$jobs" --timeout 120 \
    --output-junit "$results/$name.xml" "$@" && return 0
  # A run that left no list of tests failed as a whole.
  [[ -s $results/$name.xml ]] || record "$name" failed
  return 1
}

stage_setup() { step setup tools/setup.sh check; }

stage_format() { step format bash -c 'tools/sources.sh | xargs -r clang-format-14 --dry-run --Werror'; }

stage_build() { step build tools/build.sh release "$jobs"; }

stage_test() { run_ctest test build; }

# -w: warnings are the business of the compiler that builds; here only the checks of .clang-tidy speak.
run_clang_tidy() {
  cmake --preset lint >/dev/null || return 1
  run-clang-tidy-14 -quiet -j"$jobs" -p build-lint -extra-arg=-w '/src/' 2>&1 |
    grep -vE '^clang-tidy-14 |^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^$'
  return "${PIPESTATUS[0]}"
}
stage_tidy() { step tidy run_clang_tidy; }

# Not with detect_stack_use_after_return: GCC 12 misplaces 64-byte vectors on the stack then (GCC PR 110027).
stage_asan() {
  step asan-build tools/build.sh asan "$jobs" &&
    UBSAN_OPTIONS=print_stacktrace=1 run_ctest asan build-asan --label-exclude 'no_asan|no_sanitizers'
}

# ThreadSanitizer wants addresses that are not shuffled: newer kernels shuffle further than it can follow.
stage_tsan() {
  local under=()
  if setarch -R true 2>/dev/null; then under=(setarch -R); fi
  step tsan-build tools/build.sh tsan "$jobs" &&
    TSAN_OPTIONS=halt_on_error=1 run_ctest tsan build-tsan --label-exclude 'no_tsan|no_sanitizers'
}

# Each fuzzer for some seconds, from its corpus; `make fuzz` is the long way.
stage_fuzz() {
  step fuzz-build tools/build.sh fuzz "$jobs" && run_ctest fuzz build-fuzz -L fuzz
}

stages=("$@")
if ((${#stages[@]} == 0)); then stages=("${all_stages[@]}"); fi
for stage in "${stages[@]}"; do
  if ! declare -F "stage_$stage" >/dev/null; then
    echo "check: there is no stage '$stage'; stages: ${all_stages[*]}" >&2
    exit 2
  fi
done
for stage in "${stages[@]}"; do
  begun=$SECONDS
  echo "=== $stage (at $((begun - started)) s)"
  "stage_$stage" || failed_stages+=("$stage")
  echo "=== $stage took $((SECONDS - begun)) s"
done

if ((${#failed_stages[@]})); then echo "=== failed: ${failed_stages[*]}"; fi
python3 tools/sum_tests.py "$results" && ((${#failed_stages[@]} == 0))
