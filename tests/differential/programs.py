"""Random programs: each seed gives one, which computes a loss and the gradients of its leaves."""

import math
import random

import torch
from steps import BINARY, FLOATS, IN_PLACE, INDEXED, NAMES, ROWS, UNARY, VIEWS, WIDTH, function_named
from torch.utils.checkpoint import checkpoint

KINDS = ("unary", "unary", "unary", "binary", "binary", "view", "indexed", "in_place", "cast", "autocast", "edited_source",
         "many_outputs", "function", "checkpoint", "no_grad_edit")


class Program:
    """The program of a seed. Each run has the same leaves, choices and random numbers of torch."""

    def __init__(self, seed):
        self.seed = seed
        draw = random.Random(seed)
        self.steps = draw.randint(4, 24)
        self.dtype = draw.choice(FLOATS[:3]) if draw.random() < 0.9 else torch.float64
        self.special = draw.choice([0.0, 0.0, 0.02, 0.2])  #: share of values replaced by inf, nan, zeros or a limit
        self.min_elems = draw.choice([0, 0, 64, 1024])
        self.trail = []

    def leaves(self):
        generator = torch.Generator().manual_seed(self.seed)
        shapes = [(ROWS, WIDTH), (ROWS, WIDTH), (ROWS, 6, WIDTH // 6)]
        return [self.spoilt(torch.randn(shape, generator=generator), generator).to(self.dtype).requires_grad_()
                for shape in shapes]

    def spoilt(self, x, generator):
        bad = torch.rand(x.shape, generator=generator) < self.special
        values = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 6.0])
        return torch.where(bad, values[torch.randint(6, x.shape, generator=generator)], x)

    def run(self, scope):
        """Returns the gradients of the leaves, or the message of backward's error. `trail` lists the steps taken."""
        leaves, self.trail = self.leaves(), []
        torch.default_generator.manual_seed(self.seed)
        with scope:
            loss = self.forward(leaves)
        try:
            loss.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" if "modified by an inplace" in str(error) else str(error)
        return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]

    def forward(self, leaves):
        draw = random.Random(self.seed + 1)
        pool = [leaf * 1 for leaf in leaves]
        for _ in range(self.steps):
            kind, at = draw.choice(KINDS), draw.randrange(len(pool))
            own = random.Random(draw.getrandbits(64))  # so that an error does not change later choices
            try:
                result = getattr(self, kind)(pool, pool[at], own)
            except RuntimeError as error:
                self.trail.append(f"{kind} raised {str(error)[:60]}")
                continue
            if result is not None:
                pool[draw.randrange(len(pool))] = result
        return sum((x.double().nan_to_num(0.0, 1e3, -1e3) * (i + 1)).sum() for i, x in enumerate(pool))

    def pick(self, table, draw):
        name = draw.choice(sorted(table))
        self.trail.append(name)
        return table[name]

    def unary(self, pool, x, draw):
        return self.pick(UNARY, draw)(x, draw)

    def binary(self, pool, x, draw):
        other = draw.choice(pool)
        if other.numel() != x.numel():
            return None
        return self.pick(BINARY, draw)(x, other.reshape(x.shape).to(x.dtype), draw)

    def view(self, pool, x, draw):
        return self.pick(VIEWS, draw)(x, draw)

    def indexed(self, pool, x, draw):
        return self.pick(INDEXED, draw)(x, draw)

    def in_place(self, pool, x, draw):
        """Mostly edits a new tensor; otherwise one that others may have saved, which backward must notice."""
        return self.pick(IN_PLACE, draw)(x if draw.random() < 0.05 else x * 1.0, draw)

    def no_grad_edit(self, pool, x, draw):
        self.trail.append("no_grad_edit")
        fresh = x * 1.0
        result = UNARY[draw.choice(["relu", "gelu", "tanh", "square"])](fresh, draw)
        if draw.random() < 0.1:
            with torch.no_grad():
                fresh.add_(1)
        return result + fresh

    def cast(self, pool, x, draw):
        self.trail.append("cast")
        low = x.to(draw.choice(FLOATS[:3]))
        return self.unary(pool, low, draw).to(x.dtype)

    def autocast(self, pool, x, draw):
        self.trail.append("autocast")
        with torch.autocast("cpu", draw.choice([torch.bfloat16, torch.float16])):
            y = x.reshape(ROWS, -1).float()
            weights = [torch.relu(y[:, :6]), torch.tanh(y[:, 1:7])]
            products = [y.t() @ weight for weight in weights for _ in range(draw.randint(1, 2))]
        return x * (sum(product.float().mean() for product in products) * 0.1).to(x.dtype)

    def edited_source(self, pool, x, draw):
        """Casts one tensor repeatedly, and edits it in between in ways that its version may not show."""
        edit = draw.choice(["no_grad", "data", "detach", "data_view", "foreach", "assign"])
        self.trail.append(f"edited by {edit}")
        y = x.reshape(ROWS, -1).float() * 1.0
        weight = torch.sin(y[:, :6])
        total = 0.0
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(3):
                total = total + (y.t() @ weight).float().mean()
                edit_memory(y, edit)
        return x * (total * 0.1).to(x.dtype)

    def many_outputs(self, pool, x, draw):
        """Nodes with many outputs, used next to each other."""
        self.trail.append("many_outputs")
        rows = [(x.reshape(-1) * (i + 1)).unbind() for i in range(3)]
        total = 0.0
        with torch.autocast("cpu", torch.bfloat16):
            for many in rows:
                for at in (0, 7, 64, 511, len(many) - 1):
                    one = many[at].view(1, 1).float().expand(1, 32) * 1.0
                    total = total + (one @ one.t()).float().sum()
        return x * (total * 0.01).to(x.dtype)

    def function(self, pool, x, draw):
        name = draw.choice(NAMES)
        self.trail.append(f"Function {name}")
        return function_named(name, draw.random() < 0.5).apply(x * 0.7)

    def checkpoint(self, pool, x, draw):
        self.trail.append("checkpoint")
        seed, is_reentrant = draw.getrandbits(32), draw.random() < 0.3
        choose = lambda: random.Random(seed)  # noqa: E731

        def inner(y):
            own = choose()
            for _ in range(3):
                y = UNARY[own.choice(["relu", "gelu", "tanh", "hardtanh", "leaky_relu", "layer_norm", "softmax"])](y, own)
            return y

        return checkpoint(inner, x, use_reentrant=is_reentrant)


def edit_memory(x, how):
    if how == "no_grad":
        with torch.no_grad():
            x.neg_()
    elif how == "data":
        x.data.mul_(-1)
    elif how == "detach":
        x.detach().neg_()
    elif how == "data_view":
        x.data.view(-1)[:].neg_()
    elif how == "foreach":
        torch._foreach_neg_([x.data])
    else:
        x.data = x.data.neg()
