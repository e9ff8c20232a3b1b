"""A small encoder on the sentiment of SST-2's phrases, trained from scratch."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import data as files
from .task import Task, Trial, order_generator, steps_of
from .transformer import Block, initialise

PADDING, UNKNOWN, FIRST = range(3)  # the first words of every vocabulary; each sentence begins with FIRST
POOL = 32  # batches per pool; sentences are sorted by length within a pool


class Encoder(nn.Module):
    def __init__(self, words: int, longest: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.02 * torch.randn(longest, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)
        initialise(self)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = words != PADDING
        x = self.dropout(self.embedding(words) + self.positions[:words.shape[1]])
        for block in self.blocks:
            x = block(x, mask[:, None, None, :])
        shares = mask / mask.sum(1, keepdim=True)
        return self.head(self.dropout((self.norm(x) * shares[:, :, None]).sum(1)))


@dataclasses.dataclass(frozen=True)
class Sst2(Task):
    """Trains in bf16 autocast, on batches of similar length, padded to their longest, with random word dropout."""

    name = "sst2"
    metric = "dev accuracy, %"
    digits = 2
    files = ("sst2-train.tsv", "sst2-dev.tsv")

    epochs: float = 4
    batch: int = 256
    longest: int = 64
    least_count: int = 2
    layers: int = 4
    width: int = 256
    heads: int = 4
    dropout: float = 0.1
    word_dropout: float = 0.1
    rate: float = 5e-4
    warm_up: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        train, train_labels = files.read_sentences(folder / self.files[0])
        dev, dev_labels = files.read_sentences(folder / self.files[1])
        counts = collections.Counter(word for sentence in train for word in sentence)
        known = sorted(word for word, count in counts.items() if count >= self.least_count)
        numbers = {word: i for i, word in enumerate(known, FIRST + 1)}
        return {"train": self._numbered(train, numbers), "train_labels": train_labels,
                "dev": self._numbered(dev, numbers), "dev_labels": dev_labels}

    def _numbered(self, sentences: list[list[str]], numbers: dict[str, int]) -> np.ndarray:
        table = np.full((len(sentences), self.longest), PADDING, np.int64)
        for row, sentence in zip(table, sentences):
            words = [FIRST, *(numbers.get(word, UNKNOWN) for word in sentence)][:self.longest]
            row[:len(words)] = words
        return table

    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        words = 1 + int(data["train"].max())
        model = Encoder(words, self.longest, self.layers, self.width, self.heads, self.dropout).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), self.rate, self.betas, weight_decay=self.weight_decay,
                                      fused=True)

        def logits(sentences: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device.type, torch.bfloat16):
                return model(sentences).float()

        def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            sentences, labels = batch
            dropped = (torch.rand(sentences.shape, device=device) < self.word_dropout) & (sentences > FIRST)
            return F.cross_entropy(logits(torch.where(dropped, UNKNOWN, sentences)), labels)

        def evaluate() -> float:
            found = torch.cat([logits(part).argmax(1) for part in data["dev"].split(512)])
            return 100 * (found == data["dev_labels"]).double().mean().item()

        return Trial(model, optimizer, steps_of(self.epochs, self.batch, len(data["train"])), self.warm_up,
                     self._batches(data, seed, device), loss, evaluate, self.clip)

    def _batches(
        self, data: dict[str, torch.Tensor], seed: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = order_generator(seed)
        lengths = (data["train"] != PADDING).sum(1).cpu()
        while True:
            batches = _batches_of_similar_length(lengths, self.batch, generator)
            longest = lengths[batches].amax(1).tolist()  # on the CPU, so that nothing waits for the device
            for batch, length in zip(batches.to(device), longest):
                yield data["train"][batch, :length], data["train_labels"][batch]


def _batches_of_similar_length(lengths: torch.Tensor, batch: int, generator: torch.Generator) -> torch.Tensor:
    """Returns the examples of an epoch as [batches, batch]. They are shuffled into pools, sorted by length within each
    pool, and cut into batches, which are shuffled again."""
    order = torch.randperm(len(lengths), generator=generator)
    pool = torch.arange(len(order)) // (POOL * batch)
    order = order[torch.argsort(pool * (1 + lengths.max()) + lengths[order], stable=True)]
    batches = order[:len(order) // batch * batch].view(-1, batch)
    return batches[torch.randperm(len(batches), generator=generator)]
