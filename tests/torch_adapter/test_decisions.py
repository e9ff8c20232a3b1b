"""Compares the session's decisions for every saved tensor of many models with a recorded table, one line per site, so
that a change of the policy appears as a diff. Record it anew with ``python test_decisions.py``, and read the diff."""

import importlib
import itertools
from importlib.metadata import version
from pathlib import Path

import actzip
import models
import pytest
import test_models
import test_operators
import torch
import torch.nn.functional as F
from actzip.bench import models as bench_models

RECORDED = Path(__file__).parent / "decisions"
PRESETS = ("default", "exact", "division", "affine:2", "actnn:L1")
STEPS = 2  # in the second, it knows which results several operators save
#: Causes of sites without a line, because the policy did not decide about them.
LEFT_OUT = ("parameter", "small")


def line(site):
    return f"{site.site} | {site.use} | {site.codec} | {site.bytes_before} -> {site.bytes_after}"


def decisions(loss, session):
    for _ in range(STEPS):
        with session:
            value = loss()
        value.backward()
    return [line(site) for site in session.report().sites if site.cause not in LEFT_OUT]


def small_model(model_class, preset, convert=False):
    model, batch = models.make(model_class)
    if convert:
        actzip.convert(model, preset=preset)
    session = actzip.converted(model).session if convert else actzip.Session(model, preset=preset)
    return decisions(lambda: models.loss_of(model, batch), session)


def known_model(make):
    torch.manual_seed(0)
    model, loss = make()
    return decisions(loss, actzip.Session(model))


def half(loss):
    def run():
        with torch.autocast("cpu", torch.bfloat16):
            return loss().float()

    return run


def benchmarked(spec, batch):
    """A model of ``bench train`` in its own widths, with fewer layers and a small batch."""
    torch.manual_seed(0)
    model, data = spec.make(), spec.data(batch)
    return decisions(lambda: spec.loss(model, *data), actzip.Session(model))


def vision(name, batch, **sizes):
    """Runs a model as ``bench train`` does: bf16 by autocast, channels last."""
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForImageClassification")(getattr(transformers, f"{name}Config")(**sizes))
    model.to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch) % 2
    return decisions(half(lambda: F.cross_entropy(model(pixel_values=images).logits, labels)), actzip.Session(model))


def every_operator():
    """Returns operator.slot, use and codec of each operator in torch's own list, whatever the shape."""
    found = set()
    for op in test_operators.OPERATORS:
        samples = op.sample_inputs_func(op, "cpu", torch.float32, True)
        for sample in itertools.islice(samples, test_operators.SAMPLES):
            session = actzip.Session(min_elems=0)
            test_operators.gradients(op, sample, session)
            found |= {f"{site.op}.{site.slot} | {site.use} | {site.codec}" for site in session.report().sites
                      if site.cause != "parameter" and not site.codec.startswith(("index", "mask:", "shared"))}
    return sorted(found)


CASES = {
    **{f"{model.__name__} {preset}": lambda model=model, preset=preset: small_model(model, preset)
       for model in models.MODELS for preset in PRESETS},
    **{f"{model.__name__} converted": lambda model=model: small_model(model, "default", convert=True)
       for model in models.MODELS},
    **{name: lambda make=make: known_model(make) for name, (make, _) in test_models.MODELS.items()},
    "BERT-large": lambda: benchmarked(bench_models.bert(1, vocabulary=500, tokens=32), 4),
    "Llama, 1.1 billion": lambda: benchmarked(bench_models.llama(1, vocabulary=500, tokens=32), 2),
    "GCN, arxiv": lambda: benchmarked(bench_models.gcn(nodes=2000), 2000),
    "ResNet-50": lambda: vision("ResNet", 4, depths=[1, 2, 1, 1]),
    "Swin-T": lambda: vision("Swin", 4, image_size=64, window_size=4, depths=[1, 1, 2], num_heads=[3, 6, 12]),
    "operators": every_operator,
}
FILES = {name: RECORDED / f"{name.lower().replace(', ', '-').replace(' ', '-').replace(':', '')}.txt" for name in CASES}


def made_with():
    """The versions for which a table holds, because other versions of these models use operators differently."""
    packages = " ".join(f"{name} {version(name)}" for name in ("transformers", "torch_geometric"))
    return f"# torch {torch.__version__.split('+')[0]} {packages}"


def table(name):
    return "\n".join([made_with(), *CASES[name]()]) + "\n"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_decisions_are_those_recorded(name):
    recorded = FILES[name].read_text()
    if recorded.split("\n", 1)[0] != made_with():
        pytest.skip(f"recorded with other versions: {recorded.splitlines()[0]}")
    assert table(name).splitlines() == recorded.splitlines()


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    for each in CASES:
        FILES[each].write_text(table(each))
        print(FILES[each])
