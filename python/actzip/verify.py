"""How far compressed gradients are from exact ones, and which site causes the error."""

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
    """Compares the gradients of ``model`` with and without compression, over several seeds of the random signs.

    Afterwards, gradients, buffers, training flags and random states are what they were before.

    Args:
        model: the model whose gradients are compared. A model returned by ``actzip.compile`` is compared with itself in
            eager mode, and not by site, since each site alone would need another graph.
        batch: a function without arguments that runs forward and returns the loss. Or the input of ``model``, or a
            tuple or mapping of inputs; the loss is then the mean square of the outputs.
        draws: number of seeds to average over; 2 or more.
        by_site: whether to compress also each lossy site alone, to find its part in the error. This takes twice
            ``draws`` steps for each such site.
        options: of :class:`actzip.Session`, except ``seed`` and ``only``.

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
        with compiled.left_out():
            exact = gradients()
        names = [name.removeprefix("_orig_mod.") for name in parameters]
        return compare_draws(exact, gradients, names, compiled.report, draws=draws, double=torch.Tensor.double, dot=_dot)
    return compare(gradients, lambda **more: Session(model, **options, **more), list(parameters), draws=draws,
                   by_site=by_site, double=torch.Tensor.double, dot=_dot)


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.dot(a.double().flatten(), b.double().flatten()))


def _check_inputs(model: torch.nn.Module, batch: Any) -> None:
    """Raises TypeError if ``forward()`` does not take the batch, for example because it also contains a target."""
    positional = batch if isinstance(batch, Sequence) else () if isinstance(batch, Mapping) else (batch,)
    try:
        inspect.signature(model.forward).bind(*positional, **(batch if isinstance(batch, Mapping) else {}))
    except TypeError as error:
        raise TypeError(f"verify: forward() of {type(model).__name__} does not take this batch: {error} (allowed: its "
                        "inputs, or a function that gives the loss, as in lambda: loss_fn(model(x), y))") from None
    except ValueError:  # forward has no signature to check
        pass


def forward_of(model: torch.nn.Module, batch: Any) -> Callable[[], Any]:
    """Returns a function that runs ``model`` on an input, or on a tuple or mapping of inputs."""
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
