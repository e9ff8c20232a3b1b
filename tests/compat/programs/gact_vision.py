"""Like GACT's vision benchmark: hooks during the whole training, and a closure that adapts on eight images."""

import argparse

import no_gpu  # noqa: F401
import numpy as np
import torch
from made_up import Images
from torch import nn

import gact
from gact.controller import Controller
from gact.utils import compute_tensor_bytes, exp_recorder, get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("--alg", default="L2")
parser.add_argument("--benchmark", default="gact", choices=["gact", "exact"])
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
    nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16 * 64, 4)).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
loader = torch.utils.data.DataLoader(Images(), batch_size=16, shuffle=True)
losses, speeds, stepped = [], [], 0


def train(epoch):
    global controller
    if args.benchmark == "gact":
        gact.set_optimization_level(args.alg)
        controller = Controller(model)
        controller.install_hook()
    model.train()
    for images, target in loader:
        images, target = images.cuda(), target.cuda()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        before = get_memory_usage()
        output = model(images)
        loss = criterion(output, target)
        activations = get_memory_usage() - before - compute_tensor_bytes([loss, output])
        assert activations <= 0
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            optimizer.step()
        end.record()
        losses.append(loss.item())
        speeds.append(len(images) / (start.elapsed_time(end) / 1000))

        def backprop():
            output = model(images[:8])
            loss = criterion(output, target[:8])
            optimizer.zero_grad()
            loss.backward()

        if args.benchmark == "gact":
            controller.iterate(backprop)
    if args.benchmark == "gact":
        controller.uninstall_hook()


for epoch in range(args.epochs):
    for group in optimizer.param_groups:
        group["lr"] = args.lr * 0.1 ** (epoch // 30)
    train(epoch)
    model.eval()
    with torch.no_grad():
        right = sum((model(images.cuda()).argmax(1) == target.cuda()).sum().item() for images, target in loader)
    torch.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")
exp_recorder.record("algorithm", args.alg)
exp_recorder.record("ips", np.median(speeds), 2)
exp_recorder.dump("speed_results.json")
