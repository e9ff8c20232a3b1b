"""How far are compressed gradients from exact ones, and which site is to blame?"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from . import _C
from .compiled.api import session_of_compiled
from .options import check_model
from .report import Report
from .session import Session
from .unchanged import unchanged


@dataclasses.dataclass(frozen=True)
class GradientError:
    """Of one parameter, of all of them, or of all because of one site."""

    name: str
    error: float  #: relative squared error |g - exact|^2 / |exact|^2, mean over the draws
    bias: float  #: the part of it that does not average out: |mean(g) - exact|^2 / |exact|^2, less the mean's own noise
    cosine: float  #: between g and exact, mean over the draws


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`. Prints as a table, the worst sites first."""

    total: GradientError
    parameters: tuple[GradientError, ...]
    sites: tuple[GradientError, ...]  #: all gradients when that site alone is compressed; in the order of the step
    report: Report

    def __str__(self) -> str:
        worst_first = sorted(self.sites, key=lambda row: -row.error)
        width = max(len(row.name) for row in (*self.parameters, *self.sites, self.total))
        tables = [_table("parameter", (*self.parameters, self.total), width)]
        if worst_first:
            tables.append(_table("site alone", worst_first, width))
        return "\n\n".join(tables)


def _table(title: str, rows: Sequence[GradientError], width: int) -> str:
    lines = [f"{title:<{width}}  {'error':>10}  {'bias':>10}  {'cosine':>8}"]
    lines += [f"{row.name:<{width}}  {row.error:>10.3e}  {row.bias:>10.3e}  {row.cosine:>8.5f}" for row in rows]
    return "\n".join(lines)


def verify(
    model: torch.nn.Module, batch: Any, *, draws: int = 4, by_site: bool = True, **options: Any
) -> Verification:
    """Compares the gradients of ``model`` with and without compression, over several draws of the random signs.

    Gradients, buffers, training flags and random states are afterwards what they were.

    Args:
        model: whose parameters are looked at. One that ``actzip.compile`` gave is compared with itself as it was before,
            without sites: each alone would be another graph.
        batch: a function without arguments that runs forward and gives the loss; or the input, or a tuple or mapping of
            inputs, of ``model``, whose outputs are then squared and averaged.
        draws: seeds to average over; 2 or more.
        by_site: also compress each site alone that loses something. That takes twice ``draws`` steps for each of them.
        options: of :class:`actzip.Session`, without ``seed`` and ``only``.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    >>> result = actzip.verify(model, torch.randn(256, 64))
    >>> result.total.cosine > 0.9
    True
    >>> [row.name for row in result.sites]
    ['0: addmm.mat1', '2: addmm.mat1']
    """
    if draws < 2:
        raise ValueError(f"verify: {draws} draws (allowed: 2 or more, to tell bias from noise)")
    check_model(model, "verify")
    if not callable(batch):
        _check_inputs(model, batch)
    forward = batch if callable(batch) else forward_of(model, batch)
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not parameters:
        raise ValueError("verify: the model has no parameter that requires grad")

    def gradients(session: Session | None = None) -> list[torch.Tensor]:
        with unchanged(model), torch.enable_grad():
            with session or nullcontext():
                output = forward()
            value = output if callable(batch) else _mean_square(output)
            found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g.detach() for p, g in zip(parameters.values(), found)]

    if (compiled := session_of_compiled(model)) is not None:
        with torch.compiler.set_stance("force_eager"):
            errors = _Errors(gradients())
        for _ in range(draws):
            errors.add(gradients())
        rows = tuple(errors.of([i], name.removeprefix("_orig_mod.")) for i, name in enumerate(parameters))
        return Verification(errors.of(list(range(len(parameters))), "all"), rows, (), compiled.report())

    exact = gradients()

    def measure(**more: Any) -> tuple[_Errors, Session]:
        errors = _Errors(exact)
        for seed in range(draws):
            session = Session(model, seed=seed, **options, **more)
            gradients(session)  # it learns what is shared, what is a loss, and what few bits would spoil
            errors.add(gradients(session))
        return errors, session

    errors, session = measure()
    report = session.report()
    rows = tuple(errors.of([i], name) for i, name in enumerate(parameters))
    everything = list(range(len(exact)))
    sites = []
    for name in _lossy_sites(report) if by_site else ():
        alone, _ = measure(only=name)
        sites.append(alone.of(everything, name))
    return Verification(errors.of(everything, "all"), rows, tuple(sites), report)


def _lossy_sites(report: Report) -> list[str]:
    """Those kept by a codec that changes values, or sharing what such a site keeps."""
    lossy = {site.site for site in report.sites if site.kind == "encoded" and _C.expected_error(site.codec) > 0}
    return [site.site for site in report.sites if site.site in lossy or site.kept_by in lossy]


class _Errors:
    """Sums over draws, from which the errors of any set of parameters follow."""

    def __init__(self, exact: list[torch.Tensor]) -> None:
        self._exact = exact
        self._energy = [_dot(e, e) for e in exact]
        self._offset = [torch.zeros_like(e, dtype=torch.float64) for e in exact]  # sum over draws of g - exact
        self._draws: list[list[tuple[float, float, float]]] = []  # |g - exact|^2, <g, exact>, |g|^2

    def add(self, gradients: list[torch.Tensor]) -> None:
        figures = []
        for gradient, exact, offset in zip(gradients, self._exact, self._offset):
            difference = gradient.double() - exact.double()
            offset += difference
            figures.append((_dot(difference, difference), _dot(gradient, exact), _dot(gradient, gradient)))
        self._draws.append(figures)

    def of(self, which: list[int], name: str) -> GradientError:
        n = len(self._draws)
        energy = sum(self._energy[i] for i in which)
        if energy == 0:
            energy = 1e-300  # a gradient that is 0 and stays so has no error
        squares = sum(figures[i][0] for figures in self._draws for i in which)
        of_mean = sum(_dot(self._offset[i], self._offset[i]) for i in which) / n**2
        # The mean of n draws still has 1/n of their variance about it; n - 1 makes the estimate of that unbiased.
        variance = (squares - n * of_mean) / (n - 1)
        cosines = [self._cosine(figures, which, energy) for figures in self._draws]
        return GradientError(name, squares / n / energy, (of_mean - variance / n) / energy, sum(cosines) / n)

    @staticmethod
    def _cosine(figures: list[tuple[float, float, float]], which: list[int], energy: float) -> float:
        if not any(figures[i][0] for i in which):
            return 1.0
        product = sum(figures[i][1] for i in which)
        length = (energy * sum(figures[i][2] for i in which)) ** 0.5
        return product / length if length > 0 else 0.0


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.dot(a.double().flatten(), b.double().flatten()))


def _check_inputs(model: torch.nn.Module, batch: Any) -> None:
    """A tuple is of inputs: whoever gives a target too is told how to give the loss."""
    positional = batch if isinstance(batch, Sequence) else () if isinstance(batch, Mapping) else (batch,)
    try:
        inspect.signature(model.forward).bind(*positional, **(batch if isinstance(batch, Mapping) else {}))
    except TypeError as error:
        raise TypeError(f"verify: forward() of {type(model).__name__} does not take this batch: {error} (allowed: its "
                        "inputs, or a function that gives the loss, as in lambda: loss_fn(model(x), y))") from None
    except ValueError:  # a forward without a signature: whatever it takes
        pass


def forward_of(model: torch.nn.Module, batch: Any) -> Callable[[], Any]:
    """Of an input, or a tuple or mapping of inputs."""
    if isinstance(batch, Mapping):
        return lambda: model(**batch)
    return lambda: model(*batch) if isinstance(batch, Sequence) else model(batch)


def _mean_square(output: Any) -> torch.Tensor:
    return sum(tensor.float().square().mean() for tensor in _floating_tensors(output))


def _floating_tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, Sequence) else ()
    return [tensor for value in values for tensor in _floating_tensors(value)]
