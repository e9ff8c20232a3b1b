"""Generates images of four classes, which differ in the part that is bright."""

import torch
from torch.utils.data import Dataset


class Images(Dataset):
    def __init__(self, count=64, size=16, classes=4):
        generator = torch.Generator().manual_seed(1)
        self.targets = (torch.arange(count) % classes).tolist()
        noise = torch.randint(0, 100, (count, 3, size, size), generator=generator)
        quarter = size // classes
        for image, target in zip(noise, self.targets):
            image[:, target * quarter:(target + 1) * quarter] += 100
        self.data = noise.to(torch.uint8)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.data[index].float() / 128 - 0.6, self.targets[index]
