"""How much of the gradient's variance comes from which site, measured: some steps are made again with other noise."""

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

#: Steps that one measurement may take, one of them observed: with their comparisons they last as long as 29 or so
#: (docs/plan.md), which is 3 % at an interval of 1,000 steps.
MOST_STEPS = 18

#: How often a session is asked for an observation before it gives it, on whatever device.
PATIENCE = 4

#: Uses of what enters linearly: noise there reaches the gradients of its own layer's parameters alone.
LINEAR = {"linear_input", "convolution_input"}


@dataclasses.dataclass(frozen=True)
class Holding:
    """Memory that is kept once, whoever saves it."""

    keeper: SiteReport
    readers: tuple[SiteReport, ...]  #: of its values; the keeper perhaps among them

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
    """Relative squared error of what a site keeps."""
    if keeper.sample_bits is not None:
        return keeper.sample_bits.error
    return _C.expected_error(keeper.codec) if keeper.kind == "encoded" else 0.0


def holdings(report: Report) -> list[Holding]:
    """Everything that a plan may choose for, as the last step kept it."""
    kept = [site for site in report.sites if site.sensitivity is not None]
    sharing: dict[str, list[SiteReport]] = defaultdict(list)
    for site in report.sites:
        if site.kept_by:
            sharing[site.kept_by].append(site)
    return [Holding(site, tuple(s for s in (site, *sharing[site.site]) if s.use != "sign"))
            for site in kept]


class Gradients:
    """Steps made again for their gradients; everything else is afterwards as it was."""

    def __init__(self, session: Session, model: torch.nn.Module, closure: Callable[[], Any]) -> None:
        self._core, self._model, self._closure = session._core, model, closure
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.steps = 0

    def run(self, seed: int, tried: Iterable[str] = (), observe: bool = False) -> dict[str, torch.Tensor]:
        """One step; `tried` are the names of keepers that get noise of their own."""
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
    """One gradient, kept in host memory: the device has no room for another beside the step's own."""

    def __init__(self, gradients: dict[str, torch.Tensor]) -> None:
        self._exact = {name: in_host_memory(gradient.detach()) for name, gradient in gradients.items()}
        self.energy = sum(length**2 for length in norms(gradients.values()).tolist())

    def distance(self, gradients: dict[str, torch.Tensor]) -> Distance:
        names = [name for name in gradients if name in self._exact]
        differences = (gradients[name] - self._exact[name].to(gradients[name].device, non_blocking=True)
                       for name in names)
        return Distance(names, norms(differences), self.energy)


class Distance:
    """Between a gradient and the reference; the device is waited for when it is read."""

    def __init__(self, names: list[str], lengths: torch.Tensor, energy: float) -> None:
        self._names, self._lengths, self._energy = names, lengths, energy

    def by_parameter(self) -> dict[str, float]:
        """Squared, relative to the square of the whole."""
        lengths = self._lengths.tolist()
        return {name: length**2 / self._energy for name, length in zip(self._names, lengths, strict=True)}

    def total(self) -> float:
        return sum(self.by_parameter().values())


def in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy; pinned, so that it is made and read while the device goes on."""
    copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return copy.copy_(tensor, non_blocking=True)


def norms(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The length of each, on the device of the first."""
    lengths = [torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64) for tensor in tensors]
    return torch.stack([length.to(lengths[0].device) for length in lengths]) if lengths else torch.empty(0)


def own_parameters(holding: Holding, model: torch.nn.Module, readers: Counter[str]) -> list[str]:
    """The parameters whose gradients alone feel noise in this holding; none if others may."""
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
    """The sensitivities of a session's sites by trial steps.

    What enters linearly is tried all at once, since each layer's own gradients tell them apart. The rest takes a step
    each, in turns: those that were not measured for longest first.
    """

    def __init__(self, session: Session, model: torch.nn.Module, closure: Callable[[], Any]) -> None:
        self._session, self._model = session, model
        self.gradients = Gradients(session, model, closure)

    def observe(self) -> list[Holding]:
        """A trial step that is observed, which gives the estimate of what will not be measured; and one by its plan."""
        self.gradients.run(seed=0, observe=True)
        for _ in range(PATIENCE):
            if self._session._core.take_observation():
                break
        return self.holdings()

    def holdings(self) -> list[Holding]:
        """As the plan of now has them kept."""
        self.gradients.run(seed=0)
        return holdings(self._session.report())

    def sensitivities(self, chosen: Sequence[Holding], alone: Sequence[Holding], draws: int = 1) -> dict[str, float]:
        """Of `chosen`; of them `alone` are tried one by one, the others together."""
        found: dict[str, float] = defaultdict(float)
        readers = Counter(site.module for holding in chosen for site in holding.readers)
        own = {holding.name: own_parameters(holding, self._model, readers) for holding in chosen}
        together = [holding for holding in chosen if own[holding.name] and holding not in alone]
        # Without a name for it, a draw of the signs; the reference has the same everywhere but where it is tried.
        for draw in range(draws):
            reference = Reference(self.gradients.run(seed=2 * draw))
            if together:
                names = [holding.name for holding in together]
                distance = reference.distance(self.gradients.run(2 * draw, names)).by_parameter()
                for holding in together:
                    change = sum(distance.get(name, 0.0) for name in own[holding.name])
                    found[holding.name] += change / holding.trial_error() / draws
            # Read once all have been started, so that the device does not wait for the host between them.
            distances = [reference.distance(self.gradients.run(2 * draw, [holding.name])) for holding in alone]
            for holding, distance in zip(alone, distances, strict=True):
                found[holding.name] += distance.total() / holding.trial_error() / draws
        return dict(found)

    def passing(self, chosen: Sequence[Holding]) -> list[Holding]:
        """Those whose noise reaches the gradients of other layers: they have to be tried alone."""
        readers = Counter(site.module for holding in chosen for site in holding.readers)
        return [holding for holding in chosen if not own_parameters(holding, self._model, readers)]

    def variance(self, draws: int = 1) -> float:
        """Of the whole gradient as everything is kept now."""
        total = 0.0
        for draw in range(draws):
            reference = Reference(self.gradients.run(seed=2 * draw))
            total += reference.distance(self.gradients.run(seed=2 * draw + 1)).total() / 2
        return total / draws


def measure(session: Session, model: torch.nn.Module, closure: Callable[[], Any], turns: Counter[str]) -> None:
    """One measurement, and the plan that follows from it. `turns` remembers how often each site was measured."""
    measurement = Measurement(session, model, closure)
    found = measurement.observe()
    overhead = 6  # the observed step and one by its plan; the reference, those together; and two for the variance
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
    """Sites that share memory share its sensitivity: the plan sums it up again."""
    return [(site.site, value / len(holding.readers)) for site in holding.readers]
