"""What every test starts from: one thread, deterministic kernels, a fixed seed, no hypothesis files in the checkout."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; processes that tests start inherit it
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis.configuration import set_hypothesis_home_dir

from assay.runs import result
from tests import sketched, warm

SHARED = Path(__file__).resolve().parents[2] / "shared"

os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"assay-state-{os.getuid()}")
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / f"assay-hypothesis-{os.getuid()}")
options = {"deadline": None, "database": None, "print_blob": True}
hypothesis.settings.register_profile("dev", max_examples=25, **options)
hypothesis.settings.register_profile("ci", max_examples=40, derandomize=True, **options)
hypothesis.settings.register_profile("all", max_examples=200, derandomize=True, **options)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

if sys.version_info < (3, 12):  # which computes what a protocol needs once, and not in every isinstance
    typing._get_protocol_attrs = cache(typing._get_protocol_attrs)
warm.serve()
torch.set_num_threads(1)
if os.environ.get("ASSAY_TEST_ONEDNN") == "off":  # one of the CPUs that `make test-isa` stands in for
    torch.backends.mkldnn.enabled = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all-cases`: methods train in each of their worlds, every run of tests/resume is killed, and tests that are
    marked `all_cases` run.
    """
    parser.addoption("--all-cases", action="store_true", help="every world of a method, every run that can be killed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked `all_cases`, unless it is asked for."""
    if not config.getoption("--all-cases"):
        left_out = [item for item in items if item.get_closest_marker("all_cases")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("all_cases")]


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Every test begins with the same global torch and numpy state and leaves none behind."""
    dtype, has_onednn = torch.get_default_dtype(), torch.backends.mkldnn.enabled
    torch.default_generator.manual_seed(0)  # manual_seed formats a stack trace for each device that is not there
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    np.random.seed(0)  # noqa: NPY002 - the legacy stream is what a careless import would use
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms imports the compiler, 1.6 cpu-seconds
    yield
    torch.set_default_dtype(dtype)
    torch.backends.mkldnn.enabled = has_onednn
    torch.set_num_threads(1)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw their learning curves, as they do for users."""
    monkeypatch.setattr(result, "draw_curve", sketched.draw_curve)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data is not on this machine (looked in {SHARED})")
    return SHARED
