#!/usr/bin/env bash
# The linter, with the checks of .clang-tidy: tools/lint.sh changed|all|alone [JOBS [SOURCE ...]]
#   changed  the sources that differ from what landed before, each by itself; a header by one source that includes it;
#            every source, where the checks themselves differ, or where that is sooner: then what differs is compiled
#            by itself, too, as a source has to include what it needs, also where others of its room do
#   all      every source, a room at a time
#   alone    no linter: whether the compiler takes each file by itself, without a warning; or each that is named
# `all` and `alone` leave out what is as it was when there was nothing to say of it.
# What landed before is where this branch left origin's main branch; where that says nothing, as on that branch itself,
# it is the last commit that the linter had nothing to say of here, or else the state of RECENT commits ago.
set -uo pipefail
cd "$(dirname "$0")/.."

RECENT=8
PASSED=build-lint/passed
MANY=40  # one by one these take as long as all of them a room at a time
what=$1 jobs=${2:-$(nproc)}

# Remembers that there was nothing to say of what is committed, if that is what was read.
passed() {
  if [[ -n $(git status --porcelain -- src include .clang-tidy) ]]; then return; fi
  mkdir -p "${PASSED%/*}" && git rev-parse HEAD >$PASSED
}

base_commit() {
  local branch base
  for branch in origin/HEAD origin/main origin/master; do
    base=$(git merge-base HEAD "$branch" 2>/dev/null) || continue
    if [[ $base != $(git rev-parse HEAD) ]]; then
      echo "$base"
      return
    fi
  done
  if [[ -s $PASSED ]] && git merge-base --is-ancestor "$(<$PASSED)" HEAD 2>/dev/null; then
    cat $PASSED
    return
  fi
  git rev-parse --verify --quiet HEAD~$RECENT
}

# Every source that includes this header, directly or through other headers, one a line; nearest first.
includers_of() {
  local header=$1 name=${1#src/} seen=${2-} by
  name=${name#include/}
  grep -rlF "\"$name\"" src --include='*.cc' | sort
  while read -r by; do
    if [[ " $seen " != *" $by "* ]]; then includers_of "$by" "$seen $header"; fi
  done < <(grep -rlF "\"$name\"" src include --include='*.h' | sort)
}

# The sources to read for what changed since a commit, or not committed yet.
changed_sources() {
  local file
  {
    git diff --name-only "$1" -- src include
    git ls-files --others --exclude-standard -- src include
  } | sort -u | while read -r file; do
    case $file in
      *.cc) if [[ -e $file ]]; then echo "$file"; fi ;;
      *.h)
        if [[ -e ${file%.h}.cc ]]; then echo "${file%.h}.cc"; elif [[ -e $file ]]; then includers_of "$file" | sed 1q; fi
        ;;
    esac
  done | sort -u
}

# tidy FOLDER PATTERN ...: -w, as warnings are the business of the compiler that builds; here only .clang-tidy speaks.
tidy() {
  run-clang-tidy-14 -quiet -j"$jobs" -p "$1" -extra-arg=-w "${@:2}" 2>&1 |
    grep -vE '^clang-tidy-14 |^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^$'
  return "${PIPESTATUS[0]}"
}

# compile FOLDER [REGEX]: those of its objects, their names beginning so, that are older than what they are made from.
compile() {
  local objects
  mapfile -t objects < <(sed -n -E 's,.* -o ([^ ]+) .*,\1,p' "$1/compile_commands.json")
  if ((${#objects[@]} != $(grep -c '"file":' "$1/compile_commands.json"))); then
    echo "[lint] not all that is to be compiled names one object" >&2
    return 1
  fi
  printf '%s\n' "${objects[@]}" | grep -E "^(${2-})" | xargs ninja -C "$1" -k0 -j"$jobs"
}

case $what in
  changed)
    if ! base=$(base_commit); then
      echo "[lint] there is no commit to compare with: all of src is read"
      exec "$0" all "$jobs"
    fi
    if ! git diff --quiet "$base" -- .clang-tidy; then
      echo "[lint] the checks have changed since $(git log -1 --format='%h %s' "$base"): all of src is read"
      exec "$0" all "$jobs"
    fi
    mapfile -t sources < <(changed_sources "$base")
    if ((${#sources[@]} > MANY)); then
      echo "[lint] ${#sources[@]} sources for what changed since $(git log -1 --format='%h %s' "$base"): all of src is sooner read"
      "$0" alone "$jobs" "${sources[@]}" && exec "$0" all "$jobs"
      exit 1
    fi
    echo "[lint] ${#sources[@]} sources for what changed since $(git log -1 --format='%h %s' "$base"): ${sources[*]}"
    if ((${#sources[@]})); then
      cmake --preset alone >/dev/null && tidy build-lint/alone "${sources[@]/#//}" || exit 1
    fi
    passed
    ;;
  all)
    # Other checks are another command, and so for every source.
    checks=$(cksum <.clang-tidy | tr -c '0-9\n' _) &&
      cmake --preset lint -DCMAKE_CXX_FLAGS="-O0 -DTALWEG_CHECKS=$checks" >/dev/null && compile build-lint src/ || exit 1
    passed
    ;;
  alone)
    regex=$(printf '%s\n' "${@:3}" | sed -E 's,^(src/[^/]+)/(.*),\1/CMakeFiles/[^/]+/\2[.]o$,' | paste -sd'|')
    cmake --preset alone >/dev/null && compile build-lint/alone "$regex" || exit 1
    ;;
  *)
    echo "usage: tools/lint.sh changed|all|alone [JOBS [SOURCE ...]]" >&2
    exit 2
    ;;
esac
