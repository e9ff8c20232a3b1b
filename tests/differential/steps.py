"""The steps of random programs. Each takes tensors and a source of random choices. Choices depend only on shapes and
types, so that a program makes the same ones in each run."""

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ROWS, WIDTH = 24, 48  #: of most tensors: more than one group of 1,024 elements, but no whole number of groups

# --- operators of one argument, with random constants --------------------------------------------------------------


def limits(draw):
    kind = draw.randrange(5)
    if kind == 0:
        return draw.choice([(0.0, 6.0), (-1.0, 1.0), (-0.5, 2.0)])
    if kind == 1:
        return draw.choice([(0.0, math.inf), (-math.inf, 0.5), (-math.inf, math.inf)])
    lower = draw.choice([draw.uniform(-1.5, 1.0), draw.gauss(0, 0.01), -(2.0 ** draw.randint(-6, 1))])
    return lower, lower + abs(draw.gauss(0, 1))


UNARY = {
    "relu": lambda x, draw: F.relu(x),
    "relu6": lambda x, draw: F.relu6(x),
    "hardtanh": lambda x, draw: F.hardtanh(x, *limits(draw)),
    "threshold": lambda x, draw: F.threshold(x, draw.choice([0.0, 0.5, draw.gauss(0, 1), -math.inf]), draw.gauss(0, 1)),
    "leaky_relu": lambda x, draw: F.leaky_relu(x, draw.choice([0.01, draw.random(), -0.2, 0.0])),
    "gelu": lambda x, draw: F.gelu(x, approximate=draw.choice(["none", "tanh"])),
    "silu": lambda x, draw: F.silu(x),
    "elu": lambda x, draw: F.elu(x, draw.random() + 0.1),
    "softplus": lambda x, draw: F.softplus(x, draw.random() + 0.5, draw.choice([20, 1.0])),
    "mish": lambda x, draw: F.mish(x),
    "hardswish": lambda x, draw: F.hardswish(x),
    "hardsigmoid": lambda x, draw: F.hardsigmoid(x),
    "softshrink": lambda x, draw: F.softshrink(x, draw.random()),
    "hardshrink": lambda x, draw: F.hardshrink(x, draw.random()),
    "tanh": lambda x, draw: torch.tanh(x),
    "sigmoid": lambda x, draw: torch.sigmoid(x),
    "exp": lambda x, draw: torch.exp(-x.abs()),
    "log": lambda x, draw: torch.log(x.abs() + draw.choice([0.1, 0.0])),
    "sqrt": lambda x, draw: torch.sqrt(x.abs() + draw.choice([0.1, 0.0])),
    "rsqrt": lambda x, draw: torch.rsqrt(x * x + 0.1),
    "reciprocal": lambda x, draw: torch.reciprocal(x.abs() + 0.5),
    "pow": lambda x, draw: x.abs() ** draw.choice([1, 2, 3, 0.5, -1, 2.5]),
    "square": lambda x, draw: x * x,
    "abs": lambda x, draw: x.abs(),
    "sin": lambda x, draw: torch.sin(x),
    "clamp": lambda x, draw: x.clamp(*sorted((draw.gauss(0, 1), draw.gauss(0, 1)))),
    "erf": lambda x, draw: torch.erf(x),
    "dropout": lambda x, draw: F.dropout(x, draw.choice([0.1, 0.5, draw.random(), 0.0, 1.0])),
    "alpha_dropout": lambda x, draw: F.alpha_dropout(x, 0.3, training=True),
    "softmax": lambda x, draw: F.softmax(x, draw.randrange(x.dim())),
    "log_softmax": lambda x, draw: F.log_softmax(x, draw.randrange(x.dim())),
    "logsumexp": lambda x, draw: torch.logsumexp(x, -1, keepdim=True).expand(x.shape) + x,
    "layer_norm": lambda x, draw: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x, draw: F.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda x, draw: F.batch_norm(x.reshape(ROWS, -1), None, None, training=True).view(x.shape),
    "group_norm": lambda x, draw: F.group_norm(x.reshape(ROWS, 6, -1), 3).view(x.shape),
    "cumsum": lambda x, draw: x.cumsum(-1) * 0.1,
    "cumprod": lambda x, draw: (x * 0.5).cumprod(-1),
    "prod": lambda x, draw: (x * 0.9).prod(-1, keepdim=True) + x,
    "max": lambda x, draw: x.max(-1, keepdim=True).values + x,
    "amax": lambda x, draw: x.amax(-1, keepdim=True) * x,
    "median": lambda x, draw: x.median(-1, keepdim=True).values + x,
    "sort": lambda x, draw: x.sort(-1).values,
    "topk": lambda x, draw: x.topk(5, -1).values.sum(-1, keepdim=True) * x,
    "norm": lambda x, draw: x / (x.norm(dim=-1, keepdim=True) + 1),
    "std": lambda x, draw: x * x.std(-1, keepdim=True),
    "max_pool1d": lambda x, draw: F.max_pool1d(x.reshape(ROWS, -1), 3, 1, 1).view(x.shape),
    "max_pool2d": lambda x, draw: F.max_pool2d(x.reshape(1, ROWS, -1), 3, 1, 1).view(x.shape),
    "avg_pool1d": lambda x, draw: F.avg_pool1d(x.reshape(ROWS, -1), 3, 1, 1).view(x.shape),
    "masked_fill": lambda x, draw: x.masked_fill(x > draw.gauss(0, 1), draw.choice([0.0, -math.inf, 1.0])),
    "where": lambda x, draw: torch.where(x > draw.gauss(0, 1), x, x * x),
    "roll": lambda x, draw: x.roll(draw.randrange(5), -1),
    "flip": lambda x, draw: x.flip(-1),
    "pad": lambda x, draw: F.pad(x.reshape(ROWS, -1), (1, 1))[:, 1:-1].reshape(x.shape) * x,
}

# --- operators of two arguments ------------------------------------------------------------------------------------

BINARY = {
    "add": lambda x, y, draw: x + y * draw.random(),
    "sub": lambda x, y, draw: x - y,
    "mul": lambda x, y, draw: x * y,
    "mul_broadcast": lambda x, y, draw: x * y.reshape(ROWS, -1)[:, :1].view((ROWS,) + (1,) * (x.dim() - 1)),
    "div": lambda x, y, draw: x / (y.abs() + draw.choice([0.5, 0.0])),
    "maximum": lambda x, y, draw: torch.maximum(x, y),
    "minimum": lambda x, y, draw: torch.minimum(x, y),
    "lerp": lambda x, y, draw: torch.lerp(x, y, draw.random()),
    "atan2": lambda x, y, draw: torch.atan2(x, y.abs() + 0.1),
    "mm": lambda x, y, draw: (x.reshape(ROWS, -1) @ y.reshape(ROWS, -1).t() @ y.reshape(ROWS, -1) * 0.01).view(x.shape),
    "bmm": lambda x, y, draw: torch.bmm(x.reshape(ROWS, 6, -1), y.reshape(ROWS, -1, 6)).bmm(x.reshape(ROWS, 6, -1)).view(x.shape) * 0.1,
    "mv": lambda x, y, draw: x * torch.mv(x.reshape(ROWS, -1), y.reshape(ROWS, -1)[0]).view((ROWS,) + (1,) * (x.dim() - 1)) * 0.1,
    "linear": lambda x, y, draw: F.linear(x.reshape(ROWS, -1), y.reshape(ROWS, -1)[:8]).mean(-1).view((ROWS,) + (1,) * (x.dim() - 1)) * x,
    "conv1d": lambda x, y, draw: F.conv1d(x.reshape(ROWS, 6, -1), y.reshape(-1)[:108].view(6, 6, 3), padding=1).view(x.shape) * 0.2,
    "mse": lambda x, y, draw: x * F.mse_loss(x, y),
    "huber": lambda x, y, draw: x * F.huber_loss(x, y, delta=draw.random() + 0.1),
    "bce": lambda x, y, draw: x * F.binary_cross_entropy_with_logits(x, torch.sigmoid(y.detach())),
    "cosine": lambda x, y, draw: x * F.cosine_similarity(x, y, dim=-1).unsqueeze(-1),
    "attention": lambda x, y, draw: F.scaled_dot_product_attention(
        x.reshape(1, 2, ROWS // 2, -1), y.reshape(1, 2, ROWS // 2, -1), (x * y).view(1, 2, ROWS // 2, -1),
        is_causal=draw.random() < 0.5).reshape(x.shape),
    "cat": lambda x, y, draw: torch.cat([x, y], 0)[::2],
    "stack": lambda x, y, draw: torch.stack([x, y]).sum(0),
    "copysign": lambda x, y, draw: torch.copysign(x, y),
    "fmod": lambda x, y, draw: torch.fmod(x, y.abs() + 0.5),
    "hypot": lambda x, y, draw: torch.hypot(x, y),
    "logaddexp": lambda x, y, draw: torch.logaddexp(x, y),
    "cdist": lambda x, y, draw: x * torch.cdist(x.reshape(ROWS, -1).float(), y.reshape(ROWS, -1).float()).mean().to(x.dtype),
}

# --- integers ------------------------------------------------------------------------------------------------------


def positions(x, draw, bound, shape):
    return torch.tensor([draw.randrange(bound) for _ in range(math.prod(shape))]).view(shape)


def gathered(x, draw):
    rows = x.reshape(ROWS, -1)
    return rows.gather(1, positions(x, draw, rows.shape[1], (ROWS, 40))).sum(1, keepdim=True).view(
        (ROWS,) + (1,) * (x.dim() - 1)) * x


def scattered(x, draw):
    rows = x.reshape(ROWS, -1)
    index = positions(x, draw, rows.shape[1], (ROWS, rows.shape[1]))
    return torch.zeros_like(rows).scatter_add(1, index, rows * rows).view(x.shape)


def embedded(x, draw):
    rows = x.reshape(ROWS, -1)
    return F.embedding(positions(x, draw, ROWS, (ROWS,)), rows).view(x.shape) * x


def selected(x, draw):
    return x.index_select(0, positions(x, draw, ROWS, (ROWS,))) * x


def index_added(x, draw):
    return x.index_add(0, positions(x, draw, ROWS, (5,)), (x * x)[:5])


def nll(x, draw):
    rows = x.reshape(ROWS, -1)
    return F.cross_entropy(rows.float(), positions(x, draw, rows.shape[1], (ROWS,))).to(x.dtype) * x


INDEXED = {"gather": gathered, "scatter_add": scattered, "embedding": embedded, "index_select": selected,
           "index_add": index_added, "nll": nll}

# --- views, or copies through views, of the same shape -------------------------------------------------------------

VIEWS = {
    "transposed": lambda x, draw: x.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda x, draw: torch.stack([x, x * 2], -1)[..., 0],
    "expanded": lambda x, draw: x.mean(0, keepdim=True).expand(x.shape),
    "sliced": lambda x, draw: torch.cat([x, x], 0)[3:3 + ROWS],
    "chunks": lambda x, draw: torch.cat(list(reversed(x.chunk(3))), 0),
    "split": lambda x, draw: torch.cat([part * (i + 1) for i, part in enumerate(x.split([4, 8, 12]))], 0),
    "unbind": lambda x, draw: torch.stack([part * part for part in x.unbind()]),
    "permuted": lambda x, draw: x.reshape(ROWS, 6, -1).permute(1, 0, 2).contiguous().permute(1, 0, 2).reshape(x.shape),
    "diagonal": lambda x, draw: x + x.reshape(ROWS, -1)[:, :ROWS].diagonal().sum(),
    "unfold": lambda x, draw: x * x.reshape(ROWS, -1).unfold(1, 4, 2).mean(),
    "as_strided": lambda x, draw: x.contiguous().as_strided(x.shape, x.contiguous().stride()) * x,
}

# --- in place, on a tensor of the step or on one that others hold --------------------------------------------------

IN_PLACE = {
    "relu_": lambda x, draw: x.relu_(),
    "leaky_relu_": lambda x, draw: F.leaky_relu(x, 0.1, inplace=True),
    "hardtanh_": lambda x, draw: F.hardtanh(x, *draw.choice([(-1.0, 1.0), (0.0, 6.0)]), inplace=True),
    "threshold_": lambda x, draw: F.threshold(x, 0.25, 0.0, inplace=True),
    "add_": lambda x, draw: x.add_(0.5),
    "mul_": lambda x, draw: x.mul_(1.5),
    "sigmoid_": lambda x, draw: x.sigmoid_(),
    "tanh_": lambda x, draw: x.tanh_(),
    "clamp_": lambda x, draw: x.clamp_(-1, 2),
    "zero_rows_": lambda x, draw: x[::5].zero_() is not None and x,
    "masked_fill_": lambda x, draw: x.masked_fill_(x > 1, 0.0),
    "dropout_": lambda x, draw: F.dropout(x, 0.4, inplace=True),
}

# --- functions with the names of torch's operators -----------------------------------------------------------------

NAMES = ("relu", "hardtanh", "threshold", "leaky_relu", "dropout", "max_pool2d", "gather", "embedding", "Function",
         "_scaled_dot_product_attention", "native_layer_norm", "convolution", "_to_copy", "aten::relu", "aten::_to_copy")


def function_named(name, saves_result):
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            result = x * x * x
            ctx.saves_result = saves_result
            ctx.save_for_backward(x, result) if saves_result else ctx.save_for_backward(x)
            return result

        @staticmethod
        def backward(ctx, gradient):
            x, *rest = ctx.saved_tensors
            return gradient * 3 * (x * x if not rest else x * x + 0 * rest[0])

    return type(name, (Cube,), {})
