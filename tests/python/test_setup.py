"""tools/setup.sh on a machine without the packages: it must show what it does to the system."""

import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "tools" / "setup.sh"
APT = """#!/bin/sh
echo "apt-get was called with: $*"
echo "Unpacking something large"
case "$*" in *install*) exit 100;; esac
"""


@pytest.fixture
def machine(tmp_path):
    """A PATH with a shell and an apt-get that installs nothing, and no compiler."""
    for name in ("bash", "sh", "dirname", "id", "env", "uname", "cut"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name, text in {"apt-get": APT, "sudo": '#!/bin/sh\necho "as root: $*"\nexec "$@"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return {"PATH": str(tmp_path)}


def test_apt_is_announced_and_its_output_seen(machine):
    done = subprocess.run([SETUP], env=machine, capture_output=True, text=True, timeout=60)
    assert done.returncode == 100  # apt-get's failure ends the script
    lines = done.stdout.splitlines()
    assert any(line.startswith("setup: these packages are missing: g++ cmake ninja-build") for line in lines)
    assert any(line.startswith("setup: ") and line.endswith("apt-get update") for line in lines)
    install = next(i for i, line in enumerate(lines) if line.startswith("setup: ") and "apt-get install -y" in line)
    assert lines[install].endswith("python3-venv")
    assert "Unpacking something large" in lines[install:]
