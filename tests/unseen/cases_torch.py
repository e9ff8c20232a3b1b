"""Networks and losses in plain torch and torch_geometric, like those that people write themselves."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def mlp(*widths, activation=nn.GELU):
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
        layers += [nn.Linear(a, b)] + ([activation()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers)


def regression(loss, activation=nn.GELU):
    """A smooth function of 16 numbers, learned with that loss."""
    def make():
        model, x = mlp(16, 128, 128, 8, activation=activation), torch.randn(256, 16)
        y = torch.sin(x @ torch.randn(16, 8) / 2)
        return model, lambda: loss(model(x), y)

    return make


def charbonnier(a, b):
    return torch.sqrt((a - b) * (a - b) + 1e-6).mean()


def quantiles(a, b):
    error = b - a
    return torch.maximum(0.9 * error, -0.1 * error).mean()


def log_cosh(a, b):
    return torch.log(torch.cosh(a - b)).mean()


def correlation(a, b):
    a, b = a - a.mean(0), b - b.mean(0)
    return -((a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0))).mean()


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(30 * x)


def siren():
    model = mlp(2, 128, 128, 1, activation=Sine)
    with torch.no_grad():
        for layer, bound in zip(model[::2], (1 / 2, *2 * [math.sqrt(6 / 128) / 30]), strict=True):
            layer.weight.uniform_(-bound, bound)
    x = torch.rand(512, 2) * 2 - 1
    y = torch.sin(6 * x[:, :1]) * torch.cos(5 * x[:, 1:])
    return model, lambda: F.mse_loss(model(x), y)


def contrastive(temperature):
    def make():
        model = mlp(64, 128, 64)
        x = torch.randn(128, 64)
        other = x + torch.randn_like(x)

        def loss():
            a, b = F.normalize(model(x)), F.normalize(model(other))
            return F.cross_entropy(a @ b.mT / temperature, torch.arange(len(a)))

        return model, loss

    return make


def triplet():
    model, x = mlp(64, 128, 32), torch.randn(128, 64)
    close, far = x + 0.2 * torch.randn_like(x), torch.randn_like(x)
    return model, lambda: F.triplet_margin_loss(model(x), model(close), model(far), margin=8.0)


def distances():
    model, x = mlp(32, 128, 16), torch.randn(96, 32)
    target = torch.cdist(x, x)
    return model, lambda: (torch.cdist(model(x), model(x)) - target).square().mean()


class VariationalAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = mlp(64, 128, 32), mlp(16, 128, 64)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
        return F.mse_loss(self.decoder(code), x, reduction="none").sum(-1).add(divergence).mean()


class Flow(nn.Module):
    """RealNVP: couplings whose scales add up to a determinant."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(16, 128, 32) for _ in range(4))

    def forward(self, x):
        total = 0
        for net in self.nets:
            a, b = x.chunk(2, -1)
            log_scale, shift = net(a).chunk(2, -1)
            log_scale = torch.tanh(log_scale)
            x = torch.cat([b * log_scale.exp() + shift, a], -1)
            total = total + log_scale.sum(-1)
        return (0.5 * x.square().sum(-1) - total).mean()


class Rendering(nn.Module):
    """Densities and colours along rays, composed as radiance fields are."""

    def __init__(self):
        super().__init__()
        self.net = mlp(3, 128, 128, 4, activation=nn.ReLU)

    def forward(self, points, target):
        density, colour = self.net(points).split([1, 3], -1)
        passed = torch.exp(-F.softplus(density[..., 0]) * 0.1)
        before = torch.cumprod(torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], 1), 1)
        return F.mse_loss(((before * (1 - passed))[..., None] * colour.sigmoid()).sum(1), target)


class UNet(nn.Module):
    """Group norms, SiLU and a bottleneck, as in diffusion; a step of time as a scale and a shift."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in (32, 64, 32))
        self.down, self.up = nn.Conv2d(32, 64, 3, 2, 1), nn.ConvTranspose2d(64, 32, 2, 2)
        self.time = nn.Linear(32, 128)

    def forward(self, x, noise, level):
        angles = level[:, None] * torch.exp(-torch.arange(16) / 4)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], -1))[..., None, None].chunk(2, 1)
        h = self.enter(x + noise)
        low = F.silu(self.norms[1](self.down(F.silu(self.norms[0](h)))) * (1 + scale) + shift)
        return F.mse_loss(self.leave(F.silu(self.norms[2](self.up(low) + h))), noise)


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.InstanceNorm3d(16, affine=True), nn.LeakyReLU(0.1),
                                 nn.Conv3d(16, 16, 3, padding=1), nn.InstanceNorm3d(16, affine=True), nn.LeakyReLU(0.1),
                                 nn.Conv3d(16, 1, 1))

    def forward(self, x, target):
        p = self.net(x).sigmoid()
        return 1 - (2 * (p * target).sum() + 1) / ((p + target).sum() + 1)


class ModulatedConvolution(nn.Module):
    """Computed weights: scaled by a style, and normalised to length 1."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 16, 3, 3) / 12)
        self.style, self.enter, self.leave = nn.Linear(32, 16), nn.Conv2d(3, 16, 1), nn.Conv2d(32, 3, 1)

    def forward(self, x, code, target):
        weight = self.weight[None] * (1 + self.style(code))[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        h = self.enter(x).reshape(1, -1, *x.shape[2:])
        h = F.conv2d(h, weight.flatten(0, 1), padding=1, groups=len(x)).unflatten(1, (len(x), -1))[0]
        return F.l1_loss(self.leave(F.leaky_relu(h, 0.2)), target)


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5), self.bias)


class Temporal(nn.Module):
    """Dilated convolutions with weight norm."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.net = nn.Sequential(*[part for d in (1, 2, 4) for part in (
            norm(nn.Conv1d(32, 32, 3, padding=d, dilation=d)), nn.ReLU(), nn.Dropout(0.1))])

    def forward(self, x):
        return F.smooth_l1_loss(self.net(x)[..., :-1], x[..., 1:])


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 64, 4, 4), nn.Linear(64, 10)
        self.tokens, self.channels = mlp(64, 128, 64), mlp(64, 128, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))

    def forward(self, x, y):
        h = self.enter(x).flatten(2).mT
        h = h + self.tokens(self.norms[0](h).mT).mT
        h = h + self.channels(self.norms[1](h))
        return F.cross_entropy(self.leave(self.norms[2](h).mean(1)), y)


class Recurrent(nn.Module):
    """Speech: a recurrent network and the CTC loss."""

    def __init__(self):
        super().__init__()
        self.net, self.leave = nn.LSTM(32, 64, 2, bidirectional=True), nn.Linear(128, 20)

    def forward(self, x, y):
        logits = self.leave(self.net(x)[0]).log_softmax(-1)
        return F.ctc_loss(logits, y, torch.full((len(y),), len(x)), torch.full((len(y),), y.shape[1]))


class UnrolledODE(nn.Module):
    """Four Runge-Kutta steps."""

    def __init__(self):
        super().__init__()
        self.slope = mlp(16, 128, 16, activation=nn.Tanh)

    def forward(self, x, target):
        for _ in range(4):
            a = self.slope(x)
            b = self.slope(x + a / 8)
            c = self.slope(x + b / 8)
            x = x + (a + 2 * b + 2 * c + self.slope(x + c / 4)) / 24
        return F.mse_loss(x, target)


class Capsules(nn.Module):
    """Vectors squashed to a length below 1; their lengths are what is learned."""

    def __init__(self):
        super().__init__()
        self.net = mlp(64, 128, 160)

    def forward(self, x, y):
        h = self.net(x).unflatten(-1, (10, 16))
        square = h.square().sum(-1, keepdim=True)
        length = (square / (1 + square) * h / torch.sqrt(square + 1e-8)).norm(dim=-1)
        right = F.one_hot(y, 10)
        return (right * F.relu(0.9 - length) ** 2 + 0.5 * (1 - right) * F.relu(length - 0.1) ** 2).sum(-1).mean()


class Splines(nn.Module):
    """Layers of radial functions on a grid, each with a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16 * 8, 64), nn.Linear(64 * 8, 8)

    def forward(self, x, target):
        grid = torch.linspace(-2, 2, 8)
        for layer in (self.first, self.second):
            x = layer(torch.exp(-((x[..., None] - grid) * 2) ** 2).flatten(-2))
        return F.mse_loss(x, target)


class Sinkhorn(nn.Module):
    """Optimal transport from a network's results to another cloud, in logarithms."""

    def __init__(self):
        super().__init__()
        self.net = mlp(16, 128, 16)

    def forward(self, x, y):
        costs = torch.cdist(self.net(x), y).square() / 0.5
        u, v = torch.zeros(len(x)), torch.zeros(len(y))
        for _ in range(10):
            u = -torch.logsumexp(v - costs, 1) - math.log(len(x))
            v = -torch.logsumexp(u[:, None] - costs, 0) - math.log(len(y))
        return ((u[:, None] + v - costs).exp() * costs).sum()


class Experts(nn.Module):
    """Gates with a straight-through choice, and a loss that balances them."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(32, 4), nn.ModuleList(mlp(32, 128, 32) for _ in range(4))

    def forward(self, x, target):
        p = self.gate(x).softmax(-1)
        chosen = F.one_hot(p.argmax(-1), 4) + p - p.detach()
        made = torch.stack([expert(x) for expert in self.experts], -1)
        return F.mse_loss((made * chosen[:, None]).sum(-1), target) + 0.01 * 4 * (p.mean(0) ** 2).sum()


class Policy(nn.Module):
    """The clipped objective of reinforcement learning, with an entropy and a value."""

    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = mlp(32, 128, 64, activation=nn.Tanh), nn.Linear(64, 6), nn.Linear(64, 1)

    def forward(self, x, action):
        old, value = torch.full_like(x[:, 0], -1.8), x.square().mean(-1)
        advantage = torch.sin(x[:, 0] + action) + x[:, 1]
        h = self.body(x)
        logs = self.actor(h).log_softmax(-1)
        ratio = (logs.gather(-1, action[:, None])[:, 0] - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logs.exp() * logs).sum(-1).mean()
        return F.mse_loss(self.critic(h)[:, 0], value) - gain - 0.01 * entropy


class ResidualImages(nn.Module):
    def __init__(self, convolution=nn.Conv2d):
        super().__init__()
        self.enter, self.a, self.b = nn.Conv2d(3, 32, 3, padding=1), *(convolution(32, 32, 3, padding=1) for _ in "ab")
        self.norms, self.leave = nn.ModuleList(nn.GroupNorm(4, 32) for _ in "ab"), nn.Linear(32, 10)

    def forward(self, x, y):
        h = self.enter(x)
        h = h + self.b(F.relu(self.norms[1](self.a(F.relu(self.norms[0](h))))))
        logits = self.leave(F.relu(h).mean((2, 3)))
        p = logits.softmax(-1).gather(-1, y[:, None])
        return (-((1 - p) ** 2) * p.log()).mean()  # focal


def network(model_class, *inputs, **options):
    """Makes a case. Inputs are shapes of normal random numbers, or functions that make tensors."""
    def make():
        model = model_class(**options)
        tensors = [make_one() if callable(make_one) else torch.randn(make_one) for make_one in inputs]
        return model, lambda: model(*tensors)

    return make


def classes(count, *shape):
    return lambda: torch.randint(count, shape)


def graph(name, **options):
    def make():
        layers = pytest.importorskip("torch_geometric.nn")
        model = getattr(layers, name)(64, 64, 3, 5, **options)
        edges, x, y = torch.randint(300, (2, 2400)), torch.randn(300, 64), torch.randint(5, (300,))
        return model, lambda: F.cross_entropy(model(x, edges), y)

    return make


def graph_layer(name, *sizes, **options):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            layers = pytest.importorskip("torch_geometric.nn")
            self.first, self.second = (getattr(layers, name)(64, 64, *sizes, **options) for _ in "ab")
            self.leave = nn.Linear(64, 5)

        def forward(self, x, edges, y):
            return F.cross_entropy(self.leave(F.elu(self.second(F.elu(self.first(x, edges)), edges))), y)

    return network(Layers, (300, 64), classes(300, 2, 2400), classes(5, 300))


CASES = {
    "capsules": network(Capsules, (128, 64), classes(10, 128)),
    "charbonnier": regression(charbonnier),
    "contrastive-0.01": contrastive(0.01),
    "contrastive-0.5": contrastive(0.5),
    "correlation": regression(correlation),
    "distances": distances,
    "experts": network(Experts, (256, 32), (256, 32)),
    "flow": network(Flow, (256, 32)),
    "gat": graph("GAT", heads=4),
    "gin": graph("GIN"),
    "graph-chebyshev": graph_layer("ChebConv", 3),
    "graph-transformer": graph_layer("TransformerConv"),
    "log-cosh": regression(log_cosh, nn.Mish),
    "mixer": network(Mixer, (16, 3, 32, 32), classes(10, 16)),
    "modulated": network(ModulatedConvolution, (8, 3, 32, 32), (8, 32), (8, 3, 32, 32)),
    "policy": network(Policy, (1024, 32), classes(6, 1024)),
    "quantiles": regression(quantiles, nn.ELU),
    "recurrent-ctc": network(Recurrent, (48, 8, 32), lambda: torch.randint(1, 20, (8, 10))),
    "rendering": network(Rendering, (128, 32, 3), lambda: torch.rand(128, 3)),
    "sage": graph("GraphSAGE"),
    "sinkhorn": network(Sinkhorn, (96, 16), (96, 16)),
    "siren": siren,
    "splines": network(Splines, (256, 16), (256, 8)),
    "standardised": network(ResidualImages, (16, 3, 16, 16), classes(10, 16), convolution=Standardised),
    "temporal": network(Temporal, (16, 32, 64)),
    "triplet": triplet,
    "unet": network(UNet, (8, 3, 32, 32), (8, 3, 32, 32), lambda: torch.rand(8)),
    "unrolled-ode": network(UnrolledODE, (256, 16), (256, 16)),
    "variational": network(VariationalAutoencoder, (256, 64)),
    "volumes": network(Volumes, (2, 1, 16, 16, 16), lambda: (torch.rand(2, 1, 16, 16, 16) > 0.7).float()),
}
