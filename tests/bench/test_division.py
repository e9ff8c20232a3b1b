"""`division`: its table, its JSON file and its picture."""

import argparse
import base64
import io
import json
import xml.etree.ElementTree as ET

import actzip
import numpy as np
import pytest
import torch
from actzip.bench import division, map_picture, svg
from actzip.bench.errors import BenchError
from actzip.bench.small_models import classified, image_network, residual_block
from small_data import write_images
from torch import nn


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Replaces the models by a network with two residual blocks of one width, and its images by ones of 20 x 20."""
    monkeypatch.delenv("ACTZIP_DATA", raising=False)
    spec = classified(lambda: image_network(residual_block, (8,), nn.ReLU))
    monkeypatch.setattr(division, "MODELS", {"cnn": (spec, 20)})


def command(*arguments):
    parser = argparse.ArgumentParser()
    division.add_arguments(parser)
    return division.run(parser.parse_args(["--device", "cpu", "--model", "cnn", "--steps", "1", "--batch", "8",
                                           *map(str, arguments)]))


def test_the_table_and_the_file(tmp_path, capsys):
    path = tmp_path / "parts.json"
    assert command("--json", path) == 0
    assert command("--json", path) == 0
    content = json.loads(path.read_text())
    assert len(content["runs"]) == 1  # a second run replaces all rows of its model
    rows = {row["site"]: row for row in content["rows"]}
    first = rows["0: convolution.input"]
    assert first["shape"] == [8, 3, 20, 20] and first["codec"] == "dual:2:size=20x20" and first["data"] == "made up"
    assert first["low_bytes"] == 8 * 3 * 9 * 2 and first["high_bytes"] == 8 * 3 * 4 + 8 * 3 * 20 * 20 // 4
    for row in rows.values():
        assert 0 < row["low_energy"] < row["energy"] and 0 < row["high_energy"] < row["energy"]
        assert row["low_energy"] + row["high_energy"] == pytest.approx(row["energy"], rel=2**-7)
    lines = capsys.readouterr().out.splitlines()
    shown = next(line for line in lines if line.startswith("0: convolution.input")).split()
    assert float(shown[3]) == pytest.approx(100 * first["low_energy"] / first["energy"], abs=0.006)
    assert float(shown[4]) == pytest.approx(100 * first["high_energy"] / first["energy"], abs=0.006)
    assert float(shown[-1]) == pytest.approx(first["squared_error"] / first["energy"], abs=6e-5)
    assert lines[-1].startswith("all ")


def test_bits_and_blocks_of_the_preset(tmp_path):
    errors = []
    for preset in ("division:2", "division:8:block=4"):
        path = tmp_path / "parts.json"
        command("--preset", preset, "--json", path)
        row = json.loads(path.read_text())["rows"][-1]
        assert row["preset"] == preset
        errors.append(row["squared_error"] / row["energy"])
    assert errors[1] < errors[0] / 100 and row["codec"].startswith("dual:8:block=4")


def test_real_images(tmp_path):
    write_images(tmp_path / "cifar10-train.jpgs", 12)
    command("--data", tmp_path, "--json", tmp_path / "parts.json")
    row = json.loads((tmp_path / "parts.json").read_text())["rows"][0]
    assert row["data"] == "cifar10" and row["shape"] == [8, 3, 32, 32]
    with pytest.raises(BenchError, match="no cifar10-train.jpgs in it"):
        command("--data", tmp_path / "nowhere")


def test_the_picture(tmp_path):
    path = tmp_path / "map.svg"
    command("--picture", path, "--site", "1: native_batch_norm.input", "--sample", "3", "--channel", "5")
    text = path.read_text()
    assert "1: native_batch_norm.input, sample 3, channel 5, dual:2:size=20x20" in text
    root = ET.fromstring(text)
    assert len(root.findall("{*}image")) == 4 and len(root.findall(".//{*}linearGradient")) == 4


@pytest.mark.parametrize("channel", [0, 1])
def test_maps_of_any_rank(channel):
    for shape, rows in (((2, 2, 40), 1), ((2, 2, 6, 9), 6), ((2, 2, 3, 6, 9), 18)):
        torch.manual_seed(0)
        tensor = torch.randn(shape)
        shown = division.shown_map(tensor, actzip.parts(tensor), 1, channel)
        assert shown.low.shape == (rows, shape[-1])
        assert (shown.activation.ravel() == tensor[1, channel].numpy().ravel()).all()
        assert (shown.high == shown.activation - shown.low).all()
        ET.fromstring(map_picture.draw("a < b", shown))


def example():
    torch.manual_seed(0)
    x = torch.randn(1, 1, 16, 24) + torch.linspace(-3, 3, 24)
    parts = actzip.parts(x)
    return map_picture.Map(*(t[0, 0].numpy() for t in (x, parts.low, parts.high, parts.restored)))


def test_panels_are_the_parts():
    shown = example()
    activation, low, high, restored = map_picture.panels(shown)
    assert (activation.values is shown.activation and low.values is shown.low and high.values is shown.high
            and restored.values is shown.restored)
    assert (activation.least, activation.greatest) == (low.least, low.greatest) == (restored.least, restored.greatest)
    assert high.least == -high.greatest == -np.abs(shown.high).max()
    shares = [float(panel.caption.split(":")[1].split("%")[0]) for panel in (low, high)]
    assert sum(shares) == pytest.approx(100, abs=1) and min(shares) > 10
    blocks = map_picture.coloured(low).reshape(2, 8, 3, 8, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()  # each block of 8 x 8 has one colour
    assert len(np.unique(blocks[:, 0, :, 0].reshape(-1, 3), axis=0)) == 6


def test_colours_of_the_scale():
    ramp = map_picture.Panel("", np.array([[0.0, 1.0, 2.0, np.nan]]), 0.0, 2.0, map_picture.DIFFERENCES)
    assert [tuple(pixel) for pixel in map_picture.coloured(ramp)[0]] == [*map_picture.DIFFERENCES, (0, 0, 0)]
    flat = map_picture.Panel("", np.zeros((1, 4)), 0.0, 0.0, map_picture.DIFFERENCES)
    assert tuple(map_picture.coloured(flat)[0, 0]) == map_picture.DIFFERENCES[1]


def test_png():
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    assert (np.asarray(image.open(io.BytesIO(svg.png(pixels)))) == pixels).all()
    content = ET.fromstring(svg.image(pixels, 1, 2)).get("href").partition("base64,")[2]
    assert base64.b64decode(content) == svg.png(pixels)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--batch", "0"], r"--batch 0 \(allowed: 1 or more\)"),
    (["--channel", "-1"], r"--channel -1 \(allowed: 0 or more\)"),
    (["--preset", "divide"], "--preset divide: .*allowed"),
    (["--preset", "default"], r"--preset default: nothing is kept by dual \(allowed: division"),
    (["--preset", "convert:division"], "converted layers are not looked into"),
    (["--picture", "map.png"], r"--picture map.png \(allowed: a name that ends with .svg\)"),
    (["--site", "nowhere"], r"--site 'nowhere' \(allowed: 0: convolution.input, 1: "),
    (["--picture", "map.svg", "--channel", "3"], r"--channel 3 \(allowed: 0 to 2 at this site\)"),
])
def test_refused(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BenchError, match=message):
        command(*arguments)
