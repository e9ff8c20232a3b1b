"""The differences that format.md, section 7, allows between two implementations of `rotated`."""

import actzip_reference as ref
import numpy as np


TOLERANCE = 2.0**-6


def tolerance(dtype, backends):
    """Of decoding, relative to the root mean square. CPUs compute f32 in f32, and are held to it."""
    return TOLERANCE if dtype != "f32" or "cuda" in backends else 2.0**-18


def encode_tolerance(dtype, backends):
    """Of a coefficient, relative to the greater of itself and sigma."""
    return TOLERANCE if dtype != "f32" or "cuda" in backends else 2.0**-12


SMALLEST_STEP = {"f32": 2.0**-149, "bf16": 2.0**-133, "f16": 2.0**-24}


def check_encoding(spec, x, dtype, data, wanted, seed, segments, backends):
    """Asserts that `data`, written by `backends`, is a valid encoding of x: its statistics may differ by rounding, and
    its codes only near a cut.

    `wanted` is the reference's encoding.

    Computes coefficients with the means in `data`, because a mean on the edge between two bf16 numbers may be rounded
    to either side, which moves every coefficient.
    """
    spec, wide, close = ref.parse(spec), ref.widen(x, dtype), encode_tolerance(dtype, backends)
    at = ref.Layout(spec, dtype, x.size, segments)
    if at.mixed:
        at.read_table(data)
    mask_bytes = ref.align(at.sections["mask"], 16)
    assert data[len(data) - mask_bytes :] == wanted[len(data) - mask_bytes :], "mask plane or padding"
    table_bytes = sum(ref.align(at.sections[name], 16) for name in ("table", "starts"))
    assert data[:table_bytes] == wanted[:table_bytes], "bits and starts of the segments"
    stats_end = table_bytes + at.sections["stats"]
    assert not any(data[stats_end : stats_end + -stats_end % 16]), "padding"
    check_gaps(at, data)

    mean, scale = ref.unpack_stats(at.split(data)["stats"], spec.stats)
    wanted_mean, wanted_scale = ref.unpack_stats(at.split(wanted)["stats"], spec.stats)
    codes = ref.rotated_codes(data, at)
    with np.errstate(all="ignore"):  # where a partial sum may overflow, the order of summation decides
        certain = at.into_groups(np.abs(wide).astype(np.float64)).sum(axis=1, keepdims=True) < 2.0**100
    certain |= np.isnan(wanted_mean)
    nan = np.isnan(wanted_mean) | (np.isnan(mean) & ~certain)
    assert np.array_equal(np.isnan(mean), nan), "unrepresentable groups"
    flat = nan | ((wanted_scale == 0) & (mean == wanted_mean))
    assert not scale[flat].any() and not codes[flat[:, 0]].any(), "groups without a scale"
    check_means(spec, wide, mean, at, nan, close)

    kept = ~flat[:, 0]
    with np.errstate(all="ignore"):
        y = ref.rotated_coefficients(wide, mean, at, seed)[kept]
    exact, widths = np.ones_like(scale), at.group_bits()
    for bits in np.unique(widths[kept]):
        chosen, coefficients = kept & (widths == bits), y[widths[kept] == bits]
        check_codes(coefficients, codes[chosen], int(bits), close)
        exact[chosen] = ref.rotated_scale(int(bits), coefficients, codes[chosen] % 2 ** (bits - 1))
    low, high = (exact * np.float32(1 + side * close) for side in (-1, 1))
    if spec.stats == "bf16":
        low, high = ref.round_scale(low, seed), ref.round_scale(high, seed)
    assert ((low <= scale) & (scale <= high))[kept].all(), "scale"


def check_gaps(at, data):
    """Asserts that words of the codes section that are no segment's are 0."""
    free = np.ones(at.capacity, bool)
    for start, bits in zip(at.starts, at.B):
        free[start : start + at.words(bits)] = False
    assert not at.split(data)["codes"].view(np.uint32)[free].any(), "words without codes"


def check_means(spec, wide, mean, at, nan, close):
    stats = spec.stats if at.dtype == "f32" else "bf16"
    counts = at.into_groups(np.ones(at.n)).sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        groups = at.into_groups(wide.astype(np.float64))
        exact = groups.sum(axis=1, keepdims=True) / counts
        slack = np.abs(groups).sum(axis=1, keepdims=True) / counts * close / 4 + 2.0**-148
        low, high = (
            ref.widen(ref.narrow((exact + side * slack).astype(np.float32), stats, saturate=False), stats)
            for side in (-1, 1)
        )
    assert (nan | ((low <= mean) & (mean <= high))).all(), "mean"


def check_codes(y, codes, bits, close):
    sigma = np.sqrt((y * y).mean(axis=1, keepdims=True))
    size = np.abs(y)
    m = (size[..., None] > ref.CUTS[bits] * sigma[..., None]).sum(axis=-1)
    wrong = codes != m + 2 ** (bits - 1) * np.signbit(y)
    if wrong.any():
        edges = np.concatenate([[0.0], ref.CUTS[bits]])
        far = (np.abs(size[..., None] - edges * sigma[..., None]) > close * np.maximum(size, sigma)[..., None]).all(
            axis=-1)
        assert not (wrong & far).any(), "a code away from every cut"


def check_decodings(spec, data, dtype, n, seed, segments, decodings):
    """Asserts that all decodings {backend: values} of the same bytes agree, two by two, within the tolerance."""
    check_agreement(spec, data, dtype, n, seed, segments, decodings)
    on_cpu = {backend: values for backend, values in decodings.items() if backend != "cuda"}
    if len(on_cpu) < len(decodings):
        check_agreement(spec, data, dtype, n, seed, segments, on_cpu)


def check_agreement(spec, data, dtype, n, seed, segments, decodings):
    spec = ref.parse(spec)
    if dtype == "bool":
        wanted = ref.decode(spec, data, dtype, n, seed, segments)
        assert all(np.array_equal(decoding, wanted) for decoding in decodings.values()), "mask"
        return
    at = ref.Layout(spec, dtype, n, segments)
    if at.mixed:
        at.read_table(data)
    values = np.stack([ref.widen(decoding, dtype).astype(np.float64) for decoding in decodings.values()])
    assert (np.isnan(values) == np.isnan(values[0])).all(), "NaN"
    exact = at.into_groups(ref.rotated_decode(spec, data, at, seed).astype(np.float64))
    counts = at.into_groups(np.ones(n)).sum(axis=1, keepdims=True)
    rms = np.sqrt((exact * exact).sum(axis=1, keepdims=True) / counts)
    allowed = tolerance(dtype, decodings) * np.maximum(rms, np.abs(exact)) + SMALLEST_STEP[dtype]
    allowed = at.out_of_groups(allowed).ravel()
    spread = values.max(axis=0) - values.min(axis=0)
    assert (np.isnan(spread) | (spread <= allowed)).all(), "decoded values"
