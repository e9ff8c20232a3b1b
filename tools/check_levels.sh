#!/usr/bin/env bash
# The CPU loops are built once for each instruction set. A function that two of those builds emit under one name would be
# merged by the linker, and a machine without AVX-512 could run the AVX-512 copy. So every such (weak) symbol must carry
# its level's namespace. Usage: tools/check_levels.sh BUILD_DIR
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
