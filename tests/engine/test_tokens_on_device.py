"""Language methods on a device that is not the CPU: nothing of a step is left on the host, or read from the wrong side.

That the numbers are those of the CPU is tried on GPUs (`test_gpu.py`).
"""

from __future__ import annotations

import pytest

from assay.core.spaces import Vocabulary
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.runs import catalogue
from tests.far_device import far_device, near, register
from tests.methods.test_methods import small_recipe

USUAL = ["adcl-egsr", "dpo", "gkd:supervised", "grpo", "ma-rlhf", "scope", "sft"]
"""Ways of gathering and scoring that differ; with --all-cases every method and variant."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case a method."""
    names = USUAL
    if metafunc.config.getoption("--all-cases"):
        found = catalogue.methods()
        names = sorted([*found, *(f"{key}:{one}" for key, method in found.items() for one in method.variants)])
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", names)


@pytest.mark.skipif(not register(), reason="runs in a process of its own (test_devices.py)")
def test_a_step_stays_on_its_device(name: str) -> None:
    address = catalogue.methods()[name.partition(":")[0]].default_task
    task = catalogue.find_task(address)
    if not isinstance(task.spec.action, Vocabulary):
        pytest.skip("is not about tokens")
    recipe = small_recipe(name, address)
    with far_device() as far:
        loop = Loop(recipe, task, seed=0, num_steps=2, placement=Placement(far))
        loop.step()
        after = [flat.values for flat in loop.engine.flats.values()]
        assert all(one.device.type == "far" for one in after)
        assert all(near(one).isfinite().all() for one in after)
