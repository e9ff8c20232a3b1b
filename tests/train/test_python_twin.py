"""A Python loop with the same network, weights and batches gives the same loss curve."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trainer import IMAGES, losses, text_options, trained

STEPS = 6


class Block(nn.Module):
    """A basic block with torchvision's names."""

    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        return F.relu(around + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet18(nn.Module):
    """Has the stem for small images: 3 x 3, no max-pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(Block(before, width, stride), Block(width, width, 1))
            for before, width, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)))
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def curve_in_python(model, folder, optimizer_of, smoothing=0.0):
    torch.set_num_threads(1)
    model.load_state_dict(torch.load(folder / "weights", weights_only=True))
    batches = torch.load(folder / "batches", weights_only=True)
    optimizer = optimizer_of(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    curve = []
    for step in range(STEPS):
        logits = model(batches[f"input.{step}"])
        loss = F.cross_entropy(logits.flatten(0, -2), batches[f"target.{step}"].flatten(), label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        curve.append((step + 1, loss.item()))
    return curve


def curve_in_cpp(folder, *options):
    trained(*options, "--preset", "exact", "--steps", STEPS, "--schedule", "cosine", "--log-every", 1, "--metrics",
            folder / "metrics", "--save-weights", folder / "weights", "--save-batches", folder / "batches")
    return losses(folder / "metrics")


def assert_same_curve(one, other):
    assert [step for step, _ in one] == [step for step, _ in other] == list(range(1, STEPS + 1))
    assert one[0][1] != one[-1][1]
    for (_, a), (_, b) in zip(one, other):
        assert a == pytest.approx(b, abs=1e-5)


def test_resnet18(tmp_path):
    cpp = curve_in_cpp(tmp_path, *IMAGES, "--lr", 0.01, "--nesterov", "--weight-decay", 5e-4, "--label-smoothing", 0.1)
    python = curve_in_python(ResNet18(), tmp_path, lambda model: torch.optim.SGD(
        model.parameters(), 0.01, 0.9, weight_decay=5e-4, nesterov=True), 0.1)
    assert_same_curve(cpp, python)


def test_gpt(tmp_path):
    from actzip.bench.tasks.shakespeare import GPT

    cpp = curve_in_cpp(tmp_path, *text_options(tmp_path), "--weight-decay", 0.1, "--dropout", 0)
    characters = torch.load(tmp_path / "weights", weights_only=True)["embedding.weight"].shape[0]
    python = curve_in_python(GPT(characters, 32, 1, 32, 2, 0.0), tmp_path, lambda model: torch.optim.AdamW(
        model.parameters(), 0.003, weight_decay=0.1))
    assert_same_curve(cpp, python)
