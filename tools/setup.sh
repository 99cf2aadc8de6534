#!/usr/bin/env bash
# Installs what is missing on Debian 12 and nothing else: tools/setup.sh [packages|run|check|bench]
# run (the default) is enough to build Talweg and to run the demo; check and bench add to it; packages is run without
# what Python needs. Packages come from apt, Python packages go into .venv. When everything is there it ends in well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
packages=(ca-certificates ccache cmake g++ iproute2 libcli11-dev libfmt-dev libgtest-dev libgmock-dev libhwy-dev
  libpugixml-dev libsodium-dev libyaml-cpp-dev make nftables ninja-build nlohmann-json3-dev pybind11-dev python3
  python3-dev python3-venv zlib1g-dev)
requirements=(requirements.txt)
case $purpose in
  packages) requirements=() ;;
  run) ;;
  check)
    # The browser is some 100 MB to fetch, once; without it nobody would know that a page's script has failed.
    packages+=(chromium-headless-shell clang-14 clang-format-14 clang-tidy-14 dpkg-dev fonts-dejavu-core groff-base
      libclang-rt-14-dev lintian pkg-config util-linux zsh)
    requirements+=(requirements-dev.txt)
    ;;
  bench) packages+=(libbenchmark-dev libgloo-dev libns3-dev libopenmpi-dev openmpi-bin) ;;
  *)
    echo "usage: tools/setup.sh [packages|run|check|bench]" >&2
    exit 2
    ;;
esac

say() { echo "[setup] $*"; }
fail() {
  echo "[setup] $*" >&2
  exit 1
}

missing_packages() {
  dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk -v wanted="${packages[*]}" '
      $2 == "installed" { have[$1] = 1 }
      END { n = split(wanted, w, " "); for (i = 1; i <= n; i++) if (!(w[i] in have)) print w[i] }' || true
}

install_packages() {
  local missing=("$@") as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      fail "these Debian packages are missing; install them as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >/dev/null || fail "apt-get update failed: is this machine on the network?"
  "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}"
}

if command -v dpkg-query >/dev/null; then
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]})); then install_packages "${missing[@]}"; fi
else
  say "this is not a Debian system; the build expects the equivalents of: ${packages[*]}"
fi

# Debian's own Python, whose headers python3-dev brings, before any other that PATH may offer.
python=/usr/bin/python3
[[ -x $python ]] || python=$(command -v python3) || fail "there is no python3"

# One stamp per requirements file: its contents as they were when they were last installed.
pending=()
for file in "${requirements[@]}"; do
  cmp --silent "$file" ".venv/installed-$file" || pending+=("$file")
done
if ((${#pending[@]})); then
  if [[ ! -x .venv/bin/python ]]; then
    say "making a virtual environment in .venv"
    "$python" -m venv .venv
  fi
  # On PyPI, torch for Linux brings some gigabytes of GPU libraries; PyTorch's own index has it without them.
  index=()
  if getent hosts download.pytorch.org >/dev/null; then
    index=(--extra-index-url https://download.pytorch.org/whl/cpu)
  fi
  say "installing Python packages into .venv: $(grep -hv '^#' "${pending[@]}" | xargs)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${index[@]}" "${pending[@]/#/--requirement=}" ||
    fail "pip could not install what ${pending[*]} asks for"
  for file in "${pending[@]}"; do cp "$file" ".venv/installed-$file"; done
fi
say "ready"
