"""What a run on a CPU loads: no result there depends on a GPU kernel."""

from __future__ import annotations

import subprocess
import sys

RUN = """
import sys
from dataclasses import replace
import assay.engine.loop
from assay.runs import catalogue
for method, name in (("ppo", "cartpole"), ("grpo", "addition-1")):
    task = catalogue.find_task(name)
    assay.engine.loop.Loop(catalogue.recipe_for(method, task, {}), task, seed=0, num_steps=1).step()
kernels = ("assay.decoding.fast", "assay.decoding.kernels", "assay.decoding.triton", "assay.ops.triton_output",
            "assay.ops.packed_attention", "assay.engine.stacked", "triton")
print(sorted(name for name in sys.modules if name.startswith(kernels)))
"""


def test_a_run_on_a_cpu_loads_no_kernel() -> None:
    found = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"
