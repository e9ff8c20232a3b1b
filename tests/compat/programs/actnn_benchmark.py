"""Like ActNN's benchmark of memory and speed: a converted model at one level, in one process or in two."""

import argparse
import os
import time

import no_gpu  # noqa: F401
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from made_up import Images
from torch import nn

import actnn
from actnn import QModule, QScheme, compute_tensor_bytes, config, exp_recorder, get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=16)
parser.add_argument("--alg", default="exact")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--get-speed", action="store_true")
parser.add_argument("--multiprocessing-distributed", action="store_true")
parser.add_argument("--world-size", type=int, default=1)
parser.add_argument("--dist-backend", default="gloo")


def set_optimization_level(alg):
    if alg.startswith("actnn-"):
        actnn.set_optimization_level(alg[6:])
    elif alg == "swap":
        actnn.set_optimization_level("swap")
    elif alg != "exact":
        raise ValueError("Invalid algorithm: " + alg)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.dropout, self.fc = nn.Dropout(0.1), nn.Linear(16 * 64, 4)

    def forward(self, x):
        return self.fc(self.dropout(torch.flatten(self.features(x), 1)))


def main_worker(gpu, args):
    set_optimization_level(args.alg)
    if args.multiprocessing_distributed:
        dist.init_process_group(args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=gpu)
    torch.manual_seed(0)
    model = Network()
    model = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else nn.DataParallel(model).cuda()
    if args.alg != "exact":
        model = QModule(model)
        model.cuda()
    exp_recorder.record("algorithm", args.alg)
    exp_recorder.record("model_only", get_memory_usage() / 2**30, 2)
    criterion = nn.CrossEntropyLoss().cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    dataset = Images()
    sampler = torch.utils.data.distributed.DistributedSampler(dataset) if dist.is_initialized() else None
    loader = actnn.dataloader.DataLoader(dataset, batch_size=args.batch_size, shuffle=sampler is None, sampler=sampler)
    losses, speeds = [], []
    while len(losses) < args.steps:
        for indices, (images, target) in loader:
            QScheme.batch = indices
            start = time.time()
            images, target = images.cuda(gpu, non_blocking=True), target.cuda(gpu, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            assert compute_tensor_bytes([loss, output]) == 4 * (1 + output.numel())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            speeds.append(len(images) / (time.time() - start))
            if (args.get_speed or config.debug_speed) and len(losses) >= 6:
                exp_recorder.record("batch_size", np.int64(args.batch_size))
                exp_recorder.record("ips", np.median(speeds), 1)
                exp_recorder.dump("speed_results.json")
                raise SystemExit(0)
    if dist.is_initialized():
        torch.save((losses, model.state_dict(), actnn.session_of(model).report().preset), f"rank{gpu}.pt")
        dist.destroy_process_group()
    return model, losses


if __name__ == "__main__":
    args = parser.parse_args()
    QScheme.num_samples = 64
    if args.multiprocessing_distributed:
        args.world_size *= torch.cuda.device_count()
        args.dist_url = f"file://{os.path.abspath('meeting')}"
        mp.spawn(main_worker, nprocs=torch.cuda.device_count(), args=(args,))
    else:
        model, losses = main_worker(0, args)
