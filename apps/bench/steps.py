"""Runs a training step in several ways (plain, compressed, checkpointed, offloaded, compiled), and measures it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..session import Session
from . import compiled_ways
from .errors import BenchError
from .models import ModelSpec
from .presets import begin, converts

MOST_FIRST_STEPS = 200
PLAIN, CHECKPOINTING, OFFLOADING = "plain", "checkpointing", "save_on_cpu"


@dataclasses.dataclass
class Memory:
    """Memory of one step in bytes; None if unknown."""

    held: int | None = None  #: between forward and backward, without the weights
    peak: int | None = None  #: the maximum during the whole step, including gradients


class Bench:
    """A model with its data on a device, ready to step."""

    def __init__(self, spec: ModelSpec, device: torch.device, batch: int | None = None) -> None:
        self.spec, self.device, self.batch = spec, device, batch or spec.batch
        torch.manual_seed(0)
        try:
            with device:  # creates everything there, rather than on the host
                self.model = spec.make().train()
                self.data = spec.data(self.batch)
        except torch.OutOfMemoryError as error:
            raise BenchError(f"weights and data do not fit into the memory of {device}: {error}") from error

    def twin(self) -> nn.Module:
        """Returns a copy of the model's modules that shares its weights, gradients and buffers."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return copy.deepcopy(self.model, {id(tensor): tensor for tensor in tensors})

    def forward(self, scope: AbstractContextManager, model: nn.Module | None = None) -> torch.Tensor:
        with torch.autocast(self.device.type, self.spec.autocast, enabled=self.spec.autocast is not None), scope:
            return self.spec.loss(self.model if model is None else model, *self.data)

    def step(self, scope: AbstractContextManager, model: nn.Module | None = None) -> None:
        self.model.zero_grad(set_to_none=True)
        self.forward(scope, model).backward()

    def gradients(self, scope: AbstractContextManager, model: nn.Module | None = None) -> list[torch.Tensor]:
        """Returns the gradients of a step that draws the same dropout masks each time."""
        torch.manual_seed(1)
        self.step(scope, model)
        found = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        self.model.zero_grad(set_to_none=True)
        return found

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Variant:
    """One way to run a step, with a scope to enter around each forward."""

    def __init__(self, name: str, bench: Bench) -> None:
        self.name, self.bench = name, bench
        self.compiled = compiled_ways.parse(name)
        self.model = bench.twin() if converts(name) or self.compiled else bench.model
        self.session: Session | None = None
        if self.compiled:
            self.model = self.compiled.compile(self.model)
        elif name not in (PLAIN, CHECKPOINTING, OFFLOADING):
            self.session, self._scope = begin(self.model, name)

    def scope(self) -> AbstractContextManager:
        if self.name == PLAIN or self.compiled:
            return nullcontext()
        if self.name == CHECKPOINTING:
            return checkpointed(self.bench.spec.blocks(self.bench.model))
        if self.name == OFFLOADING:
            return torch.autograd.graph.save_on_cpu(pin_memory=self.bench.device.type == "cuda")
        return self._scope

    def step(self) -> None:
        self._begin_step()
        self.bench.step(self.scope(), self.model)

    def gradients(self) -> list[torch.Tensor]:
        self._begin_step()
        return self.bench.gradients(self.scope(), self.model)

    def settle(self) -> int:
        """Runs steps until a session knows what is shared and its guard has checked all sites. Returns how many."""
        steps = 0
        while steps < 2 or (self.session is not None and self.session.is_guarding and steps < MOST_FIRST_STEPS):
            self.step()
            steps += 1
        return steps

    def memory(self) -> Memory:
        """Runs a step and measures its memory. Call it after settle()."""
        if self.compiled and self.compiled.has_cuda_graphs:  # graphs keep their memory from step to step
            return Memory()
        if self.bench.device.type != "cuda":
            return Memory(held=self._reported())
        device, model = self.bench.device, self.bench.model
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = active_bytes(device)
        loss = self.bench.forward(self.scope(), self.model)
        held = active_bytes(device) - before - self._weight_casts()
        loss.backward()
        return Memory(held, torch.cuda.memory_stats(device)["active_bytes.all.peak"] - before)

    def _begin_step(self) -> None:
        if self.compiled:
            self.compiled.begin_step()

    def _reported(self) -> int | None:
        """Returns what a session or autograd counts as held, where no allocator can be asked; None for ways that bypass
        both."""
        if self.name in (CHECKPOINTING, OFFLOADING):
            return None
        if self.compiled:
            self.bench.model.zero_grad(set_to_none=True)
            return compiled_ways.saved_bytes(self.bench.model, lambda: self.bench.forward(self.scope(), self.model))
        if self.session is not None and self._scope is self.session:
            self.step()
            return self.session.report().bytes_after
        rest = Session(self.model, dry_run=True)  # counts what the variant does not compress
        self.bench.step(rest, self.model)
        by_layers = self.session.report().bytes_after if self.session else 0
        return by_layers + rest.report().bytes_before

    def _weight_casts(self) -> int:
        """Returns the bytes of the 16-bit copies of weights that autocast makes and backward holds. They are no
        activations.

        Copies are made of matrices and filters. Checkpointing makes them again for its blocks, and offloading moves
        them. What compiled graphs do with them is unknown, so nothing is subtracted there.
        """
        if self.bench.spec.autocast is None or self.name == OFFLOADING or self.compiled:
            return 0
        model = self.bench.model
        again = self.bench.spec.blocks(model) if self.name == CHECKPOINTING else ()
        left_out = {id(parameter) for block in again for parameter in block.parameters()}
        return sum(parameter.numel() * self.bench.spec.autocast.itemsize
                   for parameter in model.parameters() if parameter.dim() > 1 and id(parameter) not in left_out)


def active_bytes(device: torch.device) -> int:
    """Returns the bytes that are in use when the current stream has come to this point.

    Unlike ``memory_allocated()``, this includes blocks that were freed while another stream still copies from them. It
    does not wait for such copies.
    """
    torch.cuda.current_stream(device).synchronize()
    torch.empty(1, device=device)  # makes the allocator check which blocks other streams have released
    return torch.cuda.memory_stats(device)["active_bytes.all.current"]


@contextmanager
def checkpointed(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Makes each block keep only its input, and compute the rest again in backward, for the duration of a scope."""
    blocks = list(blocks)
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # uncovers that of the class


def unless_out_of_memory(work: Callable[[], object]) -> bool:
    """Runs `work`. Returns whether memory sufficed; if not, frees what is left."""
    try:
        work()
        return True
    except RuntimeError as error:  # the allocator of pinned memory has no error type of its own
        if "out of memory" not in str(error).lower():
            raise
    free_memory()
    return False


def free_memory() -> None:
    """Gives unused memory back to the device, and unused pinned memory to the host if torch can do that."""
    gc.collect()
    if not torch.cuda.is_available():
        return
    torch.cuda.empty_cache()
    getattr(torch.accelerator, "empty_host_cache", lambda: None)()


def fits_host(held: int) -> bool:
    """Whether the host has room for what a step holds. Twice that, as torch rounds pinned buffers up to powers of 2."""
    return 2 * held < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def seconds_per_step(variant: Variant, steps: int) -> float:
    """Returns the time of forward and backward. The optimizer is left out, as it is the same for all variants."""
    variant.bench.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        variant.step()
    variant.bench.synchronize()
    return (time.perf_counter() - start) / steps


def cosine(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """Returns the cosine between two gradients of the whole model."""
    products = torch.zeros(3, dtype=torch.float64, device=a[0].device)
    for x, y in zip(a, b, strict=True):
        x, y = x.flatten().double(), y.flatten().double()
        products += torch.stack([x @ y, x @ x, y @ y])
    xy, xx, yy = products.tolist()
    return xy / (xx * yy) ** 0.5 if xx > 0 and yy > 0 else 0.0
