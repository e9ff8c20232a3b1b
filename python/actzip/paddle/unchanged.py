"""Steps after which a model is as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import paddle


@contextmanager
def unchanged(model: paddle.nn.Layer) -> Iterator[None]:
    """Restores gradients, buffers, training flags and random states after the block. Gradients start as None."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    # Running statistics of batch norms are parameters without a gradient.
    frozen = [parameter for parameter in model.parameters() if parameter.stop_gradient]
    buffers = [(buffer, buffer.clone()) for buffer in (*model.buffers(), *frozen)]
    training = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    python_state, paddle_state = random.getstate(), paddle.get_rng_state()
    for parameter, _ in gradients:
        parameter.clear_gradient(set_to_zero=False)
    try:
        yield
    finally:
        for buffer, before in buffers:
            buffer.set_value(before)
        for parameter, gradient in gradients:
            parameter.clear_gradient(set_to_zero=False)
            if gradient is not None:
                parameter.grad = gradient
        for layer, flag in training:
            layer.training = flag
        random.setstate(python_state)
        paddle.set_rng_state(paddle_state)
