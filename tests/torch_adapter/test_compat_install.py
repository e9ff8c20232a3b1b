"""Unchanged scripts of ActNN and GACT: their imports find actzip's stand-ins, and a command runs them."""

import os
import subprocess
import sys
import textwrap

import pytest

GACT_SCRIPT = """
    import argparse
    import torch
    import torch.nn.functional as F
    import gact
    from gact.controller import Controller
    from gact.utils import get_memory_usage, compute_tensor_bytes, exp_recorder

    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="L2")
    args = parser.parse_args()

    torch.manual_seed(0)
    gact.set_optimization_level(args.level)
    gact.set_adapt_interval(5)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, y = torch.randn(256, 64), torch.randint(8, (256,))
    controller = Controller(model)
    controller.install_hook()
    for iteration in range(10):
        def backprop():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        loss = backprop()
        optimizer.step()
        controller.iterate(backprop)
    controller.uninstall_hook()
    exp_recorder.record("loss", loss.item())
    exp_recorder.dump("results.json")
    print("finished", args.level, controller.report().plan.plans > 0)
"""

ACTNN_SCRIPT = """
    import torch
    import actnn
    from actnn import QModule, QScheme, config
    from actnn.layers import QConv2d, QReLU
    from actnn.utils import get_memory_usage
    import helper

    actnn.set_optimization_level("L2")
    config.activation_compression_bits = [8]
    model = QModule(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()))
    model(torch.randn(64, 64)).sum().backward()
    print(helper.NAME, type(model.model[0]).__module__, __name__, __file__)
"""


def run(folder, *arguments, check=True):
    result = subprocess.run([sys.executable, *arguments], cwd=folder, text=True, capture_output=True,
                            env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert not check or result.returncode == 0, result.stderr
    return result


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path.name


def test_a_gact_script_runs_unchanged(tmp_path):
    script = write(tmp_path / "train.py", GACT_SCRIPT)
    assert run(tmp_path, "-m", "actzip.compat", script, "--level", "L2.2").stdout.endswith("finished L2.2 True\n")
    assert "loss" in (tmp_path / "results.json").read_text()


def test_an_actnn_script_runs_unchanged(tmp_path):
    """It may import a module that lies beside it."""
    script = write(tmp_path / "train.py", ACTNN_SCRIPT)
    write(tmp_path / "helper.py", "NAME = 'beside'")
    output = run(tmp_path, "-m", "actzip.compat", script).stdout
    assert output == "beside actzip.compat.actnn.layers __main__ train.py\n"


def test_a_script_that_is_not_there(tmp_path):
    result = run(tmp_path, "-m", "actzip.compat", "none.py", check=False)
    assert result.returncode == 2 and "no file none.py (allowed: a Python script)" in result.stderr


def test_what_a_script_raises_is_what_one_sees(tmp_path):
    script = write(tmp_path / "train.py", "import gact\nraise SystemExit(7)\n")
    assert run(tmp_path, "-m", "actzip.compat", script, check=False).returncode == 7


def test_install_and_uninstall(tmp_path):
    run(tmp_path, "-c", textwrap.dedent("""
        import actzip.compat
        actzip.compat.install()
        import actnn, gact, gact.controller
        from actnn.conf import config
        import actzip.compat.actnn
        assert actnn is actzip.compat.actnn and config is actnn.config
        actzip.compat.install()  # again
        actzip.compat.uninstall()
        try:
            import actnn.conf
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError
        from actzip.compat.gact.controller import Controller
    """))


@pytest.mark.parametrize("force", [False, True])
def test_a_real_package_is_not_hidden_by_accident(tmp_path, force):
    write(tmp_path / "gact" / "__init__.py", "REAL = True")
    result = run(tmp_path, "-c", textwrap.dedent(f"""
        import actzip.compat
        actzip.compat.install(force={force})
        import gact
        assert not hasattr(gact, "REAL")
        actzip.compat.uninstall()
        import gact
        assert gact.REAL
    """), check=force)
    assert force or "there is a package 'gact' already; allowed: to uninstall it, or install(" in result.stderr
