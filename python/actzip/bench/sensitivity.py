"""What each row of the policy costs and gives: the gradient's error with a step fewer or more bits."""

import argparse

from .errors import BenchError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None yet."""


def run(options: argparse.Namespace) -> int:
    raise BenchError("not there yet")
