"""The codecs of actzip in NumPy: docs/format.md as a readable program, which the tests take as the truth.

Elements are one-dimensional arrays in memory order (see memory_order) of the types in STORAGE; bf16 is kept as uint16
bits. Float arithmetic is np.float32, operation by operation, except for the coefficients and sums of `rotated`, whose
rounding the format leaves open: these are float64. Section numbers are those of docs/format.md. Sections 2 and 3, the
layout of elements and bytes, are in actzip_layout.py, as are the maps of section 9.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from actzip_layout import FLOATS, STORAGE, Layout, Segments, align, by_width, code_bits, pack, unpack  # noqa: F401


@dataclass(frozen=True)
class Spec:
    """A codec with its parameters. Other codecs' fields are ignored."""

    codec: str
    bits: int = 2
    rounding: str = "stochastic"  # affine: nearest, stochastic, dithered
    group: int = 256
    stats: str = "bf16"  # bf16, f32
    floor: float = -float("inf")  # affine: values below it are taken as this
    mask_plane: bool = False  # rotated
    lo: float = 0.0  # mask: 1 inside the open interval (lo, hi) ...
    hi: float = float("inf")
    off: float = 0.0  # ... and what 0 and 1 decode to
    on: float = 1.0
    nan: str = "on"  # the bit of a NaN: off, on
    bound: int = 1 << 32  # index
    to: str = "bf16"  # cast: bf16, f16
    block: int = 8  # dual: edge of a block ...
    size: tuple = (1, 16, 16)  # ... depth, height and width of a map ...
    last: int = 1  # ... and the channels that vary fastest

    @property
    def grouped(self):
        return self.codec in ("affine", "rotated")


def parse(text):
    """The Spec of a text such as `affine:4:dithered:group=128:stats=f32`, `rotated:2:mask` or `mask:lo=0:hi=6`."""
    if isinstance(text, Spec):
        return text
    number = lambda value: float(np.float32(value))
    extents = lambda value: (1, 1, *map(int, value.split("x")))[-3:]
    readers = dict(group=int, stats=str, floor=number, lo=number, hi=number, off=number, on=number, nan=str, bound=int)
    readers |= dict(block=int, size=extents, last=int)
    names = dict(nearest="rounding", stochastic="rounding", dithered="rounding", bf16="to", f16="to")
    codec, *parts = text.split(":")
    fields = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if equals:
            fields[key] = readers[key](value)
        elif part.isdigit():
            fields["bits"] = int(part)
        elif part == "mask":
            fields["mask_plane"] = True
        else:
            fields[names[part]] = part
    return Spec(codec, **fields)


# --- 1. Order of the elements -------------------------------------------------------------------------------------
def memory_order(array):
    """The unique elements of a strided array, one-dimensional, from the largest stride to the smallest."""
    if array.size == 0:
        return np.empty(0, array.dtype)
    kept = [d for d in range(array.ndim) if array.shape[d] != 1 and array.strides[d] != 0]
    kept.sort(key=lambda d: -array.strides[d])  # a stable sort: the earlier of two equal strides comes first
    shape, strides = [array.shape[d] for d in kept], [array.strides[d] for d in kept]
    return np.lib.stride_tricks.as_strided(array, shape, strides).ravel()


# --- 4. Random numbers --------------------------------------------------------------------------------------------
def mix(x, key=0):
    """32-bit hash of an array; every operation is modulo 2^32."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15)) ^ np.uint32(key)
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def words(seed, counters, stream=0):
    low, high = np.array([seed & 0xFFFFFFFF], np.uint32), np.array([seed >> 32], np.uint32)
    k0 = mix(low ^ mix(high ^ np.uint32(0x9E3779B9)))
    k1 = mix(k0 ^ np.uint32(0x85EBCA6B))
    counters = counters.astype(np.uint64)
    upper = (counters >> np.uint64(32)).astype(np.uint32) * np.uint32(0x9E3779B9)
    return mix(counters.astype(np.uint32) ^ k0 ^ upper, k1[0] ^ np.uint32(stream))


def noise_bytes(seed, e):
    """The noise byte of each padded index, for `affine`, as float32."""
    return (words(seed, e // 4) >> (8 * (e % 4)).astype(np.uint32) & np.uint32(255)).astype(np.float32)


def signs(seed, e, stream=0):
    """The sign of each padded index, +1 or -1, for `rotated`."""
    c = e // 8
    bit = 16 * (e % 2) + 4 * (c // 32 % 4) + e % 8 // 2
    return 1.0 - 2.0 * (words(seed, c // 128 * 32 + c % 32, stream) >> bit.astype(np.uint32) & np.uint32(1))


# --- 5. Arithmetic ------------------------------------------------------------------------------------------------
def widen(x, dtype):
    """Elements as float32; exact."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype == "bf16" else x.astype(np.float32)


def narrow(x, dtype, saturate=True):
    """float32 to elements, to nearest even; with `saturate` an overflow gives the largest number, else an infinity."""
    if saturate and dtype != "f32":
        largest = np.float32(65504.0 if dtype == "f16" else 2.0**128 - 2.0**120)
        x = np.clip(x, -largest, largest)
    if dtype == "bf16":
        bits = x.view(np.uint32)
        bits = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), bits.astype(np.uint16))
    with np.errstate(over="ignore"):
        return np.where(np.isnan(x), STORAGE[dtype](np.nan), x.astype(STORAGE[dtype]))


def bf16_down(x):
    """The greatest bf16 number that is not above x, as float32."""
    bits = x.view(np.uint32)
    away = (bits >> np.uint32(31) != 0) & (bits & np.uint32(0xFFFF) != 0)  # below zero, down is away from zero
    return ((bits & np.uint32(0xFFFF0000)) + np.where(away, np.uint32(0x10000), np.uint32(0))).view(np.float32)


def pack_stats(first, second, kind):
    return narrow(np.concatenate([first, second], axis=1), kind, saturate=False).tobytes()


def unpack_stats(data, kind):
    """Both statistics as columns, with one row for each group."""
    pairs = widen(data.view(STORAGE[kind]), kind).reshape(-1, 2)
    return pairs[:, :1], pairs[:, 1:]


# --- 6. affine ----------------------------------------------------------------------------------------------------
def affine_group(x, spec, bits):
    """Columns min, step and inverse of groups x with `bits` bits. min is NaN if a group is unrepresentable."""
    lo, hi = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)  # NaN if any value is
    limit, zero, tiny = np.float32(2.0**126), np.float32(0), np.float32(2.0**-126)
    representable = (lo >= -limit) & (hi <= limit)
    lo, hi = np.where(representable, lo, zero), np.where(representable, hi, zero)
    least = (bf16_down(lo) if spec.stats == "bf16" else lo) + zero
    d = hi - least
    step = d * (np.float32(1) / np.float32(2**bits - 1))
    step = np.maximum(-bf16_down(-step) if spec.stats == "bf16" else step, tiny)
    step = np.where(d == 0, zero, step)
    inverse = np.where(step == 0, zero, np.float32(1) / np.maximum(step, tiny))
    return np.where(representable, least, np.float32(np.nan)), step, inverse


def affine_encode(spec, x, at, seed):
    x = np.maximum(at.into_groups(x, fill="edge"), np.float32(spec.floor))  # a NaN stays
    columns = by_width(lambda bits, rows: np.stack(affine_group(rows, spec, bits), axis=1), at, x)
    least, step, inverse = columns[:, 0], columns[:, 1], columns[:, 2]
    with np.errstate(all="ignore"):  # the product of two float32 numbers is exact in float64, and rounded once below
        t = np.where(np.isnan(least), 0.0, (x - least).astype(np.float64) * inverse)
    if spec.rounding == "nearest":
        codes = np.rint(t)
    else:
        codes = np.floor((np.rint(t * 256) + noise_bytes(seed, at.padded_index())) / 256)
    codes = at.pack_codes(at.out_of_groups(codes))
    return at.join(**at.table(), stats=pack_stats(least, step, spec.stats), codes=codes)


def affine_decode(spec, data, at, seed):
    parts = at.split(data)
    least, step = unpack_stats(parts["stats"], spec.stats)
    codes = at.into_groups(at.unpack_codes(parts["codes"])).astype(np.float32)
    if spec.rounding == "dithered":
        codes = codes + (np.float32(255) - np.float32(2) * noise_bytes(seed, at.padded_index())) / np.float32(512)
    with np.errstate(all="ignore"):
        return at.out_of_groups(codes * step + least).ravel()


# --- 7. rotated ---------------------------------------------------------------------------------------------------
LEVELS = {
    1: np.array([0.796875]),
    2: np.array([0.453125, 1.5078125]),
    3: np.array([0.2451171875, 0.75390625, 1.34375, 2.15625]),
    4: np.array([0.1279296875, 0.388671875, 0.65625, 0.94140625, 1.2578125, 1.6171875, 2.0625, 2.734375]),
}
SECOND_SIGNS = 0x165667B1
CUTS = {bits: (levels[:-1] + levels[1:]) / 2 for bits, levels in LEVELS.items()}


@lru_cache
def hadamard(size):
    """The matrix of (-1)^popcount(j & p)."""
    return np.array([[1.0]]) if size == 1 else np.kron([[1.0, 1.0], [1.0, -1.0]], hadamard(size // 2))


def mixed(seed, v, e):
    """H D2 H v, where D2 are the second signs."""
    return (signs(seed, e, stream=SECOND_SIGNS) * (v @ hadamard(v.shape[1]))) @ hadamard(v.shape[1])


def rotated_mean(x, at, stats):
    """Column of group means, rounded to bf16 if the statistics or the elements have 16 bits."""
    stats = stats if at.dtype == "f32" else "bf16"
    counts = at.into_groups(np.ones(at.n)).sum(axis=1, keepdims=True)
    mean = at.into_groups(x.astype(np.float64)).sum(axis=1, keepdims=True) / counts
    return widen(narrow(mean.astype(np.float32), stats, saturate=False), stats)


def rotated_coefficients(x, mean, at, seed):
    """y of each group, (S*K, G), for elements x and a column of stored means."""
    present = at.into_groups(np.ones(at.n)) != 0
    r = np.where(present, at.into_groups(x) - mean, np.float32(0)).astype(np.float64)
    return mixed(seed, signs(seed, at.padded_index()) * r, at.padded_index())


def rotated_magnitudes(bits, y, sigma):
    """m for coefficients y: the number of cuts below each magnitude."""
    return (np.abs(y)[..., None] > CUTS[bits] * sigma[..., None]).sum(axis=-1)


def rotated_scale(bits, y, m):
    """Column of scales for coefficients y with levels m; 0 for groups in which all y are 0."""
    squares = (y * y).sum(axis=1, keepdims=True)
    product = y.shape[1] ** 2 * (np.abs(y) * LEVELS[bits][m]).sum(axis=1, keepdims=True)
    return np.divide(squares, product, out=np.zeros_like(squares), where=squares != 0).astype(np.float32)


def round_scale(scale, seed):
    """Rounds a column of scales to bf16, stochastically; 0 stays 0."""
    noise = words(seed, np.arange(len(scale)), stream=0x27D4EB2F)[:, None] >> np.uint32(16)
    return np.where(scale == 0, scale, ((scale.view(np.uint32) + noise) & np.uint32(0xFFFF0000)).view(np.float32))


def rotated_encode(spec, x, at, seed):
    with np.errstate(all="ignore"):  # NaN, infinities and overflows end in unrepresentable groups
        mean = rotated_mean(x, at, spec.stats)
        y = rotated_coefficients(x, mean, at, seed)
        squares = (y * y).sum(axis=1, keepdims=True).astype(np.float32)
    unrepresentable = ~np.isfinite(squares)
    y = np.where(unrepresentable | (squares == 0), 0.0, y)
    sigma = np.sqrt((y * y).sum(axis=1, keepdims=True) / at.G)
    m = by_width(rotated_magnitudes, at, y, sigma)
    scale = by_width(rotated_scale, at, y, m)
    codes = np.where(scale == 0, 0, m + 2 ** (at.group_bits()[:, None] - 1) * np.signbit(y))
    scale = round_scale(scale, seed) if spec.stats == "bf16" else scale
    stats = pack_stats(np.where(unrepresentable, np.float32(np.nan), mean), scale, spec.stats)
    mask = pack((x != 0).reshape(at.S, at.L), 1) if spec.mask_plane else b""
    return at.join(**at.table(), stats=stats, codes=at.pack_codes(codes.reshape(at.S, at.M)), mask=mask)


def rotated_codes(data, at):
    """Codes of the coefficients, (S*K, G)."""
    return at.unpack_codes(at.split(data)["codes"]).reshape(-1, at.G)


def rotated_mask(data, at):
    return unpack(at.split(data)["mask"], at.S, at.L, 1).ravel() != 0


def rotated_levels(bits, codes):
    half = 2 ** (bits - 1)
    return LEVELS[bits][codes % half] * np.where(codes < half, 1.0, -1.0)


def rotated_decode(spec, data, at, seed):
    mean, scale = unpack_stats(at.split(data)["stats"], spec.stats)
    q = by_width(rotated_levels, at, rotated_codes(data, at))
    with np.errstate(all="ignore"):
        x = (signs(seed, at.padded_index()) * scale * mixed(seed, q, at.padded_index()) + mean).astype(np.float32)
    x = at.out_of_groups(x).ravel()
    return np.where(rotated_mask(data, at), x, np.float32(0)) if spec.mask_plane else x


# --- 8. mask, index, cast, copy -----------------------------------------------------------------------------------
def mask_bits(spec, x, dtype):
    if dtype not in FLOATS:
        return x.view(np.uint8) != 0
    x = widen(x, dtype)
    below = (x <= np.float32(spec.lo)) & (spec.lo != -np.inf)  # an infinite limit is no limit
    above = (x >= np.float32(spec.hi)) & (spec.hi != np.inf)
    return ~(below | above | (np.isnan(x) & (spec.nan == "off")))


def index_codes(spec, x):
    """Codes, and whether the overflow word is set."""
    outside = (x < 0) | (x.astype(np.int64) >= spec.bound)
    return np.where(outside, 0, x.astype(np.int64)), bool(outside.any())


# --- 9. dual ------------------------------------------------------------------------------------------------------
def dual_averages(x, maps):
    """Averages of all blocks, (N, blocks, C). Sums run down the columns, then join neighbours until one is left."""
    cut = maps.into_blocks(x, np.float32(0))
    columns = np.zeros(cut.shape[:3] + cut.shape[4:], np.float32)
    for row in range(cut.shape[3]):
        columns = columns + cut[..., row, :]
    while columns.shape[-1] > 1:
        columns = columns[..., 0::2] + columns[..., 1::2]
    counts = maps.into_blocks(np.ones(maps.n, np.float32), np.float32(0)).sum(axis=(3, 4))
    averages = np.divide(columns[..., 0], counts, out=np.zeros_like(counts), where=counts != 0)
    return widen(narrow(averages, "bf16", saturate=False), "bf16") + np.float32(0)


def dual_encode(spec, x, at, seed):
    maps = at.maps
    with np.errstate(all="ignore"):  # NaN, infinities and overflows end in unrepresentable maps
        averages = dual_averages(x, maps)
        usable = np.abs(averages) <= np.float32(2.0**126)
        r = x - maps.out_of_blocks(np.where(usable, averages, np.float32(np.nan)))
        # One row for each map. Absent elements repeat a residual of the map, which leaves its extremes unchanged.
        rows = maps.into_blocks(r, np.float32(np.inf)).transpose(0, 2, 1, 3, 4).reshape(maps.count, -1)
        absent = maps.into_blocks(np.zeros(maps.n, bool), True).transpose(0, 2, 1, 3, 4).reshape(maps.count, -1)
        first = np.where(absent.all(axis=1), np.float32(0), rows[np.arange(maps.count), absent.argmin(axis=1)])
        rows = np.where(absent, first[:, None], rows)
        least, step, inverse = affine_group(rows, spec, spec.bits)
        of = lambda column: maps.out_of_blocks(column.reshape(maps.N, 1, maps.C))
        t = np.where(np.isnan(of(least)), 0.0, (r - of(least)).astype(np.float64) * of(inverse))
    codes = np.floor((np.rint(t * 256) + noise_bytes(seed, np.arange(maps.n))) / 256)
    stats = pack_stats(least, step, "bf16") + narrow(averages, "bf16", saturate=False).tobytes()
    return at.join(stats=stats, codes=at.pack_codes(codes[None]))


def dual_decode(spec, data, at, seed):
    maps, parts = at.maps, at.split(data)
    least, step = unpack_stats(parts["stats"][: 4 * maps.count], "bf16")
    averages = widen(parts["stats"][4 * maps.count :].view(np.uint16), "bf16").reshape(maps.N, maps.blocks, maps.C)
    of = lambda column: maps.out_of_blocks(column.reshape(maps.N, 1, maps.C))
    codes = at.unpack_codes(parts["codes"])[0].astype(np.float32)
    if spec.rounding == "dithered":
        codes = codes + (np.float32(255) - np.float32(2) * noise_bytes(seed, np.arange(maps.n))) / np.float32(512)
    with np.errstate(all="ignore"):
        return codes * of(step) + of(least) + maps.out_of_blocks(averages)


# --- The two calls ------------------------------------------------------------------------------------------------
def encoded_bytes(spec, dtype, n, segments=1):
    return Layout(parse(spec), dtype, n, segments).total


def encode(spec, x, dtype, seed=0, segments=1):
    """Encodes elements x, in memory order. `segments` is a number, or Segments for bits of their own."""
    spec = parse(spec)
    at = Layout(spec, dtype, x.size, segments)
    if x.size == 0:
        return b""
    if at.mixed:
        at.grant(segments.bits)
    if spec.grouped:
        return {"affine": affine_encode, "rotated": rotated_encode}[spec.codec](spec, widen(x, dtype), at, seed)
    if spec.codec == "dual":
        return dual_encode(spec, widen(x, dtype), at, seed)
    if spec.codec == "copy":
        return at.join(codes=x.tobytes())
    if spec.codec == "mask":
        codes = mask_bits(spec, x, dtype)
    elif spec.codec == "index":
        codes, _ = index_codes(spec, x)
    else:
        codes = narrow(widen(x, dtype), spec.to, saturate=False).view(np.uint16)
    return at.join(codes=at.pack_codes(codes[None]))


def decode(spec, data, dtype, n, seed=0, segments=1):
    """Decodes n elements of type `dtype` from the bytes of encode()."""
    spec = parse(spec)
    at = Layout(spec, dtype, n, segments)
    if n == 0:
        return np.empty(0, STORAGE[dtype])
    if at.mixed:
        at.read_table(data)
    if spec.codec == "rotated" and dtype == "bool":
        return rotated_mask(data, at)
    if spec.grouped:
        return narrow({"affine": affine_decode, "rotated": rotated_decode}[spec.codec](spec, data, at, seed), dtype)
    if spec.codec == "dual":
        return narrow(dual_decode(spec, data, at, seed), dtype)
    if spec.codec == "copy":
        return at.split(data)["codes"][: n * np.dtype(STORAGE[dtype]).itemsize].view(STORAGE[dtype])
    codes = at.unpack_codes(at.split(data)["codes"])[0]
    if spec.codec == "index":
        return codes.astype(STORAGE[dtype])
    if spec.codec == "cast":
        return narrow(widen(codes.astype(np.uint16).view(STORAGE[spec.to]), spec.to), dtype, saturate=False)
    if dtype not in FLOATS:
        return (codes != 0).astype(STORAGE[dtype])
    return narrow(np.where(codes != 0, np.float32(spec.on), np.float32(spec.off)), dtype, saturate=False)
