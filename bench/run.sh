#!/bin/bash
# Builds the contestants and measures them: bench/run.sh [SCENARIO...] [--quick] [--help].
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
python=OFF
if .venv/bin/python -c 'from importlib.metadata import version; version("torch")' 2> /dev/null; then python=ON; fi
cmake --preset release -DTALWEG_BENCH=ON -DTALWEG_PYTHON=$python > /dev/null
targets=()
for name in talweg talweg_bench survivor strangers handshake_bench datagram_bench udp_round_trip sim_bench ns3_bench plan_bench train_bench gloo_bench mpi_bench talweg_core talweg_c10d; do
  if ninja -C build -t query "$name" > /dev/null 2>&1; then targets+=("$name"); fi
done
cmake --build build --target "${targets[@]}"
exec python3 bench/bench.py "$@"
