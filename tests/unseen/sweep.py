"""Measures all models, or those that are named, and prints a table: `make test-models`."""

import argparse
import sys
import time

import torch
from limits import limit_of, wrong_with
from measure import CASES, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(sorted(CASES))}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of models and data; every choice was made with 0")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(CASES)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))} (allowed: {', '.join(sorted(CASES))})")
    torch.set_num_threads(arguments.threads)
    failed = []
    print("| model | cosine | least allowed | bias | held | kept by the guard |\n|---|---|---|---|---|---|")
    for name in arguments.names or sorted(CASES):
        start = time.monotonic()
        result = measured(name, seed=arguments.seed)
        print(f"| {name} | {result.cosine:.3f} | {limit_of(name):.2f} | {result.bias:.2f} | {result.ratio:.1f} x | "
              f"{', '.join(result.guarded)} |", flush=True)
        problems = wrong_with(result)
        failed += [f"{name}: {problem}" for problem in problems]
        print(f"{name}: {time.monotonic() - start:.1f} s", *problems, sep="; ", file=sys.stderr)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
