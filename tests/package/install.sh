#!/usr/bin/env bash
# Installs a build into a folder, moves that folder elsewhere, and builds and runs programs of somebody else's against
# it: C++ and C, by find_package and by pkg-config.   install.sh BUILD_FOLDER VERSION
set -euo pipefail
build=$1 version=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
  echo "install: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$scratch/first" >installed.txt
mv first prefix
prefix=$scratch/prefix
library=$(dirname "$(find "$prefix" -name libtalweg.so)")
talweg=$prefix/bin/talweg
[[ $("$talweg" --version) == "talweg $version" ]] || fail "the installed program does not say talweg $version"

# The shared library is the only one: what it stands on is linked into it, and of a static one it would be the user's.
[[ -z $(find "$prefix" -name '*.a') ]] || fail "static libraries were installed"

# Nothing but what users include, and nothing that remembers where it was built.
headers=$(cd "$prefix/include" && find . -type f | sort | xargs)
[[ $headers == "$(cd "$here/../../include" && find . -type f | sort | xargs)" ]] || fail "headers installed: $headers"
if grep -rlF -e "$build" -e "$scratch/first" "$prefix/include" "$library/cmake" "$library/pkgconfig"; then
  fail "these files name a folder of the build"
fi

expect() {
  local wanted=$1
  shift
  local out
  out=$("$talweg" run -n 2 --no-tag-output --timeout 60s -- "$@" 2>&1) || fail "$* failed: $out"
  [[ $out == *"$wanted"* ]] || fail "$* said: $out"
}

for language in cpp c; do
  cmake -S "$here/consumer/$language" -B "$language" -DCMAKE_PREFIX_PATH="$prefix" >"$language.txt" 2>&1 &&
    cmake --build "$language" >>"$language.txt" 2>&1 || fail "$(cat "$language.txt")"
done
expect "consumer in C++: 2 ranks" cpp/consumer
expect "consumer in C++: 2 ranks" cpp/consumer "$scratch/meet"
expect "consumer in C: 2 ranks, sum 2" c/consumer
mkdir newer
cp "$here/consumer/c/main.c" newer
sed 's/talweg 0.1/talweg 9.0/' "$here/consumer/c/CMakeLists.txt" >newer/CMakeLists.txt
if cmake -S newer -B newer/build -DCMAKE_PREFIX_PATH="$prefix" >newer.txt 2>&1; then
  fail "find_package(talweg 9.0) was satisfied by $version"
fi
grep -q 'version: *[0-9.]*' newer.txt || fail "find_package(talweg 9.0) failed for another reason: $(cat newer.txt)"

export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library
[[ $(pkg-config --modversion talweg) == "$version" ]] || fail "talweg.pc has another version"
read -ra flags < <(pkg-config --cflags --libs talweg)
c++ -std=c++20 "$here/consumer/cpp/main.cc" "${flags[@]}" -o by_pkg_config_cpp
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/consumer/c/main.c" "${flags[@]}" -o by_pkg_config_c
expect "consumer in C++: 2 ranks" ./by_pkg_config_cpp
expect "consumer in C: 2 ranks" ./by_pkg_config_c
# With an older C++ the first complaint says what is needed.
if c++ -std=c++17 -fsyntax-only "$here/consumer/cpp/main.cc" "${flags[@]}" 2>old.txt; then
  fail "C++17 was taken"
fi
[[ $(grep -m 1 error: old.txt) == *"Talweg needs C++20"* ]] || fail "with C++17 the compiler said: $(cat old.txt)"
echo "installed, moved, found and used"
