"""A small network of torch's or of ActNN's layers, and helpers that run steps and read reports."""

import pytest
import torch
import torch.nn.functional as F
from actzip.compat import actnn
from torch import nn


@pytest.fixture(autouse=True)
def fresh_config():
    """Resets ActNN's configuration around each test of the modules that import this fixture."""
    actnn.config.reset()
    actnn.QScheme.num_samples, actnn.QScheme.batch, actnn.QScheme.update_scale = 1, None, True
    yield
    actnn.config.reset()


class Net(nn.Module):
    def __init__(self, layers=nn, group=None):
        super().__init__()
        prefix, more = ("", {}) if layers is nn else ("Q", {} if group is None else {"group": group})
        make = lambda name: getattr(layers, prefix + name)  # noqa: E731
        self.conv1 = make("Conv2d")(3, 16, 3, padding=1)
        self.bn1 = make("BatchNorm2d")(16)
        self.relu = make("ReLU")()
        self.conv2 = make("Conv2d")(16, 16, 3, padding=1, **more)
        self.bn2 = make("BatchNorm2d")(16)
        self.pool = make("MaxPool2d")(2)
        self.fc = make("Linear")(16 * 8 * 8, 10)

    def forward(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.fc(x.flatten(1))


X, Y = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 10


def step(model, x=X, y=Y):
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss.item()


def kept(model, steps=3):
    for _ in range(steps):
        step(model)
    return actnn.session_of(model).report()


def codecs(report):
    return {site.site.removeprefix("model."): site.codec for site in report.sites}


def converted(level="L2", **fields):
    actnn.config.reset()
    actnn.set_optimization_level(level)
    for name, value in fields.items():
        setattr(actnn.config, name, value)
    torch.manual_seed(0)
    return actnn.QModule(Net())


def widths(report):
    """Bit widths of all sites with `rotated` or `affine`."""
    return [int(site.codec.split(":")[1]) for site in report.sites if site.codec.startswith(("rotated", "affine"))]


def spreads(report):
    return [site.sample_bits for site in report.sites if site.sample_bits is not None]
