"""The C++ networks equal those in Python: a seed gives the same weights, and these the same results and gradients."""

import os
import subprocess
import zipfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
pytest.importorskip("actzip.bench.tasks.transformer")
from actzip.bench.tasks.cifar10 import ResNet18  # noqa: E402
from actzip.bench.tasks.cifar10_vit import ViT  # noqa: E402
from actzip.bench.tasks.cora import GCN, _normalised  # noqa: E402
from actzip.bench.tasks.shakespeare import GPT  # noqa: E402
from actzip.bench.tasks.sst2 import Encoder  # noqa: E402

TOOL = os.environ.get("ACTZIP_MODEL_TOOL", "build/bin/model_tool")


def call(*arguments, **sizes):
    command = [TOOL, *map(str, arguments), *(f"{name}={value}" for name, value in sizes.items())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def made_in_cpp(folder, seed, **sizes):
    call("make", folder / "made.pt", seed, **sizes)
    return torch.load(folder / "made.pt", weights_only=True)


def run_in_cpp(folder, state, inputs, **sizes):
    torch.save(state, folder / "weights.pt")
    torch.save(inputs, folder / "input.pt")
    call("run", folder / "weights.pt", folder / "input.pt", folder / "output.pt", **sizes)
    return torch.load(folder / "output.pt", weights_only=True)


def gradients(model, output):
    output.backward(torch.linspace(-1, 1, output.numel()).view(output.shape))
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = value.abs().max().item()
        torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-4 * scale + 1e-9,
                                   msg=lambda text: f"{name}: {text}")


def check(folder, model, inputs, forward, rename=lambda name: name, **sizes):
    """Compares `model` in Python, its output and gradients, with the model that the tool makes of `sizes`."""
    state = {rename(name): value.clone() for name, value in model.state_dict().items()}
    output = forward(model)
    expected = {rename(name): value for name, value in gradients(model, output).items()}
    assert_same(run_in_cpp(folder, state, inputs, **sizes), {"output": output.detach(), **expected})


def check_seed(folder, make, rename=lambda name: name, **sizes):
    torch.manual_seed(5)
    expected = {rename(name): value for name, value in make().state_dict().items()}
    actual = made_in_cpp(folder, 5, **sizes)
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


def gpt():
    return GPT(20, 16, 2, 32, 4, 0.0)


GPT_SIZES = {"name": "gpt", "vocabulary": 20, "length": 16, "layers": 2, "hidden": 32, "heads": 4, "dropout": 0}


def test_gpt(tmp_path):
    characters = torch.randint(20, (3, 16))
    check(tmp_path, gpt(), {"input": characters}, lambda model: model(characters), **GPT_SIZES)
    check_seed(tmp_path, gpt, **GPT_SIZES)


def encoder():
    return Encoder(20, 16, 2, 32, 4, 0.0)


ENCODER_SIZES = {**GPT_SIZES, "name": "encoder", "classes": 2}


def test_encoder(tmp_path):
    words = torch.randint(1, 20, (3, 12))
    words[0, 7:] = words[1, 3:] = 0
    check(tmp_path, encoder(), {"input": words}, lambda model: model(words), **ENCODER_SIZES)
    check_seed(tmp_path, encoder, **ENCODER_SIZES)


def vit():
    return ViT(patch=4, layers=2, width=32, heads=4)


def test_vit(tmp_path):
    images, sizes = torch.randn(2, 3, 32, 32), {"name": "vit-tiny", "layers": 2, "hidden": 32, "heads": 4}
    check(tmp_path, vit(), {"input": images}, lambda model: model(images), **sizes)
    check_seed(tmp_path, vit, **sizes)


def edges(nodes, count):
    from_, to = torch.randint(nodes, (2, count))
    return {"from": from_.contiguous(), "to": to.contiguous()}


def test_gcn(tmp_path):
    features, ends = torch.randn(40, 12), edges(40, 90)
    parts = _normalised(torch.stack([ends["from"], ends["to"]], 1).numpy(), 40)
    graph = torch.sparse_coo_tensor(torch.from_numpy(parts["ends"]), torch.from_numpy(parts["weights"]), (40, 40),
                                    check_invariants=True)
    sizes = {"name": "gcn", "features": 12, "hidden": 16, "classes": 5, "dropout": 0}
    check(tmp_path, GCN(12, 16, 5, 0.0), {"input": features, **ends}, lambda model: model(graph, features), **sizes)
    check_seed(tmp_path, lambda: GCN(12, 16, 5, 0.0), **sizes)


def resnet_name(name):
    """Translates a name in the benchmark's ResNet-18 into torchvision's."""
    first, _, rest = name.partition(".")
    if first != "blocks":
        return {"stem": "conv1", "norm": "bn1", "head": "fc"}[first] + "." + rest
    number, part, rest = rest.split(".", 2)
    part = {"norm1": "bn1", "norm2": "bn2", "shortcut": "downsample"}.get(part, part)
    return f"layer{1 + int(number) // 2}.{int(number) % 2}.{part}.{rest}"


class DivisionBlock(nn.Module):
    """The bottleneck of DIVISION's ResNet-164: a bias on its last convolution, a shortcut from its own input."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, stride, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), nn.Conv2d(width, outputs, 1)
        self.downsample = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x):
        inner = self.conv1(F.relu(self.bn1(x)))
        inner = self.conv2(F.relu(self.bn2(inner)))
        return self.conv3(F.relu(self.bn3(inner))) + self.downsample(x)


class DivisionResNet164(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        inputs, stages = 16, []
        for width in (16, 32, 64):
            blocks = [DivisionBlock(inputs if i == 0 else 4 * width, width, 2 if i == 0 and width > 16 else 1)
                      for i in range(18)]
            stages.append(nn.Sequential(*blocks))
            inputs = 4 * width
        self.layer1, self.layer2, self.layer3 = stages
        self.bn, self.fc = nn.BatchNorm2d(256), nn.Linear(256, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(F.relu(self.bn(x)).mean((2, 3)))


def test_resnet_of_division(tmp_path):
    images, model = torch.randn(2, 3, 32, 32), DivisionResNet164()
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_711_322
    check(tmp_path, model, {"input": images}, lambda model: model(images), name="division-resnet164")


def test_resnet_of_the_benchmark(tmp_path):
    images, model = torch.randn(2, 3, 32, 32), ResNet18(64)
    check(tmp_path, model, {"input": images}, lambda model: model(images), resnet_name, name="resnet18")


TORCHVISION = {"resnet18": "resnet18", "resnet50": "resnet50", "wide-resnet50-2": "wide_resnet50_2",
               "densenet121": "densenet121", "densenet161": "densenet161"}


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(tmp_path, name):
    models = pytest.importorskip("torchvision.models")
    images, sizes = torch.randn(2, 3, 96, 96), {"name": name, "classes": 10, "image_size": 96}

    def make():
        return getattr(models, TORCHVISION[name])(weights=None, num_classes=10)

    check(tmp_path, make(), {"input": images}, lambda model: model(images), **sizes)
    check_seed(tmp_path, make, **sizes)
    with torch.no_grad():
        make().load_state_dict(made_in_cpp(tmp_path, 1, **sizes))


def test_names_are_torchvisions(tmp_path):
    """Checks some of torchvision's names, even if it is not installed."""
    resnet = list(made_in_cpp(tmp_path, 0, name="resnet50", image_size=224))
    assert resnet[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"] and resnet[-2:] == ["fc.weight", "fc.bias"]
    assert {"layer1.0.downsample.0.weight", "layer4.2.bn3.running_var", "bn1.num_batches_tracked"} <= set(resnet)
    densenet = list(made_in_cpp(tmp_path, 0, name="densenet121", image_size=224))
    assert densenet[0] == "features.conv0.weight" and densenet[-2:] == ["classifier.weight", "classifier.bias"]
    assert {"features.norm0.weight", "features.denseblock4.denselayer16.conv2.weight",
            "features.transition3.conv.weight", "features.norm5.running_mean"} <= set(densenet)


@pytest.mark.parametrize("keep_vars", [False, True])
def test_state_dicts_of_modules_are_read(tmp_path, keep_vars):
    """State dicts as torch.save() writes them: with metadata, and with `keep_vars` as Parameters."""
    state, inputs = GCN(12, 16, 5, 0.0).state_dict(keep_vars=keep_vars), {"input": torch.randn(40, 12), **edges(40, 90)}
    run_in_cpp(tmp_path, state, inputs, name="gcn", features=12, classes=5)


def test_halves_are_read_and_strangers_refused(tmp_path):
    state = {name: value.half() for name, value in GCN(12, 16, 5, 0.0).state_dict().items()}
    sizes = {"name": "gcn", "features": 12, "classes": 5}
    run_in_cpp(tmp_path, state, {"input": torch.randn(4, 12), **edges(4, 5)}, **sizes)
    with pytest.raises(AssertionError, match="holds a dict of String to Int"):
        run_in_cpp(tmp_path, {"epoch": 3, "model": state}, {"input": torch.randn(4, 12)}, **sizes)


def damaged(harm, name, content):
    """Returns a record of a torch file, damaged as `harm` says."""
    if name.endswith("/data/0"):
        return content[:-4] if harm == "short record" else content
    if name.endswith("/byteorder"):
        return b"big" if harm == "byteorder" else content
    if not name.endswith("data.pkl"):
        return content
    return {
        "short pickle": content[:-40],
        "unknown call": content.replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v9"),
        "deep pickle": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
        "large pickle": content + bytes(17 << 20),
        "stride": content.replace(b"K\x01\x85", b"K\x7f\x85"),
    }.get(harm, content)


@pytest.mark.parametrize(("harm", "reason"), [
    ("truncated", ""), ("short record", "outside of its storage"), ("short pickle", "a truncated pickle"),
    ("unknown call", "an object of 'torch._utils _rebuild_tensor_v9'"), ("deep pickle", "holds a List"),
    ("large pickle", "a pickle of"), ("byteorder", "greatest byte first"), ("stride", "outside of its storage")])
def test_damaged_files_are_refused(tmp_path, harm, reason):
    path, sizes = tmp_path / "weights.pt", {"name": "gcn", "features": 12, "classes": 5}
    torch.save(GCN(12, 16, 5, 0.0).state_dict(), path)
    if harm == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        with zipfile.ZipFile(path) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in records.items():
                archive.writestr(name, damaged(harm, name, content))
    with pytest.raises(AssertionError, match=r"weights\.pt: (cannot be read as a torch file|holds a)") as failure:
        call("run", path, "unused", "unused", **sizes)
    assert reason in str(failure.value)


def test_a_record_larger_than_the_file_is_refused(tmp_path):
    """A zip file may claim that a few compressed bytes expand to many."""
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.zeros(1 << 22)}, path)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    with pytest.raises(AssertionError, match="its records are larger than the file"):
        call("run", path, "unused", "unused", name="gcn", features=12, classes=5)
