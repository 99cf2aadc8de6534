#!/usr/bin/env bash
# Prints the C++ sources of the project, one a line: those that git knows or would add.
set -euo pipefail
cd "$(dirname "$0")/.."

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  git ls-files --cached --others --exclude-standard -- '*.cc' '*.h'
else
  find include src bindings tests bench examples -name '*.cc' -o -name '*.h'
fi | while read -r file; do if [[ -e $file ]]; then echo "$file"; fi; done | sort
