#!/usr/bin/env bash
# Configures a preset of CMakePresets.json if need be and builds it, or parts of it: tools/build.sh PRESET JOBS [TARGET ...]
# The release preset gets the Python faces when tools/setup.sh has brought PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1 jobs=$2
shift 2
python=OFF
if [[ $preset == release && -e .venv/installed-requirements.txt ]]; then python=ON; fi
if [[ $preset == release && $python == OFF && $# == 0 ]]; then
  echo "[build] without the Python faces: .venv has no torch (tools/setup.sh brings it)"
fi

folder=build
if [[ $preset != release ]]; then folder+=-$preset; fi
# Ninja sees to what else has changed.
is_configured() {
  [[ $folder/build.ninja -nt CMakePresets.json ]] && grep -qx "TALWEG_PYTHON:BOOL=$python" "$folder/CMakeCache.txt"
}
if ! is_configured; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! cmake --preset "$preset" -DTALWEG_PYTHON=$python >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
fi
targets=()
if (($#)); then targets=(--target "$@"); fi
cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}"
