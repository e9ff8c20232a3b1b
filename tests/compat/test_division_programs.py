"""Runs programs like DIVISION's trainer, whose package is a folder of modules with common names."""

import sys

import actzip.compat
import pytest
import torch
from actzip.compat import fdmp
from torch import nn


def sites(names):
    return {site.site.removeprefix("module.model."): site.codec for site in fdmp.session_of(names["model"]).report().sites}


@pytest.mark.parametrize("clone", [False, True])
def test_the_trainer(program, tmp_path, clone):
    if clone:  # DIVISION's own folder, whose modules need compiled extensions
        (tmp_path / "fdmp").mkdir()
        for name in ("conf", "module", "layers", "utils"):
            (tmp_path / "fdmp" / f"{name}.py").write_text("import cpp_extension.quantization")
    names = program("division_cifar")
    assert sum(names["losses"][-4:]) < 0.5 * sum(names["losses"][:4]) and names["accuracy"] > 0.9
    found = sites(names)
    assert found["1.bn2: batch_norm.input"].startswith("dual:2") and found["0: convolution.input"].startswith("dual:2")
    assert found["8: addmm.mat1"] == "as is"  # linear layers are not compressed
    report = fdmp.session_of(names["model"]).report()
    assert report.bytes_before > 4 * report.bytes_after
    assert "Division" in (tmp_path / "log.json").read_text() and "conf" not in sys.modules


def test_its_options(program):
    names = program("division_cifar", "--hfc_bit_num", 4, "--lfc_block", 4, "--epochs", 1, "-hf")
    assert fdmp.session_of(names["model"]).report().preset == "division:4:block=4"
    assert sites(names)["1.bn2: batch_norm.input"].startswith("dual:4")
    assert program("division_cifar", "--vanilla", "--epochs", 1)["losses"]


def network():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3))


def test_fields(capsys):
    x = torch.randn(8, 3, 16, 16)

    def codecs(**fields):
        fdmp.config.reset()
        for name, value in fields.items():
            setattr(fdmp.config, name, value)
        model = fdmp.FDMP_Module(network())
        model(x).sum().backward()
        return {site.site: site.codec for site in fdmp.session_of(model).report().sites}, model

    found, model = codecs(compress_bn_input=False)
    assert type(model.model[1]) is nn.BatchNorm2d and found["model.1: native_batch_norm.input"] == "as is"
    assert not [codec for codec in codecs(compress_activation=False)[0].values() if codec.startswith("dual")]
    assert not [codec for codec in codecs(non_quant=True)[0].values() if codec.startswith("dual")]
    model.eval()
    assert not fdmp.config.train and list(model.state_dict()) == list(network().state_dict())
    for field in ("rm_lfc", "simulate", "deter_round"):
        with pytest.warns(UserWarning, match=f"fdmp.config.{field} has no effect"):
            setattr(fdmp.QuantizationConfig(), field, True)
    with pytest.raises(ValueError, match="lfc_block = 7 .allowed: 2, 4"):
        fdmp.config.lfc_block = 7
    with pytest.raises(TypeError, match="group"):
        fdmp.FDMP_Conv2d(3, 8, 3, 1, 0, 1, 1, True, "zeros", "cpu")


def test_modules_of_the_program_go_before(tmp_path, monkeypatch):
    """The program's own modules have precedence, because conf, utils and the like are common names."""
    (tmp_path / "conf.py").write_text("MINE = True")
    monkeypatch.setattr(sys, "path", list(sys.path))
    actzip.compat.install()
    try:
        sys.path.append(str(tmp_path))  # later than ours
        import conf
        import module

        assert conf.MINE and module.FDMP_Module is fdmp.FDMP_Module
    finally:
        actzip.compat.uninstall()
        sys.modules.pop("conf", None)
    assert "module" not in sys.modules
