#!/bin/bash
# Builds the contestants and measures them: bench/run.sh [SCENARIO...] [--quick] [--help].
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cmake --preset release -S "$root" -DTALWEG_BENCH=ON > /dev/null
targets=()
for name in talweg_bench gloo_bench mpi_bench; do
  if ninja -C "$root/build" -t query "$name" > /dev/null 2>&1; then targets+=("$name"); fi
done
cmake --build "$root/build" --target "${targets[@]}"
exec python3 "$root/bench/bench.py" "$@"
