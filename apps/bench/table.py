"""Text tables."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a text table. Columns whose cells all begin like numbers are aligned to the right, others to the left."""
    lines = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    right = [all(_is_number(line[i]) for line in lines[1:]) for i in range(len(header))]
    aligned = [
        "  ".join(cell.rjust(w) if to_right else cell.ljust(w) for cell, w, to_right in zip(line, widths, right))
        for line in lines
    ]
    aligned.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in aligned)


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.lstrip("+-")[:1].isdigit()
