"""The tests that need a device which is not the CPU, in processes of their own: the device of tests is registered for
good, see `tests/far_device.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

from tests.far_device import ALONE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["test_control_on_device.py", "test_tokens_on_device.py"])
def test_nothing_is_left_on_the_host(name: str, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/engine/{name}"]
    command += ["--all-cases"] * bool(request.config.getoption("--all-cases"))
    here = {one: value for one, value in os.environ.items() if not one.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=here | {ALONE: "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    can = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
    assert not can or "runs in a process of its own" not in done.stdout, "none of them is left out where torch can"
