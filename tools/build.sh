#!/usr/bin/env bash
# Configures a preset of CMakePresets.json if need be and builds it: tools/build.sh PRESET JOBS [-DNAME=VALUE ...]
# The release preset gets the Python faces when the virtual environment has PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1 jobs=$2
shift 2
python=OFF
if [[ $preset == release ]] && compgen -G '.venv/lib/python3*/site-packages/torch/version.py' >/dev/null; then
  python=ON
fi
if [[ $python == OFF && $preset == release ]]; then
  echo "[build] without the Python faces: .venv has no torch (tools/setup.sh brings it)"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" -DTALWEG_PYTHON=$python "$@" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
cmake --build --preset "$preset" --parallel "$jobs"
