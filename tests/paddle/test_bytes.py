"""Paddle's tensors are encoded to the same bytes as PyTorch's, and as in the reference."""

import json
import os
import subprocess

import actzip_reference as reference
import numpy
import paddle
import pytest

import actzip.paddle as actzip

SPECS = ("affine:2", "affine:4:dithered", "affine:8:nearest", "rotated:2", "rotated:3", "rotated:4:mask", "mask",
         "cast:bf16", "dual:2:size=16x16")
SHAPE = (4, 8, 16, 16)
VIEWS = {
    "contiguous": lambda x: x,
    "permuted": lambda x: x.transpose([0, 2, 3, 1]),
    "sliced": lambda x: x[:, 2:6],
    "strided": lambda x: x[::2, 1::3],
}


def values():
    return numpy.random.default_rng(5).normal(size=SHAPE).astype("float32")


def encode(x, dtype, spec, seed):
    return actzip.hooks._C.encode_bytes(x.data_ptr(), dtype, x.shape, x.strides, spec, seed)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("view", VIEWS)
def test_as_the_reference_writes_them(spec, view):
    if spec.startswith("dual") and view in ("permuted", "strided"):
        spec = "dual:2:size=4x4"
    x = VIEWS[view](paddle.to_tensor(values()))
    assert view == "contiguous" or not x.is_contiguous()
    elements = values()
    taken = {"contiguous": elements, "permuted": elements, "sliced": elements[:, 2:6], "strided": elements[::2, 1::3]}
    expected = reference.encode(spec, numpy.ascontiguousarray(taken[view]).reshape(-1), "f32", 11)
    assert encode(x, "f32", spec, 11) == expected


def test_bfloat16_as_the_reference_writes_it():
    x = paddle.to_tensor(values()).astype("bfloat16")
    bits = x.astype("float32").numpy().view("uint32") >> 16
    assert encode(x, "bf16", "rotated:2", 3) == reference.encode("rotated:2", bits.astype("uint16").reshape(-1), "bf16", 3)


IN_TORCH = """
import json, numpy, sys, torch
from actzip import _C
x = torch.from_numpy(numpy.random.default_rng(5).normal(size=%s).astype("float32"))
print(json.dumps([_C.encode_bytes(x.data_ptr(), "f32", list(x.shape), list(x.stride()), spec, 11).hex() for spec in %s]))
"""


@pytest.mark.skipif("ACTZIP_TORCH_PYTHON" not in os.environ, reason="no Python with torch is named")
def test_as_pytorch_writes_them():
    done = subprocess.run([os.environ["ACTZIP_TORCH_PYTHON"], "-c", IN_TORCH % (SHAPE, SPECS)], capture_output=True,
                          text=True, check=True)
    x = paddle.to_tensor(values())
    assert json.loads(done.stdout) == [encode(x, "f32", spec, 11).hex() for spec in SPECS]
