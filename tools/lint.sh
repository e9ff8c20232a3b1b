#!/usr/bin/env bash
# Checks formatting, clang-tidy, file lengths and the dependency law. Usage: tools/lint.sh BUILD_DIR | --fix-format
# BUILD_DIR must be configured and contain compile_commands.json.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh lint

clang_format=.venv/bin/clang-format  # pinned in requirements-dev.txt: versions differ in what they write
clang_tidy="$(command -v clang-tidy-14 || command -v clang-tidy)"
mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cuh' '*.cu')

if [ "${1:?BUILD_DIR or --fix-format}" = --fix-format ]; then
  exec "$clang_format" -i "${sources[@]}"
fi
build="$1"

"$clang_format" --dry-run --Werror "${sources[@]}"
tools/check_lengths.sh
python3 tools/check_includes.py
echo "lint: clang-tidy over src, apps/data and apps/cli"
printf '%s\n' "${sources[@]}" | grep -E '^(src|apps/data|apps/cli)/.*\.cpp$' | grep -vE '(_|/)stub\.cpp$' |
  xargs -n 1 -P "$(nproc)" "$clang_tidy" --quiet --extra-arg=-Wno-unknown-warning-option -p "$build"
