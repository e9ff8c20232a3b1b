"""The command `actzip`: examines an installation, and starts the programs that do everything else."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import __version__, _frameworks, codec_table, doctor
from .report import Report

FAILED, WRONG_USAGE = 1, 2


class ConsoleError(Exception):
    """An error message for the user; ``status`` is the exit status of the process."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


# ---- the program written in C++ --------------------------------------------------------------------------------------


def is_program(path: Path) -> bool:
    """Whether this is the built program, and not the script that pip installs under the same name."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(2) != b"#!"
    except OSError:
        return False


def program_places() -> Iterator[Path]:
    """Yields where the program may be: in the build that contains this package, in ./build, on PATH."""
    yield Path(__file__).parents[2] / "bin/actzip"
    yield Path("build/bin/actzip")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / "actzip"


def find_program(command: str) -> Path:
    if given := os.environ.get("ACTZIP_PROGRAM"):
        if not is_program(Path(given)):
            raise ConsoleError(f"ACTZIP_PROGRAM is '{given}', which is no built program (allowed: the path of the "
                               f"actzip that CMake builds, such as build/bin/actzip)", WRONG_USAGE)
        return Path(given)
    for place in program_places():
        if is_program(place):
            return place.absolute()
    raise ConsoleError(f"'{command}' is a command of the C++ program, which pip does not build: run 'make build' in "
                       f"actzip's source and call build/bin/actzip, or set ACTZIP_PROGRAM to it", WRONG_USAGE)


def run_program(arguments: Sequence[str]) -> int:
    """Replaces this process by the program; returns only by raising ConsoleError."""
    program = find_program(arguments[0] if arguments[0] != "bench" else " ".join(arguments[:2]))
    try:
        os.execv(program, [str(program), *arguments])
    except OSError as error:
        raise ConsoleError(f"cannot run {program}: {error.strerror}") from error


def run_bench(arguments: Sequence[str]) -> int:
    if arguments[1:2] in (["codec"], ["load"]):
        return run_program(arguments)
    try:
        from .bench.__main__ import main as bench
    except ModuleNotFoundError as error:
        raise ConsoleError(f"'bench' needs {error.name}: pip install '.[bench]' in actzip's source, or pip install "
                           f"{error.name}") from error
    return bench(list(arguments[1:]))


# ---- commands of the package -----------------------------------------------------------------------------------------


def run_codecs(options: argparse.Namespace) -> int:
    print(codec_table.as_json() if options.json else codec_table.as_text())
    return 0


def read_report(path: str) -> Report:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConsoleError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConsoleError(f"{path} is no JSON: it is no text") from error
    try:
        return Report.from_json(text)
    except json.JSONDecodeError as error:
        raise ConsoleError(f"{path} is no JSON: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ConsoleError(f"{path} is no report of a session (allowed: what Report.to_json() gives): {error}"
                           ) from error


def write_picture(path: str, report: Report) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(report.to_svg())
    except OSError as error:
        raise ConsoleError(f"--picture {path}: {error.strerror}") from error


def run_report(options: argparse.Namespace) -> int:
    try:
        report = read_report(options.FILE)
        print(report.to_text(all=options.all))
        if options.picture:
            write_picture(options.picture, report)
    except (TypeError, ValueError) as error:
        raise ConsoleError(f"{options.FILE} holds a value that no report has: {error}") from error
    return 0


def run_demo(arguments: Sequence[str]) -> int:
    if not _frameworks.is_for_torch():
        raise ConsoleError("'demo' trains with PyTorch, which this actzip was installed without (allowed: 'actzip bench "
                           "paddle-train'; or install torch, then actzip again)")
    from .demo import main as demo

    return demo(list(arguments[1:]))


#: Commands that parse their own command line, including --help.
HANDED_OVER = {
    "demo": (run_demo, "Train a small ResNet, plain and compressed, and compare."),
    "plan": (run_program, "Choose bits for each site within a budget. *"),
    "train": (run_program, "Train a network on LibTorch. *"),
    "dataset": (run_program, "Look at data sets, and convert them. *"),
    "bench": (run_bench, "Measure training: python -m actzip.bench. 'bench codec', 'bench load': *"),
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "actzip", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compressed activations for training: a look at this installation, codecs, reports, benchmarks.",
        epilog="examples:\n"
               "  actzip demo                 a minute of training, plain and compressed side by side\n"
               "  actzip doctor               what works here, and what to do about the rest\n"
               "  actzip codecs               what there is to choose from\n"
               "  actzip report report.json   the table of a report that Report.to_json() wrote\n"
               "  actzip bench --help         measurements of training\n\n"
               "* runs the C++ program, which 'make build' in actzip's source builds, and pip does not. It is\n"
               "  looked for in ./build/bin and on PATH; the variable ACTZIP_PROGRAM names another place.\n\n"
               "'actzip COMMAND --help' explains a command.")
    parser.add_argument("--version", action="version", version=f"actzip {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def add(name: str, run: object, summary: str, more: str = "") -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary + more)
        command.set_defaults(run=run)
        return command

    add("doctor", lambda _: doctor.run(), "Say what works here, and what to do about the rest.",
        " Status 1 if something is broken; a missing GPU is no failure.")
    codecs = add("codecs", run_codecs, "List the codecs: widths, element types, errors, traits.")
    codecs.add_argument("--json", action="store_true", help="print JSON, one entry for each variant")
    report = add("report", run_report, "Print a saved report of a session as a table.")
    report.add_argument("FILE", help="what Report.to_json() wrote")
    report.add_argument("--picture", metavar="FILE", help="also draw what was held when, as SVG")
    report.add_argument("--all", action="store_true", help="every site, in the order of the step")
    for name, (_, summary) in HANDED_OVER.items():
        commands.add_parser(name, help=summary, add_help=False)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    allowed = ("doctor", "codecs", "report", *HANDED_OVER)
    try:
        if not arguments:
            raise ConsoleError(f"no command was given (allowed: {', '.join(allowed)})", WRONG_USAGE)
        if not arguments[0].startswith("-") and arguments[0] not in allowed:
            raise ConsoleError(f"'{arguments[0]}' is no command (allowed: {', '.join(allowed)})", WRONG_USAGE)
        if arguments[0] in HANDED_OVER:
            return HANDED_OVER[arguments[0]][0](arguments)
        options = parser.parse_args(arguments)
        return options.run(options)
    except ConsoleError as error:
        print(f"actzip: {error}", file=sys.stderr)
        if error.status == WRONG_USAGE:
            print("Run 'actzip --help' for what is allowed.", file=sys.stderr)
        return error.status
