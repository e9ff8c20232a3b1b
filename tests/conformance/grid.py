"""The grid of conformance cases: the specs, data and segments to encode, and the types to decode to."""

from dataclasses import dataclass
from functools import lru_cache

import actzip_reference as ref
import numpy as np

SEEDS = (0, 1, 0x123456789ABCDEF0, 2**64 - 1)
FLOAT_KINDS = ("gaussian", "relu", "spikes", "constant", "zeros", "tiny", "huge", "nonfinite", "mixed")
DUAL_KINDS = (*FLOAT_KINDS, "cancelling")  # sums that come out otherwise in another order
SEGMENTED_KINDS = ("gaussian", "mixed")
INTEGER_KINDS = ("random", "zeros", "ones")
INDEX_KINDS = ("inside", "edge", "outside")

# Beside what the registry lists: other groups, statistics and limits.
MORE_VARIANTS = {
    "affine": ("affine:2:group=32", "affine:3:dithered:group=32", "affine:5:nearest:group=64",
               "affine:4:group=128:stats=f32", "affine:8:nearest:group=512:stats=f32",
               "affine:3:dithered:group=1024:stats=f32",
               "affine:8:nearest:stats=f32:floor=-32", "affine:4:nearest:group=64:floor=-0.7"),
    "rotated": ("rotated:2:group=128", "rotated:4:mask:group=128:stats=f32", "rotated:1:stats=f32"),
    "mask": ("mask:lo=0:hi=6", "mask:nan=off", "mask:lo=-1:hi=1:off=-2:on=1.25"),
    "index": ("index:bound=1", "index:bound=3", "index:bound=200", "index:bound=50257"),
    "cast": (),
    "copy": (),
    "dual": ("dual:2:size=14x14", "dual:2:size=7x7:last=16", "dual:3:dithered:block=4:size=37",
             "dual:5:block=2:size=3x5x9", "dual:2:block=16:size=28x28:last=3", "dual:8:size=9x10x12:last=8",
             "dual:1:dithered:block=32:size=40x33", "dual:2:size=20x16", "dual:4:dithered:size=12x21:last=40"),
}  # fmt: skip


# With bits of their own: specs, and what segments ask for out of what total.
MIXED_VARIANTS = {
    "affine": ("affine:2", "affine:2:nearest:group=32", "affine:2:dithered", "affine:2:dithered:group=1024:stats=f32",
               "affine:8:nearest:group=64:floor=-0.7"),
    "rotated": ("rotated:2", "rotated:2:mask", "rotated:2:group=128", "rotated:1:mask:group=128:stats=f32"),
}  # fmt: skip
TABLES = ("fitting", "roomy", "equal", "hostile", "least")


@dataclass(frozen=True)
class Case:
    spec: str
    dtype: str
    kind: str
    elems: int
    segments: int | ref.Segments
    seed: int
    decode_dtypes: tuple

    def elements(self):
        return elements(self.kind, self.elems, self.dtype, ref.parse(self.spec).bound)


@lru_cache(maxsize=None)
def elements(kind, n, dtype, bound):
    if dtype in ref.FLOATS and kind in DUAL_KINDS:
        return float_elements(kind, n, dtype)
    rng = np.random.default_rng([n, bound])
    storage = ref.STORAGE[dtype]
    if kind in INDEX_KINDS:
        top = min(bound, np.iinfo(storage).max + 1)
        x = rng.integers(0, top, n)
        if kind != "inside":
            x[n // 2] = top - 1
        if kind == "outside":
            x[n // 3] = -1 if np.iinfo(storage).min < 0 else 255
            x[-1] = min(bound, np.iinfo(storage).max)
        return x.astype(storage)
    if kind == "random" and dtype != "bool":
        return rng.integers(0, 256, n * np.dtype(storage).itemsize, dtype=np.uint8).view(storage)
    values = {"random": rng.integers(0, 2, n), "zeros": np.zeros(n), "ones": np.ones(n)}[kind]
    return values.astype(storage)


def float_elements(kind, n, dtype):
    rng = np.random.default_rng([n, DUAL_KINDS.index(kind)])
    x = rng.standard_normal(n)
    odd_block = np.arange(n) // 256 % 2 == 1
    half = dtype == "f16"
    if kind == "relu":
        x = np.maximum(x, 0)
    elif kind == "spikes":
        x = np.where(rng.random(n) < 0.01, 1000 * x, 0)
        x[n // 2] = -977.0
    elif kind == "constant":
        x = np.full(n, 1.1)
    elif kind == "zeros":
        x = np.where(np.arange(n) % 3 == 0, -0.0, 0.0)
    elif kind == "tiny":
        x *= np.where(odd_block, 2.0**-12, 2.0**-20) if half else np.where(odd_block, 2.0**-50, 2.0**-131)
    elif kind == "huge":
        x *= np.where(odd_block, 2.0**10, 2.0**14) if half else np.where(odd_block, 2.0**40, 2.0**124)
    elif kind == "nonfinite":
        x[n // 2] = (np.nan, np.inf, -np.inf)[n % 3]
    elif kind == "cancelling":
        i = np.arange(n)  # opposite at neighbours, and at those 16 on: at neighbouring positions of 1 or 16 channels
        large = rng.standard_normal(n)[i // 32 * 8 + i // 2 % 8] * (1 - 2 * ((i ^ i >> 4) & 1))
        x = x + large * (2.0**10 if half else 2.0**18)
    elif kind == "mixed":
        block = np.arange(n) // 64
        x = x * 2.0 ** (block * 5 % 16 - 8) + np.where(block % 3 == 0, 100.0, 0.0)
        x[rng.random(n) < 0.1] = 0
    with np.errstate(over="ignore"):
        return ref.narrow(x.astype(np.float32), dtype, saturate=kind != "nonfinite")


def unit(spec):
    """Elements of a group, or of a sample of `dual`."""
    return int(np.prod(spec.size)) * spec.last if spec.codec == "dual" else spec.group


def sizes(group):
    return tuple(dict.fromkeys((1, 7, 8, 9, 31, 33, group - 1, group, group + 1, 2 * group + 3, 4099)))


def shapes(spec, kinds):
    """(kind, elements, segments): all kinds in one segment, some in three and in seven."""
    yield from ((kind, n, 1) for kind in kinds for n in sizes(unit(spec)))
    if spec.codec == "dual":
        yield from ((kind, 7 * unit(spec), 1) for kind in kinds)
    if spec.grouped:
        for segments in (3, 7):
            yield from ((kind, n * segments, segments) for kind in SEGMENTED_KINDS for n in sizes(spec.group)[:-1])


def table(kind, count, most, rng):
    """Segments that ask for bits, and their total."""
    bits = rng.integers(1, most + 1, count)
    if kind == "equal":
        bits[:] = bits[0]
    if kind in ("hostile", "least"):
        bits = rng.choice([0, 1, 2, most, most + 1, 200, 255], count)
    total = {"roomy": count * most, "hostile": count * 2, "least": count}.get(kind, int(bits.sum()))
    return ref.Segments(count, total, tuple(int(b) for b in bits))


def mixed_cases(info):
    """Segments short and long, whole and ragged, with bits of their own."""
    for text in MIXED_VARIANTS.get(info["name"], ()):
        spec, rng = ref.parse(text), np.random.default_rng(6)
        most, g = 4 if spec.codec == "rotated" else 8, spec.group
        lengths = ((1, 1), (1, 37), (7, 5), (16, 9), (33, 37), (g - 1, 5), (g, 37), (g + 1, 7), (2 * g + 3, 5),
                   (1024, 37), (1536, 7), (4099, 3))  # fmt: skip
        for dtype in info["encodes"]:
            for i, (length, count) in enumerate(lengths):
                types = decode_dtypes(spec, dtype, g + 1 if length == 1536 else 0, info)
                for j, kind in enumerate(TABLES):
                    segments = table(kind, count, most, rng)
                    data, seed = SEGMENTED_KINDS[(i + j) % 2], SEEDS[(i + j) % len(SEEDS)]
                    yield Case(text, dtype, data, length * count, segments, seed, types)


def kinds_for(codec, dtype):
    if codec == "index":
        return INDEX_KINDS
    if codec == "dual":
        return DUAL_KINDS
    return FLOAT_KINDS if dtype in ref.FLOATS else INTEGER_KINDS


def decode_dtypes(spec, dtype, n, info):
    """The type that was encoded; at one size all that the registry knows for the codec."""
    allowed = [d for d in info["decodes"] if d != "bool" or spec.codec != "rotated" or spec.mask_plane]
    if spec.codec == "copy":
        return (dtype,)
    if spec.codec == "index" and spec.bound > 2**31:
        return ("i64",)
    if spec.codec == "index" or n == unit(spec) + 1:
        return tuple(allowed)
    return (dtype,) if dtype in allowed else tuple(allowed[:1])


def cases(info):
    """All cases of one codec; `info` is its entry in the registry."""
    yield from mixed_cases(info)
    for text in (*info["variants"], *MORE_VARIANTS[info["name"]]):
        spec = ref.parse(text)
        for dtype in info["encodes"]:
            if spec.codec == "mask" and spec != ref.parse("mask") and dtype not in ref.FLOATS:
                continue  # an interval is for floating types
            for i, (kind, n, segments) in enumerate(shapes(spec, kinds_for(spec.codec, dtype))):
                seed = SEEDS[i % len(SEEDS)]
                yield Case(text, dtype, kind, n, segments, seed, decode_dtypes(spec, dtype, n, info))
