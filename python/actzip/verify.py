"""How far are compressed gradients from exact ones?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .report import Report
from .session import Session


@dataclasses.dataclass(frozen=True)
class GradientError:
    """Of one parameter, or of all."""

    name: str
    error: float  #: relative squared error |g - exact|^2 / |exact|^2, mean over the draws
    bias: float  #: the part of it that does not average out: |mean(g) - exact|^2 / |exact|^2, less the mean's own noise
    cosine: float  #: between g and exact, mean over the draws


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`. Prints as a table."""

    total: GradientError
    parameters: tuple[GradientError, ...]
    report: Report

    def __str__(self) -> str:
        width = max(len(row.name) for row in (*self.parameters, self.total))
        lines = [f"{'parameter':<{width}}  {'error':>10}  {'bias':>10}  {'cosine':>8}"]
        for row in (*self.parameters, self.total):
            lines.append(f"{row.name:<{width}}  {row.error:>10.3e}  {row.bias:>10.3e}  {row.cosine:>8.5f}")
        return "\n".join(lines)


def verify(
    model: torch.nn.Module, batch: Any, *, draws: int = 4, **options: Any
) -> Verification:
    """Compares the gradients of ``model`` with and without compression, over several draws of the random signs.

    Args:
        model: its gradients and buffers are put back afterwards.
        batch: a function without arguments that runs forward and gives the loss; or the input, or a tuple or mapping of
            inputs, of ``model``, whose outputs are then squared and averaged.
        draws: seeds to average over; 2 or more.
        options: of :class:`actzip.Session`, without ``seed``.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    >>> actzip.verify(model, torch.randn(256, 64)).total.cosine > 0.9
    True
    """
    if draws < 2:
        raise ValueError(f"verify: {draws} draws (allowed: 2 or more, to tell bias from noise)")
    loss = batch if callable(batch) else _loss_of(model, batch)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    with _Untouched(model):
        exact = _gradients(model, loss)
        drawn = []
        for seed in range(draws):
            session = Session(model, seed=seed, **options)
            drawn.append(_gradients(model, loss, session))
    rows = tuple(_compare(name, exact[i], [g[i] for g in drawn]) for i, name in enumerate(names))
    flat = _compare("all", torch.cat(exact), [torch.cat(g) for g in drawn])
    return Verification(flat, rows, session.report())


def _loss_of(model: torch.nn.Module, batch: Any) -> Callable[[], torch.Tensor]:
    def loss() -> torch.Tensor:
        if isinstance(batch, Mapping):
            output = model(**batch)
        elif isinstance(batch, Sequence):
            output = model(*batch)
        else:
            output = model(batch)
        return sum(tensor.float().square().mean() for tensor in _floating_tensors(output))

    return loss


def _floating_tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    values = output.values() if isinstance(output, Mapping) else output
    return [tensor for value in values if value is not None for tensor in _floating_tensors(value)]


class _Untouched:
    """Puts gradients, buffers and torch's random state back, so that every draw starts alike."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._gradients = [parameter.grad for parameter in self._model.parameters()]
        self._buffers = [buffer.clone() for buffer in self._model.buffers()]
        self._random = torch.get_rng_state()

    def __exit__(self, *_: object) -> None:
        for parameter, gradient in zip(self._model.parameters(), self._gradients):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in zip(self._model.buffers(), self._buffers):
                buffer.copy_(value)
        torch.set_rng_state(self._random)


def _gradients(
    model: torch.nn.Module, loss: Callable[[], torch.Tensor], session: Session | None = None
) -> list[torch.Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.random.fork_rng():
        if session is None:
            value = loss()
        else:
            with session:
                value = loss()
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    return [
        (torch.zeros_like(parameter) if gradient is None else gradient).detach().double().flatten()
        for parameter, gradient in zip(parameters, gradients)
    ]


def _compare(name: str, exact: torch.Tensor, drawn: list[torch.Tensor]) -> GradientError:
    energy = max(float(exact.square().sum()), 1e-300)
    error = sum(float((g - exact).square().sum()) for g in drawn) / len(drawn) / energy
    mean = sum(drawn) / len(drawn)
    # The mean of n draws still has 1/n of their variance about it; n - 1 makes the estimate of that unbiased.
    variance = sum(float((g - mean).square().sum()) for g in drawn) / (len(drawn) - 1) / energy
    bias = float((mean - exact).square().sum()) / energy - variance / len(drawn)
    cosines = [float(torch.nn.functional.cosine_similarity(g, exact, dim=0)) for g in drawn]
    return GradientError(name, error, bias, sum(cosines) / len(cosines))
