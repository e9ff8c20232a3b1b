"""Tests of the reference itself: errors on Gaussian data, absence of bias, memory order, sizes."""

import actzip_reference as ref
import numpy as np
import pytest

GAUSSIAN = np.random.default_rng(5).standard_normal(1 << 19).astype(np.float32)


def decoded(spec, x, seed=7):
    return ref.decode(spec, ref.encode(spec, x, "f32", seed), "f32", x.size, seed)


def relative_error(spec, x):
    difference = decoded(spec, x).astype(np.float64) - x
    return (difference**2).sum() / (x.astype(np.float64) ** 2).sum()


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("rotated:1", 0.571), ("rotated:2", 0.1331), ("rotated:3", 0.0358), ("rotated:4", 0.0096),
        ("dual:2", 0.595), ("dual:4:dithered", 0.0119),
        ("affine:2", 0.596), ("affine:4", 0.0238), ("affine:2:dithered", 0.299), ("affine:4:dithered", 0.0120),
    ],
)  # fmt: skip
def test_error_on_gaussian_data(spec, error):
    assert relative_error(spec, GAUSSIAN) == pytest.approx(error, rel=0.03)


def test_error_after_a_relu():
    assert relative_error("rotated:2:mask", np.maximum(GAUSSIAN, 0)) <= 0.046


BIAS_DATA = {
    "gaussian": GAUSSIAN[:600],
    "relu": np.maximum(GAUSSIAN[:600], 0),
    "shared": GAUSSIAN[:600] + np.float32(3),
    "spike": np.where(np.arange(600) % 300 == 40, np.float32(50), GAUSSIAN[:600] * np.float32(0.01)),
}
AFFINE_SPECS = ("affine:2", "affine:2:dithered", "affine:4:stats=f32")
ROTATED_SPECS = ("rotated:1", "rotated:2", "rotated:2:stats=f32", "rotated:4")


@pytest.mark.parametrize(
    ("spec", "data"),
    [(spec, data) for spec in AFFINE_SPECS for data in BIAS_DATA]
    + [(spec, data) for spec in ROTATED_SPECS for data in BIAS_DATA],
)
def test_mean_over_seeds_is_the_value(spec, data):
    x, seeds = BIAS_DATA[data], 256
    trials = np.stack([decoded(spec, x, seed) for seed in range(seeds)]).astype(np.float64)
    deviation = trials.mean(axis=0) - x
    error = trials.std(axis=0, ddof=1) / np.sqrt(seeds)
    rounding = np.zeros(x.size)
    if spec.startswith("affine"):
        parsed = ref.parse(spec)
        groups = ref.Layout(parsed, "f32", x.size, 1).into_groups(x, "edge")
        step = np.repeat(ref.affine_group(groups, parsed, parsed.bits)[1], parsed.group)[: x.size]
        rounding = step / 512  # the noise has 8 bits
        error = np.maximum(error, step / 16 / np.sqrt(seeds))  # a chance of 1/256 may not have shown itself
    assert (np.abs(deviation) <= 5 * error + rounding + 1e-7).all()
    # All elements together see a bias that is too small for one.
    assert abs((deviation / error).mean()) < 0.3


def test_nearest_is_within_half_a_step():
    x = GAUSSIAN[:1000]
    spec = ref.parse("affine:4:nearest")
    steps = ref.affine_group(ref.Layout(spec, "f32", 1000, 1).into_groups(x, "edge"), spec, 4)[1]
    difference = np.abs(decoded(spec, x) - x)
    assert (difference <= np.repeat(steps, 256)[:1000] * 0.501).all()


def test_memory_order():
    base = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert np.array_equal(ref.memory_order(base.transpose(2, 0, 1)), np.arange(24))
    assert np.array_equal(ref.memory_order(base[:, :, ::2]), base[:, :, ::2].ravel())
    assert np.array_equal(ref.memory_order(np.broadcast_to(base[0, 0], (5, 4))), base[0, 0])
    assert np.array_equal(ref.memory_order(np.broadcast_to(base[:, :1, :1], (2, 7, 9))), [0, 12])
    assert ref.memory_order(np.float32(3).reshape(())).tolist() == [3.0]
    assert ref.memory_order(np.empty((3, 0))).size == 0


@pytest.mark.parametrize("spec", ["affine:3", "affine:8:stats=f32", "rotated:3:mask", "rotated:1:group=128"])
@pytest.mark.parametrize("n", [0, 1, 7, 255, 256, 257, 1000])
@pytest.mark.parametrize("segments", [1, 4])
def test_encoded_bytes_is_exact(spec, n, segments):
    x = GAUSSIAN[: n * segments]
    assert len(ref.encode(spec, x, "f32", 1, segments)) == ref.encoded_bytes(spec, "f32", x.size, segments)


@pytest.mark.parametrize(
    ("bits", "total", "granted"),
    [
        ((1, 3, 3, 1), 8, (1, 3, 3, 1)),  # what fits is granted
        ((0, 200, 2, 1), 16, (1, 4, 2, 1)),  # after clamping to what the codec has
        ((3, 3, 3, 3), 8, (3, 3, 1, 1)),  # those that come first
        ((1, 4, 4, 1), 8, (1, 4, 2, 1)),  # then what is left
        ((4, 4, 4, 4), 4, (1, 1, 1, 1)),
    ],
)
def test_segments_get_bits_out_of_a_total(bits, total, granted):
    x = GAUSSIAN[:1024]
    data = ref.encode("rotated:2", x, "f32", 7, ref.Segments(4, total, bits))
    assert len(data) == ref.encoded_bytes("rotated:2", "f32", 1024, ref.Segments(4, total))
    assert tuple(data[:4]) == granted
    values = ref.decode("rotated:2", data, "f32", 1024, 7, ref.Segments(4, total)).reshape(4, 256)
    for s, width in enumerate(granted):
        same = ref.encode(f"rotated:{width}", x, "f32", 7, 4)
        same = ref.decode(f"rotated:{width}", same, "f32", 1024, 7, 4).reshape(4, 256)
        assert np.array_equal(values[s], same[s])


def test_packing_example_of_three_bits():
    assert ref.pack(np.array([[1, 2, 3, 4, 5, 6, 7, 0]]), 3) == bytes([0xD1, 0x58, 0x1F, 0])


def test_seeds_and_counters_use_all_64_bits():
    counters = np.array([5, 5 + (1 << 32)], np.uint64)
    assert ref.words(1, counters)[0] != ref.words(1, counters)[1]
    assert ref.words(1, counters)[0] != ref.words(1 + (1 << 32), counters)[0]


@pytest.mark.parametrize("bits", ref.LEVELS)
def test_levels_are_bf16_numbers(bits):
    levels = ref.LEVELS[bits].astype(np.float32)
    assert np.array_equal(ref.widen(ref.narrow(levels, "bf16"), "bf16"), ref.LEVELS[bits])
