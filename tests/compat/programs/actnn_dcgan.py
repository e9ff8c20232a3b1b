"""Like the DCGAN tutorial with ActNN: two converted models that train against each other."""

import no_gpu  # noqa: F401
import torch
from made_up import Images
from torch import nn

import actnn

torch.manual_seed(999)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
NZ, WIDTH = 16, 16


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, 2 * WIDTH, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * WIDTH), nn.ReLU(True),
            nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, 2, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(True),
            nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * WIDTH), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * WIDTH, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, input):
        return self.main(input)


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


netG, netD = actnn.QModule(Generator()).to(device), actnn.QModule(Discriminator()).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
print(netG, netD)
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
loader = torch.utils.data.DataLoader(Images(), batch_size=16, shuffle=True)
D_losses, G_losses = [], []
for epoch in range(6):
    for real, _ in loader:
        netD.zero_grad()
        label = torch.ones(len(real), device=device)
        errD_real = criterion(netD(real.to(device)).view(-1), label)
        errD_real.backward()
        fake = netG(torch.randn(len(real), NZ, 1, 1, device=device))
        errD_fake = criterion(netD(fake.detach()).view(-1), torch.zeros_like(label))
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        D_losses.append((errD_real + errD_fake).item())
        G_losses.append(errG.item())
