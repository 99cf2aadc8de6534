#!/usr/bin/env bash
# Runs every fuzzer for MINUTES (default 10) and throws STRANGERS (default a million) connections at a running job:
# tools/fuzz.sh [MINUTES]. What breaks a fuzzer is left in build-fuzz/found/.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-10}
strangers=${STRANGERS:-1000000}
jobs=$(nproc)
tools/build.sh fuzz "$jobs"
tools/build.sh release "$jobs"
mkdir -p build-fuzz/found
TALWEG_FUZZ_SECONDS=$((60 * minutes)) TALWEG_FUZZ_KEEP=$PWD/build-fuzz/found \
  ctest --test-dir build-fuzz -L fuzz -j"$jobs" --output-on-failure --no-tests=error --timeout $((60 * minutes + 120))
TALWEG_STRANGERS=$strangers build/tests/group/group_test --gtest_filter='Strangers.*'
