"""The commands; ``python -m actzip.bench --help`` lists them."""

import argparse
import sys

from .. import _frameworks
from . import __doc__ as purpose
from .errors import BenchError

COMMANDS = {}
if not _frameworks.is_for_paddle_alone():
    from . import budget, division, fidelity, link, plan, sensitivity, train
    COMMANDS = {"fidelity": fidelity, "train": train, "sensitivity": sensitivity, "plan": plan, "budget": budget,
                "division": division, "link": link}
if _frameworks.is_for_paddle():
    from . import paddle_memory, paddle_train
    COMMANDS |= {"paddle-train": paddle_train, "paddle-memory": paddle_memory}


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
