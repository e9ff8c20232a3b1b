"""Like GACT's Swin program: started by a launcher, with a controller for each epoch and a closure that steps."""

import argparse
import os

import no_gpu  # noqa: F401
import torch
import torch.distributed as dist
from made_up import Images
from transformers import SwinConfig, SwinForImageClassification

import gact
from gact.utils import compute_tensor_bytes, get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("--level", default=None)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=16)
args, _ = parser.parse_known_args()


class Scheduler:
    """Has a method of its own, `step_update()`, like that of the Swin repository."""

    def __init__(self, optimizer, steps):
        self.optimizer, self.steps, self.calls = optimizer, steps, 0

    def step_update(self, step):
        self.calls += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / self.steps)


def train_one_epoch(model, loader, optimizer, scheduler, epoch):
    model.train()
    controller = None
    if args.level is not None:
        gact.set_optimization_level(args.level)
        controller = gact.controller.Controller(model)
        controller.install_hook()
    for idx, (samples, targets) in enumerate(loader):
        samples, targets = samples.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        outputs = model(samples).logits
        loss = criterion(outputs, targets)
        get_memory_usage(), compute_tensor_bytes([loss, outputs])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step_update(epoch * len(loader) + idx)
        losses.append(loss.item())

        def backprop():
            loss = criterion(model(samples).logits, targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step_update(epoch * len(loader) + idx)

        if args.level is not None:
            controller.iterate(backprop)
    return controller and controller.report()


torch.manual_seed(0)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
model = SwinForImageClassification(SwinConfig(
    image_size=16, patch_size=2, embed_dim=16, depths=[2, 1], num_heads=[2, 2], window_size=4, num_labels=4,
    drop_path_rate=0.0, initializer_range=0.3)).cuda()
if dist.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
dataset = Images()
sampler = torch.utils.data.distributed.DistributedSampler(dataset) if dist.is_initialized() else None
loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, shuffle=sampler is None, sampler=sampler)
optimizer, criterion, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), torch.nn.CrossEntropyLoss(), []
scheduler = Scheduler(optimizer, args.epochs * len(loader))
for epoch in range(args.epochs):
    if sampler is not None:
        sampler.set_epoch(epoch)
    report = train_one_epoch(model, loader, optimizer, scheduler, epoch)
print(f"{losses[0]:.3f} -> {losses[-1]:.3f}, {scheduler.calls} updates")
if dist.is_initialized():
    torch.save((losses, model.state_dict(), {site.site: site.codec for site in report.sites}), f"rank{dist.get_rank()}.pt")
    dist.destroy_process_group()
