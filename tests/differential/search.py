"""Searches for wrong gradients: runs random programs plainly and in sessions.

    python search.py [--seconds 3600] [--first 0] [--programs N]

With `exact`, all gradients must equal plain torch's bit for bit. With other presets, each restored tensor is compared
with the saved one. A seed that fails is printed with its program; `--first SEED --programs 1` runs it again.
"""

import argparse
import collections
import contextlib
import sys
import time
import traceback
import warnings

import actzip
import torch
from oracle import Oracle
from programs import Program

PRESETS = ({}, {"bits": 1}, {"bits": 3}, {"bits": 4}, {"bits": 8}, {"preset": "division"}, {"preset": "division:all"},
           {"preset": "affine:2"}, {"preset": "affine:4:dithered"}, {"preset": "affine:8:nearest"}, {"preset": "rotated:3"},
           {"preset": "cast:bf16"}, {"preset": "actnn:L3"}, {"preset": "gact:L2"}, {"codec": "affine:nearest:group=64"})


def same(plain, kept):
    if isinstance(plain, str) or isinstance(kept, str):
        return plain == kept
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(plain, kept))


class Search:
    def __init__(self):
        self.programs = self.raised = 0
        self.saves = collections.Counter()
        self.faults = []

    def try_seed(self, seed):
        """Runs three steps with `exact`, so that what a session learns is tested, too; then two steps with each of two
        other presets."""
        program = Program(seed)
        plain = program.run(contextlib.nullcontext())
        trail = list(program.trail)
        session = actzip.Session(preset="exact", min_elems=program.min_elems, seed=seed)
        for step in range(3):
            kept = program.run(session)
            if not same(plain, kept):
                self.note(seed, trail, f"exact, step {step}: {self.difference(plain, kept)}")
                break
        self.count(session)
        for options in (PRESETS[seed % len(PRESETS)], PRESETS[(seed // 7) % len(PRESETS)]):
            oracle = Oracle(actzip.Session(min_elems=program.min_elems, seed=seed, **options))
            for step in range(2):
                fault = program.run(oracle.scope())
                if isinstance(fault, str) and fault != plain:
                    self.note(seed, trail, f"{options}, step {step}: {fault}")
                    break
            self.saves.update(oracle.counts)
        self.programs += 1
        self.raised += isinstance(plain, str)

    def count(self, session):
        for site in session.report().sites:
            self.saves[f"exact: {site.codec.split(':')[0]}"] += site.saves

    def difference(self, plain, kept):
        if isinstance(plain, str) or isinstance(kept, str):
            text = [x if isinstance(x, str) else "gradients" for x in (plain, kept)]
            return f"plain gives {text[0]}, exact {text[1]}"
        errors = [float((a.double() - b.double()).norm() / (a.double().norm() + 1e-30)) for a, b in zip(plain, kept)]
        return f"gradients differ by {errors}"

    def note(self, seed, trail, what):
        self.faults.append(f"seed {seed}: {what}\n    program: {', '.join(trail)}")

    def run(self, first, count, seconds):
        end = time.monotonic() + seconds
        for seed in range(first, first + count):
            if time.monotonic() > end:
                break
            try:
                self.try_seed(seed)
            except Exception as error:  # noqa: BLE001
                where = traceback.extract_tb(error.__traceback__)[-1]
                self.note(seed, [], f"{type(error).__name__} in {where.name}(): {error}")
        return self

    def summary(self):
        saves = ", ".join(f"{name} {count}" for name, count in sorted(self.saves.items()))
        return (f"{self.programs} programs, of which {self.raised} end in an error of torch's, {sum(self.saves.values())} saves "
                f"({saves}), {len(self.faults)} faults")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--programs", type=int, default=10**9)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    search = Search().run(options.first, options.programs, options.seconds)
    print(*search.faults[:20], search.summary(), sep="\n")
    return 1 if search.faults or search.programs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
