"""Steps after which a model is as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Restores gradients, buffers, training flags and random states after the block. Gradients start as None.

    Meanwhile, copies replace the buffers, so that their memory is never written: pending graphs would notice that.
    """
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(module._buffers, name, buffer)
               for module in model.modules() for name, buffer in module._buffers.items() if buffer is not None]
    training = [(module, module.training) for module in model.modules()]
    python_state, cpu_state = random.getstate(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    for holder, name, buffer in buffers:
        holder[name] = buffer.clone()
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for holder, name, buffer in buffers:
            holder[name] = buffer
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, flag in training:
            module.training = flag
        random.setstate(python_state)
        torch.set_rng_state(cpu_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)
