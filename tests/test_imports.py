"""What a run on a CPU loads: no result there depends on a GPU kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import sys
from dataclasses import replace
import assay.engine.loop
from assay.runs import catalogue
task = catalogue.find_task({task!r})
recipe = catalogue.recipe_for({method!r}, task, {{}})
assay.engine.loop.Loop(recipe, task, seed=0, num_steps=1).step()
kernels = ("assay.sampling", "assay.ops.triton_output", "assay.ops.packed_attention", "assay.engine.stacked", "triton")
print(sorted(name for name in sys.modules if name.startswith(kernels)))
"""


@pytest.mark.parametrize(("method", "task"), [("ppo", "cartpole"), ("grpo", "addition-1")])
def test_a_run_on_a_cpu_loads_no_kernel(method: str, task: str) -> None:
    program = RUN.format(method=method, task=task)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"
