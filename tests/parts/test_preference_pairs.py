"""What losses on pairs are made of, by hand, and runs on a file of pairs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.engine.loop import Loop
from assay.methods.orpo import log_odds
from assay.parts import mean_logp, pair_totals
from assay.rollouts.text import written
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import make_plan


def test_totals_and_means_of_pairs_by_hand() -> None:
    starts = torch.tensor([0, 0, 1, 1])
    batch = written([[1]] * 4, [[5, 2], [6, 7, 2], [8, 2], [9, 2]], starts, 0)
    batch = batch.add({"chosen": torch.tensor([1.0, -1.0, 0.0, 0.0])})
    logp = torch.tensor([[9.0, -1.0, -2.0, 9.0], [9.0, -1.0, -2.0, -6.0], [9.0, -1.0, -1.0, 9.0], [9.0] * 4])
    assert mean_logp(batch, logp).tolist() == [-1.5, -3.0, -1.0, 9.0]
    chosen, rejected, is_pair = pair_totals(batch, mean_logp(batch, logp))
    assert (chosen.tolist(), rejected.tolist(), is_pair.tolist()) == ([-1.5, 0.0], [-3.0, 0.0], [True, False])


def test_the_rows_of_an_episode_add_up_to_its_mean() -> None:
    batch = written([[1]] * 2, [[5, 2], [6, 7]], torch.tensor([0, 0]), 0)
    batch = replace(batch, episode=torch.tensor([0, 0]), segment=torch.tensor([0, 1]))
    assert float(mean_logp(batch, torch.full((2, 3), -2.0)).sum()) == -2.0


def test_log_odds() -> None:
    assert float(log_odds(torch.tensor(math.log(0.5)))) == pytest.approx(0.0, abs=1e-6)
    assert float(log_odds(torch.tensor(math.log(0.8)))) == pytest.approx(math.log(4.0))


@pytest.mark.parametrize("method", ["ipo", "simpo", "orpo"])
def test_a_file_of_pairs_is_trained_on(method: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": f"q{k}", "chosen": "yes", "rejected": "no way"} for k in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = RunOptions(language=LanguageOptions(prompts=4))
    plan = make_plan(method, str(tmp_path / "a.jsonl"), steps=6, warmup=0, options=options)
    loop = Loop(plan.recipe, plan.task, seed=0, num_steps=6)
    steps = [loop.step().metrics for _ in range(6)]
    assert steps[-1]["margin"] > steps[0]["margin"]
