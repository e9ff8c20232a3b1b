#!/usr/bin/env bash
# Checks that weak symbols of the CPU loops carry the namespace of their level. The loops are built once for each
# instruction set. If two of these builds emitted a function under the same name, the linker would merge them, and a
# machine without AVX-512 could run the AVX-512 copy. Usage: tools/check_levels.sh BUILD_DIR
set -euo pipefail
build="${1:?BUILD_DIR}"
status=0
for level in avx2 avx512; do
  folder="$build/src/cpu/CMakeFiles/actzip_cpu_$level.dir"
  [ -d "$folder" ] || continue
  shared=$(find "$folder" -name '*.o' -exec nm -C --defined-only {} + | grep -E '^[0-9a-f]+ [WVu] ' |
    grep -vE "::$level::|DW\.ref\.|__clang_call_terminate" || true)
  if [ -n "$shared" ]; then
    echo "objects for $level define symbols that another level may share; make them always_inline or local to the level:"
    echo "$shared"
    status=1
  fi
done
exit $status
