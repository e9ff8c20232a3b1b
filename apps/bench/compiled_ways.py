"""Ways to run a step with torch.compile: alone (``compiled``), and with compression (``compile:PRESET``).

Options may follow, as in ``compiled,budget=0.5`` or ``compile:default,mode=reduce-overhead``. With ``budget``,
torch.compile may use that share of the memory of its activations, and computes the rest again. ``mode`` is an option of
torch.compile, ``derive`` one of actzip.compile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .. import compiled
from .errors import BenchError
from .presets import options_of

COMPILED, COMPRESSED = "compiled", "compile:"
DERIVE: dict[str, bool | str] = {"no": False, "yes": True, "auto": "auto"}
#: Modes of torch.compile, and whether they run CUDA graphs.
MODES = {"default": False, "reduce-overhead": True, "max-autotune": True, "max-autotune-no-cudagraphs": False}


@dataclasses.dataclass(frozen=True)
class CompiledWay:
    preset: str | None = None  #: None: nothing is compressed
    mode: str = "default"
    budget: float = 1.0
    derive: bool | str = False

    @property
    def has_cuda_graphs(self) -> bool:
        return MODES[self.mode]

    def compile(self, model: nn.Module) -> nn.Module:
        """Returns the compiled model. Compiling itself happens in the first step."""
        if self.preset is not None:
            return compiled.compile(model, mode=self.mode, **self.session_options())
        return torch.compile(model, options=self._options())

    def compile_in_place(self, model: nn.Module, **options: Any) -> compiled.CompiledSession | None:
        """Compiles the model itself. Returns the session of its graphs, or None if nothing is compressed."""
        settings = self._options()
        session = None
        if self.preset is not None:
            options |= self.session_options()
            session = compiled.compiled_session(**options)
            settings |= compiled.compile_options(**options)
        model.compile(options=settings)
        return session

    def session_options(self) -> dict[str, Any]:
        assert self.preset is not None
        return {**options_of(self.preset), "derive": self.derive}

    def _options(self) -> dict[str, Any]:
        modes = {} if self.mode == "default" else torch._inductor.list_mode_options(self.mode)
        if self.budget == 1:
            return modes
        from .memory_budget import BudgetPartitioner  # only here, since it loads the compiler

        return {**modes, "custom_partitioner_fn": BudgetPartitioner(self.budget)}

    def begin_step(self) -> None:
        if self.has_cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()


def parse(way: str) -> CompiledWay | None:
    """Returns the compiled way of that name, or None if it is a way without torch.compile."""
    if way.split(",")[0] != COMPILED and not way.startswith(COMPRESSED):
        return None
    rest, options = [], {}
    for part in way.removeprefix(COMPRESSED).split(","):
        name, _, value = part.partition("=")
        if name in ("mode", "budget", "derive"):
            options[name] = value
        else:
            rest.append(part)
    preset = ",".join(rest) if way.startswith(COMPRESSED) else None
    if preset is None and rest != [COMPILED]:
        raise BenchError(f"'{way}' (allowed: compiled, with mode=M or budget=B; compile:PRESET, with mode=M or derive=D)")
    return CompiledWay(preset, _mode(way, options.get("mode", "default")), _budget(way, preset, options.get("budget")),
                       _derive(way, preset, options.get("derive", "no")))


def check(way: str, device: torch.device) -> None:
    """Raises BenchError for a way that cannot be compiled, or not for this device."""
    found = parse(way)
    assert found is not None
    if found.has_cuda_graphs and device.type != "cuda":
        raise BenchError(f"'{way}': mode {found.mode} runs CUDA graphs, which need a GPU (allowed on the CPU: default, "
                         "max-autotune-no-cudagraphs)")
    if found.preset is None:
        return
    try:
        compiled.CompiledSession(**found.session_options())
    except (TypeError, ValueError) as error:
        raise BenchError(f"--preset {way}: {error}") from None


def with_mode(way: str, mode: str) -> str:
    return way if mode == "default" else f"{way},mode={mode}"


def saved_bytes(model: nn.Module, forward: Callable[[], torch.Tensor]) -> int:
    """Returns the bytes that autograd holds between forward and backward, without weights and buffers. Compiled graphs
    must have been made before."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() not in own:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    held = sum(found.values())
    loss.backward()
    return held


def _mode(way: str, mode: str) -> str:
    if mode not in MODES:
        raise BenchError(f"'{way}': mode '{mode}' (allowed: {', '.join(MODES)})")
    return mode


def _derive(way: str, preset: str | None, text: str) -> bool | str:
    if text not in DERIVE or (preset is None and text != "no"):
        raise BenchError(f"'{way}': derive={text} (allowed: compile:PRESET,derive=D with D {', '.join(DERIVE)})")
    return DERIVE[text]


def _budget(way: str, preset: str | None, text: Any) -> float:
    if text is None:
        return 1.0
    try:
        budget = float(text)
    except ValueError:
        budget = -1.0
    if preset is not None or not 0 <= budget <= 1:
        raise BenchError(f"'{way}': budget={text} (allowed: compiled,budget=B with B from 0 to 1)")
    return budget
