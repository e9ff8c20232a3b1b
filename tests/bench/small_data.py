"""Generates small data sets in the formats of the tasks. `RECIPES` train a few steps on them."""

import io
import struct

import numpy as np
from actzip.bench.tasks.cifar10 import Cifar10
from actzip.bench.tasks.cifar10_vit import Cifar10Vit
from actzip.bench.tasks.cora import Cora
from actzip.bench.tasks.shakespeare import Shakespeare
from actzip.bench.tasks.sst2 import Sst2

RECIPES = {
    "cifar10": Cifar10(epochs=1, batch=8, width=8),
    "cifar10-vit": Cifar10Vit(epochs=1, batch=8, patch=8, layers=1, width=64, heads=2),
    "shakespeare": Shakespeare(steps=3, batch=4, context=32, layers=1, width=64, heads=2),
    "sst2": Sst2(epochs=1, batch=16, longest=12, layers=1, width=64, heads=2),
    "cora": Cora(epochs=3),
}


def write_all(folder):
    write_images(folder / "cifar10-train.jpgs", 24)
    write_images(folder / "cifar10-test.jpgs", 8)
    write_graph(folder)
    write_sentences(folder / "sst2-train.tsv", 48)
    write_sentences(folder / "sst2-dev.tsv", 16)
    text = np.random.default_rng(0).choice(list("to be, or not\n"), 1000)
    (folder / "tinyshakespeare.txt").write_text("".join(text))


def write_images(path, count, side=32):
    from PIL import Image

    random = np.random.default_rng(count)
    content = b"JPGS" + struct.pack("<I", count)
    for i in range(count):
        jpeg = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (side, side, 3), np.uint8)).save(jpeg, "JPEG")
        content += struct.pack("<BI", i % 10, len(jpeg.getvalue())) + jpeg.getvalue()
    path.write_bytes(content)


def write_graph(folder, nodes=100):
    random = np.random.default_rng(0)
    splits = ["train", "val", "test", "-"]
    lines = [f"{i % 3}\t{splits[i % 4]}\t{' '.join(map(str, sorted(random.choice(50, 5, replace=False))))}\n"
             for i in range(nodes)]
    (folder / "cora.nodes").write_text("".join(lines))
    (folder / "cora.edges").write_text("".join(f"{i}\t{(i * 7 + 3) % nodes}\n" for i in range(nodes)))


def write_sentences(path, count):
    random = np.random.default_rng(count)
    lines = [f"{' '.join(random.choice(['a', 'good', 'bad', 'film', 'not', '.'], random.integers(1, 15)))} \t{i % 2}\n"
             for i in range(count)]
    path.write_text("sentence\tlabel\n" + "".join(lines))
