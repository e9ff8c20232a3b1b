#!/usr/bin/env bash
# Runs a command and shows its output only if it fails. Usage: tools/quietly.sh COMMAND...
set -uo pipefail
output="$(mktemp)"
trap 'rm -f "$output"' EXIT
"$@" >"$output" 2>&1
status=$?
[ "$status" -eq 0 ] || cat "$output" >&2
exit "$status"
