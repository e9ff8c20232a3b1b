"""The command `actzip` that pip installs. Outside the package, so that an actzip that cannot be imported says why in a
sentence."""

from __future__ import annotations

import sys


def advice(error: ImportError) -> str:
    """What to do about an actzip that cannot be imported."""
    if error.name == "torch":
        return "install torch, then install actzip again from its source: it is built against the installed torch"
    if "built against" in str(error):
        return ""  # actzip's own check, which says what to do
    return ("install actzip again beside this torch (pip install --force-reinstall --no-deps --no-cache-dir, "
            "from its source)")


def main() -> int:
    try:
        from actzip.console import main as run
    except ImportError as error:
        print(f"actzip: {error}", file=sys.stderr)
        if what_to_do := advice(error):
            print(f"  -> {what_to_do}", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
