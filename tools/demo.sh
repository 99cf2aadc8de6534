#!/usr/bin/env bash
# The demo from nothing: installs what is missing, builds what the demo runs and nothing else, runs it: tools/demo.sh [JOBS]
# PyTorch is fetched and unpacked while the rooms are compiled, from the lowest floor up; as soon as it is there, its side
# is compiled among the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
tools/setup.sh packages
tools/setup.sh run &
setup=$!
trap 'kill "$setup" 2>/dev/null || true' EXIT
for part in talweg_live talweg_group talweg_train talweg; do
  kill -0 "$setup" 2>/dev/null || break
  tools/build.sh release "$jobs" "$part"
done
wait "$setup"
tools/build.sh release "$jobs" talweg talweg_core talweg_c10d
.venv/bin/python examples/demo/demo.py
