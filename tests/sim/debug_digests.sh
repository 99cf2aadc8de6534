#!/usr/bin/env bash
# Builds what the simulator stands on in the preset dev, where nothing is optimised, and holds its runs to the stored
# digests: debug_digests.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

cmake --preset dev -B "$1" -DTALWEG_UNITY=ON
cmake --build "$1" --target sim_digests --parallel 2
"$1/sim_digests"
