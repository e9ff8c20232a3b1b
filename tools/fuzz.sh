#!/usr/bin/env bash
# Builds the fuzzers with clang in a separate folder and runs them. They share the given seconds equally.
# Usage: tools/fuzz.sh BUILD_DIR SECONDS [FUZZER...]. Without names, it runs all of them; ACTZIP_FUZZ_TORCH=ON adds the
# one that needs torch. Findings are stored in BUILD_DIR/findings; run the fuzzer on one to reproduce it. Corpora stay
# in BUILD_DIR/corpus, where a later run continues with them.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
build="${1:?BUILD_DIR}"
seconds="${2:?SECONDS}"
shift 2

clangxx="${ACTZIP_CLANGXX:-$(command -v clang++-14 || command -v clang++ || true)}"
if [ -z "$clangxx" ]; then
  echo "fuzz: no clang++ found; run 'make setup', or set ACTZIP_CLANGXX to one" >&2
  exit 1
fi

mkdir -p "$(dirname "$build")"
# More optimisation would cost more compile time than it saves in a minute, and would hide errors from the sanitizers.
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
  -DCMAKE_CXX_COMPILER="$clangxx" -DACTZIP_FUZZ=ON -DACTZIP_CUDA=OFF \
  -DACTZIP_FUZZ_TORCH="${ACTZIP_FUZZ_TORCH:-OFF}" >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 1; }
cmake --build "$build"

fuzzers=("$build"/fuzzers/*)
if [ "$#" -gt 0 ]; then fuzzers=("${@/#/$build/fuzzers/}"); fi
for fuzzer in "${fuzzers[@]}"; do
  [ -x "$fuzzer" ] || { echo "fuzz: no fuzzer $fuzzer (there are: $(ls "$build/fuzzers" | tr '\n' ' '))" >&2; exit 1; }
done
share=$((seconds / ${#fuzzers[@]}))
if [ "$share" -lt 1 ]; then  # libFuzzer takes 0 for no limit
  echo "fuzz: $seconds seconds for ${#fuzzers[@]} fuzzers (allowed: at least one second for each)" >&2
  exit 1
fi

"$build/bin/fuzz_seeds" "$build/corpus"
mkdir -p "$build/findings"
for fuzzer in "${fuzzers[@]}"; do
  name="$(basename "$fuzzer")"
  mkdir -p "$build/corpus/$name"
  echo "fuzz: $name for $share s"
  "$fuzzer" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" >"$build/$name.log" 2>&1 ||
    { cat "$build/$name.log" >&2; exit 1; }
  grep -E '^Done|^stat::number_of_executed_units|^stat::peak_rss_mb' "$build/$name.log"
done
