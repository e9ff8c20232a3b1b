#!/usr/bin/env bash
# Installs what is missing on Debian or Ubuntu: system packages, .venv with requirements-dev.txt, and .venv-paddle with
# requirements-paddle.txt, which has no torch. Returns quickly if everything is installed.
# `tools/setup.sh demo` installs only what `make demo` needs; `tools/setup.sh lint` adds what `make lint` needs.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose="${1:-all}"
case "$purpose" in all | demo | lint) ;; *) echo "setup: '$purpose' is not known; allowed are demo and lint, or nothing" >&2; exit 2 ;; esac

have_command() { for name in "$@"; do command -v "$name" >/dev/null && return 0; done; return 1; }
have_header() { echo "#include <$1>" | c++ -x c++ -std=c++20 -E - >/dev/null 2>&1; }
have_library() { [ -e "$(c++ -print-file-name="$1")" ]; }

clang_compiler() { command -v clang++-14 || command -v clang++; }
have_fuzzer_runtime() { [ -e "$("$(clang_compiler)" -print-file-name="libclang_rt.fuzzer-$(uname -m).a")" ]; }
clang_major() { "$(clang_compiler)" -dumpversion | cut -d. -f1; }

# Prints a command before running it, and does not hide its output: it changes the system and may take minutes.
run_aloud() {
  echo "setup: $*"
  "$@"
}

apt_install() {
  echo "setup: these packages are missing: $*"
  if ! have_command apt-get; then
    echo "setup: this is neither Debian nor Ubuntu; install what these packages hold: $*" >&2
    exit 1
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! have_command sudo; then
      echo "setup: neither root nor sudo; as root, run: apt-get install $*" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  run_aloud "${as_root[@]}" apt-get update
  run_aloud "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

missing=()
need() { missing+=("$1"); }
install_missing() {
  if [ "${#missing[@]}" -gt 0 ]; then apt_install "${missing[@]}"; fi
  missing=()
}

# Needed by every build.
have_command c++ || need g++
have_command cmake || need cmake
have_command ninja || need ninja-build
have_command git || need git
python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
install_missing
have_header "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || need python3-dev

if [ "$purpose" != demo ]; then
  have_command ccache || need ccache
  have_command column || need bsdextrautils
  have_header fmt/format.h || need libfmt-dev
  have_header CLI/CLI.hpp || need libcli11-dev
  have_header nlohmann/json.hpp || need nlohmann-json3-dev
  have_header jpeglib.h || need libjpeg-dev  # libjpeg-turbo's, on Debian and on Ubuntu
  have_header zlib.h || need zlib1g-dev
  have_header lmdb.h || need liblmdb-dev
  have_library libgtest.a || need libgtest-dev
  have_library libgmock.a || need libgmock-dev
  have_command clang++-14 clang++ || need clang
fi
if [ "$purpose" = lint ]; then
  have_command clang-tidy-14 clang-tidy || need clang-tidy
fi
install_missing
if [ "$purpose" != demo ]; then
  have_fuzzer_runtime || apt_install "libclang-rt-$(clang_major)-dev"
  have_command nvcc || [ -x /usr/local/cuda/bin/nvcc ] ||
    echo "setup: no nvcc on PATH or in /usr/local/cuda/bin: CUDA kernels are left out"
fi

# The virtual environments. The first list has what actzip needs to run, which is all that the demo needs. A list is
# installed again only if it or the Python version changes.
install_python() {
  local list="$1" what="$2" folder="${3:-.venv}"
  local stamp index=()
  stamp="$({ python3 --version; cat "$list"; } | sha256sum | cut -d' ' -f1)"
  [ "$(cat "$folder/.$list.stamp" 2>/dev/null)" != "$stamp" ] || return 0
  echo "setup: installing $what into $folder"
  python3 -m venv "$folder"
  # Without an NVIDIA GPU, the small CPU build of torch is enough. If its index cannot be reached, use pip's default.
  local cpu_index=https://download.pytorch.org/whl/cpu
  if [ "$folder" = .venv ] && ! have_command nvidia-smi && .venv/bin/python -c \
    "import urllib.request; urllib.request.urlopen('$cpu_index/torch/', timeout=10)" 2>/dev/null; then
    index=(--extra-index-url "$cpu_index")
  fi
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${index[@]}" -r "$list"
  echo "$stamp" >"$folder/.$list.stamp"
}

install_python requirements.txt "torch (a minute)"
if [ "$purpose" != demo ]; then
  install_python requirements-dev.txt "what the tests need"
  install_python requirements-paddle.txt "PaddlePaddle (half a minute)" .venv-paddle
fi
# Makes the package of `make build` importable: import actzip.
echo "$PWD/build/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/actzip.pth"
