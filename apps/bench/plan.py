"""Whether bits go where they matter: observed and measured sensitivities, and the variance of plans.

Trains a model for some steps. Observes one step several times, which estimates the sensitivity of each site as a
session does. Then measures each site: it alone gets noise of 2 bits, several times, while all others are kept as in a
plan of 2 bits. At the end the gradient's variance is measured with 2 bits planned, with 1.5 bits planned, and with 2
bits for all. Plans and predictions use the observed sensitivities; variances are relative to the square of the
gradient. With --samples, the variance is also measured with 2 bits planned for sites and samples: by the sizes of
samples, and by their gradients, too. Gradients are then known for this very batch; in training they come from the epoch
before.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from .. import _C
from ..measure import Holding, Measurement
from ..session import Session
from ..unchanged import unchanged
from . import devices, machine, small_models
from .data import find_folder
from .errors import BenchError
from .results import ResultFile, new_run
from .steps import free_memory
from .table import table
from .tasks import TASKS

#: For each model its task, and how many steps lead to the middle of its training. No task has a GCN of three layers.
MODELS = {"resnet18": ("cifar10", 1000), "gpt": ("shakespeare", 400), "gcn": (None, 40)}
LOW_BITS = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--train", type=int, metavar="N", help="steps before it is measured (default: half a training)")
    parser.add_argument("--draws", type=int, default=8, metavar="N", help="of the noise, to average over (8)")
    parser.add_argument("--batch", type=int, metavar="N", help="instead of the recipe's")
    parser.add_argument("--width", type=int, metavar="N", help="of the network, instead of the recipe's")
    parser.add_argument("--samples", action="store_true", help="plan for samples, too")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: ACTZIP_DATA)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="adds the result to FILE; a model's old one goes")
    devices.add_argument(parser)


@dataclasses.dataclass(frozen=True)
class Site:
    """The memory of one site, or of several that share it."""

    name: str
    elems: int
    observed: float
    measured: float


@dataclasses.dataclass(frozen=True)
class Result:
    """All figures of one model."""

    sites: list[Site]
    spearman: float  #: rank correlation of observed and measured sensitivities
    uniform_predicted: float  #: variance with 2 bits for all, predicted from the observed sensitivities
    uniform: float  #: the same, measured
    planned_predicted: float
    planned: float
    planned_low: float
    by_sample: float | None = None  #: with 2 bits planned, for samples too
    by_gradient: float | None = None  #: the same, with samples weighed by their gradients
    model: str = ""
    device: str = ""
    run: str = ""


def run(options: argparse.Namespace) -> int:
    device = devices.chosen(options.device)
    for name in ("train", "draws", "batch", "width"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise BenchError(f"--{name} {value} (allowed: 1 or more)")
    file = options.json and ResultFile(options.json, "actzip.bench plan, version 1", ("model", "device"))
    if file:
        file.read()
    facts, run_id = machine.describe(device), new_run()
    print(machine.heading(facts), flush=True)
    model, loss, samples = trained(options, device)
    if options.samples and samples == 0:
        raise BenchError(f"--samples: {options.model} has one graph and no samples (allowed: resnet18, gpt)")
    result = compare(model, loss, options.draws, samples if options.samples else 0)
    result = dataclasses.replace(result, model=options.model, device=facts["device"], run=run_id)
    print(f"\n{text(result)}", flush=True)
    if file:
        file.merge(run_id, facts, [result])
    return 0


def trained(options: argparse.Namespace,
            device: torch.device) -> tuple[torch.nn.Module, Callable[[], torch.Tensor], int]:
    """Returns a model in the middle of its training, its loss on the next batch, and the size of that batch (0 for
    graphs)."""
    task_name, steps = MODELS[options.model]
    steps = options.train or steps
    if task_name is None:
        spec = small_models.SMALL_MODELS["gcn"]
        bench = small_models.trained(dataclasses.replace(spec, batch=options.batch or spec.batch), device, steps)
        return bench.model, lambda: spec.loss(bench.model, *bench.data), 0
    changes = {name: value for name in ("batch", "width") if (value := getattr(options, name)) is not None}
    task = TASKS[task_name](**changes)
    torch.manual_seed(0)
    arrays = task.load(find_folder(options.data, task.files))
    trial = task.start({name: torch.from_numpy(array).to(device) for name, array in arrays.items()}, 0, device)
    for step, batch in zip(range(1, steps + 1), trial.batches):
        trial.optimizer.zero_grad()
        trial.loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(trial.model.parameters(), trial.clip)
        trial.optimizer.step()
        if step % 100 == 0:
            print(f"training: step {step} of {steps}", file=sys.stderr, flush=True)
    trial.model.zero_grad()
    batch = next(trial.batches)
    free_memory()
    return trial.model, lambda: trial.loss(batch), len(batch[0])


class Planned:
    """A session with given sensitivities, to measure the variance that its plan leaves."""

    def __init__(self, model: torch.nn.Module, loss: Callable[[], torch.Tensor], bits: float, draws: int,
                 samples: int = 0, use_gradient: bool = False) -> None:
        self._session = Session(model, bits=bits, adapt="sample+measured" if samples else "measured",
                                use_gradient=use_gradient, num_samples=samples)
        self._loss, self._samples = loss, samples
        self.measurement = Measurement(self._session, model, self._step)
        with unchanged(model):
            self._step()  # gradients of samples are learned only in steps that are no trials
        self.measurement.holdings()
        for _ in range(draws):  # by now the session knows which sites share memory
            self.holdings = self.measurement.observe()

    def _step(self) -> None:
        if self._samples:
            self._session.samples(range(self._samples))
        with self._session:
            loss = self._loss()
        loss.backward()

    def set(self, sensitivity: Callable[[Holding], float]) -> None:
        self._session._core.learn([(site.site, sensitivity(holding) / len(holding.readers))
                                   for holding in self.holdings for site in holding.readers])
        self.holdings = self.measurement.holdings()


def elems(holding: Holding) -> int:
    return torch.Size(holding.keeper.shape).numel()


def compare(model: torch.nn.Module, loss: Callable[[], torch.Tensor], draws: int, samples: int) -> Result:
    planned = Planned(model, loss, 2, draws)
    observed = {holding.name: holding.keeper.sensitivity for holding in planned.holdings}
    low = Planned(model, loss, LOW_BITS, draws=1)
    low.set(lambda holding: observed[holding.name])
    planned_low = low.measurement.variance(draws)
    by_sample = [variance_by_sample(model, loss, draws, samples, observed, use_gradient)
                 for use_gradient in (False, True)] if samples else []
    planned.set(lambda holding: observed[holding.name])
    by_plan, by_plan_predicted = planned.measurement.variance(draws), predicted(planned.holdings, observed)
    print(f"measuring {len(planned.holdings)} sites, {draws} draws each", file=sys.stderr, flush=True)
    measured = planned.measurement.sensitivities(planned.holdings, alone=planned.holdings, draws=draws)
    sites = [Site(holding.name, elems(holding), observed[holding.name], measured[holding.name])
             for holding in planned.holdings]
    planned.set(elems)  # with equal sensitivities of all elements, all get 2 bits
    uniform, uniform_predicted = planned.measurement.variance(draws), predicted(planned.holdings, observed)
    rank = spearman([site.observed for site in sites], [site.measured for site in sites])
    return Result(sites, rank, uniform_predicted, uniform, by_plan_predicted, by_plan, planned_low, *by_sample)


def variance_by_sample(model: torch.nn.Module, loss: Callable[[], torch.Tensor], draws: int, samples: int,
                       observed: Mapping[str, float], use_gradient: bool) -> float:
    planned = Planned(model, loss, 2, 1, samples, use_gradient)
    planned.set(lambda holding: observed[holding.name])
    return planned.measurement.variance(draws)


def predicted(holdings: Sequence[Holding], sensitivity: Mapping[str, float]) -> float:
    """Returns the variance that `holdings`, as they are kept, add to the gradient."""
    return sum(sensitivity[holding.name] * _C.expected_error(holding.keeper.codec)
               for holding in holdings if holding.keeper.kind == "encoded")


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    ranks = [torch.tensor(values, dtype=torch.float64).argsort().argsort().double() for values in (a, b)]
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()


def text(result: Result) -> str:
    """Returns a table of the sites, the most sensitive first, and the other figures."""
    rows = [(site.name, site.elems, f"{site.observed:.3e}", f"{site.measured:.3e}",
             f"{site.observed / site.measured:.2f}" if site.measured else "-")
            for site in sorted(result.sites, key=lambda site: -site.measured)]
    by_sample = [f"2 bits planned, for samples {by}: variance measured {value:.4g}; "
                 f"{value / result.planned:.3f} of 2 bits planned"
                 for by, value in (("by their sizes", result.by_sample), ("by their gradients, too", result.by_gradient))
                 if value is not None]
    return "\n".join((
        table(("site", "elements", "observed", "measured", "quotient"), rows),
        f"{len(result.sites)} sites; Spearman {result.spearman:.3f}",
        f"2 bits for all: {variance_text(result.uniform_predicted, result.uniform)}",
        f"2 bits planned: {variance_text(result.planned_predicted, result.planned)}; "
        f"{result.planned / result.uniform:.3f} of 2 bits for all",
        f"{LOW_BITS} bits planned: variance measured {result.planned_low:.4g}; "
        f"{result.planned_low / result.uniform:.3f} of 2 bits for all",
        *by_sample,
    ))


def variance_text(predicted: float, measured: float) -> str:
    return f"variance predicted {predicted:.4g}, measured {measured:.4g}, quotient {predicted / measured:.2f}"
