"""All of {CPU base, AVX2, AVX-512, CUDA, NumPy} decode what any of them encodes, to the same values.

Encodings agree byte for byte, except those of `rotated`, which keep the tolerance of format.md, section 7. The C++
backends run in tests/conformance/conformance_tool.cpp: the program that ACTZIP_CONFORMANCE_TOOL names, or
build/bin/actzip_conformance by default.
"""

import json
import os
import subprocess
from pathlib import Path

import actzip_reference as ref
import grid
import numpy as np
import pytest
import rotated_rules

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = Path(os.environ.get("ACTZIP_CONFORMANCE_TOOL", ROOT / "build" / "bin" / "actzip_conformance"))

# Encodings and decodings of each codec, counted by hand from grid.py and the registry, so that nothing is left out
# silently: 139 is 9 kinds * 11 sizes + 2 kinds * 10 sizes * 2 segmentations; groups of 32 have two sizes fewer. Each
# encoding is compared on every backend, each decoding for every pair of backends; NumPy is one of them. Segments with
# bits of their own: specs * types * 12 lengths * 5 tables, and for one of the lengths more types to decode to.
EXPECTED = {
    "affine": (30 * 3 * 139 + 2 * 3 * 113 + 5 * 3 * 60,
               30 * 3 * 139 + 2 * 3 * 113 + 32 * 3 * 9 * 2 + 5 * 3 * 60 + 5 * 3 * 5 * 2),
    "rotated": (11 * 3 * 139 + 4 * 3 * 60,
                11 * 3 * 139 + 3 * 9 * (6 * 2 + 5 * 3) + 4 * 3 * 60 + 3 * 5 * (2 * 2 + 2 * 3)),
    "mask": (11 * (3 * 3 + 3 * 9) + 3 * 3 * 99, 11 * (3 * 3 + 3 * 9) + 3 * 3 * 99 + 36 * 5 + 3 * 27 * 5),
    "index": (10 * 4 * 3 * 11, (9 * 2 + 1) * 4 * 3 * 11),
    "cast": (2 * 3 * 99, 2 * 3 * 99 + 2 * 3 * 9 * 2),
    "copy": (3 * 99 + 7 * 33, 3 * 99 + 7 * 33),
    "dual": (25 * 3 * 120, 25 * 3 * 120 + 25 * 3 * 10 * 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def listing():
    if not TOOL.exists():
        pytest.fail(f"{TOOL} is missing: build it, or name it in ACTZIP_CONFORMANCE_TOOL")
    found = json.loads(subprocess.run([TOOL, "--list"], check=True, capture_output=True).stdout)
    if os.environ.get("ACTZIP_REQUIRE_CUDA") == "1":
        assert "cuda" in found["backends"], "ACTZIP_REQUIRE_CUDA=1, and the tool finds no CUDA device"
    return found


def run_tool(backend, jobs, folder):
    """Results of jobs (op, case, dtype, input bytes), in their order."""
    blob, places, rows = bytearray(), {}, []
    for op, case, dtype, data in jobs:
        if data not in places:
            places[data] = [len(blob), len(data)]
            blob.extend(data)
        row = dict(op=op, spec=case.spec, dtype=dtype, elems=case.elems, segments=case.segments, seed=case.seed)
        if isinstance(case.segments, ref.Segments):
            count, total_bits, bits = case.segments
            row |= dict(segments=count, total_bits=total_bits, bits=bits)
        rows.append(row | {"in": places[data]})
    source, target, manifest = folder / "in.bin", folder / "out.bin", folder / "cases.json"
    source.write_bytes(blob)
    manifest.write_text(json.dumps(dict(input=str(source), output=str(target), cases=rows)))
    done = subprocess.run([TOOL, "--backend", backend, manifest], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    output, at, results = target.read_bytes(), 0, []
    for op, case, dtype, _ in jobs:
        size = result_bytes(op, case, dtype)
        results.append(output[at : at + size])
        at += size
    assert at == len(output)
    return results


def result_bytes(op, case, dtype):
    if op == "decode":
        return case.elems * np.dtype(ref.STORAGE[dtype]).itemsize
    overflow_word = 4 if case.spec.startswith("index") else 0
    return ref.encoded_bytes(case.spec, dtype, case.elems, case.segments) + overflow_word


def reference_result(op, case, dtype, data):
    if op == "decode":
        return ref.decode(case.spec, data, dtype, case.elems, case.seed, case.segments).tobytes()
    x = np.frombuffer(data, ref.STORAGE[dtype])
    encoded = ref.encode(case.spec, x, dtype, case.seed, case.segments)
    if case.spec.startswith("index"):
        encoded += int(ref.index_codes(ref.parse(case.spec), x)[1]).to_bytes(4, "little")
    return encoded


def run_all(backends, jobs, folder):
    """{backend: results}, NumPy first."""
    results = {"numpy": [reference_result(*job) for job in jobs]}
    for backend in backends:
        results[backend] = run_tool(backend, jobs, folder)
    return results


def compare_encodings(codec, jobs, results):
    for i, (_, case, dtype, data) in enumerate(jobs):
        wanted, by_bytes = results["numpy"][i], {}
        for backend, encodings in results.items():
            by_bytes.setdefault(encodings[i], []).append(backend)
        if codec != "rotated":
            assert len(by_bytes) == 1, (case, "bytes differ", list(by_bytes.values()))
            continue
        x = np.frombuffer(data, ref.STORAGE[dtype])
        for encoding, backends in by_bytes.items():
            try:
                rotated_rules.check_encoding(case.spec, x, dtype, encoding, wanted, case.seed, case.segments, backends)
            except AssertionError as error:
                raise AssertionError(f"{backends}: {case}: {error}") from error
    return len(jobs) * len(results)


def compare_decodings(codec, jobs, results):
    for i, (_, case, dtype, data) in enumerate(jobs):
        decodings = {backend: decoded[i] for backend, decoded in results.items()}
        if codec != "rotated":
            assert len(set(decodings.values())) == 1, (case, dtype, differing(decodings))
            continue
        arrays = {name: np.frombuffer(decoded, ref.STORAGE[dtype]) for name, decoded in decodings.items()}
        try:
            rotated_rules.check_decodings(case.spec, data, dtype, case.elems, case.seed, case.segments, arrays)
        except AssertionError as error:
            raise AssertionError(f"{case} to {dtype}, bytes of encoding {i}: {error}") from error


def differing(decodings):
    return [backend for backend, decoded in decodings.items() if decoded != decodings["numpy"]]


@pytest.mark.parametrize("codec", EXPECTED)
def test_every_backend_decodes_what_every_backend_encodes(codec, listing, tmp_path, capsys):
    info = next(entry for entry in listing["codecs"] if entry["name"] == codec)
    cases = list(grid.cases(info))
    encode_jobs = [("encode", case, case.dtype, case.elements().tobytes()) for case in cases]
    encodings = run_all(listing["backends"], encode_jobs, tmp_path)
    compared = compare_encodings(codec, encode_jobs, encodings)

    # Equal bytes decode once on each backend and stand for all the backends that wrote them.
    decode_jobs, pairs = [], 0
    for i, case in enumerate(cases):
        size = ref.encoded_bytes(case.spec, case.dtype, case.elems, case.segments)
        distinct = dict.fromkeys(results[i][:size] for results in encodings.values())
        for dtype in case.decode_dtypes:
            decode_jobs += [("decode", case, dtype, data) for data in distinct]
            pairs += len(encodings) ** 2
    compare_decodings(codec, decode_jobs, run_all(listing["backends"], decode_jobs, tmp_path))

    with capsys.disabled():
        print(f"\n{codec}: {len(cases)} cases on {', '.join(encodings)}: {compared} encodings, {pairs} pairs")
    encodes, decodes = EXPECTED[codec]
    assert (compared, pairs) == (encodes * len(encodings), decodes * len(encodings) ** 2)


def test_the_registry_has_no_other_codecs(listing):
    assert [entry["name"] for entry in listing["codecs"]] == list(EXPECTED)
