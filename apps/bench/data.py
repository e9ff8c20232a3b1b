"""Reads the data sets of the tasks from files in one folder. A broken file is refused by name."""

from __future__ import annotations

import hashlib
import io
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .errors import BenchError

IMAGE_SIDE = 32
CLASSES = 10
SPLITS = ("train", "val", "test", "-")


def find_folder(given: str | None, files: Sequence[str]) -> Path:
    """Returns the given folder, or that of ACTZIP_DATA. Raises BenchError unless all these files are in it."""
    name = given or os.environ.get("ACTZIP_DATA")
    if not name:
        raise BenchError(f"no data folder (allowed: --data DIR or ACTZIP_DATA=DIR, with {', '.join(files)} in it)")
    folder = Path(name)
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise BenchError(f"data folder {folder}: no {', '.join(missing)} in it (expected: {', '.join(files)})")
    return folder


def fingerprint(folder: Path, files: Sequence[str]) -> str:
    """Returns a hash of the files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return digest.hexdigest()[:16]


def read_images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns images as uint8 [n, 32, 32, 3], and their labels. The file contains "JPGS", the count, and for each image
    label, length and JPEG."""
    records = _jpeg_records(path)
    images = np.empty((len(records), IMAGE_SIDE, IMAGE_SIDE, 3), np.uint8)

    def decode(begin: int) -> None:
        for i in range(begin, min(begin + 1000, len(records))):
            images[i] = _decode_jpeg(path, i, records[i][1])

    with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
        list(pool.map(decode, range(0, len(records), 1000)))
    return images, np.array([label for label, _ in records], np.int64)


def _jpeg_records(path: Path) -> list[tuple[int, bytes]]:
    content = path.read_bytes()
    if len(content) < 8 or content[:4] != b"JPGS":
        raise BenchError(f"{path}: begins with {content[:4]!r} (expected: b'JPGS', then a count of 32 bits)")
    (count,) = struct.unpack_from("<I", content, 4)
    records, position = [], 8
    for i in range(count):
        head = content[position:position + 5]
        label, length = struct.unpack("<BI", head) if len(head) == 5 else (0, 0)
        position += 5 + length
        if position > len(content):
            raise BenchError(f"{path}: truncated: it ends within image {i} of {count}")
        if label >= CLASSES:
            raise BenchError(f"{path}: image {i} has label {label} (allowed: 0 to {CLASSES - 1})")
        records.append((label, content[position - length:position]))
    if position != len(content) or count == 0:
        raise BenchError(f"{path}: {count} images end at byte {position} of {len(content)} (expected: at its end)")
    return records


def _decode_jpeg(path: Path, i: int, jpeg: bytes) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        raise BenchError(f"{path}: reading JPEGs needs Pillow (pip install Pillow)") from None
    try:
        image = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    except OSError as error:
        raise BenchError(f"{path}: image {i} is not a readable JPEG: {error}") from None
    if image.shape != (IMAGE_SIDE, IMAGE_SIDE, 3):
        raise BenchError(f"{path}: image {i} is {image.shape[1]} x {image.shape[0]} "
                         f"(expected: {IMAGE_SIDE} x {IMAGE_SIDE})")
    return image


def read_graph(nodes_path: Path, edges_path: Path) -> dict[str, np.ndarray]:
    """Returns binary features [nodes, words], labels (-1: none), nodes of each split, and undirected edges [n, 2]."""
    labels, splits, words = [], [], []
    for number, line in enumerate(_lines(nodes_path), 1):
        try:
            label, split, indices = line.split("\t")
            labels.append(int(label))
            splits.append(SPLITS.index(split))
            words.append(np.array(indices.split(), np.int64))
        except ValueError:
            raise BenchError(f"{nodes_path}, line {number}: {line[:60]!r} "
                             "(expected: label, tab, train, val, test or -, tab, indices of features)") from None
    features = np.zeros((len(words), 1 + max((int(row.max()) for row in words if row.size), default=0)), np.float32)
    for node, row in enumerate(words):
        features[node, row] = 1
    nodes_of = {f"{name}_nodes": np.flatnonzero(np.array(splits) == i) for i, name in enumerate(SPLITS[:3])}
    for name, nodes in nodes_of.items():
        if not nodes.size:
            raise BenchError(f"{nodes_path}: no {name.replace('_', ' ')}")
    return {"features": features, "labels": np.array(labels, np.int64), **nodes_of,
            "edges": _edges(edges_path, len(labels))}


def _edges(path: Path, nodes: int) -> np.ndarray:
    edges = []
    for number, line in enumerate(_lines(path), 1):
        ends = [int(end) for end in line.split() if end.isdigit()]
        if len(ends) != 2 or max(ends) >= nodes:
            raise BenchError(f"{path}, line {number}: {line[:60]!r} (expected: two nodes from 0 to {nodes - 1})")
        edges.append(ends)
    return np.array(edges, np.int64)


def read_sentences(path: Path) -> tuple[list[list[str]], np.ndarray]:
    """Returns the words of each sentence, and labels 0 or 1."""
    header, *lines = _lines(path)
    if header != "sentence\tlabel":
        raise BenchError(f"{path}: begins with {header[:60]!r} (expected: 'sentence', tab, 'label')")
    sentences, labels = [], []
    for number, line in enumerate(lines, 2):
        sentence, _, label = line.rpartition("\t")
        if label not in ("0", "1") or not sentence.strip():
            raise BenchError(f"{path}, line {number}: {line[:60]!r} (expected: a sentence, tab, 0 or 1)")
        sentences.append(sentence.split())
        labels.append(int(label))
    return sentences, np.array(labels, np.int64)


def read_characters(path: Path) -> np.ndarray:
    """Returns the text as numbers of its characters, which are numbered from 0 in code order."""
    text = _text(path)
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    return np.array([number[character] for character in text], np.int64)


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not a text in UTF-8: {error}") from None
    if not text:
        raise BenchError(f"{path}: empty")
    return text


def _lines(path: Path) -> list[str]:
    text = _text(path)
    if not text.endswith("\n"):
        raise BenchError(f"{path}: truncated: its last line has no end")
    return text.split("\n")[:-1]
