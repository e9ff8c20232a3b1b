"""How far compressed gradients are from exact ones, for any framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from . import _native
from .base_session import BaseSession
from .report import Report


@dataclasses.dataclass(frozen=True)
class GradientError:
    """The error of one parameter's gradient, or of all gradients: with every site compressed, or one site alone."""

    name: str
    error: float  #: relative squared error |g - exact|^2 / |exact|^2, mean over the draws
    bias: float  #: the part that does not average out: |mean(g) - exact|^2 / |exact|^2, less the noise of mean(g)
    cosine: float  #: between g and exact, mean over the draws


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`. Prints as a table, the worst sites first."""

    total: GradientError
    parameters: tuple[GradientError, ...]
    sites: tuple[GradientError, ...]  #: of all gradients when one site alone is compressed, in the order of the step
    report: Report

    def __str__(self) -> str:
        worst_first = sorted(self.sites, key=lambda row: -row.error)
        width = max(len(row.name) for row in (*self.parameters, *self.sites, self.total))
        tables = [_table("parameter", (*self.parameters, self.total), width)]
        if worst_first:
            tables.append(_table("site alone", worst_first, width))
        return "\n\n".join(tables)


def _table(title: str, rows: Sequence[GradientError], width: int) -> str:
    lines = [f"{title:<{width}}  {'error':>10}  {'bias':>10}  {'cosine':>8}"]
    lines += [f"{row.name:<{width}}  {row.error:>10.3e}  {row.bias:>10.3e}  {row.cosine:>8.5f}" for row in rows]
    return "\n".join(lines)


def compare(gradients: Callable[..., list[Any]], make_session: Callable[..., BaseSession], names: Sequence[str], *,
            draws: int, by_site: bool, double: Callable[[Any], Any], dot: Callable[[Any, Any], float]) -> Verification:
    """Compares exact gradients with those of sessions with several seeds.

    Args:
        gradients: returns the gradients of all parameters, computed in the given session or without one.
        make_session: makes a session with the given ``seed``, and perhaps for ``only`` one site.
        names: names of the parameters.
        draws: number of seeds.
        by_site: whether to compress also each lossy site alone.
        double: converts a gradient to double precision.
        dot: the inner product of two gradients.
    """
    _check_draws(draws)
    exact = gradients()

    def measure(**more: Any) -> tuple[_Errors, BaseSession]:
        errors = _Errors(exact, double, dot)
        for seed in range(draws):
            session = make_session(seed=seed, **more)
            gradients(session)  # the first step learns which sites share memory or belong to a loss, and runs the guard
            errors.add(gradients(session))
        return errors, session

    errors, session = measure()
    report = session.report()
    rows = tuple(errors.of([i], name) for i, name in enumerate(names))
    everything = list(range(len(exact)))
    sites = []
    for name in _lossy_sites(report) if by_site else ():
        alone = measure(only=name)[0].of(everything, name)
        if alone.error > 0:  # a site that needs only a sign may keep lossy values for another; alone it loses nothing
            sites.append(alone)
    return Verification(errors.of(everything, "all"), rows, tuple(sites), report)


def compare_draws(exact: list[Any], gradients: Callable[[], list[Any]], names: Sequence[str],
                  report: Callable[[], Report], *, draws: int, double: Callable[[Any], Any],
                  dot: Callable[[Any, Any], float]) -> Verification:
    """Does the same without sites, for gradients that differ from call to call. Calls ``report`` afterwards."""
    _check_draws(draws)
    errors = _Errors(exact, double, dot)
    for _ in range(draws):
        errors.add(gradients())
    rows = tuple(errors.of([i], name) for i, name in enumerate(names))
    return Verification(errors.of(list(range(len(exact))), "all"), rows, (), report())


def _check_draws(draws: int) -> None:
    if draws < 2:
        raise ValueError(f"verify: {draws} draws (allowed: 2 or more, to tell bias from noise)")


def _lossy_sites(report: Report) -> list[str]:
    """Returns the sites kept by a codec that changes values, and those that share with such a site."""
    lossy = {site.site for site in report.sites if site.kind == "encoded" and _native.expected_error(site.codec) > 0}
    return [site.site for site in report.sites if site.site in lossy or site.kept_by in lossy]


class _Errors:
    """Sums over draws, from which the errors of any set of parameters follow."""

    def __init__(self, exact: list[Any], double: Callable[[Any], Any], dot: Callable[[Any, Any], float]) -> None:
        self._exact, self._double, self._dot = exact, double, dot
        self._energy = [dot(e, e) for e in exact]
        self._offset: list[Any] = [0.0] * len(exact)  # sum over draws of g - exact
        self._draws: list[list[tuple[float, float, float]]] = []  # |g - exact|^2, <g, exact>, |g|^2

    def add(self, gradients: list[Any]) -> None:
        figures = []
        for i, (gradient, exact) in enumerate(zip(gradients, self._exact)):
            difference = self._double(gradient) - self._double(exact)
            self._offset[i] = self._offset[i] + difference
            figures.append((self._dot(difference, difference), self._dot(gradient, exact),
                            self._dot(gradient, gradient)))
        self._draws.append(figures)

    def of(self, which: list[int], name: str) -> GradientError:
        n = len(self._draws)
        energy = sum(self._energy[i] for i in which)
        if energy == 0:
            energy = 1e-300  # a gradient that is 0 and stays so has no error
        squares = sum(figures[i][0] for figures in self._draws for i in which)
        of_mean = sum(self._dot(self._offset[i], self._offset[i]) for i in which) / n**2
        # |mean(g) - exact|^2 still contains 1/n of the variance of g. Division by n - 1 makes its estimate unbiased.
        variance = (squares - n * of_mean) / (n - 1)
        cosines = [self._cosine(figures, which, energy) for figures in self._draws]
        return GradientError(name, squares / n / energy, (of_mean - variance / n) / energy, sum(cosines) / n)

    @staticmethod
    def _cosine(figures: list[tuple[float, float, float]], which: list[int], energy: float) -> float:
        if not any(figures[i][0] for i in which):
            return 1.0
        product = sum(figures[i][1] for i in which)
        length = (energy * sum(figures[i][2] for i in which)) ** 0.5
        return product / length if length > 0 else 0.0
