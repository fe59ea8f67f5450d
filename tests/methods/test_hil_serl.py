"""hil-serl: an overseer of a user's own, what is refused, and a run that is resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Origin, Progress
from assay.core.schedules import Linear
from assay.core.slots import Scene
from assay.core.spaces import Context
from assay.engine.loop import Loop
from assay.methods.hil_serl import NoProgress, Offered, Overseen, cloning, recipe
from assay.parts.rollouts.episodes import Fragments
from assay.recipes.presets import CONTINUOUS
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.peg import peg


def leftwards(context: Context) -> Tensor:
    """An overseer of a user's own."""
    return torch.tensor([-1.0, 0.0]).expand(len(context["observation"]), 2)


def gathered(rollout: Any, task: Any = None, calls: int = 5, seed: int = 0) -> list[Experience]:
    """What a rollout gives in several calls, with a small random policy."""
    task = task or peg()
    scene = Scene(task, actor=probes.small_policy(task), draw=Draw(seed))
    state = rollout.init(scene)
    return [rollout(scene.given(draw=Draw(seed, (call,))), state) for call in range(calls)]


def test_progress_is_measured_along_the_overseers_action() -> None:
    shown = torch.tensor([[1.0, 0.5]] * 4 + [[0.0, 0.0]])
    proposed = torch.tensor([[1.0, 0.5], [0.5, -1.0], [0.5, -1.01], [0.0, 0.5], [-1.0, -1.0]])
    assert NoProgress()(proposed, shown).tolist() == [False, False, True, False, False]
    assert NoProgress(least=0.5)(proposed, shown).tolist() == [False, True, True, True, False]  # below 0.625
    assert NoProgress()(torch.tensor([0, 1, 2]), torch.tensor([0, 2, 2])).tolist() == [False, True, False]


def test_a_users_own_function_takes_over() -> None:
    found = gathered(Overseen(Fragments(3, 16), expert=leftwards, patience=1))
    taken = torch.cat([one.action[one.extra["intervened"]] for one in found])
    assert len(taken) > 20
    assert torch.equal(taken, torch.tensor([-1.0, 0.0]).expand_as(taken))


def test_choices_are_overseen_too() -> None:
    found = gathered(Overseen(Fragments(3, 16), patience=1, stretch=2), cartpole())
    acts = torch.cat([one.extra["intervened"] for one in found])
    assert 0 < int(acts.sum()) < int(torch.cat([one.mask for one in found]).sum())


def test_the_chance_of_a_takeover_belongs_to_instance_and_time() -> None:
    half = Overseen(Fragments(2, 16), patience=1, stretch=1, rate=0.5, expert=leftwards)
    shares = [
        float(torch.cat([one.extra["intervened"] for one in gathered(part)]).float().mean())
        for part in (half, replace(half, rate=1.0))
    ]
    assert 0 < shares[0] < shares[1]
    one, two = gathered(half, seed=1), gathered(half, seed=1)
    assert all(torch.equal(a.extra["intervened"], b.extra["intervened"]) for a, b in zip(one, two, strict=True))


def test_the_rate_may_follow_a_schedule() -> None:
    base = recipe()
    falling = replace(base, rollout=replace(base.rollout, rate=Linear(1.0, 0.0)))  # type: ignore[type-var]
    falling.check()
    rates = [falling.at(Progress(step=step, num_steps=10)).rollout.rate for step in (0, 5, 10)]  # type: ignore[union-attr]
    assert rates == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("expert", "says"),
    [
        (lambda context: torch.zeros(len(context["observation"])), r"shape \(2,\).*\(2, 2\)"),
        (lambda context: torch.tensor([[0.0, torch.nan]] * 2), "not finite.*NaN in the whole row"),
        (lambda context: torch.full((2, 2), torch.inf), "not finite"),
    ],
)
def test_an_overseer_without_actions_is_refused(expert: Any, says: str) -> None:
    with pytest.raises(AssayError, match=says):
        gathered(Overseen(Fragments(2, 4), expert=expert))


@pytest.mark.parametrize("expert", [lambda context: None, lambda context: torch.full((2, 2), torch.nan)])
def test_an_overseer_who_offers_nothing_leaves_every_decision_to_the_policy(expert: Any) -> None:
    rules = Overseen(Fragments(2, 16), expert=expert, strays=Offered(), patience=1)
    for one, plain in zip(gathered(rules), gathered(Fragments(2, 16)), strict=True):
        assert not one.extra["intervened"].any()
        assert torch.equal(one.action, plain.action)
        assert torch.equal(one.context["observation"], plain.context["observation"])


def test_a_person_acts_at_once_and_only_where_an_action_is_offered() -> None:
    def person(context: Context) -> Tensor | None:
        pressed = context["observation"][:, :1] > -0.8
        return torch.where(pressed, torch.tensor([[-1.0, 0.0]]), torch.nan) if bool(pressed.any()) else None

    found = gathered(Overseen(Fragments(2, 16), expert=person, strays=Offered(), patience=1, stretch=1))
    acts = torch.cat([(one.extra["intervened"] & one.mask)[:, :16] for one in found], 1)
    place = torch.cat([one.context["observation"][:, :16] for one in found], 1)
    here = torch.cat([one.mask[:, :16] for one in found], 1)
    assert 0 < int(acts.sum()) < int(here.sum())
    assert torch.equal(acts, (place[..., 0] > -0.8) & here)


def test_choices_may_be_left_to_the_policy_too() -> None:
    def half(context: Context) -> Tensor:
        return torch.tensor([1.0, torch.nan, 0.0])

    found = gathered(Overseen(Fragments(3, 16), expert=half, strays=Offered(), patience=1), cartpole())
    acts = torch.cat([one.extra["intervened"][:, :16] for one in found], 1)
    assert not acts[1].any()
    assert all(int(row.sum()) > 20 for row in (acts[0], acts[2]))
    assert found[0].action.dtype == torch.long


def test_a_task_without_an_expert_is_refused_with_the_remedy() -> None:
    task = replace(peg(), expert=None)
    with pytest.raises(AssayError, match=r"'peg' has no scripted expert.*Overseen\(expert="):
        Overseen().init(Scene(task))
    Overseen(expert=leftwards).init(Scene(task))


def test_patience_and_stretch_are_at_least_one() -> None:
    with pytest.raises(AssayError, match=r"rollout\.patience is 0"):
        Overseen(patience=0)
    with pytest.raises(AssayError, match=r"rollout\.stretch is 0"):
        Overseen(stretch=0)


def test_a_method_with_ratios_is_refused() -> None:
    with pytest.raises(AssayError, match="needs log-probabilities, but Overseen"):
        replace(recipes.ppo(CONTINUOUS), rollout=Overseen()).check()
    replace(recipes.sac(CONTINUOUS), rollout=Overseen()).check()


def test_a_run_that_is_resumed_continues_bitwise(tmp_path: Path) -> None:
    base = recipe(learned=False)
    rollout: Any = base.rollout
    often = replace(base, rollout=replace(rollout, patience=2, stretch=3))

    def loop() -> Loop:
        return Loop(often, peg(), seed=3, num_steps=18)

    through, stopped, again = loop(), loop(), loop()
    for _ in range(18):
        through.step()
    for _ in range(15):
        stopped.step()
    assert int(stopped.states["sources"][0]["log"]["added"]["size"]) > 5
    again.restore(store.load_path(store.save(tmp_path, 15, stopped.snapshot(), facts={})).tree)
    for _ in range(3):
        again.step()
    assert again.engine.updates == through.engine.updates > 0
    for one, other in zip(again.policy.parameters(), through.policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_interactive_cloning_learns_from_shown_decisions_alone() -> None:
    """Its batches are demonstrations and takeovers; the policy's own decisions are in none, and there is no critic."""
    made, task = cloning(), peg()
    state = made.source.init(Scene(task))
    fresh = probes.transitions(task.spec, num=64, dtype=torch.float32)
    taken = (torch.arange(64) % 2 == 0).unsqueeze(1) & fresh.mask
    batches = list(made.source(Scene(task, fresh=fresh.add({"intervened": taken})), state))
    assert set(torch.cat([batch.source for batch in batches]).tolist()) == {int(Origin.DATASET), int(Origin.HUMAN)}
    assert state["added"]["size"] == int(taken.sum())
    assert not made.critics
    assert made.rollout == recipe().rollout
