"""The device that a command runs on."""

import argparse

import torch

from .errors import BenchError


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or cuda:N; default: cuda if there is one")


def chosen(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise BenchError(f"device '{name}' (allowed: cpu, cuda, cuda:N)")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BenchError(f"device '{name}': torch sees {torch.cuda.device_count()} CUDA devices here")
    return device
