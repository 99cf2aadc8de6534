#!/usr/bin/env bash
# says.sh [--not] TEXT COMMAND...: passes where COMMAND prints TEXT and ends with 0 (--not: where it does not do both).
set -uo pipefail
expected=yes
if [[ $1 == --not ]]; then
  expected=no
  shift
fi
text=$1
shift
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output"
both=no
if [[ $status == 0 && $output == *"$text"* ]]; then both=yes; fi
if [[ $both != "$expected" ]]; then
  echo "says.sh: exit status $status; expected $([[ $expected == no ]] && echo "another one, or no ")\"$text\"" >&2
  exit 1
fi
