"""Draws one map of an activation, its two parts and what backward gets, each with its scale, as an SVG."""

from __future__ import annotations

import dataclasses
from html import escape

import numpy as np

from . import svg

PANEL = 192  # pixels along the longer side, or up to twice that for large maps
MARGIN, GAP, TOP = 16, 24, 58
LINE = 24  # height in pixels of a map that has one row
#: Colours from the least to the greatest value, evenly spaced: for values, and for differences with 0 in the middle.
VALUES = ((20, 24, 60), (33, 96, 140), (77, 171, 154), (190, 221, 130), (253, 246, 210))
DIFFERENCES = ((33, 74, 150), (247, 247, 247), (165, 35, 40))


@dataclasses.dataclass(frozen=True)
class Map:
    """One channel of one sample, as rows and columns. Several slices are below each other."""

    activation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    restored: np.ndarray


@dataclasses.dataclass(frozen=True)
class Panel:
    caption: str
    values: np.ndarray
    least: float
    greatest: float
    colours: tuple[tuple[int, int, int], ...]


def draw(title: str, shown: Map) -> str:
    """Returns the text of the SVG. All panels share one scale, except that of the high part."""
    drawn = panels(shown)
    height, width = enlarged(drawn[0]).shape[:2]
    step = max(width, PANEL) + GAP
    whole = (2 * MARGIN + len(drawn) * step - GAP, TOP + height + 52)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]}" height="{whole[1]}" '
             f'viewBox="0 0 {whole[0]} {whole[1]}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{MARGIN}" y="24" font-weight="bold">{escape(title)}</text>']
    for i, panel in enumerate(drawn):
        x = MARGIN + i * step
        lines.append(f'<text x="{x}" y="{TOP - 8}">{escape(panel.caption)}</text>')
        lines.append(svg.image(enlarged(panel), x, TOP))
        lines += scale(panel, f"scale{i}", x, TOP + height + 12, max(width, PANEL))
    return "\n".join([*lines, "</svg>"]) + "\n"


def panels(shown: Map) -> list[Panel]:
    """Returns the panels. Shares of the energy and the error are those of this map."""
    energy = square_sum(shown.activation) or 1.0
    alike = (shown.activation, shown.low, shown.restored)
    least, greatest = min(float(a.min()) for a in alike), max(float(a.max()) for a in alike)
    reach = float(np.abs(shown.high).max())
    error = square_sum(shown.restored - shown.activation) / energy
    return [
        Panel("activation", shown.activation, least, greatest, VALUES),
        Panel(f"low part: {square_sum(shown.low) / energy:.1%} of the energy", shown.low, least, greatest, VALUES),
        Panel(f"high part: {square_sum(shown.high) / energy:.1%}", shown.high, -reach, reach, DIFFERENCES),
        Panel(f"reconstruction: error {error:.1%}", shown.restored, least, greatest, VALUES),
    ]


def square_sum(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def enlarged(panel: Panel) -> np.ndarray:
    """Returns the pixels of a panel, enlarged to its size. Viewers would blur them if they enlarged."""
    height, width = panel.values.shape
    times = max(1, PANEL // max(height, width))
    return coloured(panel).repeat(LINE if height == 1 else times, axis=0).repeat(times, axis=1)


def coloured(panel: Panel) -> np.ndarray:
    """Returns uint8 [height, width, 3]. Values that are not finite are black."""
    span = panel.greatest - panel.least
    place = (panel.values - panel.least) / span if span > 0 else np.full_like(panel.values, 0.5)
    finite = np.isfinite(place)
    place = np.where(finite, place, 0.0)
    stops = np.linspace(0, 1, len(panel.colours))
    channels = [np.interp(place, stops, values) for values in zip(*panel.colours)]
    return np.where(finite[..., None], np.stack(channels, -1).round(), 0).astype(np.uint8)


def scale(panel: Panel, name: str, x: int, y: int, width: int) -> list[str]:
    """Returns a colour bar with the values at its ends and in its middle."""
    last = len(panel.colours) - 1
    stops = "".join(f'<stop offset="{i / last:.3f}" stop-color="rgb{colour}"/>'
                    for i, colour in enumerate(panel.colours))
    ends = ((panel.least, x, "start"), ((panel.least + panel.greatest) / 2, x + width / 2, "middle"),
            (panel.greatest, x + width, "end"))
    return [f'<defs><linearGradient id="{name}">{stops}</linearGradient></defs>',
            f'<rect x="{x}" y="{y}" width="{width}" height="8" fill="url(#{name})"/>',
            *(f'<text x="{at:g}" y="{y + 24}" text-anchor="{anchor}">{value:.3g}</text>' for value, at, anchor in ends)]
