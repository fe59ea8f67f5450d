"""Recurrent bodies: the cells of torch, a state that begins where an episode does, and tasks that need memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Need
from assay.core.slots import Ask, Scene
from assay.engine.loop import Loop
from assay.models import Gru, Lstm, Perceptron
from assay.models.bodies.recurrent import GruCell, LstmCell, Recurrence
from assay.parts import Fragments
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE
from assay.runs.options.own import BUILT_IN
from assay.runs.run import train
from assay.runs.user_code.body import RECURRENT, with_body
from assay.tasks.control.recall import LENGTH, cartpole_positions, pendulum_positions, t_maze
from assay.tasks.control.stepping import Scripted

CELLS = {GruCell: nn.GRU, LstmCell: nn.LSTM}
by_cell = pytest.mark.parametrize("kind", CELLS)


def small(recipe: Recipe, word: str = "gru", steps: int = 4, width: int = 8) -> Recipe:
    """The recipe with a small recurrent body."""
    changed = with_body(recipe, word)
    for model in ("actor", "value" if "value" in changed.critics else "q"):
        changed = changed.set(f"{model}.width", width).set(f"{model}.body.steps", steps)
        changed = changed.set(f"{model}.hidden", (width,))
    return changed


@by_cell
def test_a_cell_is_that_of_torch(kind: type[Recurrence]) -> None:
    torch.manual_seed(0)
    cell, theirs = kind(5, 3).double(), CELLS[kind](5, 3, batch_first=True).double()
    with torch.no_grad():
        for mine, name in ((cell.enter, "ih"), (cell.again, "hh")):
            mine.weight.copy_(getattr(theirs, f"weight_{name}_l0"))
            mine.bias.copy_(getattr(theirs, f"bias_{name}_l0"))
    rows = torch.randn(4, 7, 5, dtype=torch.float64)
    found = cell(rows, torch.ones(4, 7, dtype=torch.bool))
    assert torch.allclose(found, theirs(rows)[0][:, -1], atol=1e-12)


@by_cell
def test_decisions_that_are_not_there_leave_the_state_as_it_is(kind: type[Recurrence]) -> None:
    torch.manual_seed(1)
    cell, rows = kind(5, 3).double(), torch.randn(2, 4, 6, 5, dtype=torch.float64)
    there = torch.tensor([False, False, False, True, True, True]).expand(2, 4, 6)
    assert torch.equal(cell(rows, there), cell(rows[:, :, 3:], there[:, :, 3:]))
    assert not cell(rows, torch.zeros_like(there)).any()


@pytest.mark.parametrize("body", [Gru(Perceptron((8,)), steps=5, width=4), Lstm(Perceptron((8,)), steps=5, width=4)])
def test_in_the_first_decision_of_an_episode_the_state_is_the_initial_one(body: Any) -> None:
    """Whatever came before it in the row of a fragment, and whatever other rows hold."""
    task = t_maze().remembering(body.reads_history)
    torch.manual_seed(0)
    net = body.outputs(task.spec, Ask((2,)))
    simulation = task.simulate(3)
    contexts = [simulation.reset(np.arange(3))]
    for _ in range(2 * LENGTH + 6):
        contexts.append(simulation.step(torch.ones(3, dtype=torch.int64))[0])
    begins = [context for context in contexts if not context["past"].any()]
    assert len(begins) == 3  # the start, and after two ends
    for context in begins:
        alone = {"observation": context["observation"]}
        assert torch.equal(net(context), net(alone))
    middle = contexts[5]
    one = {name: value[1:2] for name, value in middle.items()}
    assert torch.allclose(net(middle)[1:2], net(one), atol=1e-6)
    assert not torch.allclose(net(middle), net({"observation": middle["observation"]}), atol=1e-4)


@pytest.mark.parametrize("word", ["gru", "lstm"])
def test_a_fragment_is_scored_as_it_was_sampled_across_ends_of_episodes(word: str) -> None:
    loop = Loop(small(recipes.ppo(CONTROL), word), t_maze(), seed=0, num_steps=1)
    scene = Scene(loop.task, actor=loop.actor, draw=Draw(3))
    rollout = Fragments(4, 30)
    record = rollout(scene, rollout.init(scene))
    assert int(record.terminal.sum()) >= 8
    scored = loop.actor.score(record, frozenset({Need.LOGP}))
    assert torch.allclose(scored.logp, record.logp, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "task"),
    [(lambda: recipes.ppo(CONTROL), t_maze()), (lambda: recipes.sac(CONTINUOUS), pendulum_positions())],
    ids=["ppo", "sac"],
)
def test_an_interrupted_run_continues_bitwise(
    make: Any, task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(make())
    recipe = recipe.set("rollout.steps", 16)
    if "q" in recipe.critics:
        recipe = recipe.set("source.warmup", 16).set("source.batch", 16).set("source.updates", 2)
    whole = train(recipe, task, steps=4, out=tmp_path / "whole", evaluations=0)
    steps, go = [0], Loop.step

    def failing(loop: Loop) -> Any:
        steps[0] += 1
        if steps[0] == 3:
            raise OSError("the disk went away")
        return go(loop)

    monkeypatch.setattr(Loop, "step", failing)
    with pytest.raises(OSError, match="disk"):
        train(recipe, task, steps=4, out=tmp_path / "broken", evaluations=0, save_every="1steps")
    monkeypatch.setattr(Loop, "step", go)
    again = train(recipe, task, steps=4, out=tmp_path / "broken", evaluations=0, save_every="1steps")
    for name, model in whole.models.items():
        for own, other in zip(model.parameters(), again.models[name].parameters(), strict=True):
            assert torch.equal(own, other)


def test_networks_on_vectors_get_a_recurrent_body_and_others_are_refused() -> None:
    assert set(RECURRENT) == set(BUILT_IN)
    recipe = with_body(recipes.sac(CONTINUOUS), "lstm")
    plain: Any = recipes.sac(CONTINUOUS)
    assert recipe.actor.body == Lstm(plain.actor.body)  # type: ignore[attr-defined]
    assert recipe.critics["q"].body == Lstm(plain.critics["q"].body)  # type: ignore[attr-defined]
    with pytest.raises(AssayError, match="stands around a network on vectors"):
        with_body(recipes.grpo(LANGUAGE), "gru")
    wide = replace(CONTINUOUS, off_policy=replace(CONTINUOUS.off_policy, standardised=True))
    with pytest.raises(AssayError, match="standardised"):
        with_body(recipes.sac(wide), "gru")
    for wrong in (Gru(width=0), Gru(steps=1)):
        with pytest.raises(AssayError, match="remember nothing"):
            wrong.outputs(t_maze().spec, Ask((2,)))


# ------------------------------------------------------------------------------------------------------------- tasks
def test_in_the_t_maze_a_policy_without_memory_has_one_half_and_one_with_it_everything() -> None:
    task, starts = t_maze(), np.arange(400)
    for action in (0, 1):
        played = task.play(always(action), starts, np.zeros(400, np.int64), Draw(0), split=1, greedy=True)
        assert played.mask.sum(1).tolist() == [LENGTH + 1] * 400
        assert abs(float(played.reward.sum()) / 400 - 0.5) < 0.08
        cue = played.context["observation"][:, 0, 0]
        assert torch.equal(played.reward.sum(1), ((2 * action - 1) * cue > 0).float())
        later = played.context["observation"][:, 1 : LENGTH + 1]
        assert torch.equal(later, later[:1].expand_as(later))  # alike after both cues


def always(action: int) -> Scripted:
    """The policy of one action."""
    return Scripted(lambda context: torch.full((len(context["observation"]),), action))


@pytest.mark.parametrize("make", [t_maze, cartpole_positions, pendulum_positions])
def test_on_a_device_these_tasks_are_the_same(make: Any) -> None:
    task = make()
    here, there = task.simulate(5), task.on("cpu").simulate(5)
    seeds, draw = np.arange(5), np.random.default_rng(0)
    assert same(here.reset(seeds), there.reset(seeds))
    for _ in range(40):
        action = torch.from_numpy(draw.integers(0, 2, 5))
        action = action if hasattr(task.spec.action, "n") else action.float().unsqueeze(1) - 0.5
        (one, reward, ends, *_), (two, paid, over, *_) = here.step(action), there.step(action)
        assert same(one, two)
        assert torch.allclose(reward, paid, atol=1e-5)
        assert torch.equal(ends, over)


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    """Whether two contexts agree to rounding."""
    return all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


@pytest.mark.slow
def test_ppo_with_a_recurrent_body_remembers_the_cue_and_without_one_it_cannot() -> None:
    scores = []
    for recipe in (recipes.ppo(CONTROL), small(recipes.ppo(CONTROL), steps=LENGTH + 1, width=32)):
        loop = Loop(recipe, t_maze(), seed=0, num_steps=15)
        for _ in range(15):
            loop.step()
        starts = np.arange(200)
        played = loop.task.play(loop.policy, starts, np.zeros(200, np.int64), Draw(0), split=1, greedy=True)
        scores.append(float(played.reward.sum()) / 200)
    assert scores[0] < 0.62
    assert scores[1] > 0.95
