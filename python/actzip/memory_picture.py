"""Draws what was held during a step: the sum over time, and a bar for each of the largest sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from .report import Report, SiteReport

WIDTH, LEFT, RIGHT = 960, 330, 20  #: width of the picture and its margins; names stand in the left one
CURVE, TOP, BAR, GAP = 180, 56, 12, 4
MOST_BARS = 40
IN_MEMORY, OFFLOADED, TEXT, LINE = "#2f6fb0", "#d9822b", "#222", "#bbb"


def memory_picture(report: Report) -> str:
    sites = [site for site in report.sites if site.kept_at is not None]
    largest = {site.site for site in sorted(sites, key=lambda site: -site.bytes_after)[:MOST_BARS]}
    bars = [site for site in sites if site.site in largest]
    end = max([site.freed_at or site.kept_at for site in sites], default=0.0) or 1.0
    height = TOP + CURVE + 30 + (BAR + GAP) * len(bars) + 30

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / end

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="11" fill="{TEXT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(_title(report))}</text>',
        *_legend(), *_curves(sites, end, x), *_bars(bars, end, x),
        f'<text x="{WIDTH - RIGHT}" y="{height - 10}" text-anchor="end">{1e3 * end:.1f} ms since the step began</text>',
        "</svg>"]
    return "\n".join(parts) + "\n"


def _title(report: Report) -> str:
    budget = "" if report.budget is None or report.budget.bytes is None else f", budget {_size(report.budget.bytes)}"
    return (f"preset '{report.preset}', step {report.steps}: {_size(report.bytes_before)} plain, "
            f"{_size(report.bytes_after)} kept{budget}")


def _size(count: float) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def _legend() -> list[str]:
    return [f'<rect x="{at}" y="32" width="10" height="10" fill="{colour}"/><text x="{at + 15}" y="41">{name}</text>'
            for at, colour, name in ((LEFT, IN_MEMORY, "in memory"), (LEFT + 110, OFFLOADED, "offloaded"))]


def _sums(sites: Sequence[SiteReport], end: float) -> list[tuple[float, int, int]]:
    """Returns for each change the time, the bytes in memory and the bytes offloaded."""
    changes = []
    for site in sites:
        memory, offloaded = site.bytes_after - site.bytes_offloaded, site.bytes_offloaded
        changes += [(site.kept_at, memory, offloaded),
                    (end if site.freed_at is None else site.freed_at, -memory, -offloaded)]
    found = [(0.0, 0, 0)]
    for at, memory, offloaded in sorted(changes, key=lambda change: change[0]):
        found.append((at, found[-1][1] + memory, found[-1][2] + offloaded))
    return found


def _curves(sites: Sequence[SiteReport], end: float, x: Callable[[float], float]) -> list[str]:
    sums = _sums(sites, end)
    most = max(memory + offloaded for _, memory, offloaded in sums) or 1
    bottom = TOP + CURVE

    def area(heights: list[int], colour: str) -> str:
        points, level = [f"{x(0):.1f},{bottom}"], float(bottom)
        for (at, _, _), height in zip(sums, heights):
            points.append(f"{x(at):.1f},{level:.1f}")
            level = bottom - CURVE * height / most
            points.append(f"{x(at):.1f},{level:.1f}")
        points += [f"{x(end):.1f},{level:.1f}", f"{x(end):.1f},{bottom}"]
        return f'<polygon points="{" ".join(points)}" fill="{colour}"/>'

    in_memory = max(memory for _, memory, _ in sums)
    return [
        area([memory + offloaded for _, memory, offloaded in sums], OFFLOADED),
        area([memory for _, memory, _ in sums], IN_MEMORY),
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" stroke="{LINE}"/>',
        f'<text x="{LEFT - 8}" y="{TOP + 10}" text-anchor="end">{_size(most)}</text>',
        f'<text x="{LEFT - 8}" y="{TOP + 26}" text-anchor="end">at most {_size(in_memory)} in memory</text>',
        f'<text x="{LEFT - 8}" y="{bottom}" text-anchor="end">0</text>']


def _bars(bars: Sequence[SiteReport], end: float, x: Callable[[float], float]) -> list[str]:
    parts = []
    for row, site in enumerate(bars):
        y = TOP + CURVE + 30 + (BAR + GAP) * row
        freed = end if site.freed_at is None else site.freed_at
        colour = OFFLOADED if site.bytes_offloaded else IN_MEMORY
        name = site.site if len(site.site) <= 48 else "..." + site.site[-45:]
        about = f"{site.site}: {site.codec}, {_size(site.bytes_after)}, {1e3 * (freed - site.kept_at):.1f} ms"
        parts.append(f'<text x="{LEFT - 8}" y="{y + BAR - 2}" text-anchor="end">{escape(name)}</text>'
                     f'<rect x="{x(site.kept_at):.1f}" y="{y}" width="{max(x(freed) - x(site.kept_at), 1):.1f}" '
                     f'height="{BAR}" fill="{colour}"><title>{escape(about)}</title></rect>')
    return parts
