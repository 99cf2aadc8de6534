#!/usr/bin/env bash
# Runs a command with a folder of its own for temporary files, and removes that with all that was left in it: ranks that
# end at once leave theirs behind, and so does torchrun.   scratch.sh COMMAND [ARGUMENT ...]
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
TMPDIR=$folder "$@"
