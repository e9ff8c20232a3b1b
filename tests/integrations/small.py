"""Networks and data small enough for a test, without downloads."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH = 64, 32


class Network(nn.Module):
    """Blocks between two layers. Tests wrap, shard or checkpoint the blocks."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32), nn.ReLU())
            for _ in range(2))
        self.last = nn.Linear(32, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def network():
    torch.manual_seed(0)
    return Network()


def batches(count, rows=64):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(rows, 16, generator=generator), torch.randint(4, (rows,), generator=generator))
            for _ in range(count)]


def loader(count, rows=64):
    """The same batches in torch's DataLoader."""
    x, y = (torch.cat(parts) for parts in zip(*batches(count, rows), strict=True))
    return DataLoader(TensorDataset(x, y), rows)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=1, pad_token_id=2))


def texts(count=16):
    tokens = torch.randint(3, VOCABULARY, (count, LENGTH), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in tokens]


def tokenizer():
    """A tokenizer with one word for each number."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(VOCABULARY)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")),
                                   pad_token="w2", bos_token="w0", eos_token="w1")
