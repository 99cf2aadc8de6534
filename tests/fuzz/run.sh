#!/usr/bin/env bash
# Runs one fuzzer from its corpus for TALWEG_FUZZ_SECONDS (default: 4): tests/fuzz/run.sh PROGRAM CORPUS
# What it finds on the way is thrown away; an input that breaks something is left in TALWEG_FUZZ_KEEP, or printed.
set -euo pipefail
program=$1 corpus=$2
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
keep=${TALWEG_FUZZ_KEEP:-$folder}
# Not with a limit on memory that counts what the sanitizers reserve.
if ! "$program" -max_total_time="${TALWEG_FUZZ_SECONDS:-4}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -artifact_prefix="$keep/" "$folder" "$corpus" >"$folder.log" 2>&1; then
  tail -n 60 "$folder.log"
  for input in "$keep"/{crash,timeout,oom,leak}-*; do
    if [[ -e $input ]]; then echo "input $input:"; base64 "$input"; fi
  done
  rm -f "$folder.log"
  exit 1
fi
grep -E 'number_of_executed_units|peak_rss' "$folder.log"
rm -f "$folder.log"
