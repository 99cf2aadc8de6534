#!/usr/bin/env bash
# Builds wheels as pip does and uses them in fresh environments: with torch, without it, with another torch; and a wheel
# that was built where there is no torch.   wheel.sh BUILD_FOLDER PYTHON
#
# PYTHON's environment has torch and scikit-build-core. What the fresh ones need of it they see through a .pth file:
# torch is not downloaded again. The wheels' own build folder stays beside the build, so that the second wheel takes only
# what differs, and the next run is short.
set -euo pipefail
build=$(realpath "$1") python=$(realpath --no-symlinks "$2")
tree=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Python would name the compiler in another way than CMake does, and ccache would take it for another one.
export CC=cc CXX=c++

fail() {
  echo "wheel: $*" >&2
  exit 1
}

environment() { # NAME: an empty virtual environment
  "$python" -m venv --without-pip "$1"
}
site_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

wheel() { # ENVIRONMENT FOLDER: the wheel that pip makes for this environment, which sees the tools to build with
  local site tool
  site=$(site_of "$1")
  for tool in scikit_build_core packaging pathspec pip; do
    compgen -G "$packages/$tool*" >/dev/null || fail "$python has no $tool: tools/setup.sh check brings it"
    ln -sf "$packages/$tool"* "$site/"
  done
  rm -f "$build/wheel/CMakeCache.txt" # it names the environment of the last wheel
  "$1/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps --wheel-dir "$2" \
    --config-settings=build-dir="$build/wheel" "$tree" >"$2.txt" 2>&1 || fail "$(tail -40 "$2.txt")"
}

install() { # ENVIRONMENT WHEEL
  "$python" -m pip --disable-pip-version-check --python "$1/bin/python" install --quiet --no-deps --no-index "$2" ||
    fail "pip could not install $2"
}

refuses() { # ENVIRONMENT WORDS: what `import talweg.torch` says there
  local out
  "$1/bin/python" -c 'import talweg' || fail "import talweg failed in $1"
  if out=$("$1/bin/python" -c 'import talweg.torch' 2>&1); then fail "import talweg.torch works in $1"; fi
  [[ $out == *ImportError*"$2"* ]] || fail "import talweg.torch said in $1: $out"
}

# With torch: both faces, their types, the program, its manual.
environment full
echo "$packages" >"$(site_of full)/torch.pth"
wheel full with-torch
full=$(echo with-torch/talweg-*.whl)
contents=$("$python" -m zipfile --list "$full")
for file in talweg/py.typed talweg/_core.pyi talweg/_c10d.pyi talweg/torch/hooks.py talweg/_c10d.cpython talweg/_core.cpython scripts/talweg man1/talweg.1; do
  [[ $contents == *$file* ]] || fail "$file is not in the wheel: $contents"
done
install full "$full"
full/bin/talweg run -n 2 --timeout 60s -- full/bin/python "$tree/examples/all_reduce.py" >out.txt 2>&1 || fail "$(cat out.txt)"
grep -q "average over 2 ranks: 0.5" out.txt || fail "examples/all_reduce.py said: $(cat out.txt)"
OMP_NUM_THREADS=1 full/bin/talweg run -n 2 --timeout 90s -- full/bin/python "$tree/examples/train_ddp.py" >out.txt 2>&1 ||
  fail "$(cat out.txt)"
grep -q "loss after 100 steps on 2 ranks" out.txt || fail "examples/train_ddp.py said: $(cat out.txt)"
[[ $(full/bin/python -c 'import talweg; print(talweg.__file__)') == "$scratch"/full/* ]] || fail "another talweg was imported"

# The same wheel where torch is missing, and where it is another one.
environment bare
install bare "$full"
refuses bare "talweg.torch needs PyTorch"
mkdir "$(site_of bare)/torch"
echo '__version__ = "2.9.1+cpu"' >"$(site_of bare)/torch/__init__.py"
refuses bare "but this is torch 2.9.1"

# A wheel that was built without torch.
environment lean
wheel lean without-torch
[[ $("$python" -m zipfile --list without-torch/talweg-*.whl) != *_c10d.cpython* ]] || fail "the wheel has PyTorch's face"
install lean without-torch/talweg-*.whl
refuses lean "this talweg has no PyTorch face"
echo "built, installed and used, with and without torch"
