"""Like ActNN's image classification: ActNN's layers by hand, per-sample gradients, checkpoints, a variance check."""

import argparse
import os

import no_gpu  # noqa: F401
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from made_up import Images

import actnn
from actnn import QBatchNorm2d, QBNScheme, QConv2d, QLinear, QMaxPool2d, QReLU, QScheme, QSyncBatchNorm, config, dataloader

parser = argparse.ArgumentParser()
parser.add_argument("--model-config", "-c", default="quantize", choices=["quantize", "qsyncbn", "classic"])
parser.add_argument("--actnn-level", default="L3")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("-b", "--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--qat", type=int, default=8)
parser.add_argument("--sq", type=int, default=1)
parser.add_argument("--groupsize", type=int, default=256)
parser.add_argument("--usegradient", action="store_true")
parser.add_argument("--checkpoint", default="checkpoint.pth.tar")
parser.add_argument("--resume", default="")
parser.add_argument("--variance", action="store_true")
parser.add_argument("--multiprocessing-distributed", action="store_true")
parser.add_argument("--world-size", type=int, default=1)
parser.add_argument("--dist-url", default="file://")
parser.add_argument("--dist-backend", default="gloo")

CONFIGS = {
    "quantize": {"conv": QConv2d, "linear": QLinear, "bn": QBatchNorm2d, "pool": QMaxPool2d, "relu": QReLU},
    "qsyncbn": {"conv": QConv2d, "linear": QLinear, "bn": QSyncBatchNorm, "pool": QMaxPool2d, "relu": QReLU},
    "classic": {"conv": nn.Conv2d, "linear": nn.Linear, "bn": nn.BatchNorm2d, "pool": nn.MaxPool2d, "relu": nn.ReLU},
}


class Block(nn.Module):
    def __init__(self, make, planes):
        super().__init__()
        self.conv1, self.bn1 = make["conv"](planes, planes, 3, padding=1, bias=False), make["bn"](planes)
        self.conv2, self.bn2 = make["conv"](planes, planes, 3, padding=1, bias=False), make["bn"](planes)
        self.relu = make["relu"]()

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, make, planes=16):
        super().__init__()
        self.conv1, self.bn1, self.relu = make["conv"](3, planes, 3, padding=1, bias=False), make["bn"](planes), make["relu"]()
        self.layer1, self.maxpool = nn.Sequential(Block(make, planes), Block(make, planes)), make["pool"](2)
        self.fc = make["linear"](planes * 64, 4)

    def forward(self, x):
        x = self.maxpool(self.layer1(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.view(x.size(0), -1))

    def set_name(self):
        self.linear_layers = [self.conv1, *(conv for block in self.layer1 for conv in (block.conv1, block.conv2)), self.fc]
        for number, layer in enumerate(self.linear_layers):
            layer.layer_name = f"layer_{number}"


class ModelAndLoss(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = ResNet(CONFIGS[name]).cuda()
        self.loss = nn.CrossEntropyLoss().cuda()

    def forward(self, data, target):
        output = self.model(data)
        return self.loss(output, target), output


def collate(batch):
    return torch.stack([image for image, _ in batch]), torch.tensor([target for _, target in batch])


class Prefetched:
    """Moves the next batch to the device while the current one is computed."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        waiting = None
        for indices, (input, target) in self.loader:
            if waiting is not None:
                yield waiting
            waiting = input.cuda(non_blocking=True), target.cuda(non_blocking=True), indices.copy()
        yield waiting


def make_loader(args, shuffle):
    dataset = Images()
    sampler = torch.utils.data.distributed.DistributedSampler(dataset) if dist.is_initialized() else None
    loader = dataloader.DataLoader(dataset, batch_size=args.batch_size, shuffle=shuffle and sampler is None,
                                   num_workers=args.workers, pin_memory=torch.cuda.is_available(), sampler=sampler,
                                   collate_fn=collate, drop_last=False)
    assert len(loader.dataset.targets) == 64
    return Prefetched(loader)


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def train(loader, model_and_loss, optimizer, losses):
    model_and_loss.train()
    for input, target, index in loader:
        QScheme.batch = index
        loss, _ = model_and_loss(input, target)
        optimizer.zero_grad()
        loss.backward()
        if dist.is_initialized():
            average_gradients(model_and_loss)
        optimizer.step()
        torch.cuda.synchronize()
        losses.append(loss.item())


def validate(loader, model_and_loss):
    model_and_loss.eval()
    right = total = 0
    with torch.no_grad():
        for input, target, _ in loader:
            right += (model_and_loss(input, target)[1].argmax(1) == target).sum().item()
            total += len(target)
    return right / total


def get_var(model_and_loss, optimizer, loader, num_samples=3):
    """Measures the bias and the variance that compression adds to each layer's gradient."""
    model_and_loss.train()
    net = model_and_loss.model
    net.set_name()

    def bp(input, target):
        optimizer.zero_grad()
        model_and_loss(input, target)[0].backward()
        return {layer.layer_name: layer.weight.grad.detach().clone() for layer in net.linear_layers}

    batches = []
    config.compress_activation = False
    QScheme.update_scale = True
    for input, target, index in loader:
        QScheme.batch = index
        batches.append((input.clone(), target.clone(), index.copy()))
        bp(input, target)
    QScheme.update_scale = False
    print(net.linear_layers[0].scheme.scales)
    config.compress_activation = True
    QScheme.batch = batches[0][2]
    bp(*batches[0][:2])
    QScheme.allocate_perlayer()
    QBNScheme.allocate_perlayer()

    found = {}
    for input, target, index in batches:
        QScheme.batch = index
        config.compress_activation = False
        exact = bp(input, target)
        config.compress_activation = True
        draws = [bp(input, target) for _ in range(num_samples)]
        for name, gradient in exact.items():
            mean = sum(draw[name] for draw in draws) / num_samples
            variance = sum((draw[name] - mean) ** 2 for draw in draws) / num_samples
            row = found.setdefault(name, {"norm": 0.0, "bias": 0.0, "var": 0.0})
            row["norm"] += gradient.square().sum().item()
            row["bias"] += (mean - gradient).square().sum().item()
            row["var"] += variance.sum().item()
    for layer in net.linear_layers:
        scales = layer.scheme.scales[batches[0][2]] if config.use_gradient else layer.scheme.scales
        print(layer.layer_name, float(layer.scheme.bits), len(scales), layer.scheme in QScheme.layers)
    print("previous:", QScheme.prev_layer is net.fc.scheme, QScheme.num_layers >= len(net.linear_layers))
    return found


def worker(rank, args):
    if args.multiprocessing_distributed:
        dist.init_process_group(args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=rank)
    actnn.set_optimization_level(args.actnn_level)
    config.stochastic = bool(args.sq)
    config.qat = args.qat
    config.use_gradient = args.usegradient
    config.group_size = args.groupsize
    QScheme.num_samples = 64
    torch.manual_seed(0)
    model_and_loss = ModelAndLoss(args.model_config)
    optimizer = torch.optim.SGD(model_and_loss.parameters(), args.lr, momentum=0.9)
    start, losses, variances = 0, [], None
    if args.resume:
        checkpoint = torch.load(args.resume)
        start = checkpoint["epoch"]
        model_and_loss.model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    for epoch in range(start, args.epochs):
        train(make_loader(args, shuffle=True), model_and_loss, optimizer, losses)
        accuracy = validate(make_loader(args, shuffle=False), model_and_loss)
        if rank == 0:
            torch.save({"epoch": epoch + 1, "state_dict": model_and_loss.model.state_dict(),
                        "optimizer": optimizer.state_dict()}, args.checkpoint)
    if args.variance:
        variances = get_var(model_and_loss, optimizer, make_loader(args, shuffle=False))
    print(f"rank {rank}: {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.2f}" if losses else "no epoch")
    if dist.is_initialized():
        torch.save((losses, model_and_loss.model.state_dict()), f"rank{rank}.pt")
        dist.destroy_process_group()
    return model_and_loss, losses, variances


if __name__ == "__main__":
    args = parser.parse_args()
    if args.multiprocessing_distributed:
        args.world_size *= torch.cuda.device_count()
        args.dist_url = f"file://{os.path.abspath('meeting')}"
        mp.spawn(worker, nprocs=torch.cuda.device_count(), args=(args,))
    else:
        model_and_loss, losses, variances = worker(0, args)
