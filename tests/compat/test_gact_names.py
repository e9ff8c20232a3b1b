"""GACT's functions one by one: quantisation, attention, samples of tensors, its recorder."""

import json
import weakref

import numpy as np
import pytest
import torch
from actzip.compat import gact
from actzip.compat.gact.ops import op_dequantize, op_dequantize_mask, op_quantize, op_quantize_mask


def test_ops():
    x = torch.randn(40, 30)
    for bits in (1, 2, 3, 4, 8, 16):
        codes, width, step_size, least = packed = op_quantize(x, q_bit=bits, seed=3)
        error = (op_dequantize(packed, x.shape) - x).square().mean() / x.square().mean()
        assert width == bits and codes.numel() == 1280 * bits // 8 and error < 16 / 4**bits * 2.5
        assert torch.equal(least.flatten()[:4], x.flatten()[:1024].reshape(4, 256).amin(1)) and step_size.shape == (5, 1)
    assert torch.equal(op_dequantize(op_quantize(x, 2, 3), x.shape), op_dequantize(op_quantize(x, 2, 3), x.shape))
    assert not torch.equal(op_dequantize(op_quantize(x, 2, 3), x.shape), op_dequantize(op_quantize(x, 2, 4), x.shape))
    mask = (torch.rand(1000) < 0.5).to(torch.uint8)
    packed = op_quantize_mask(mask)
    assert packed[0].numel() == 125 and torch.equal(op_dequantize_mask(packed), mask)
    with pytest.raises(ValueError, match="9 bits .allowed: 1, 2"):
        op_quantize(x, 9)


def test_ops_are_unbiased_and_leave_torchs_generator_alone():
    x, state = torch.randn(256), torch.get_rng_state()
    mean = sum(op_dequantize(op_quantize(x, 2, seed), x.shape) for seed in range(400)) / 400
    spread = (x.max() - x.min()) / 3 / 2 / 20
    assert (mean - x).abs().max() < 5 * spread and torch.equal(torch.get_rng_state(), state)


def test_ops_of_32_bits_keep_the_elements():
    x = torch.rand(8, 256)
    codes, _, distance, least = packed = op_quantize(x, 32, 0)
    assert torch.equal(least.flatten(), x.amin(1)) and torch.equal(distance.flatten(), x.amax(1) - x.amin(1))
    assert torch.equal(op_dequantize(packed, x.shape), x) and codes.data_ptr() != x.data_ptr()


def test_dequantized_tensors_are_not_kept():
    packed = op_quantize(torch.randn(64, 64), 4)
    restored = weakref.ref(op_dequantize(packed, (64, 64)))
    assert restored() is None
    assert gact.utils.compute_tensor_bytes(packed) == 2048 + 2 * 16 * 4


def test_self_attention():
    q, k, v = (torch.randn(2, 3, 50, 16, dtype=torch.double, requires_grad=True) for _ in range(3))
    result = gact.ops.self_atten(0.0, q, k, v, q_chunk_size=16, k_chunk_size=8)
    expected = torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v
    assert torch.allclose(result, expected)
    assert torch.allclose(torch.autograd.grad(result.sum(), q)[0], torch.autograd.grad(expected.sum(), q)[0])


def test_samples_of_a_tensor():
    x = torch.randn(20, 30)
    for sample in (gact.utils.uniform_sample, gact.utils.uniform_sample_ref, gact.utils.random_sample):
        assert len(sample(x, 10)) == 11 and sample(x, 10) == sample(x, 10) and sample(x, 10)[0] == x.data_ptr()
    assert gact.utils.uniform_sample(x, 10, False) == x.flatten()[::60].tolist()


def test_utils(tmp_path, capsys):
    assert gact.utils.get_memory_usage(True) == 0 or torch.cuda.is_available()
    assert gact.utils.compute_tensor_bytes([torch.zeros(4), [torch.zeros(2, dtype=torch.int64)]]) == 32
    gact.utils.exp_recorder.record("network", "gcn")
    gact.utils.exp_recorder.record("loss", 1 / 3, 2)
    gact.utils.exp_recorder.record("speed", np.float32(1.23456), 2)
    gact.utils.exp_recorder.record("count", np.int64(7))
    gact.utils.exp_recorder.record("memory", torch.tensor(3))
    gact.utils.exp_recorder.dump(str(tmp_path / "results.json"))
    assert gact.utils.exp_recorder.val_dict["loss"] == 0.33
    found = json.loads((tmp_path / "results.json").read_text())
    assert found == {"network": "gcn", "loss": 0.33, "speed": 1.23, "count": 7, "memory": 3}
    gact.utils.exp_recorder.clear()
    assert not gact.utils.exp_recorder.val_dict
