"""SVG files: checks their paths, and embeds images."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import numpy as np

from .errors import BenchError


def check_path(path: Path) -> None:
    """Raises BenchError if an SVG cannot be written there. Called before anything takes time."""
    if path.suffix != ".svg":
        raise BenchError(f"--picture {path} (allowed: a name that ends with .svg)")
    if not path.parent.is_dir():
        raise BenchError(f"--picture {path}: no folder {path.parent}")


def image(pixels: np.ndarray, x: int, y: int) -> str:
    """Returns an element that shows uint8 [height, width, 3], one pixel per unit."""
    height, width, _ = pixels.shape
    content = base64.b64encode(png(pixels)).decode()
    return f'<image x="{x}" y="{y}" width="{width}" height="{height}" href="data:image/png;base64,{content}"/>'


def png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter type 0: none

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    eight_bits, rgb = 8, 2
    header = struct.pack(">IIBBBBB", width, height, eight_bits, rgb, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9))
            + chunk(b"IEND", b""))
