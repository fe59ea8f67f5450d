"""What lies between the parts: who is shown what, which rows count, which starts are played. Each test failed under the
mistake that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay import recipes
from assay.core.record import Draw, Experience, Progress, State
from assay.core.slots import Prepare, Scene
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.parts.curricula.in_order import InOrder
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.explore import GaussianNoise
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.presets import CONTINUOUS, TABLE
from assay.runs import catalogue
from tests.scenes import feeding


@pytest.fixture
def files(tmp_path: Path) -> str:
    """A file of 20 training rows and one of 8 held-out ones."""
    names = []
    for name, words, num in (("train", "after", 20), ("test", "next of", 8)):
        rows = [json.dumps({"prompt": f"{words} {k}", "answer": str(k + 1)}) for k in range(num)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
        names.append(str(tmp_path / f"{name}.jsonl"))
    return ",".join(names)


@pytest.mark.parametrize("name", ["hazards", "sorting-3"])
def test_evaluation_plays_other_starts_than_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, splits = catalogue.find_task(name), list[int]()
    play = type(task).play

    def noted(self: Any, *args: Any, split: int, **more: Any) -> Experience:
        splits.append(split)
        return play(self, *args, split=split, **more)

    monkeypatch.setattr(type(task), "play", noted)
    loop = Loop(catalogue.recipe_for("reinforce", task, {"num_starts": 2}), task, seed=0, num_steps=1)
    loop.step()
    assert set(splits) == {0}
    evaluation.evaluate(loop.policy, task, num=2)
    assert splits[-1] == 1


@dataclass(frozen=True)
class Listening(Prepare):
    """Notes the metrics that it is shown after each step."""

    def init(self, scene: Scene) -> State:
        return {"shown": []}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience

    def updated(self, metrics: Mapping[str, float], state: State) -> None:
        state["shown"].append(dict(metrics))


def test_parts_of_credit_are_shown_the_metrics_of_every_step() -> None:
    recipe = recipes.rloo(TABLE)
    recipe = replace(recipe, credit=(*recipe.credit, Listening()))
    loop = Loop(recipe, catalogue.find_task("bandit"), seed=0, num_steps=2)
    steps = [loop.step(), loop.step()]
    shown = loop.states["credit"][-1]["shown"]
    assert len(shown) == 2
    assert all(one.items() <= step.metrics.items() for one, step in zip(shown, steps, strict=True))
    assert all(any(name.startswith("grad_norm") or "loss" in name for name in one) for one in shown), "those of updates"


def test_the_column_after_an_episodes_end_is_no_decision() -> None:
    task = catalogue.find_task("cartpole")
    recipe = replace(recipes.a2c(), rollout=Fragments(num_envs=8, steps=60))
    fresh = Loop(recipe, task, seed=0, num_steps=1).step().fresh
    assert fresh is not None
    over = (fresh.terminal | fresh.truncated)[:, :-2]
    assert int(over.sum()) > 8
    assert not bool((fresh.mask[:, 1:-1] & over).any()), "the action there is ignored by the simulation"
    assert bool(fresh.mask[:, :-1][:, 0].all())


def test_exploration_noise_stays_inside_the_bounds() -> None:
    task = catalogue.find_task("pendulum")
    actor = Loop(recipes.td3(CONTINUOUS), task, seed=0, num_steps=1).actor
    noisy = GaussianNoise(scale=5.0).wrap(actor, Scene(task), {})
    context = {"observation": torch.randn(64, 3, generator=torch.Generator().manual_seed(0))}
    uniform = torch.rand(64, noisy.num_draws, generator=torch.Generator().manual_seed(1)).clamp(0.01, 0.99)
    action, _ = noisy.act(context, uniform)
    low, high = (torch.tensor(side) for side in (task.spec.action.low, task.spec.action.high))  # type: ignore[union-attr]
    assert bool(((action >= low) & (action <= high)).all())
    assert bool((action == high).any()), "noise of this size reaches the bounds"


def test_rows_of_a_file_come_once_a_pass_in_an_order_of_the_seed(files: str) -> None:
    task = catalogue.find_task(files)

    def passes(seed: int) -> list[list[int]]:
        scene = Scene(task, draw=Draw(seed), progress=Progress(), num_starts=5)
        state = InOrder().init(scene)
        rows = np.concatenate([InOrder()(scene, state) for _ in range(8)]) % 20
        return [rows[:20].tolist(), rows[20:].tolist()]

    first, second = passes(0)
    assert sorted(first) == sorted(second) == list(range(20))
    assert len({tuple(order) for order in (first, second, range(20), passes(1)[0])}) == 4
    assert passes(0) == [first, second]


def test_minibatches_hold_whole_groups_and_every_row_once() -> None:
    recipe = recipes.grpo(TABLE).set("num_starts", 5).set("group_size", 3)
    loop = Loop(recipe, catalogue.find_task("bandit"), seed=0, num_steps=1)
    fresh = loop.step().fresh
    assert fresh is not None
    assert fresh.group is not None
    fresh = fresh.add({"place": torch.arange(len(fresh))})
    batches = list(FreshSequences(minibatches=2)(feeding(loop.task, fresh), {}))
    assert [torch.unique(one.group, return_counts=True)[1].tolist() for one in batches] == [[3, 3, 3], [3, 3]]
    assert sorted(int(row) for one in batches for row in one.column("place")) == list(range(15))
