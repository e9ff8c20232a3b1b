"""Measures how much of the gradient's variance comes from each site, by repeating a step with other noise."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _C
from .report import Report, SiteReport
from .unchanged import unchanged

if TYPE_CHECKING:
    from .session import Session

#: Most steps of one measurement, one of them observed. With the comparisons they take as long as about 29 steps of
#: training (docs/plan.md), which is 3 % at an interval of 1,000 steps.
MOST_STEPS = 18

#: How often to ask a session for its observation. A GPU may have it only after some calls.
PATIENCE = 4

#: Uses of tensors whose noise reaches only the gradients of their own layer's parameters.
LINEAR = {"linear_input", "convolution_input"}


@dataclasses.dataclass(frozen=True)
class Holding:
    """Memory that is kept once for one or more sites."""

    keeper: SiteReport
    readers: tuple[SiteReport, ...]  #: sites that need its values; may include the keeper

    @property
    def name(self) -> str:
        return self.keeper.site

    @property
    def trial_codec(self) -> str:
        return "rotated:2:mask" if self.keeper.codec.endswith(":mask") else "rotated:2"

    def trial_error(self) -> float:
        """Squared error between the step as it is and one with trial noise here, relative to what is kept."""
        return _C.expected_error(self.trial_codec) + error_of(self.keeper)


def error_of(keeper: SiteReport) -> float:
    """Returns the relative squared error of what a site keeps."""
    if keeper.sample_bits is not None:
        return keeper.sample_bits.error
    return _C.expected_error(keeper.codec) if keeper.kind == "encoded" else 0.0


def holdings(report: Report) -> list[Holding]:
    """Returns everything that a plan may choose for, as the last step kept it."""
    kept = [site for site in report.sites if site.sensitivity is not None]
    sharing: dict[str, list[SiteReport]] = defaultdict(list)
    for site in report.sites:
        if site.kept_by:
            sharing[site.kept_by].append(site)
    return [Holding(site, tuple(s for s in (site, *sharing[site.site]) if s.use != "sign"))
            for site in kept]


class Gradients:
    """Repeats steps for their gradients, and restores everything else afterwards."""

    def __init__(self, session: Session, model: torch.nn.Module, closure: Callable[[], Any]) -> None:
        self._core, self._model, self._closure = session._core, model, closure
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.steps = 0

    def run(self, seed: int, tried: Iterable[str] = (), observe: bool = False) -> dict[str, torch.Tensor]:
        """Runs one step and returns its gradients. `tried` names the keepers that get noise of their own."""
        versions = [parameter._version for parameter in self.parameters.values()]
        self._core.set_trial(seed, list(tried), observe)
        try:
            with unchanged(self._model), torch.enable_grad():
                self._closure()
                found = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        finally:
            self._core.end_trial()
        if versions != [parameter._version for parameter in self.parameters.values()]:
            raise RuntimeError("measure: the closure has changed a parameter "
                               "(allowed: forward and backward, no optimizer)")
        self.steps += 1
        return found


class Reference:
    """One gradient in host memory, since the device may have no room for a second one."""

    def __init__(self, gradients: dict[str, torch.Tensor]) -> None:
        self._exact = {name: in_host_memory(gradient.detach()) for name, gradient in gradients.items()}
        self.energy = sum(length**2 for length in norms(gradients.values()).tolist())

    def distance(self, gradients: dict[str, torch.Tensor]) -> Distance:
        names = [name for name in gradients if name in self._exact]
        differences = (gradients[name] - self._exact[name].to(gradients[name].device, non_blocking=True)
                       for name in names)
        return Distance(names, norms(differences), self.energy)


class Distance:
    """The distance between a gradient and the reference. Reading it waits for the device."""

    def __init__(self, names: list[str], lengths: torch.Tensor, energy: float) -> None:
        self._names, self._lengths, self._energy = names, lengths, energy

    def by_parameter(self) -> dict[str, float]:
        """Returns the squared distance of each parameter's gradient, relative to the square of the whole gradient."""
        lengths = self._lengths.tolist()
        return {name: length**2 / self._energy for name, length in zip(self._names, lengths, strict=True)}

    def total(self) -> float:
        return sum(self.by_parameter().values())


def in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy. For a CUDA tensor it is pinned, so that copying does not block."""
    copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return copy.copy_(tensor, non_blocking=True)


def norms(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Returns the length of each tensor, on the device of the first."""
    lengths = [torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64) for tensor in tensors]
    return torch.stack([length.to(lengths[0].device) for length in lengths]) if lengths else torch.empty(0)


def own_parameters(holding: Holding, model: torch.nn.Module, readers: Counter[str]) -> list[str]:
    """Returns the parameters that alone get noise in their gradients from this holding; none if others may, too."""
    names = []
    for site in holding.readers:
        if site.use not in LINEAR or readers[site.module] != 1:
            return []
        own = [name for name, _ in model.get_submodule(site.module).named_parameters(recurse=False)]
        if not own:
            return []
        names += [f"{site.module}.{name}" if site.module else name for name in own]
    return names


class Measurement:
    """Measures the sensitivities of a session's sites by trial steps.

    Linear inputs are tried all at once, since the gradients of each layer tell them apart. All other sites take a step
    each, in turns, those that were measured least first.
    """

    def __init__(self, session: Session, model: torch.nn.Module, closure: Callable[[], Any]) -> None:
        self._session, self._model = session, model
        self.gradients = Gradients(session, model, closure)

    def observe(self) -> list[Holding]:
        """Runs an observed trial step, which estimates the sites that will not be measured, and one step with the plan
        that follows from it."""
        self.gradients.run(seed=0, observe=True)
        for _ in range(PATIENCE):
            if self._session._core.take_observation():
                break
        return self.holdings()

    def holdings(self) -> list[Holding]:
        """Returns the holdings under the current plan."""
        self.gradients.run(seed=0)
        return holdings(self._session.report())

    def sensitivities(self, chosen: Sequence[Holding], alone: Sequence[Holding], draws: int = 1) -> dict[str, float]:
        """Returns the sensitivities of `chosen`. Of these, `alone` are tried one by one, the others together."""
        found: dict[str, float] = defaultdict(float)
        readers = Counter(site.module for holding in chosen for site in holding.readers)
        own = {holding.name: own_parameters(holding, self._model, readers) for holding in chosen}
        together = [holding for holding in chosen if own[holding.name] and holding not in alone]
        # A draw is one seed of the signs. Trials differ from their reference only at the sites that are tried.
        for draw in range(draws):
            reference = Reference(self.gradients.run(seed=2 * draw))
            if together:
                names = [holding.name for holding in together]
                distance = reference.distance(self.gradients.run(2 * draw, names)).by_parameter()
                for holding in together:
                    change = sum(distance.get(name, 0.0) for name in own[holding.name])
                    found[holding.name] += change / holding.trial_error() / draws
            # Results are read when all steps have been started, so that the device need not wait for the host.
            distances = [reference.distance(self.gradients.run(2 * draw, [holding.name])) for holding in alone]
            for holding, distance in zip(alone, distances, strict=True):
                found[holding.name] += distance.total() / holding.trial_error() / draws
        return dict(found)

    def passing(self, chosen: Sequence[Holding]) -> list[Holding]:
        """Returns the holdings whose noise reaches the gradients of other layers. They must be tried alone."""
        readers = Counter(site.module for holding in chosen for site in holding.readers)
        return [holding for holding in chosen if not own_parameters(holding, self._model, readers)]

    def variance(self, draws: int = 1) -> float:
        """Returns the variance that compression adds to the whole gradient, with everything kept as it is now."""
        total = 0.0
        for draw in range(draws):
            reference = Reference(self.gradients.run(seed=2 * draw))
            total += reference.distance(self.gradients.run(seed=2 * draw + 1)).total() / 2
        return total / draws


def measure(session: Session, model: torch.nn.Module, closure: Callable[[], Any], turns: Counter[str]) -> None:
    """Measures once, and makes the plan that follows. `turns` counts how often each site was measured."""
    measurement = Measurement(session, model, closure)
    found = measurement.observe()
    overhead = 6  # observed step, step with its plan, reference, linear inputs together, and two for the variance
    waiting = sorted(measurement.passing(found), key=lambda h: (turns[h.name], -(h.keeper.variance or 0.0)))
    alone = waiting[:MOST_STEPS - overhead]
    turns.update(holding.name for holding in alone)
    left = {holding.name for holding in waiting[MOST_STEPS - overhead:]}
    chosen = [holding for holding in found if holding.name not in left]
    values = measurement.sensitivities(chosen, alone)
    session._core.learn([(site, value) for holding in chosen if holding.name in values
                         for site, value in _by_reader(holding, values[holding.name])])
    session._core.set_measured_variance(measurement.variance())


def _by_reader(holding: Holding, value: float) -> list[tuple[str, float]]:
    """Divides the sensitivity among the sites that share the memory. The plan adds it up again."""
    return [(site.site, value / len(holding.readers)) for site in holding.readers]
