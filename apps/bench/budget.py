"""Whether a byte budget is kept, how much the gradient loses, and how much time it costs.

Small models are trained for a while first, those of ``train`` are not. For each budget, a session runs steps until its
plan has settled. The following steps are measured: the most that was held at any time, as the session counts it and on
CUDA also what the allocator counts; the predicted bytes; the squared error of the gradient relative to its square; and
time relative to plain PyTorch, with both taking turns. With --offload, the budget limits what stays in memory, and bits
are those of ``default``. With --recompute, the model's blocks may run again in backward. The predicted time is then
that of ``default``, whose bits take about as long, and of the forwards that run again, as the session measured them.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path

import torch

from ..recompute import recomputable
from ..report import Report, bytes_text
from ..session import Session
from . import devices, machine, models, small_models
from .errors import BenchError
from .results import ResultFile, new_run
from .steps import PLAIN, Bench, Variant, free_memory, seconds_per_step
from .table import table

#: Steps until the plan has settled: two of learning, the second observed, and some until its figures are available.
SETTLING = 6
SMALL = "small:"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    small = ", ".join(SMALL + name for name in (*small_models.SMALL_MODELS, *small_models.DEEP_MODELS))
    parser.add_argument("--model", action="append", required=True, metavar="NAME",
                        help=f"{', '.join(models.MODELS)}, {small}; may be given several times")
    parser.add_argument("--budget", action="append", metavar="BUDGET",
                        help="as actzip.Session takes it; may be given several times (1/2, 1/4 and 1/8 of what is held "
                             "without; with --offload 1/16 and 1/32; with --recompute 1/8, 1/16 and 1/32)")
    parser.add_argument("--offload", metavar="WHERE",
                        help="for what does not fit: on a GPU host, on the CPU a folder")
    parser.add_argument("--recompute", nargs="?", const="none", metavar="CODEC",
                        help="let blocks run again in backward, from arguments that are kept as they are, or by CODEC "
                             "(affine:8)")
    parser.add_argument("--draws", type=int, default=8, metavar="N", help="steps to average errors over (8)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="times that each side takes its turn (5)")
    parser.add_argument("--batch", type=int, metavar="N", help="images, sequences or nodes instead of the model's own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="adds the rows to FILE; those measured again replace")
    devices.add_argument(parser)


@dataclasses.dataclass(frozen=True)
class Row:
    """One model under one budget."""

    model: str
    budget: str
    offload: bool
    plain: int  #: bytes held without actzip
    limit: int  #: the budget in bytes
    most_held: int  #: the maximum during the measured steps
    allocated: int | None  #: between forward and backward, as the allocator counts; None on the CPU
    offloaded: int
    predicted: int | None  #: by the plan
    error: float
    slowdown: float
    recompute: str = ""  #: codec of what blocks that may run again keep of their arguments; empty if none may
    blocks: int = 0  #: that run again
    predicted_slowdown: float | None = None  #: if blocks may run again
    device: str = ""
    run: str = ""


def run(options: argparse.Namespace) -> int:
    device = devices.chosen(options.device)
    for name in ("draws", "repeats", "batch"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BenchError(f"--{name} {value} (allowed: 1 or more)")
    if options.offload and (options.offload == "host") != (device.type == "cuda"):
        raise BenchError(f"--offload {options.offload} on {device} (allowed: host on a GPU, a folder on the CPU)")
    if options.offload and options.recompute:
        raise BenchError("--offload with --recompute (allowed: one of the two)")
    budgets = options.budget or (["1/16", "1/32"] if options.offload else
                                 ["1/8", "1/16", "1/32"] if options.recompute else ["1/2", "1/4", "1/8"])
    file = options.json and ResultFile(options.json, "actzip.bench budget, version 2",
                                       ("model", "budget", "offload", "recompute", "device"))
    if file:
        file.read()
    facts, run_id = machine.describe(device), new_run()
    print(machine.heading(facts), flush=True)
    for name in options.model:
        bench = prepared(name, device, options.batch)
        if options.recompute:
            for block in bench.spec.blocks(bench.model):
                recomputable(block)
        rows = []
        for budget in budgets:
            try:
                row = measured(name, bench, budget, options)
            except RuntimeError as error:
                if "cannot be kept" not in str(error):
                    raise
                print(f"\n{name}, {budget}: {error}", flush=True)
                continue
            rows.append(dataclasses.replace(row, device=facts["device"], run=run_id))
        if rows:
            print(f"\n{text(name, rows)}", flush=True)
        if file:
            file.merge(run_id, facts, rows)
        del bench
        free_memory()
    return 0


def prepared(name: str, device: torch.device, batch: int | None) -> Bench:
    if not name.startswith(SMALL):
        return Bench(models.named(name), device, batch)
    (spec,) = small_models.named(name.removeprefix(SMALL)).values()
    return small_models.trained(dataclasses.replace(spec, batch=batch or spec.batch), device, 40)


def session_options(budget: str, offload: str | None) -> dict[str, str | float]:
    """Returns the options of a session. A budget may also be written as a fraction, such as ``1/8``."""
    top, slash, bottom = budget.partition("/")
    try:
        value = float(top) / float(bottom) if slash else budget
        options = {"budget": value} | ({"offload": offload} if offload else {})
        Session(**options)
    except (ValueError, ZeroDivisionError, RuntimeError) as error:
        raise BenchError(f"--budget {budget}: {error}") from None
    return options


def measured(name: str, bench: Bench, budget: str, options: argparse.Namespace) -> Row:
    rules = {"checkpoint.input": options.recompute} if options.recompute not in (None, "none") else {}
    session = Session(bench.model, rules=rules, **session_options(budget, options.offload))
    exact = bench.gradients(Variant(PLAIN, bench).scope())
    for _ in range(SETTLING):
        bench.step(session)
    errors, most_held, allocated = [], 0, None
    for _ in range(options.draws):
        errors.append(squared_error(bench.gradients(session), exact))
        most_held = max(most_held, session.report().budget.most_held)
    report = session.report()
    if bench.device.type == "cuda":
        allocated = compressed(bench, session).memory().held
    slowdown = ratio_of_times(bench, session, options.repeats)
    return Row(name, budget, bool(options.offload), report.bytes_before, report.budget.bytes, most_held, allocated,
               report.bytes_offloaded, report.plan and report.plan.predicted_bytes, statistics.mean(errors), slowdown,
               options.recompute or "", len(report.recomputed),
               predicted_slowdown(bench, report, options.repeats) if options.recompute else None)


def predicted_slowdown(bench: Bench, report: Report, repeats: int) -> float:
    default = Session(bench.model)
    for _ in range(SETTLING):
        bench.step(default)
    plain = seconds_per_step(Variant(PLAIN, bench), 2 * repeats)
    return ratio_of_times(bench, default, repeats) + sum(module.seconds for module in report.recomputed) / plain


def compressed(bench: Bench, session: Session) -> Variant:
    variant = Variant(PLAIN, bench)
    variant.scope = lambda: session
    return variant


def ratio_of_times(bench: Bench, session: Session, repeats: int) -> float:
    plain, inside = Variant(PLAIN, bench), compressed(bench, session)
    pairs = [(seconds_per_step(inside, 2), seconds_per_step(plain, 2)) for _ in range(repeats)]
    return statistics.median(a / b for a, b in pairs)


def squared_error(gradients: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    difference = sum(float((a - b).float().square().sum()) for a, b in zip(gradients, exact))
    return difference / sum(float(b.float().square().sum()) for b in exact)


def text(name: str, rows: list[Row]) -> str:
    header = [name, "budget", "most held", "allocated", "offloaded", "predicted", "error", "time", "predicted time",
              "run again"]
    lines = [[row.budget, bytes_text(row.limit), bytes_text(row.most_held),
              "-" if row.allocated is None else bytes_text(row.allocated), bytes_text(row.offloaded),
              "-" if row.predicted is None else bytes_text(row.predicted), f"{row.error:.2e}", f"{row.slowdown:.2f}",
              "-" if row.predicted_slowdown is None else f"{row.predicted_slowdown:.2f}", str(row.blocks)]
             for row in rows]
    return f"{bytes_text(rows[0].plain)} are held without\n" + table(header, lines)
