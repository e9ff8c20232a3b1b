"""How the codecs of actzip lay out elements and bytes: sections 2 and 3 of docs/format.md, for actzip_reference.py."""

from typing import NamedTuple

import numpy as np

STORAGE = {
    "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "f64": np.float64, "bool": np.bool_,
    "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
FLOATS = ("f32", "f16", "bf16")


class Segments(NamedTuple):
    """Segments, with bits of their own if there is a total; `bits` are those that they ask for, for encode() only."""

    count: int
    total_bits: int = 0
    bits: tuple = ()


def code_bits(spec, dtype):
    """Width B of one code."""
    if spec.codec == "index":
        return next(bits for bits in (1, 2, 4, 8, 16, 32) if spec.bound <= 1 << bits)
    return {"mask": 1, "cast": 16, "copy": 8 * np.dtype(STORAGE[dtype]).itemsize}.get(spec.codec, spec.bits)


# --- 2. Segments, groups and sections -----------------------------------------------------------------------------
class Layout:
    """How n elements fall into segments and groups, and how many bytes each section has without its padding.

    `segments` is a number or Segments. If segments have bits of their own, grant() or read_table() sets them.
    """

    def __init__(self, spec, dtype, n, segments):
        segments = segments if isinstance(segments, Segments) else Segments(segments)
        self.n, self.G, self.dtype = n, spec.group, dtype
        self.S = segments.count if spec.grouped else 1
        self.L, rest = divmod(n, self.S)  # elements of a segment
        if rest:
            raise ValueError(f"{segments.count} segments do not divide {n} elements")
        self.K = -(-self.L // self.G) if spec.grouped else 0  # groups of a segment
        self.M = self.K * self.G if spec.codec == "rotated" else self.L  # codes of a run
        self.most = 4 if spec.codec == "rotated" else 8
        self.mixed = segments.total_bits != 0 and n > 0
        self.B = np.full(self.S, code_bits(spec, dtype))  # bits of each segment
        self.starts = np.arange(self.S) * self.words(code_bits(spec, dtype))  # of each segment's codes, in words
        self.capacity = self.S * self.words(code_bits(spec, dtype))
        if self.mixed:
            total = segments.total_bits
            if not self.S <= total <= self.S * self.most:
                raise ValueError(f"{total} bits for {self.S} segments")
            self.capacity = min(total * self.words(1), (self.M * total + 31 * self.S) // 32)
        stats = self.S * self.K * (4 if spec.stats == "bf16" else 8)
        if spec.codec == "dual":
            self.maps = Maps(spec, n)
            stats = 4 * self.maps.count + 2 * self.maps.averages
        self.sections = dict(
            table=self.S * self.mixed,
            starts=4 * self.S * self.mixed,
            stats=stats,
            codes=4 * self.capacity,
            mask=self.S * align(self.L, 32) // 8 if spec.mask_plane else 0,
        )
        self.total = sum(align(size, 16) for size in self.sections.values())

    def words(self, bits):
        """32-bit words of a segment's codes."""
        return -(-self.M * bits // 32)

    def grant(self, asked):
        """Sets the bits of each segment: those it asks for, as far as there is room."""
        asked = np.clip(np.asarray(asked, np.int64), 1, self.most)
        extra = np.cumsum(self.words(asked) - self.words(1))
        spare = self.capacity - self.S * self.words(1)
        before = np.minimum(np.append(0, extra)[:-1], spare)
        self.starts = np.arange(self.S) * self.words(1) + before
        room = (self.words(1) + spare - before)[:, None]
        widths = np.arange(1, self.most + 1)
        self.B = ((self.words(widths) <= room) & (widths <= asked[:, None])).sum(axis=1)

    def read_table(self, data):
        """Reads bits and starts from a buffer, and clamps them so that no run leaves the section."""
        parts = self.split(data)
        bits, starts = np.clip(parts["table"], 1, self.most), parts["starts"].view(np.uint32).astype(np.int64)
        inside = starts + self.words(bits.astype(np.int64)) <= self.capacity
        self.B = np.where(inside, bits, 1).astype(np.int64)
        self.starts = np.where(inside, starts, np.minimum(starts, self.capacity - self.words(1)))

    def table(self):
        """The sections that only segments with bits of their own have."""
        if not self.mixed:
            return {}
        return dict(table=self.B.astype(np.uint8).tobytes(), starts=self.starts.astype(np.uint32).tobytes())

    def group_bits(self):
        """Bits of every group."""
        return np.repeat(self.B, self.K)

    def pack_codes(self, codes):
        """The codes section for the codes of all segments, (S, M)."""
        section = bytearray(4 * self.capacity)
        for bits in np.unique(self.B):
            chosen, size = np.flatnonzero(self.B == bits), 4 * self.words(bits)
            packed = pack(codes[chosen], int(bits))
            for i, start in enumerate(4 * self.starts[chosen]):
                section[start : start + size] = packed[i * size : (i + 1) * size]
        return bytes(section)

    def unpack_codes(self, section):
        """The inverse."""
        codes = np.zeros((self.S, self.M), np.int64)
        for bits in np.unique(self.B):
            chosen, size = np.flatnonzero(self.B == bits), 4 * self.words(bits)
            runs = section[4 * self.starts[chosen][:, None] + np.arange(size)]
            codes[chosen] = unpack(runs, len(chosen), self.M, int(bits))
        return codes

    def padded_index(self):
        """The padded index e of every position of every group, (S*K, G)."""
        return np.arange(self.S * self.K * self.G, dtype=np.int64).reshape(-1, self.G)

    def into_groups(self, x, fill="constant"):
        """The groups, (S*K, G); ragged ones are filled with zeros, or (fill="edge") with the segment's last element."""
        padding = ((0, 0), (0, self.K * self.G - self.L))
        return np.pad(x.reshape(self.S, self.L), padding, mode=fill).reshape(-1, self.G)

    def out_of_groups(self, groups):
        """The elements of the groups without those that fill them up, (S, L)."""
        return groups.reshape(self.S, self.K * self.G)[:, : self.L]

    def join(self, **sections):
        parts = (sections.get(name, b"") for name in self.sections)
        return b"".join(part.ljust(align(len(part), 16), b"\0") for part in parts)

    def split(self, data):
        """The sections of a buffer, as arrays of bytes."""
        if len(data) != self.total:
            raise ValueError(f"{len(data)} bytes given, {self.total} needed")
        sizes = self.sections.values()
        starts = np.cumsum([0] + [align(size, 16) for size in sizes])
        parts = (np.frombuffer(data, np.uint8)[at : at + size] for at, size in zip(starts, sizes))
        return dict(zip(self.sections, parts))


class Maps:
    """How the maps and blocks of `dual` lie: section 9."""

    def __init__(self, spec, n):
        self.n, self.C, self.size, self.b = n, spec.last, spec.size, spec.block
        self.P = int(np.prod(spec.size))
        self.N = -(-n // (self.P * self.C))  # samples; the last one may be cut short
        self.tiles = tuple(-(-extent // self.b) for extent in spec.size)
        self.blocks = int(np.prod(self.tiles))
        self.count, self.averages = self.N * self.C, self.N * self.blocks * self.C

    def into_blocks(self, x, fill):
        """The elements of each block, (N, blocks, C, rows, columns): rows in memory order, absent elements filled."""
        whole = np.full(self.N * self.P * self.C, fill, x.dtype)
        whole[: self.n] = x
        whole = whole.reshape(self.N, *self.size, self.C)
        room = [(0, tiles * self.b - extent) for tiles, extent in zip(self.tiles, self.size)]
        whole = np.pad(whole, ((0, 0), *room, (0, 0)), constant_values=fill)
        (d, h, w), b = self.tiles, self.b
        cut = whole.reshape(self.N, d, b, h, b, w, b, self.C).transpose(0, 1, 3, 5, 7, 2, 4, 6)
        return cut.reshape(self.N, self.blocks, self.C, b * b, b)

    def out_of_blocks(self, values):
        """The value of each element, from one value per block, (N, blocks, C), or per map, (N, 1, C)."""
        blocks = np.broadcast_to(values, (self.N, self.blocks, self.C)).reshape(self.N, *self.tiles, self.C)
        for axis, extent in enumerate(self.size, start=1):
            blocks = np.take(blocks, np.arange(extent) // self.b, axis=axis)
        return blocks.ravel()[: self.n]


def by_width(function, at, *columns):
    """Calls function(B, rows of each column) for the groups of each width B; returns the results by group."""
    bits, result = at.group_bits(), None
    for width in np.unique(bits):
        rows = bits == width
        part = function(int(width), *(column[rows] for column in columns))
        result = np.empty((len(bits), *part.shape[1:]), part.dtype) if result is None else result
        result[rows] = part
    return result


def align(value, unit):
    return -(-value // unit) * unit


# --- 3. Packing ---------------------------------------------------------------------------------------------------
def pack(codes, bits):
    """Runs of codes, one for each row, as bytes: code i in bits [i*B, (i+1)*B), each run padded to 32 bits."""
    planes = codes.astype(np.uint64)[..., None] >> np.arange(bits, dtype=np.uint64)
    stream = (planes & np.uint64(1)).astype(np.uint8).reshape(len(codes), -1)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    return np.packbits(stream, axis=1, bitorder="little").tobytes()


def unpack(data, runs, count, bits):
    stream = np.unpackbits(data.reshape(runs, -1), axis=1, bitorder="little")[:, : count * bits]
    weights = np.uint64(1) << np.arange(bits, dtype=np.uint64)
    return (stream.reshape(runs, count, bits) * weights).sum(axis=-1)
