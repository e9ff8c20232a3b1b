"""Levels of ActNN and GACT as presets. Each is distinguished from the others by what it keeps."""

import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.levels import LEVELS
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


class Net(nn.Module):
    """Has the layers that ActNN supports. Its parts matter to different degrees, and so do the samples."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc1, self.drop, self.fc2 = nn.Linear(16 * 8 * 8, 64), nn.Dropout(0.1), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)) + 0.1 * self.conv3(x))
        return self.fc2(self.drop(F.relu(self.fc1(x.flatten(1)))))


GENERATOR = torch.Generator().manual_seed(1)
X, Y = torch.randn(64, 3, 16, 16, generator=GENERATOR), torch.arange(64) % 10
X *= torch.logspace(-1, 1, 64)[torch.randperm(64, generator=GENERATOR), None, None, None]


def kept(preset, steps=6, **options):
    torch.manual_seed(0)
    model = Net()
    session = actzip.Session(model, preset=preset, **options)
    for _ in range(steps):  # the second is observed, and the plan exists before the fifth
        model.zero_grad()
        with session:
            loss = F.cross_entropy(model(X), Y)
        loss.backward()
    return session.report()


def family(site):
    return site.codec.split(":")[0]


def values(report):
    """The sites that keep values, by name."""
    return {site.site: site for site in report.sites if family(site) in ("rotated", "affine") or
            (site.codec == "as is" and site.bytes_after >= 4096 and site.dtype == "f32")}


def bits_of(site):
    """Bits per element, without the mask plane."""
    plane = 1 if site.codec.endswith(":mask") else 0
    return 8 * site.bytes_after / torch.Size(site.shape).numel() - plane


@pytest.fixture(scope="module")
def reports():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: kept(name) for name in LEVELS}


def test_all_levels_train(reports):
    assert list(reports) == ["actnn:L0", "actnn:L1", "actnn:L2", "actnn:L2.5", "actnn:L3", "actnn:L3.1", "actnn:L4",
                             "actnn:L5", "actnn:swap", "gact:L0", "gact:L1", "gact:L1.1", "gact:L1.2", "gact:L2",
                             "gact:L2.1", "gact:L2.2", "gact:L3", "gact:swap", "gact:L4bit-swap"]
    assert all(report.preset == name and report.live_bytes == 0 for name, report in reports.items())


def test_bytes_fall_from_level_to_level(reports):
    held = {name: report.bytes_after for name, report in reports.items()}
    plain = reports["actnn:L0"].bytes_before
    assert plain > held["actnn:L0"] > 1.2 * held["actnn:L1"] > 1.5 * held["actnn:L2"] > 1.5 * 1.4 * held["actnn:L3"]
    assert held["actnn:L2.5"] < 1.1 * held["actnn:L3"] and plain > 9 * held["actnn:L3"]
    assert held["gact:L0"] > held["gact:L1.1"] > 1.5 * held["gact:L1"] > 1.3 * 1.5 * held["gact:L1.2"]
    assert held["gact:L2"] > 1.15 * held["gact:L2.1"] > 1.2 * 1.15 * held["gact:L2.2"]


@pytest.mark.parametrize("level, layers, norms", [
    ("actnn:L0", 32, 32), ("actnn:L1", 4, 32), ("actnn:L2", 4, 4), ("gact:L0", 32, 32), ("gact:L1", 4, 4),
    ("gact:L1.1", 8, 8), ("gact:L1.2", 2, 2), ("actnn:swap", 32, 32), ("gact:L4bit-swap", 4, 4)])
def test_fixed_bits_are_those_of_the_table(reports, level, layers, norms):
    sites = values(reports[level])
    assert bits_of(sites["norm1: native_batch_norm.input"]) == pytest.approx(norms, abs=0.2)
    for name in ("conv1: convolution.input", "conv2: convolution.input"):
        assert bits_of(sites[name]) == pytest.approx(layers, abs=0.2), name
    assert {family(site) for site in reports[level].sites if site.slot == "aux0" and "pool" in site.op} == {"index"}


@pytest.mark.parametrize("level, bits", [
    ("actnn:L2.5", 2), ("actnn:L3", 2), ("actnn:L3.1", 2), ("gact:L2", 4), ("gact:L2.1", 3), ("gact:L2.2", 2)])
def test_bits_on_average_are_those_of_the_table(reports, level, bits):
    sites = values(reports[level]).values()
    elems = [torch.Size(site.shape).numel() for site in sites]
    average = sum(bits_of(site) * n for site, n in zip(sites, elems)) / sum(elems)
    assert bits - 0.4 < average < bits + 0.4
    if "layer" in LEVELS[level].adapt:
        assert reports[level].plan.budget_bits == bits and reports[level].plan.plans > 0


def test_layers_that_matter_more_get_more_bits(reports):
    """Levels with a plan spread their bits; other levels give all sites the same."""
    for level in ("actnn:L3", "gact:L2", "gact:L2.2"):
        planned = [site for site in reports[level].sites if site.sensitivity is not None]
        assert len({round(bits_of(site)) for site in planned}) > 1, reports[level].text
    for level in ("actnn:L2", "gact:L1"):
        assert reports[level].plan is None and {round(bits_of(s)) for s in values(reports[level]).values()} == {4}


def test_samples_that_matter_more_get_more_bits(reports):
    for level in ("actnn:L2.5", "actnn:L3"):
        spreads = [site.sample_bits for site in reports[level].sites if site.sample_bits is not None]
        assert spreads and any(spread.fewest < spread.most for spread in spreads), reports[level].text
    for level in ("actnn:L2", "gact:L2"):
        assert all(site.sample_bits is None for site in reports[level].sites)


def of_layers(preset):
    """Trains a converted model for a few steps. Returns the model and its report."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16 * 8 * 8, 10))
    actzip.convert(model, preset=preset)
    for _ in range(6):
        model.zero_grad()
        F.cross_entropy(model(X), Y).backward()
    return model, actzip.session_of(model).report()


def test_converted_models_have_levels_too():
    held = {level: of_layers(f"actnn:{level}")[1].bytes_after for level in ("L0", "L1", "L2", "L3")}
    assert held["L0"] > 1.3 * held["L1"] > 1.3 * 1.3 * held["L2"] > 1.3**3 * held["L3"]
    model, report = of_layers("actnn:L3.1")
    assert actzip.conversion_of(model).pipeline_threshold == 3 * 2**30 and report.preset == "actnn:L3.1"
    assert report.plan.plans > 0 and any(site.sample_bits is not None for site in report.sites)
    assert actzip.conversion_of(of_layers("actnn:L3")[0]).pipeline_threshold == 0
    actzip.convert(model, preset="actnn:L3.1", pipeline_threshold=5)
    assert actzip.conversion_of(model).pipeline_threshold == 5


def test_bits_of_a_level_can_be_chosen():
    assert kept("actnn:L3", bits=1.5).plan.budget_bits == 1.5
    assert values(kept("actnn:L2", bits=8))["norm1: native_batch_norm.input"].codec == "affine:8:dithered"
    nearest = values(kept("actnn:L2", codec="affine:nearest"))
    assert nearest["norm1: native_batch_norm.input"].codec == "affine:4:nearest"


def test_levels_with_a_host_part_say_once_what_runs(monkeypatch):
    monkeypatch.setattr("actzip.levels._warned", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="'actnn:L4' moves.*to host memory, and there is no GPU.*runs as 'actnn:L3'"):
        report = kept("actnn:L4", steps=1)
    assert report.runs_as == "actnn:L3" and "run as 'actnn:L3'" in report.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept("actnn:L4", steps=1)
        assert kept("actnn:L3", steps=1).runs_as == ""


def test_an_unknown_level_names_the_known_ones():
    with pytest.raises(ValueError, match="level 'actnn:L6' .allowed: actnn:L0, actnn:L1, .*actnn:swap.$"):
        actzip.Session(preset="actnn:L6")
