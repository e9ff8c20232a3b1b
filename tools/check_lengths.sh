#!/usr/bin/env bash
# Checks that source files are short enough to read in one sitting.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=450
status=0
while IFS= read -r file; do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt "$limit" ]; then
    echo "$file has $lines lines; at most $limit are allowed: split it"
    status=1
  fi
done < <(find include src adapters apps python tests reference tools examples -type f \
  \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' -o -name '*.py' -o -name '*.sh' \) 2>/dev/null)
exit $status
