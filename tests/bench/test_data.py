"""The loaders read the formats as documented, and say what is wrong with a file that they refuse."""

import io
import struct

import numpy as np
import pytest
from actzip.bench import data
from actzip.bench.errors import BenchError
from small_data import write_all, write_graph, write_images, write_sentences

pytest.importorskip("PIL")


@pytest.fixture
def folder(tmp_path):
    write_all(tmp_path)
    return tmp_path


def test_images_are_what_pillow_reads(folder):
    from PIL import Image

    images, labels = data.read_images(folder / "cifar10-train.jpgs")
    content = (folder / "cifar10-train.jpgs").read_bytes()
    (length,) = struct.unpack_from("<I", content, 9)
    first = np.asarray(Image.open(io.BytesIO(content[13:13 + length])))
    assert images.shape == (24, 32, 32, 3) and np.array_equal(images[0], first)
    assert labels.tolist() == [i % 10 for i in range(24)]


@pytest.mark.parametrize("cut", [4, 10, 500, -1])
def test_truncated_images_are_refused(folder, cut):
    path = folder / "cifar10-train.jpgs"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(BenchError, match="cifar10-train.jpgs: (begins with|truncated)"):
        data.read_images(path)


def test_images_of_another_kind_are_refused(folder):
    path = folder / "cifar10-train.jpgs"
    content = path.read_bytes()
    for wrong, message in [(b"PNGS" + content[4:], "JPGS"), (content[:8] + b"\x0a" + content[9:], "label 10"),
                           (content + b"x", "expected: at its end"), (content[:13] + b"no" + content[15:], "image 0")]:
        path.write_bytes(wrong)
        with pytest.raises(BenchError, match=message):
            data.read_images(path)
    write_images(path, 2, side=16)
    with pytest.raises(BenchError, match="16 x 16"):
        data.read_images(path)


def test_graph(tmp_path):
    (tmp_path / "nodes").write_text("1\ttrain\t0 2\n0\tval\t\n-1\ttest\t1\n")
    (tmp_path / "edges").write_text("0 1\n1\t2\n")
    graph = data.read_graph(tmp_path / "nodes", tmp_path / "edges")
    assert graph["features"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert graph["labels"].tolist() == [1, 0, -1]
    assert [graph[f"{split}_nodes"].tolist() for split in ("train", "val", "test")] == [[0], [1], [2]]
    assert graph["edges"].tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("file, line, message", [
    ("cora.nodes", "1\ttrain\n", "line 101"), ("cora.nodes", "1\tother\t3\n", "train, val, test"),
    ("cora.nodes", "1\ttrain\t3", "truncated"), ("cora.edges", "3\n", "two nodes"),
    ("cora.edges", "3 100\n", "0 to 99"),
])
def test_broken_graphs_are_refused(tmp_path, file, line, message):
    write_graph(tmp_path)
    with open(tmp_path / file, "a") as broken:
        broken.write(line)
    with pytest.raises(BenchError, match=message):
        data.read_graph(tmp_path / "cora.nodes", tmp_path / "cora.edges")


def test_sentences(tmp_path):
    (tmp_path / "some.tsv").write_text("sentence\tlabel\na good film \t1\nbad\t0\n")
    sentences, labels = data.read_sentences(tmp_path / "some.tsv")
    assert sentences == [["a", "good", "film"], ["bad"]] and labels.tolist() == [1, 0]


@pytest.mark.parametrize("line, message", [("good\t2\n", "line 50"), ("good\n", "0 or 1"), ("good\t1", "truncated")])
def test_broken_sentences_are_refused(tmp_path, line, message):
    write_sentences(tmp_path / "some.tsv", 48)
    with open(tmp_path / "some.tsv", "a") as broken:
        broken.write(line)
    with pytest.raises(BenchError, match=message):
        data.read_sentences(tmp_path / "some.tsv")


def test_characters(tmp_path):
    (tmp_path / "text").write_text("cab c")
    assert data.read_characters(tmp_path / "text").tolist() == [3, 1, 2, 0, 3]
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(BenchError, match="UTF-8"):
        data.read_characters(tmp_path / "text")


def test_folder(folder, monkeypatch):
    monkeypatch.delenv("ACTZIP_DATA", raising=False)
    with pytest.raises(BenchError, match="--data DIR or ACTZIP_DATA"):
        data.find_folder(None, ["cora.nodes"])
    with pytest.raises(BenchError, match="no other.txt in it"):
        data.find_folder(str(folder), ["cora.nodes", "other.txt"])
    monkeypatch.setenv("ACTZIP_DATA", str(folder))
    assert data.find_folder(None, ["cora.nodes"]) == folder


def test_fingerprint_tells_data_apart(folder):
    before = data.fingerprint(folder, ["cora.nodes", "cora.edges"])
    assert before == data.fingerprint(folder, ["cora.nodes", "cora.edges"])
    write_graph(folder, nodes=101)
    assert before != data.fingerprint(folder, ["cora.nodes", "cora.edges"])
