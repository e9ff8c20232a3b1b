"""The reference still writes and reads the golden files."""

import json

import actzip_reference as ref
import make_golden
import numpy as np

MANIFEST = json.loads((make_golden.HERE / "manifest.json").read_text())
DATA = (make_golden.HERE / "golden.bin").read_bytes()


def part(place):
    return DATA[place[0] : place[0] + place[1]]


def same_rotated(a, b):
    """Sums are float64, yet not summed in the same order on every machine."""
    return np.allclose(a, b, rtol=2.0**-7, atol=1e-30, equal_nan=True)


def test_reference_reproduces_every_golden_case():
    assert len(MANIFEST["cases"]) == sum(1 for _ in make_golden.cases())
    for case in MANIFEST["cases"]:
        segments = case["segments"]
        if "total_bits" in case:
            segments = ref.Segments(segments, case["total_bits"], tuple(case["bits"]))
        n, spec, at = case["elems"], case["spec"], (case["seed"], segments)
        x = np.frombuffer(part(case["input"]), ref.STORAGE[case["dtype"]])
        encoded = part(case["encoded"])
        assert ref.encode(spec, x, case["dtype"], *at) == encoded, case
        decoded = ref.decode(spec, encoded, case["decode_dtype"], n, *at)
        if spec.startswith("rotated") and case["decode_dtype"] != "bool":
            wanted = np.frombuffer(part(case["decoded"]), ref.STORAGE[case["decode_dtype"]])
            widened = (ref.widen(values, case["decode_dtype"]) for values in (decoded, wanted))
            assert same_rotated(*widened), case
        else:
            assert decoded.tobytes() == part(case["decoded"]), case


def test_generator_still_makes_the_golden_elements():
    for (_, dtype, _, kind, n, _), case in zip(make_golden.cases(), MANIFEST["cases"], strict=True):
        if n:
            assert make_golden.elements(kind, n, dtype).tobytes() == part(case["input"]), case
