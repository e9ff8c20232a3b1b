"""Runs a script that was written for ActNN or GACT: ``python -m actzip.compat [--force] SCRIPT [ARGUMENT ...]``."""

import argparse
import runpy
import sys
from pathlib import Path

from . import install


def main() -> int:
    parser = argparse.ArgumentParser("python -m actzip.compat", description=__doc__.split(":")[0] + ".")
    parser.add_argument("--force", action="store_true", help="also if actnn or gact is installed")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    options = parser.parse_args()
    if not options.script.is_file():
        parser.error(f"no file {options.script} (allowed: a Python script)")
    sys.path[0] = str(options.script.resolve().parent)  # first, as for any script: a package there is a real one
    try:
        install(options.force)
    except ImportError as error:
        parser.error(str(error))
    sys.argv = [str(options.script), *options.arguments]
    runpy.run_path(str(options.script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
