"""A small GPT on the characters of Shakespeare's plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import data as files
from ..errors import BenchError
from .task import Task, Trial, order_generator
from .transformer import Block, initialise


class GPT(nn.Module):
    def __init__(self, characters: int, context: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)
        initialise(self)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.embedding(characters) + self.positions)
        return self.head(self.norm(self.blocks(x)))


@dataclasses.dataclass(frozen=True)
class Shakespeare(Task):
    """Trains in bf16 autocast on the first nine tenths of the text, and validates on adjacent windows of the last."""

    name = "shakespeare"
    metric = "validation loss, nats"
    digits = 4
    files = ("tinyshakespeare.txt",)

    steps: int = 1000
    batch: int = 64
    context: int = 256
    layers: int = 6
    width: int = 384
    heads: int = 6
    dropout: float = 0.2
    rate: float = 1e-3
    warm_up: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    clip: float = 1.0

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        text = files.read_characters(folder / self.files[0])
        cut = len(text) * 9 // 10
        if len(text) - cut <= self.context:
            raise BenchError(f"{folder / self.files[0]}: {len(text)} characters "
                             f"(expected: more than {10 * self.context}, a window of {self.context} in the last tenth)")
        return {"train": text[:cut], "validation": text[cut:]}

    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        characters = 1 + int(torch.cat([data["train"], data["validation"]]).max())
        model = GPT(characters, self.context, self.layers, self.width, self.heads, self.dropout).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), self.rate, self.betas, weight_decay=self.weight_decay,
                                      fused=True)

        def loss(windows: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(windows[:, :-1])
            return F.cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten())

        def evaluate() -> float:
            windows = data["validation"].unfold(0, self.context + 1, self.context)
            sums = [loss(part) * len(part) for part in windows.split(self.batch)]
            return torch.stack(sums).double().sum().item() / len(windows)

        return Trial(model, optimizer, self.steps, self.warm_up, self._batches(data["train"], seed, device), loss,
                     evaluate, self.clip)

    def _batches(self, text: torch.Tensor, seed: int, device: torch.device) -> Iterator[torch.Tensor]:
        begins = torch.randint(len(text) - self.context, (self.steps, self.batch, 1), generator=order_generator(seed))
        window = torch.arange(self.context + 1, device=device)
        return (text[begin + window] for begin in begins.to(device))
