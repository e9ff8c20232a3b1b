"""Third-party vision models train a step unmodified on a GPU: torchvision and timm, without downloads, with small
images. Skipped without a GPU, or failed if ACTZIP_REQUIRE_CUDA=1."""


import pytest
import torch
import torch.nn.functional as F
from gpu import needs_gpu
from steps import check_default, check_exact

pytestmark = needs_gpu

BATCH, CLASSES = 8, 10


@pytest.fixture(autouse=True)
def reproducible():
    """Sets torch's switches for reproducible results. check_exact() leaves out what still differs between runs."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before


def torchvision(name, size=64):
    def make():
        models = pytest.importorskip("torchvision.models")
        return getattr(models, name)(weights=None, num_classes=CLASSES), size

    return make


def timm(name, size=64, **options):
    def make():
        package = pytest.importorskip("timm")
        return package.create_model(name, pretrained=False, num_classes=CLASSES, **options), size

    return make


# How many times smaller what is kept must be.
MODELS = {
    "torchvision ResNet-50": (torchvision("resnet50"), 6),
    "torchvision ConvNeXt": (torchvision("convnext_tiny"), 5),
    "torchvision Swin": (torchvision("swin_t"), 5),
    "torchvision EfficientNet": (torchvision("efficientnet_b0"), 5),
    "torchvision DenseNet": (torchvision("densenet121"), 5),
    "timm ResNet-50": (timm("resnet50"), 6),
    "timm ConvNeXt": (timm("convnext_tiny"), 5),
    "timm Swin": (timm("swin_tiny_patch4_window7_224", img_size=64), 5),
    "timm EfficientNet": (timm("efficientnet_b0"), 5),
    "timm DenseNet": (timm("densenet121"), 5),
    "timm ViT": (timm("vit_tiny_patch16_224", img_size=64), 5),
}
IDS = [name.replace(" ", "_") for name in MODELS]


def on_gpu(make, autocast=False):
    model, size = make()
    model = model.cuda().train()
    images, classes = torch.randn(BATCH, 3, size, size, device="cuda"), torch.arange(BATCH, device="cuda") % CLASSES

    def loss():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return F.cross_entropy(model(images).float(), classes)

    return model, loss


@pytest.mark.parametrize("make", [make for make, _ in MODELS.values()], ids=IDS)
def test_exact_is_bitwise(make):
    check_exact(*on_gpu(make))


@pytest.mark.parametrize(("make", "times_smaller"), MODELS.values(), ids=IDS)
def test_default_is_close_and_explained(make, times_smaller):
    check_default(*on_gpu(make), times_smaller)


@pytest.mark.parametrize(("make", "times_smaller"), MODELS.values(), ids=IDS)
def test_under_autocast(make, times_smaller):
    """16-bit tensors leave only half as much to gain."""
    check_default(*on_gpu(make, autocast=True), times_smaller / 2.5)


@pytest.mark.parametrize("make", [torchvision("resnet50"), timm("convnext_tiny")], ids=["ResNet-50", "ConvNeXt"])
def test_channels_last(make):
    model, loss = on_gpu(make)
    check_default(model.to(memory_format=torch.channels_last), loss, 4)
