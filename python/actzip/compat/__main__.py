"""Runs a script written for ActNN, GACT or DIVISION: ``python -m actzip.compat [--force] SCRIPT [ARGUMENT ...]``.

With ``--framework paddle``, it is a script for ActNN-PaddlePaddle.

Launchers run it like any module: ``torchrun --nproc_per_node 2 -m actzip.compat main.py``.
"""

import argparse
import runpy
import sys
from pathlib import Path

from . import install
from .imports import PACKAGES


def main() -> int:
    parser = argparse.ArgumentParser("python -m actzip.compat", description=__doc__.split(":")[0] + ".")
    parser.add_argument("--framework", choices=PACKAGES, default="torch", help="that the script is written for")
    parser.add_argument("--force", action="store_true", help="also if actnn, gact or fdmp is installed")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    options, for_script = parser.parse_known_args()  # torch.distributed.launch puts --local-rank before the script
    if not options.script.is_file():
        parser.error(f"no file {options.script} (allowed: a Python script)")
    sys.path[0] = str(options.script.resolve().parent)  # as for any script; before install(), which looks for packages
    try:
        install(options.framework, options.force)
    except ImportError as error:
        parser.error(str(error))
    sys.argv = [str(options.script), *for_script, *options.arguments]
    runpy.run_path(str(options.script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
