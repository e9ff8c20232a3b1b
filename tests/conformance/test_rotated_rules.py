"""The conformance rules for `rotated` detect the violations that they must detect."""

import contextlib

import actzip_reference as ref
import numpy as np
import pytest
import rotated_rules

SEED, N = 11, 3 * 256 + 50
X = np.random.default_rng(3).standard_normal(N).astype(np.float32)


def judge(data, spec="rotated:2:mask", backends=("base",)):
    rotated_rules.check_encoding(spec, X, "f32", bytes(data), ref.encode(spec, X, "f32", SEED), SEED, 1, backends)


def damaged(at, mask):
    data = bytearray(ref.encode("rotated:2:mask", X, "f32", SEED))
    data[at] ^= mask
    return data


def test_the_reference_is_valid():
    judge(damaged(0, 0))


@pytest.mark.parametrize(
    ("at", "mask", "what"),
    [
        (1, 0x40, "mean"),
        (2, 0x02, "scale"),
        (16 + 5, 0x80, "a code"),  # the sign of a coefficient
        (16 + 4 * 64 + 3, 0x01, "mask plane"),
    ],
)
def test_damage_is_noticed(at, mask, what):
    with pytest.raises(AssertionError, match=what):
        judge(damaged(at, mask))


@pytest.mark.parametrize(("backend", "difference", "is_apart"), [
    ("avx2", 0.0, False), ("avx2", 1e-4, True), ("cuda", 1e-4, False), ("cuda", 0.05, True)])
def test_decodings_apart_are_noticed(backend, difference, is_apart):
    data = ref.encode("rotated:2", X, "f32", SEED)
    y = ref.decode("rotated:2", data, "f32", N, SEED)
    z = y.copy()
    z[N // 2] += np.float32(difference)
    decodings = {"numpy": y, "base": y, backend: z}
    with pytest.raises(AssertionError, match="decoded values") if is_apart else contextlib.nullcontext():
        rotated_rules.check_decodings("rotated:2", data, "f32", N, SEED, 1, decodings)
