"""Lightning on the CPU, in one process and in two."""

import actzip
import page
import pytest
import small
import torch
from processes import WORLD, check_in_two, needs_gloo
from torch.nn.functional import cross_entropy

lightning = pytest.importorskip("lightning")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.loss_fn = small.network(), cross_entropy

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return self.loss_fn(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def trainer(folder, **options):
    return lightning.Trainer(**{"max_steps": 3, "accelerator": "cpu", "devices": 1, "logger": False,
                                "enable_checkpointing": False, "enable_progress_bar": False,
                                "enable_model_summary": False, "default_root_dir": str(folder), **options})


def fit(package, folder, **options):
    names = {"actzip": package, "module": Module(), "trainer": trainer(folder, **options), "loader": small.loader(3)}
    page.run("Lightning", names)
    return page.weights(names["module"])


@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 3, "max_steps": 1}],
                         ids=["f32", "bf16", "accumulation"])
def test_attached(tmp_path, options):
    page.check(lambda package: fit(package, tmp_path, **options), 1.5 if options else 3)


@needs_gloo
def test_attached_in_two_processes(tmp_path):
    check_in_two(lambda rank, package: fit(package, tmp_path, strategy="ddp", devices=WORLD), tmp_path)


def test_scope_in_the_training_step(tmp_path):
    def train(package):
        names = {"actzip": package}
        page.run("Lightning", names, 1)
        module = type("Scoped", (Module,), {"training_step": names["training_step"]})()
        trainer(tmp_path).fit(module, small.loader(3))
        return page.weights(module)

    page.check(train, 3)


def test_attached_to_the_lightning_module_nothing_happens(tmp_path):
    module = Module()
    handle = actzip.attach(module)
    trainer(tmp_path).fit(module, small.loader(3))
    assert handle.report().steps == 0 and not handle.report().sites
