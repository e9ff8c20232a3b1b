#!/usr/bin/env bash
# Builds the fuzzers with clang in a folder of their own and runs them, sharing the seconds given.
# Usage: tools/fuzz.sh BUILD_DIR SECONDS. A finding is left in BUILD_DIR/findings; run the fuzzer on it to see it again.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="${1:?BUILD_DIR}"
seconds="${2:?SECONDS}"

clangxx="${ACTZIP_CLANGXX:-$(command -v clang++-14 || command -v clang++ || true)}"
if [ -z "$clangxx" ]; then
  echo "fuzz: no clang++ found; run 'make setup', or set ACTZIP_CLANGXX to one" >&2
  exit 1
fi

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$clangxx" \
  -DACTZIP_FUZZ=ON -DACTZIP_CUDA=OFF >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
cmake --build "$build"

fuzzers=("$build"/bin/*)
[ -x "${fuzzers[0]}" ] || { echo "fuzz: no fuzzer was built in $build/bin" >&2; exit 1; }
mkdir -p "$build/findings"
for fuzzer in "${fuzzers[@]}"; do
  corpus="$build/corpus/$(basename "$fuzzer")"
  mkdir -p "$corpus"
  share=$((seconds / ${#fuzzers[@]}))
  echo "fuzz: $(basename "$fuzzer") for $share s"
  log="$build/$(basename "$fuzzer").log"
  "$fuzzer" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/findings/" "$corpus" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  grep -E '^Done|^stat::' "$log"
done
