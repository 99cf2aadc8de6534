#!/usr/bin/env bash
# with_switch.sh TALWEG COMMAND...: COMMAND beside a switch on loopback, through which all goes that it can sum.
set -euo pipefail
talweg=$1
shift
coproc "$talweg" switch --listen 127.0.0.1:0
trap 'kill "$COPROC_PID"' EXIT
read -r _ _ address _ <&"${COPROC[0]}"
TALWEG_SWITCH=${address%,} TALWEG_ALGO=switch "$@"
