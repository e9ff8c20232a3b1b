"""How far are compressed gradients from exact ones, and which site is to blame?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from .compiled.api import session_of_compiled
from .session import Session
from .torch_models import check_model
from .unchanged import unchanged
from .verification import Verification, compare, compare_draws


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
    ['2: addmm.mat1']
    """
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
            exact = gradients()
        names = [name.removeprefix("_orig_mod.") for name in parameters]
        return compare_draws(exact, gradients, names, compiled.report, draws=draws, double=torch.Tensor.double, dot=_dot)
    return compare(gradients, lambda **more: Session(model, **options, **more), list(parameters), draws=draws,
                   by_site=by_site, double=torch.Tensor.double, dot=_dot)


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
