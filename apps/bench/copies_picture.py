"""Draws when kernels and copies of a step ran, one below the other, as an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, LEFT, RIGHT = 1200, 120, 20
TOP, BAR, GAP = 44, 36, 12
COLOURS = ("#2f6fb0", "#d9822b", "#4b9b5f")
LEAST_GAP = 0.5  # pixels; bars that are closer than this are drawn as one

Span = tuple[float, float]


def draw(title: str, rows: Mapping[str, Sequence[Span]]) -> str:
    """Returns the text of the SVG. Each row lists when something started and ended, in microseconds."""
    spans = [span for row in rows.values() for span in row]
    start = min((first for first, _ in spans), default=0.0)
    end = max((last for _, last in spans), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / max(end - start, 1e-9)
    height = TOP + len(rows) * (BAR + GAP) + 24
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="10" y="24" font-weight="bold">{escape(title)}</text>']
    for i, (name, row) in enumerate(rows.items()):
        y = TOP + i * (BAR + GAP)
        lines.append(f'<text x="{LEFT - 8}" y="{y + BAR / 2 + 4}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{BAR}" fill="#f2f2f2"/>')
        for first, last in merged([(LEFT + (a - start) * scale, LEFT + (b - start) * scale) for a, b in row]):
            lines.append(f'<rect x="{first:.2f}" y="{y}" width="{max(last - first, 0.3):.2f}" height="{BAR}" '
                         f'fill="{COLOURS[i % len(COLOURS)]}"/>')
    lines.append(f'<text x="{WIDTH - RIGHT}" y="{height - 8}" text-anchor="end">{(end - start) / 1e3:.2f} ms</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def merged(spans: Sequence[Span]) -> list[Span]:
    """Sorts the spans, and merges those that overlap or nearly touch."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first - found[-1][1] < LEAST_GAP:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
