"""The command `actzip` of the Python package, as a user calls it."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import actzip
from actzip import console, torch_doctor

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ["doctor", "codecs", "report", "demo", "plan", "train", "dataset", "bench"]


@pytest.fixture
def without_program(monkeypatch, tmp_path):
    """Hides every built program: the working folder, PATH and the package are far from a build."""
    monkeypatch.delenv("ACTZIP_PROGRAM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(console, "__file__", str(tmp_path / "lib/actzip/console.py"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    """Returns status, output and error output."""
    try:
        status = console.main(list(map(str, arguments)))
    except SystemExit as end:  # argparse, for --help and --version
        status = end.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


# ---- the command line ------------------------------------------------------------------------------------------------


def test_help_names_every_command(capsys):
    status, text, errors = run(capsys, "--help")
    assert (status, errors) == (0, "")
    for name in COMMANDS:
        assert f"\n    {name} " in text


@pytest.mark.parametrize("arguments, what", [
    (["frobnicate"], "'frobnicate' is no command"), ([], "no command was given")])
def test_a_wrong_command_says_what_is_allowed(capsys, arguments, what):
    status, text, errors = run(capsys, *arguments)
    assert (status, text) == (2, "")
    assert errors.startswith(f"actzip: {what} (allowed: {', '.join(COMMANDS)})")


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"actzip {actzip.__version__}\n", "")


# ---- doctor ----------------------------------------------------------------------------------------------------------


def test_doctor_verifies_a_step(capsys):
    status, text, errors = run(capsys, "doctor")
    assert (status, errors) == (0, ""), text
    assert "broken" not in text
    for expected in (actzip.__version__, f"{torch.__version__} running", "in use: ", "CPU step", "'exact' at error 0"):
        assert expected in text


def test_doctor_finds_a_step_that_is_wrong(capsys, monkeypatch):
    right = torch_doctor.verify
    monkeypatch.setattr(torch_doctor, "verify", lambda *given, **options: right(*given, **{**options, "preset": "affine:1"}))
    status, text, _ = run(capsys, "doctor")
    assert status == 1
    assert "broken   CPU step" in text and "-> this is a fault" in text


def test_doctor_survives_a_step_that_raises(capsys, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("an operator is missing")

    monkeypatch.setattr(torch_doctor, "verify", fail)
    status, text, _ = run(capsys, "doctor")
    assert status == 1 and "RuntimeError: an operator is missing" in text


@pytest.mark.parametrize("built, problem, torch_cuda, is_available, state, text", [
    (False, "", None, False, "missing", "this torch is for the CPU"),
    (True, "", "13.0", False, "missing", "sees no GPU"),
    (False, "", "13.0", True, "broken", "no kernels in the extension"),
    (True, "the driver is too old", "13.0", True, "broken", "no kernel can run"),
])
def test_doctor_tells_what_cuda_lacks(built, problem, torch_cuda, is_available, state, text):
    finding = torch_doctor.check_cuda({"cuda_built": built, "cuda_problem": problem}, torch_cuda, is_available)
    assert finding.state == state and text in finding.text and finding.advice


# ---- codecs ----------------------------------------------------------------------------------------------------------


def test_codecs_lists_the_registry(capsys):
    status, text, errors = run(capsys, "codecs")
    assert (status, errors) == (0, "")
    for line in ("affine  ", "rotated  ", "index:bound=N", "rotated:B:mask", "How a spec is written:"):
        assert f"\n{line}" in text
    assert "unbiased" in text and "0.131" in text


@pytest.mark.skipif("ACTZIP_PROGRAM" not in os.environ, reason="ACTZIP_PROGRAM names no built program")
def test_codecs_are_those_of_the_program(capsys):
    _, text, _ = run(capsys, "codecs", "--json")
    done = subprocess.run([os.environ["ACTZIP_PROGRAM"], "codecs", "--json"], capture_output=True, check=True)
    assert json.loads(text) == json.loads(done.stdout)


# ---- report ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {}, {"dry": True}, {"preset": "actnn:L3"}, {"bits": 1.5, "interval": 2},
    {"adapt": "sample+layer", "use_gradient": True, "num_samples": 16, "interval": 2},
])
@pytest.mark.filterwarnings("ignore:actzip. compression adds more")
def test_a_saved_report_prints_as_the_session_prints_it(capsys, tmp_path, options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    session = actzip.Session(model, **options)
    for _ in range(5):
        if "use_gradient" in options:
            session.samples(range(16))
        with session:
            loss = model(torch.randn(16, 64, 64)).square().mean()
        loss.backward()
    report = session.report()
    assert "use_gradient" not in options or any(site.sample_bits for site in report.sites)
    for name, text in (("python.json", report.to_json()), ("core.json", session._core.report_json())):
        (tmp_path / name).write_text(text)
        assert run(capsys, "report", tmp_path / name) == (0, f"{report}\n", "")
        assert run(capsys, "report", "--all", tmp_path / name) == (0, f"{report.to_text(all=True)}\n", "")


@pytest.mark.parametrize("text, what", [
    ("{", "is no JSON"), ("[]", "is no report"), ("{}", "is no report"), ('{"sites": [{}]}', "is no report"),
    (None, "cannot read"), (b"\xff\xfe", "is no JSON"),
])
def test_what_is_no_report_is_named(capsys, tmp_path, text, what):
    path = tmp_path / "report.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, printed, errors = run(capsys, "report", path)
    assert (status, printed) == (1, "")
    assert what in errors and str(path) in errors


def test_a_report_with_a_wrong_value_is_named(capsys, tmp_path):
    fields = actzip.Session().report().to_dict()
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**fields, "bytes_after": "many"}))
    status, _, errors = run(capsys, "report", path)
    assert status == 1 and "holds a value that no report has: bytes_after is a str" in errors


# ---- what the C++ program does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["plan", "report.json", "--bits", "2"], ["train", "--help"], ["dataset"],
                                       ["bench", "codec", "--quick"]])
def test_without_the_program_the_message_says_how_to_build_it(capsys, without_program, arguments):
    status, text, errors = run(capsys, *arguments)
    assert (status, text) == (2, "")
    assert "is a command of the C++ program" in errors and "make build" in errors and "ACTZIP_PROGRAM" in errors


def test_pips_script_is_not_taken_for_the_program(without_program):
    for place in (without_program / "actzip", without_program / "build/bin/actzip"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!{sys.executable}\n")
        place.chmod(0o755)
    with pytest.raises(console.ConsoleError):
        console.find_program("plan")
    shutil.copy(shutil.which("true", path="/usr/bin:/bin"), without_program / "actzip")
    assert console.find_program("plan") == without_program / "actzip"


def test_a_wrong_program_is_named(capsys, monkeypatch):
    monkeypatch.setenv("ACTZIP_PROGRAM", "/nowhere/actzip")
    status, _, errors = run(capsys, "plan")
    assert status == 2 and "ACTZIP_PROGRAM is '/nowhere/actzip', which is no built program" in errors


@pytest.mark.parametrize("arguments", [["plan", "report.json", "--bits", "2"], ["train", "--help"],
                                       ["bench", "load", "-x"]])
def test_the_program_gets_the_command_line_as_it_is(arguments):
    echo = shutil.which("echo", path="/usr/bin:/bin")
    done = subprocess.run([sys.executable, "-m", "actzip", *arguments], env={**os.environ, "ACTZIP_PROGRAM": echo},
                          stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.split() == arguments


def test_bench_is_that_of_the_package(capsys):
    status, text, _ = run(capsys, "bench", "--help")
    assert status == 0 and "fidelity" in text and "sensitivity" in text


def test_bench_without_its_packages_says_what_to_install(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("actzip.bench")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    status, _, errors = run(capsys, "bench", "train")
    assert status == 1 and "'bench' needs numpy: pip install '.[bench]'" in errors


# ---- the script that pip installs ------------------------------------------------------------------------------------


def test_the_script_runs_the_console(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("actzip_script", ROOT / "python/actzip_script.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["actzip", "codecs", "--json"])
    assert script.main() == 0
    assert json.loads(capsys.readouterr().out)["codecs"]


@pytest.mark.parametrize("package, expected", [
    ("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')", "-> install torch, then"),
    ("raise ImportError('actzip was built against torch 2.11: install actzip again')", "install actzip again"),
    ("raise ImportError('_C.so: undefined symbol: _ZN2at')", "-> install actzip again beside this torch"),
])
def test_an_actzip_that_cannot_be_imported_says_what_to_do(tmp_path, package, expected):
    (tmp_path / "actzip").mkdir()
    (tmp_path / "actzip/__init__.py").write_text(package)
    shutil.copy(ROOT / "python/actzip_script.py", tmp_path)
    done = subprocess.run([sys.executable, tmp_path / "actzip_script.py", "doctor"], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert expected in done.stderr
