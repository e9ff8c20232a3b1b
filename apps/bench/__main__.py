"""The commands; ``python -m actzip.bench --help`` lists them."""

import argparse
import sys

from . import __doc__ as purpose
from . import division, fidelity, plan, sensitivity, train
from .errors import BenchError

COMMANDS = {"fidelity": fidelity, "train": train, "sensitivity": sensitivity, "plan": plan,
            "division": division}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m actzip.bench", description=purpose.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = module.__doc__.splitlines()[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    try:
        return COMMANDS[options.command].run(options)
    except BenchError as error:
        print(f"actzip.bench {options.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
