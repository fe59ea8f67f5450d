"""serl on data of a user: which decisions are successes, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.core.errors import AssayError
from assay.datasets.dataset import Dataset
from assay.datasets.files import write
from assay.datasets.made import Random
from assay.engine.loop import Loop
from assay.runs.plan import make_plan
from assay.tasks.control.pendulum import pendulum


def falls() -> Dataset:
    """Returns random episodes of the pendulum that end with a terminal decision, as those of Hopper do."""
    data = Random(3, seed=1).make(pendulum())
    return replace(data, terminal=data.terminal | data.truncated, truncated=torch.zeros_like(data.truncated))


@pytest.mark.parametrize("method", ["serl", "hil-serl:classified"])
def test_data_with_ends_and_without_successes_are_refused(method: str, tmp_path: Path) -> None:
    plan = make_plan(method, "pendulum", data=[str(write(falls(), tmp_path / "falls.npz"))], steps=1)
    with pytest.raises(AssayError, match=r"no column 'success' \(3 decisions are terminal, which may be.* add to"):
        Loop(plan.recipe.before[0].recipe, plan.task, seed=0, num_steps=1)


def test_the_files_column_says_which_states_are_successes(tmp_path: Path) -> None:
    data = falls()
    solved = torch.arange(len(data)) % 7 == 0
    file = str(write(replace(data, success=solved), tmp_path / "solved.npz"))
    plan = make_plan("serl", "pendulum", data=[file], steps=1)
    loop = Loop(plan.recipe.before[0].recipe, plan.task, seed=0, num_steps=1)
    (columns,) = loop.states["sources"][0]["contents"].columns
    assert torch.equal(columns["success"][:, 0], solved)
    assert loop.step().metrics
