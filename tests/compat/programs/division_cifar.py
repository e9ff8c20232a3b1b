"""Like DIVISION's trainer for CIFAR: imports modules from DIVISION's folder and configures them by options."""

import argparse
import sys

sys.path.append("./fdmp")

import no_gpu  # noqa: E402,F401
import torch  # noqa: E402
from made_up import Images  # noqa: E402
from torch import nn  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("-b", "--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--gpu_devices", type=int, nargs="+", default=None)
parser.add_argument("--vanilla", action="store_true")
parser.add_argument("--lfc_block", type=int, default=8)
parser.add_argument("--hfc_bit_num", type=int, default=2)
parser.add_argument("--rm_lfc", action="store_true")
parser.add_argument("--rm_hfc", action="store_true")
parser.add_argument("-hf", "--half_precision", dest="amp", action="store_true")
parser.add_argument("--simulate", action="store_true")
parser.add_argument("--group_size", type=int, default=256)
parser.add_argument("--debug_fd_memory", action="store_true")

from conf import config, config_init  # noqa: E402

args = parser.parse_args()
config_init(args)

from module import FDMP_Module  # noqa: E402
from utils import compute_tensor_bytes, exp_recorder, get_memory_usage  # noqa: E402

torch.manual_seed(0)


class Bottleneck(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        width = outputs // 4
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, stride, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), nn.Conv2d(width, outputs, 1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.conv1(self.relu(self.bn1(x)))
        out = self.conv2(self.relu(self.bn2(out)))
        out = self.conv3(self.relu(self.bn3(out)))
        out += x if self.shortcut is None else self.shortcut(x)
        return out


model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), Bottleneck(16, 64), Bottleneck(64, 64),
                      Bottleneck(64, 128, 2), nn.BatchNorm2d(128), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(128 * 16, 4))
if not args.vanilla:
    model = FDMP_Module(model)
model = torch.nn.DataParallel(model).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
loader = torch.utils.data.DataLoader(Images(), batch_size=args.batch_size, shuffle=True)
losses, accuracy = [], 0.0
for epoch in range(args.epochs):
    model.train()
    for images, target in loader:
        torch.cuda.synchronize()
        images, target = images.cuda(), target.cuda()
        with torch.autocast("cpu", torch.bfloat16, enabled=config.half_precision):
            output = model(images)
            loss = criterion(output.float(), target)
        compute_tensor_bytes([loss, output])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    model.eval()
    with torch.no_grad():
        accuracy = sum((model(images).argmax(1) == target).sum().item() for images, target in loader) / 64
exp_recorder.record("algorithm", "vanilla" if args.vanilla else "Division")
exp_recorder.record("model_only", get_memory_usage(True, None) / 2**30, 2)
exp_recorder.dump("log.json")
