#!/usr/bin/env bash
# Makes the Debian package of a build, unpacks it, and uses what is in it.   debian.sh BUILD_FOLDER VERSION
set -euo pipefail
build=$1 version=$2
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "debian: $*" >&2
  exit 1
}

(cd "$build" && cpack -G DEB -B "$scratch/made") >"$scratch/cpack.txt" 2>&1 || fail "$(cat "$scratch/cpack.txt")"
package=$(echo "$scratch"/made/*.deb)
[[ $(dpkg-deb --field "$package" Version) == "$version" ]] || fail "the package has another version"
dpkg-deb --extract "$package" "$scratch/root"
root=$scratch/root/usr

[[ $("$root/bin/talweg" --version) == "talweg $version" ]] || fail "the program does not say talweg $version"
out=$("$root/bin/talweg" run -n 2 --no-tag-output -- "$root/bin/talweg" perf all_reduce -b 4K -e 4K -n 2 2>&1) || fail "$out"
[[ $out == *"# Out of bounds values : 0 OK"* ]] || fail "talweg perf said: $out"
zgrep -q 'talweg' "$root/share/man/man1/talweg.1.gz" || fail "the manual page is not there"
for file in lib/libtalweg.so.0 lib/libtalweg.so include/talweg/group.h include/talweg/talweg.h lib/pkgconfig/talweg.pc \
  share/bash-completion/completions/talweg share/zsh/site-functions/_talweg lib/systemd/system/talweg-switch.service; do
  compgen -G "$root/$file*" >/dev/null || fail "$file is not in the package"
done
depends=$(dpkg-deb --field "$package" Depends)
for library in libc6 libfmt libyaml-cpp; do
  [[ $depends == *$library* ]] || fail "the package does not depend on $library: $depends"
done

if command -v lintian >/dev/null; then
  lintian --no-cfg --allow-root --fail-on error "$package" >"$scratch/lintian.txt" 2>&1 || fail "$(cat "$scratch/lintian.txt")"
else
  echo "debian: not checked by lintian, which is not installed"
fi
echo "packaged, unpacked and used"
