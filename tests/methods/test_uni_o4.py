"""Committees and gates: members that take over, diversity, scores, and what is gathered with a copy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.recipe import Copy
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.engine.engine import Engine, StageView
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.uni_o4.base import uni_o4
from assay.methods.uni_o4.losses import DiverseLikelihood
from assay.methods.uni_o4.models import ClampedQ, Committee
from assay.methods.uni_o4.offline import CriticAdvantage
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Critic, Policy
from assay.parts.rewards.scaled import ScaledReward
from assay.runs import catalogue
from tests.methods.transitions import SPEC, transitions


# ---------------------------------------------------------------------------------------------------- gates
def committee(num: int = 3) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Policy(Perceptron((8,)), Committee(num)).build(SPEC)


def test_a_gated_copy_takes_over_the_members_that_rose_and_leaves_the_others() -> None:
    recipe = uni_o4().before[1].recipe
    recipe = replace(recipe, actor=Policy(Perceptron((8,)), Committee(3)))
    engine = Engine(recipe, SPEC, 0, Placement())
    copy = recipe.copies["old"]
    with torch.no_grad():
        engine.models["actor"].standing.copy_(torch.tensor([1.0, 2.0, 3.0]))
    engine.follow({"old": replace(copy, every=1)})
    assert torch.equal(engine.flats["old"].values, engine.flats["actor"].values)
    with torch.no_grad():
        engine.flats["actor"].values.add_(1.0)
        engine.models["actor"].standing.copy_(torch.tensor([0.5, 2.5, math.nan]))
    sums = engine.follow({"old": replace(copy, every=1)})
    assert [float(value) for value in sums["followed/old"][0]] == [1.0, 3.0]
    for mine, theirs in zip(engine.models["old"].parameters(), engine.models["actor"].parameters(), strict=True):
        assert torch.equal(mine[1], theirs[1])
        assert not torch.equal(mine[0], theirs[0])
        assert not torch.equal(mine[2], theirs[2])
    saved = engine.snapshot()
    other = Engine(recipe, SPEC, 1, Placement())
    other.restore(saved)
    assert torch.equal(other.gates["old"]["best"], torch.tensor([1.0, 2.5, 3.0]))


def test_a_single_answer_moves_all_of_a_copy_or_nothing() -> None:
    @dataclass(frozen=True)
    class Says:
        answer: bool

        def init(self) -> dict[str, Any]:
            return {}

        def __call__(self, models: Any, state: Any) -> Tensor:
            return torch.tensor(self.answer)

    base = recipes.sac()
    for answer in (True, False):
        recipe = replace(base, copies={"q_target": Copy(of="q", rate=0.5, gate=Says(answer))})
        engine = Engine(recipe, SPEC, 0, Placement())
        engine.flats["q"].values.add_(2.0)
        before = engine.flats["q_target"].values.clone()
        engine.follow(recipe.copies)
        torch.testing.assert_close(engine.flats["q_target"].values, before + float(answer))


def test_who_gathers_may_be_a_copy() -> None:
    """The recorded log-probabilities are the copy's, and no guard objects."""
    recipe = uni_o4().before[1].recipe
    task = catalogue.find_task("pendulum")
    loop = Loop(recipe, task, seed=0, num_steps=5)
    with torch.no_grad():
        loop.engine.flats["actor"].values.add_(0.1)
    step = loop.step()
    assert step.fresh is not None
    old = loop.engine.models["old"]
    other = Loop(recipe, task, seed=0, num_steps=5)
    fresh = other.gather(recipe.at(loop.progress), Scene(task, other.engine, Draw(0)), step)
    assert len(fresh) == 4 * 128
    assert not [alarm for alarm in step.alarms if alarm.guard == "SampledEqualsTrained"]
    assert old is not loop.actor
    with pytest.raises(AssayError, match="behaviour is 'olden'"):
        replace(recipe, behaviour="olden").check()


# ---------------------------------------------------------------------------------------------------- committees
def test_the_context_names_the_member_that_decides() -> None:
    actor = committee()
    seen = torch.randn(6, 3)
    with torch.no_grad():
        actor.standing.copy_(torch.tensor([0.0, 5.0, 1.0]))
    best, _ = actor.act({"observation": seen}, None)
    for member in range(3):
        named, _ = actor.act({"observation": seen, "member": torch.full((6,), member)}, None)
        torch.testing.assert_close(named, actor.units.of_task(actor.means({"observation": seen})[member]))
        assert torch.equal(named, best) == (member == 1)


def test_diversity_is_the_slow_double_loop_and_only_scales_the_gradient() -> None:
    actor, batch = committee(4), transitions()
    models = {"actor": actor}
    view: Any = StageView(models, batch, frozenset(), None)  # type: ignore[arg-type]
    loss = DiverseLikelihood(0.3)(batch, view).sum
    logp = actor.all_logp(batch)
    slow = torch.zeros(())
    for i in range(4):
        others = torch.stack([logp[j].detach() for j in range(4) if j != i]).amax(0)
        slow = slow - (logp[i] + 0.3 * (logp[i] - others)).sum()
    torch.testing.assert_close(loss, slow)
    plain = torch.autograd.grad(-actor.all_logp(batch).sum(), [actor.log_std])[0]
    torch.testing.assert_close(torch.autograd.grad(loss, [actor.log_std])[0], 1.3 * plain)
    alone: Any = StageView({"actor": committee(1)}, batch, frozenset(), None)  # type: ignore[arg-type]
    assert torch.isfinite(DiverseLikelihood(0.3)(batch, alone).sum)


def test_a_score_is_the_mean_value_along_the_model_and_standing_becomes_it() -> None:
    """Against a rollout written out step by step."""
    recipe = uni_o4().before[1].recipe
    engine = Engine(recipe, SPEC, 0, Placement())
    actor, q, dynamics, end = (engine.models[name] for name in ("actor", "q", "dynamics", "end"))
    batch = engine.annotate(transitions(5), frozenset())
    stage = next(one for one in recipe.stages if one.name == "score")
    engine.update(stage, batch)
    for member in range(4):
        scores = []
        for start in batch.context["observation"][:, :1]:
            values, seen = [], start.unsqueeze(0)
            with torch.no_grad():
                for _ in range(10):
                    scaled = actor.means({"observation": seen})[member]  # type: ignore[operator]
                    action = actor.units.of_task(scaled)  # type: ignore[union-attr,operator]
                    values.append(float(q({"observation": seen}, action).amin(0)))
                    if float(end({"observation": seen}, action)) > 0:
                        break
                    seen = seen + dynamics({"observation": seen}, action).mean(0)[:-1].movedim(0, -1)
            scores.append(sum(values) / len(values))
        total = torch.tensor(sum(scores) / len(scores))
        torch.testing.assert_close(actor.standing[member], total, rtol=1e-4, atol=1e-5)  # type: ignore[index]


def test_actions_beyond_the_bounds_are_worth_what_is_carried_out() -> None:
    q: Any = Critic(Perceptron((8,)), ClampedQ()).build(SPEC)
    seen = {"observation": torch.randn(4, 1, 3)}
    torch.testing.assert_close(q(seen, torch.full((4, 1, 2), 9.0)), q(seen, torch.full((4, 1, 2), 2.0)))


def test_a_task_that_ends_is_learnt_with_its_ends() -> None:
    """On peg the hole ends an episode: the model of ends finds it."""
    recipe = uni_o4().before[0].recipe
    (ending,) = (stage for stage in recipe.stages if stage.name == "end")
    loop = Loop(replace(recipe, stages=(ending,)), catalogue.find_task("peg"), seed=0, num_steps=60)
    for _ in range(60):
        loop.step()
    columns = loop.states["sources"][0]["contents"].columns[0]
    seen, ends = {"observation": columns["context.observation"][:, :1]}, columns["terminal"][:, 0]
    assert 0 < int(ends.sum()) < len(ends) / 2
    with torch.no_grad():
        logit = loop.engine.models["end"](seen, columns["action"][:, :1])[0, :, 0]
    assert float((logit[ends] > 0).float().mean()) > 0.8
    assert float((logit[~ends] > 0).float().mean()) < 0.1


def test_values_do_not_bootstrap_beyond_a_fall() -> None:
    recipe = uni_o4().before[0].recipe
    batch = transitions(6)
    fallen = replace(batch, terminal=batch.mask.clone())
    engine = Engine(recipe, SPEC, 0, Placement())
    target: Any = next(stage for stage in recipe.stages if stage.name == "q").critic[0].target  # type: ignore[union-attr]
    for data, same in ((fallen, True), (replace(batch, terminal=torch.zeros_like(batch.mask)), False)):
        view: Any = StageView(engine.models, data, frozenset(), None)  # type: ignore[arg-type]
        assert torch.equal(target(data, view), data.now.reward) == same


def test_credit_of_critics_is_zero_where_nothing_was_decided() -> None:
    batch = transitions(4)
    columns = {"q": torch.arange(8.0).view(4, 2), "value": torch.ones(4, 2)}
    found = CriticAdvantage()(batch.add(columns)).column("advantage")
    assert found.tolist() == [[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [5.0, 0.0]]


def test_scaled_rewards_leave_the_score() -> None:
    task: Any = catalogue.find_task("pendulum")
    batch = transitions(4).add({"score": torch.ones(4)})
    found = ScaledReward(0.1)(batch, task, 0)
    torch.testing.assert_close(found.reward, 0.1 * batch.reward)
    assert torch.equal(found.column("score"), batch.column("score"))
