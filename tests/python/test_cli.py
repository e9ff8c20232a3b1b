"""Calls the program `actzip` as a user does: build/bin/actzip, or the program that ACTZIP_PROGRAM names."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("ACTZIP_PROGRAM", Path(__file__).parents[2] / "build/bin/actzip"))
CODECS = ["affine", "rotated", "mask", "index", "cast", "copy", "dual"]
SMALL = ["bench", "codec", "--device", "cpu", "--elements", "65537", "--repeats", "1", "--threads", "1"]


def run(*args):
    """Returns exit status, output and error output. Idle threads sleep, to leave cores to other tests."""
    done = subprocess.run(
        [PROGRAM, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    return done.returncode, done.stdout, done.stderr


def run_json(path, *args):
    status, _, errors = run(*args, "--json", path)
    assert status == 0, errors
    return json.loads(path.read_text())


# ---- help and versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["codecs"], ["doctor"], ["plan"], ["bench"], ["bench", "codec"],
                                     ["bench", "load"], ["dataset"], ["dataset", "info"], ["dataset", "to-lmdb"]])
def test_help_explains_every_command(command):
    status, text, errors = run(*command, "--help")
    assert (status, errors) == (0, "")
    assert "Usage: " in text
    if command not in (["bench"], ["dataset"]):
        assert "Examples:" in text


def test_version_is_the_one_of_the_header():
    header = (Path(__file__).parents[2] / "include/actzip/version.hpp").read_text()
    version = header.split('ACTZIP_VERSION_STRING "')[1].split('"')[0]
    status, text, _ = run("--version")
    assert status == 0
    assert text.startswith(f"actzip {version} ")


# ---- codecs and doctor ------------------------------------------------------------------------------------------------


def test_codecs_lists_the_registry():
    status, text, errors = run("codecs")
    assert (status, errors) == (0, "")
    for name in CODECS:
        assert f"\n{name} " in "\n" + text


def test_codecs_json_has_every_variant_with_its_traits():
    status, text, _ = run("codecs", "--json")
    assert status == 0
    entries = {entry["name"]: entry for entry in json.loads(text)["codecs"]}
    assert list(entries) == CODECS
    assert len(entries["affine"]["variants"]) == 8 * 3
    assert len(entries["rotated"]["variants"]) == 4 * 2
    assert len(entries["dual"]["variants"]) == 8 * 2
    for entry in entries.values():
        assert entry["encodes"] and entry["decodes"] and entry["variants"]
        for variant in entry["variants"]:
            assert variant["bits"] >= 1
            assert variant["expected_rel_sq_error"] >= 0
            assert set(variant["traits"]) == {"exact", "byte_equal", "unbiased", "keeps_zeros", "keeps_signs"}


def test_doctor_finds_a_working_cpu():
    status, text, errors = run("doctor")
    assert (status, errors) == (0, "")
    states = {line[9:21].strip(): line.split()[0] for line in text.splitlines() if not line.startswith(" ")}
    for topic in ["actzip", "compiler", "CPU", "CPU levels", "memory", "CPU codecs"]:
        assert states[topic] == "ok", text
    assert states["CUDA build"] in ("ok", "missing")


def test_doctor_says_what_to_do_about_everything_that_is_missing():
    status, text, _ = run("doctor", "--json")
    assert status == 0
    report = json.loads(text)
    assert report["cpu"]["level"] in report["cpu"]["levels"]
    assert report["memory_bytes"] > 0
    for finding in report["findings"]:
        assert finding["state"] == "ok" or finding["advice"], finding


# ---- bench codec ------------------------------------------------------------------------------------------------------


def test_quick_bench_prints_a_table_and_writes_complete_rows(tmp_path):
    path = tmp_path / "rows.json"
    status, text, errors = run("bench", "codec", "--device", "cpu", "--quick", "--repeats", "1", "--json", path)
    assert status == 0, errors
    assert "bytes/elem" in text and "rel sq error" in text and "share" in text
    assert "[1/" in errors  # progress, as plain lines
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left

    results = json.loads(path.read_text())
    for key in ["version", "commit", "date", "device_name", "repeats"]:
        assert results["meta"][key]
    assert {row["codec"] for row in results["rows"]} == set(CODECS)
    mixed = next(row for row in results["rows"] if row["spec"] == "rotated:1+3")
    assert mixed["bits"] == 2 and mixed["rel_sq_error"] == pytest.approx(mixed["expected_rel_sq_error"], rel=0.05)
    for row in results["rows"]:
        assert row["device"] == "cpu" and row["threads"] >= 1 and row["level"]
        assert row["bits"] >= 1 and row["dtype"] and row["elements"] > 0
        assert (row["rounding"] is not None) == (row["codec"] in ("affine", "dual"))
        for key in ["encode_share", "decode_share", "encode_gbps", "decode_gbps", "copy_gbps", "encode_ms", "decode_ms"]:
            assert math.isfinite(row[key]) and row[key] > 0, (key, row)
        assert row["bytes_per_element"] * 8 >= row["bits"]
        assert math.isfinite(row["rel_sq_error"]) and math.isfinite(row["bias"])
        if row["codec"] in ("mask", "index", "copy"):
            assert row["rel_sq_error"] == 0


def test_share_is_bandwidth_over_that_of_the_copy(tmp_path):
    row = run_json(tmp_path / "rows.json", *SMALL, "--codec", "affine:4:dithered:group=128", "--dtype", "f32")["rows"][0]
    encoded = row["bytes_per_element"] * row["elements"]
    assert row["spec"] == "affine:4:dithered:group=128"
    assert row["encode_gbps"] == pytest.approx((4 * row["elements"] + encoded) / row["encode_ms"] * 1e-6)
    assert row["copy_gbps"] == pytest.approx(8 * row["elements"] / row["copy_ms"] * 1e-6)
    assert row["encode_share"] == pytest.approx(row["encode_gbps"] / row["copy_gbps"])
    assert row["decode_share"] == pytest.approx(row["decode_gbps"] / row["copy_gbps"])


def test_codecs_types_threads_levels_and_sizes_are_chosen_by_options(tmp_path):
    results = run_json(
        tmp_path / "rows.json",
        *["bench", "codec", "--codec", "rotated:2", "mask", "--dtype", "f16", "bf16", "--threads", "1", "2"],
        *["--levels", "all", "--elements", "2^16", "--large", "65539", "--repeats", "1"],
    )
    levels = json.loads(run("doctor", "--json")[1])["cpu"]["levels"]
    rows = {(row["spec"], row["dtype"], row["threads"], row["level"], row["elements"]) for row in results["rows"]}
    assert rows == {
        (spec, dtype, threads, level, elements)
        for spec in ["rotated:2", "mask"]
        for dtype in ["f16", "bf16"]
        for threads in [1, 2]
        for level in levels
        for elements in [65536, 65539]
    }


def test_json_to_standard_output_is_nothing_but_json():
    status, text, _ = run(*SMALL, "--codec", "copy", "--json", "-")
    assert status == 0
    assert [row["dtype"] for row in json.loads(text)["rows"]] == ["f32", "bf16"]


# ---- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "subcommand"),
        (["drain"], "no command 'drain' (allowed: train, codecs"),
        (["report", "x.json"], "python -m actzip report"),
        (["bench"], "subcommand"),
        (["bench", "codec", "--codec", "zip:2"], "'zip'"),
        (["bench", "codec", "--codec", "affine:9"], "1 to 8"),
        (["bench", "codec", "--dtype", "f8"], "f8"),
        (["bench", "codec", "--device", "tpu"], "cpu,cuda"),
        (["bench", "codec", "--elements", "0"], "2^40"),
        (["bench", "codec", "--elements", "many"], "'many'"),
        (["bench", "codec", "--threads", "0"], "'all'"),
        (["bench", "codec", "--repeats", "0"], "repeats"),
        (["bench", "codec", "--device", "cuda", "--threads", "2"], "--device cpu"),
    ],
)
def test_wrong_usage_is_explained_with_status_2(args, says):
    status, text, errors = run(*args)
    assert (status, text) == (2, "")
    assert errors.startswith("actzip: ")
    assert says in errors.splitlines()[0]


@pytest.mark.parametrize("name", ["missing/rows.json", "."])
def test_a_file_that_cannot_be_written_is_reported_before_the_run(tmp_path, name):
    status, text, errors = run("bench", "codec", "--device", "cpu", "--json", tmp_path / name)
    assert (status, text) == (1, "")
    assert errors.startswith("actzip: cannot write ")
    assert "[1/" not in errors


def test_a_type_the_codec_does_not_take_is_reported_before_the_run():
    status, text, errors = run(*SMALL, "--codec", "affine:2", "--dtype", "i64")
    assert (status, text) == (1, "")
    assert errors.startswith("actzip: ") and "i64" in errors and "bf16" in errors
    assert "[1/" not in errors


def test_cuda_without_cuda_says_what_is_missing():
    if not json.loads(run("doctor", "--json")[1])["cuda"]["problem"]:
        pytest.skip("this machine has a working GPU")
    status, text, errors = run("bench", "codec", "--device", "cuda")
    assert (status, text) == (1, "")
    assert errors.startswith("actzip: ") and "CUDA" in errors
