"""Models with actzip's hooks can be copied, pickled and averaged like any others."""

import copy
import gc
import io
import pickle
import weakref

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.compat import actnn, fdmp, gact
from torch import nn
from torch.optim.swa_utils import AveragedModel

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")
X, Y = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 10


def network():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))


def with_session(model):
    model.session = actzip.Session(model)
    return model


WAYS = {
    "attach": lambda model: (actzip.attach(model), model)[1],
    "convert": actzip.convert,
    "session": with_session,
    "actnn": actnn.QModule,
    "division": fdmp.FDMP_Module,
}


def reports(model):
    """Returns the report of the session that keeps for a model, however it was set up."""
    if isinstance(model, (actnn.QModule, fdmp.FDMP_Module)):
        return actnn.session_of(model).report()
    if hasattr(model, "session"):
        return model.session.report()
    hooks = [getattr(hook, "__self__", hook) for hook in model._forward_pre_hooks.values()]
    return (hooks[0].session if hasattr(hooks[0], "session") else hooks[0].conversion.session).report()


def step(model):
    if hasattr(model, "session"):
        with model.session:
            loss = F.cross_entropy(model(X), Y)
    else:
        loss = F.cross_entropy(model(X), Y)
    loss.backward()


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)), "save": saved,
          "average": lambda model: AveragedModel(model).module}


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_trains_compressed(way, copies):
    model = WAYS[way](network())
    step(model)
    copied = COPIES[copies](model)
    assert all(torch.equal(value, copied.state_dict()[name]) for name, value in model.state_dict().items())
    model.zero_grad(), copied.zero_grad()
    step(copied)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in copied.parameters())
    report = reports(copied)
    assert report.bytes_before > 1.5 * report.bytes_after > 0
    step(model)


@pytest.mark.parametrize("copies", COPIES)
def test_a_model_under_a_controller_is_copied(copies):
    model = network()
    controller = gact.Controller(model)
    controller.install_hook()
    step(model)
    during = COPIES[copies](model)
    step(during)  # the hooks apply to everything that this thread saves
    controller.uninstall_hook()
    reference = weakref.ref(controller)
    del controller
    gc.collect()
    assert reference() is None and not model._forward_pre_hooks
    after = COPIES[copies](model)
    for copied in (during, after):
        step(copied)
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_an_attachment_to_a_loaded_model_names_its_sites():
    model = network()
    actzip.attach(model, bits=4)
    loaded = pickle.loads(pickle.dumps(model))
    step(loaded)
    report = reports(loaded)
    assert {site.module for site in report.sites} >= {"0", "1", "4"}
    assert "rotated:4" in {site.codec for site in report.sites}


def test_a_pickled_session_has_its_options_and_nothing_else():
    session = actzip.Session(network(), bits=1.5, rules={"0: *": "none"})
    made = pickle.loads(pickle.dumps(session))
    assert made.options == session.options and not made.report().sites and copy.deepcopy(session) is session
