"""Writes golden.bin and manifest.json: elements, encoded bytes and decoded elements as format version 1 has them.

Run it when a codec is added. What has been released never changes: test_golden.py and golden_test.cpp hold the
reference and the library to these files.

A case of the manifest: spec, dtype, elems, segments, seed, `input`, `encoded`, `decoded` as [offset, bytes] into
golden.bin, `decode_dtype`, for segments with bits of their own `total_bits` and the `bits` they ask for, for `index` the
overflow word, and for `rotated` `doubtful`: a packed bit for each code, in the order of storage, that is 1 where the
coefficient is so close to a cut or to 0 that encoders may differ.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "reference"))
import actzip_reference as ref  # noqa: E402

SEED = 0x0123456789ABCDEF


def floats(kind, n, dtype):
    """Fixed data, the same on every machine: integers of a generator that NumPy keeps stable, scaled."""
    rng = np.random.Generator(np.random.PCG64(n))
    raw = rng.integers(-(2**15), 2**15, size=(4, n)).astype(np.float32)
    bell = raw.sum(axis=0) / np.float32(2**15)
    x = {
        "bell": bell,
        "relu": np.maximum(bell, 0),
        "shifted": bell * np.float32(0.125) + np.float32(3),
        "constant": np.full(n, 0.7, np.float32),
        "zeros": np.where(np.arange(n) % 2, np.float32(0), np.float32(-0.0)),
        "spike": np.where(np.arange(n) % 97 == 13, bell * np.float32(100), np.float32(0)),
        "tiny": bell * np.float32(2.0**-20 if dtype == "f16" else 2.0**-131),
        "huge": bell * np.float32(2.0**14 if dtype == "f16" else 2.0**125),
        "nonfinite": bell.copy(),
        "masked": np.where(np.arange(n) % 5 == 2, -np.float32(np.inf), bell * np.float32(8) - np.float32(20)),
    }[kind]
    if kind == "nonfinite":
        x[[3, n // 2]] = np.nan, np.inf
    return ref.narrow(x.astype(np.float32), dtype, saturate=kind not in ("nonfinite", "masked"))


def elements(kind, n, dtype):
    if dtype in ref.FLOATS and kind != "bytes":
        return floats(kind, n, dtype)
    rng = np.random.Generator(np.random.PCG64(n))
    if kind == "flags":
        return (rng.integers(0, 2, n) * (1 if dtype == "bool" else 3)).astype(ref.STORAGE[dtype])
    if kind.startswith("below"):
        return rng.integers(0, int(kind[5:]), n).astype(ref.STORAGE[dtype])
    if kind.startswith("around"):
        return rng.integers(-2, int(kind[6:]) + 2, n).astype(ref.STORAGE[dtype])
    return rng.integers(0, 256, n * np.dtype(ref.STORAGE[dtype]).itemsize).astype(np.uint8).view(ref.STORAGE[dtype])


def cases():
    """(spec, dtype, decode dtype, kind of data, elements, segments)"""
    for rounding in ("nearest", "stochastic", "dithered"):
        for bits in range(1, 9):
            yield f"affine:{bits}:{rounding}:group=64", "f32", "f32", "bell", 133, 1
        for dtype in ("f16", "bf16"):
            yield f"affine:2:{rounding}", dtype, dtype, "shifted", 261, 1
            yield f"affine:5:{rounding}:stats=f32", dtype, "f32", "bell", 77, 1
    for group in (32, 128, 256, 512, 1024):
        yield f"affine:3:group={group}", "f32", "bf16", "bell", 1027, 1
    for segments in (3, 7):
        yield "affine:3:dithered:group=32", "f32", "f32", "bell", 21 * 17, segments
        yield "rotated:3:mask:group=128", "f32", "f32", "relu", 21 * 17, segments
    for bits in range(1, 5):
        for dtype in ref.FLOATS:
            yield f"rotated:{bits}", dtype, dtype, "shifted", 293, 1
            yield f"rotated:{bits}:mask", dtype, dtype, "relu", 261, 1
        yield f"rotated:{bits}:group=128:stats=f32", "f32", "bf16", "bell", 128, 1
    yield "rotated:2:mask", "f32", "bool", "relu", 261, 1
    for kind in ("constant", "zeros", "spike", "tiny", "huge", "nonfinite"):
        for dtype in ref.FLOATS:
            yield "affine:4", dtype, dtype, kind, 300, 1
            yield "rotated:2:mask", dtype, dtype, kind, 300, 1
            yield "mask:lo=-0.5:hi=0.5", dtype, "bool", kind, 67, 1
            yield "cast:bf16", dtype, dtype, kind, 35, 1
            yield "cast:f16", dtype, dtype, kind, 35, 1
    for dtype in ("bool", "u8", "i8"):
        yield "mask", dtype, dtype, "flags", 67, 1
    for dtype in ref.FLOATS:
        yield "mask:hi=1.5:off=-2:on=1.25", dtype, dtype, "bell", 67, 1
    for bound in (1, 2, 4, 11, 256, 50257, 2**32):
        yield f"index:bound={bound}", "i64", "i64", f"below{bound}", 41, 1
    for dtype, bound in (("i64", 300), ("i32", 300), ("i16", 300), ("u8", 100)):
        yield f"index:bound={bound}", dtype, "i32", "bytes", 41, 1
    yield "index:bound=9", "i32", "i64", "around9", 41, 1
    for dtype in ref.STORAGE:
        yield "copy", dtype, dtype, "flags" if dtype == "bool" else "bytes", 29, 1
    empty = (("affine:2", "f32"), ("rotated:2:mask", "bf16"), ("mask", "bool"), ("index", "i64"), ("copy", "f64"))
    for spec, dtype in empty:
        yield spec, dtype, dtype, "bytes", 0, 1
    for dtype in ref.FLOATS:
        yield "affine:8:nearest:stats=f32:floor=-32", dtype, "f32", "masked", 300, 1
        yield "affine:4:nearest:group=32:floor=-18.3", dtype, dtype, "masked", 133, 1
    every = ref.Segments(8, 36, (3, 1, 8, 5, 2, 7, 4, 6))
    beyond = ref.Segments(6, 13, (0, 3, 200, 4, 2, 255))
    for rounding in ("nearest", "stochastic", "dithered"):
        yield f"affine:2:{rounding}:group=32", "f32", "f32", "bell", 8 * 45, every
    yield "affine:2:group=32", "bf16", "bf16", "shifted", 6 * 77, beyond
    for dtype in ref.FLOATS:
        yield "rotated:2", dtype, dtype, "shifted", 6 * 261, ref.Segments(6, 15, (4, 1, 3, 2, 1, 4))
        yield "rotated:2:mask:group=128", dtype, dtype, "relu", 6 * 130, beyond
    for rounding in ("stochastic", "dithered"):
        for bits in range(1, 9):
            yield f"dual:{bits}:{rounding}:size=11x9", "f32", "f32", "bell", 2 * 99 + 40, 1
    maps = ("dual:2:size=14x14", "dual:2:size=14x14:last=3", "dual:3:block=2:size=3x5x7", "dual:4:block=4:size=50")
    for spec in maps:
        for dtype in ref.FLOATS:
            yield spec, dtype, dtype, "shifted", 610, 1
    for kind in ("constant", "zeros", "spike", "tiny", "huge", "nonfinite"):
        for dtype in ref.FLOATS:
            yield "dual:2:size=10x10:last=2", dtype, dtype, kind, 300, 1
    yield "dual:2", "bf16", "f32", "bell", 0, 1


def distance_to_cuts(bits, y, sigma):
    edges = np.concatenate([[0.0], ref.CUTS[bits]])
    return np.abs(y[..., None] - edges * sigma[..., None]).min(axis=-1)


def doubtful(spec, x, dtype, segments):
    """Bits for codes that may differ between encoders: format.md, section 7."""
    spec = ref.parse(spec)
    at = ref.Layout(spec, dtype, x.size, segments)
    if at.mixed:
        at.grant(segments.bits)
    wide = ref.widen(x, dtype)
    with np.errstate(all="ignore"):
        y = np.abs(ref.rotated_coefficients(wide, ref.rotated_mean(wide, at, spec.stats), at, SEED))
        sigma = np.sqrt((y * y).mean(axis=1, keepdims=True))
        distance = ref.by_width(distance_to_cuts, at, y, sigma)
        close = distance <= sigma * 2.0**-6
    return ref.pack(close.reshape(1, -1), 1)


def build():
    """The manifest and the bytes it points into."""
    blob, places = bytearray(), {}

    def place(data):
        if data not in places:
            places[data] = [len(blob), len(data)]
            blob.extend(data)
        return places[data]

    rows = []
    for spec, dtype, decode_dtype, kind, n, segments in cases():
        x = elements(kind, n, dtype) if n else np.empty(0, ref.STORAGE[dtype])
        encoded = ref.encode(spec, x, dtype, SEED, segments)
        row = dict(spec=spec, dtype=dtype, elems=n, segments=segments, seed=SEED, decode_dtype=decode_dtype, data=kind)
        if isinstance(segments, ref.Segments):
            row |= dict(segments=segments.count, total_bits=segments.total_bits, bits=segments.bits)
        row["input"] = place(x.tobytes())
        row["encoded"] = place(encoded)
        row["decoded"] = place(ref.decode(spec, encoded, decode_dtype, n, SEED, segments).tobytes())
        if spec.startswith("index"):
            row["overflow"] = int(ref.index_codes(ref.parse(spec), x)[1])
        if spec.startswith("rotated") and n:
            row["doubtful"] = place(doubtful(spec, x, dtype, segments))
        rows.append(row)
    return dict(format=1, cases=rows), bytes(blob)


def manifest_text(manifest):
    rows = ",\n".join("  " + json.dumps(row) for row in manifest["cases"])
    return f'{{"format": {manifest["format"]}, "cases": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    made, data = build()
    (HERE / "manifest.json").write_text(manifest_text(made))
    (HERE / "golden.bin").write_bytes(data)
    print(f"{len(made['cases'])} cases, {len(data)} bytes")
