"""Calls `actzip dataset` and `actzip bench load` as a user does."""

import io
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

from test_cli import PROGRAM, run


def jpeg(pixels, quality=90):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def photos(count, sides=(32, 32), seed=0):
    """Generates images with edges and colours, for which decoders have to round."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        coarse = generator.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        yield np.asarray(Image.fromarray(coarse).resize(sides, Image.BICUBIC))


def without_lmdb():
    return "no LMDB" in run("dataset", "to-lmdb", "shapes-is-no-folder")[2]


def test_pixels_are_those_of_pillow(tmp_path):
    jpegs = [jpeg(photo) for photo in photos(40)]
    records = b"".join(struct.pack("<BI", i % 10, len(content)) + content for i, content in enumerate(jpegs))
    for split in ("train", "test"):
        (tmp_path / f"x-{split}.jpgs").write_bytes(b"JPGS" + struct.pack("<I", len(jpegs)) + records)
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(content))) for content in jpegs]) / 255

    status, text, errors = run("dataset", "info", tmp_path, "--decode")
    assert (status, errors) == (0, "")
    assert text.startswith("train  40 images of 10 classes; JPEGs in one file\n")
    assert "decoded    40, 4 to 4 of a class" in text
    for name, expected in (("mean", pixels.mean((0, 1, 2))), ("deviation", pixels.std((0, 1, 2)))):
        assert re.search(f"{name} +(.*)", text)[1] == " ".join(f"{value:.6f}" for value in expected)


def test_damaged_images_are_named(tmp_path):
    for i, photo in enumerate(photos(6)):
        content = jpeg(photo)
        (tmp_path / f"class{i % 2}").mkdir(exist_ok=True)
        (tmp_path / f"class{i % 2}" / f"{i}.jpg").write_bytes(content[:300] if i == 3 else content)
    status, text, _ = run("dataset", "info", tmp_path, "--decode")
    assert status == 0
    assert "damaged    1\n  class1/3.jpg: not a readable JPEG" in text


def test_what_is_generated_is_there():
    assert run("dataset", "info", "shapes:50")[1] == (
        "train  50 images of 10 classes; generated shapes\nval    10 images of 10 classes; generated shapes\n")
    status, text, _ = run("dataset", "info", "--kind", "graph", "rings:200")
    assert status == 0
    assert text.startswith("200 nodes with 16 features, 5 classes")


def test_conversion_goes_on_after_a_kill(tmp_path):
    if without_lmdb():
        pytest.skip("built without LMDB")
    content = jpeg(next(photos(1)))
    for c in range(10):
        (tmp_path / "train" / f"c{c}").mkdir(parents=True)
        for i in range(1500):
            (tmp_path / "train" / f"c{c}" / f"{i:04}.jpg").write_bytes(content)
    command = [PROGRAM, "dataset", "to-lmdb", tmp_path, "--split", "train"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    data = tmp_path / "train.lmdb.partial" / "data.mdb"
    while process.poll() is None and not (data.exists() and data.stat().st_size > 1_000_000):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()

    status, text, errors = run(*command[1:])
    assert status == 0, errors
    assert "15000 images of 10 classes" in text
    assert text.endswith("skipped: 0\n")
    assert run("dataset", "info", tmp_path)[1].startswith("train  15000 images of 10 classes; LMDB of JPEGs\n")
    assert not data.parent.exists()
    assert "was there already" in run(*command[1:])[1]


LIBRARY = os.environ.get("ACTZIP_FAILING_FILES", "")


def converted(folder, *, at=0, how=""):
    """Converts while one operation on the database's files fails (see tests/faults). Returns status and errors."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    faults = {"LD_PRELOAD": LIBRARY, "FAIL_FOLDER": f"{out.resolve()}/", "FAIL_LOG": str(folder / "log"),
              "FAIL_AT": str(at), "FAIL_HOW": how}
    done = subprocess.run([PROGRAM, "dataset", "to-lmdb", folder, "--output", out / "train.lmdb"], capture_output=True,
                          text=True, timeout=60, env={**os.environ, **(faults if LIBRARY else {})})
    return done.returncode, done.stderr


def test_conversion_bears_any_fault(tmp_path):
    if without_lmdb() or not LIBRARY:
        pytest.skip("built without LMDB, or ACTZIP_FAILING_FILES names no library")
    for i, photo in enumerate(photos(9, (128, 128))):
        (tmp_path / "train" / f"c{i % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / f"c{i % 3}" / f"{i}.jpg").write_bytes(jpeg(photo, 95))
    assert converted(tmp_path) == (0, f"{tmp_path}/train: 9 files of 3 classes\n")
    operations = (tmp_path / "log").read_text().splitlines()
    assert any("write train.lmdb.partial/data.mdb" in line for line in operations)
    statuses = []
    for at in range(1, len(operations) + 1):
        for how in ("error", "full", "short", "kill", "torn"):
            shutil.rmtree(tmp_path / "out")
            status, errors = converted(tmp_path, at=at, how=how)
            statuses.append(status)
            where = f"{how} at {operations[at - 1]}: {status}, {errors}"
            assert status in {"kill": (-9,), "torn": (-9,)}.get(how, (0, 1)), where
            if status != 0:
                assert not (tmp_path / "out" / "train.lmdb").exists() or status == -9, where
                status, errors = converted(tmp_path)
                assert status == 0, f"{where}; then {errors}"
            text = run("dataset", "info", tmp_path / "out" / "train.lmdb", "--decode")[1]
            assert "train  9 images of 3 classes" in text and "damaged    0" in text, where
    print(f"{len(operations)} operations, {len(statuses)} faults: {statuses.count(0)} borne, {statuses.count(1)} "
          f"reported, {statuses.count(-9)} killed")


def test_loading_is_timed():
    status, text, errors = run("bench", "load", "shapes:500", "--batch", "50", "--epochs", "2")
    assert status == 0, errors
    assert "decoding alone, images/s" in text
    assert len(re.findall(r"^ +\d+ +\d+ +\d+ +\d\.\d\d +\d+\.\d$", text, re.M)) == 2


@pytest.mark.parametrize("arguments, message", [
    (["info", "/no/such"], "'/no/such' is neither a folder nor a file (allowed: shapes[:COUNT]"),
    (["info", "shapes:0"], "shapes:COUNT with a count from 1"),
    (["info", "--kind", "graph", "/no/such"], "is no graph (allowed: rings[:NODES]"),
    (["to-lmdb", "/no/such"], "/no/such: no such folder"),
])
def test_failures_say_what_is_allowed(arguments, message):
    status, _, errors = run("dataset", *arguments)
    assert status == 1
    assert message in errors


@pytest.mark.parametrize("arguments", [["info"], ["info", "shapes", "--kind", "film"], ["to-lmdb", "x", "--split", "test"],
                                       ["info", "--kind", "text", "x", "--decode"], []])
def test_wrong_usage(arguments):
    assert run("dataset", *arguments)[0] == 2
