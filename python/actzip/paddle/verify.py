"""How far compressed gradients are from exact ones, and which site causes the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy
import paddle

from ..verification import Verification, compare
from .session import Session, check_model
from .unchanged import unchanged


def verify(model: paddle.nn.Layer, batch: Any, *, draws: int = 4, by_site: bool = True, **options: Any) -> Verification:
    """Compares the gradients of ``model`` with and without compression, over several seeds of the random signs.

    Afterwards, gradients, buffers, training flags and random states are what they were before.

    Args:
        model: the model whose gradients are compared.
        batch: a function without arguments that runs forward and returns the loss. Or the input of ``model``, or a
            tuple or mapping of inputs; the loss is then the mean square of the outputs.
        draws: number of seeds to average over; 2 or more.
        by_site: whether to compress also each lossy site alone, to find its part in the error. This takes twice
            ``draws`` steps for each such site.
        options: of :class:`Session`, except ``seed`` and ``only``.

    >>> import paddle
    >>> import actzip.paddle as actzip
    >>> model = paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 8))
    >>> result = actzip.verify(model, paddle.randn([256, 64]))
    >>> result.total.cosine > 0.9
    True
    >>> [row.name for row in result.sites]
    ['0: linear.matmul.x', '2: linear.matmul.x']
    """
    check_model(model, "verify")
    parameters = {name: p for name, p in model.named_parameters() if not p.stop_gradient}
    if not parameters:
        raise ValueError("verify: the model has no parameter that gets a gradient")
    forward = batch if callable(batch) else _forward_of(model, batch)

    def gradients(session: Session | None = None) -> list[numpy.ndarray]:
        with unchanged(model), paddle.enable_grad():
            with session or nullcontext():
                output = forward()
            value = output if callable(batch) else _mean_square(output)
            found = paddle.grad(value, list(parameters.values()), allow_unused=True)
        return [numpy.zeros(p.shape) if g is None else g.astype("float64").numpy()
                for p, g in zip(parameters.values(), found)]

    def dot(a: numpy.ndarray, b: numpy.ndarray) -> float:
        return float(numpy.vdot(a, b))

    return compare(gradients, lambda **more: Session(model, **options, **more), list(parameters), draws=draws,
                   by_site=by_site, double=lambda gradient: gradient, dot=dot)


def _forward_of(model: paddle.nn.Layer, batch: Any) -> Callable[[], Any]:
    if isinstance(batch, Mapping):
        return lambda: model(**batch)
    return lambda: model(*batch) if isinstance(batch, Sequence) else model(batch)


def _mean_square(output: Any) -> paddle.Tensor:
    if isinstance(output, paddle.Tensor):
        return output.astype("float32").square().mean()
    values = output.values() if isinstance(output, Mapping) else output
    return sum(_mean_square(value) for value in values if isinstance(value, (paddle.Tensor, Mapping, Sequence)))
