"""On a GPU: the same update as on the CPU, and a run from sampling to evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import assay
from assay import bases, catalogue
from assay.actors.transformer import Transformer
from assay.engine import Placement
from assay.loop import Loop
from assay.report.progress import Mode

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
SMALL = Transformer(width=32, layers=2, heads=2)


@pytest.mark.parametrize("name", ["grpo", "ppo", "dpo", "sft"])
def test_a_step_on_the_gpu_is_the_step_on_the_cpu(name: str) -> None:
    task = catalogue.find_task("sorting-3")
    recipe = replace(catalogue.recipe_for(name, task, {}), actor=SMALL)
    weights = []
    for device in ("cpu", "cuda"):
        loop = Loop(recipe, task, seed=0, num_steps=2, placement=Placement(device, micro_batch=24))
        step = loop.step()
        assert not step.alarms
        weights.append(loop.engine.flats["actor"].values.cpu())
    start = Loop(recipe, task, seed=0, num_steps=2).engine.flats["actor"].values
    moved, apart = (weights[0] - start).norm(), (weights[0] - weights[1]).norm()
    assert apart <= 0.02 * moved, "the same samples and gradients up to rounding"


def test_a_run_on_the_gpu_ends_with_a_score(tmp_path: Path) -> None:
    recipe = replace(bases.grpo(), actor=SMALL)
    run = assay.train(
        recipe, "sorting-3", steps=3, warmup=20, out=tmp_path, placement=Placement("cuda"), mode=Mode.SILENT
    )
    assert run.after.count == 256
