"""Offline bases and what continues them online: expectiles, conservatism, subsets of critics, gates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.recipe import Copy
from assay.core.record import Draw, Experience, Need
from assay.core.slots import Scene
from assay.core.spaces import Box, Spec
from assay.engine.engine import Engine, StageView
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.td3_bc.base import td3_bc
from assay.methods.uni_o4.base import uni_o4
from assay.methods.uni_o4.credit import CriticAdvantage
from assay.methods.uni_o4.models import ClampedQ, Committee
from assay.methods.uni_o4.objectives import DiverseLikelihood
from assay.methods.wsrl.base import wsrl
from assay.models.bodies.normalised import Normalised, NormedEnsemble
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy
from assay.parts.critics.conservative import Conservative
from assay.parts.rewards.scaled import ScaledReward
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.targets.one_step import chosen
from assay.recipes.defaults import CONTINUOUS
from assay.runs import catalogue
from tests.scenes import feeding

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,) * 2, (2.0,) * 2), horizon=10)
ROWS = 12


def transitions(rows: int = ROWS) -> Experience:
    """Random transitions; one of four ends."""
    draw = torch.Generator().manual_seed(3)
    seen, action = torch.randn(rows, 2, 3, generator=draw), 4 * torch.rand(rows, 2, 2, generator=draw) - 2
    first = torch.tensor([[True, False]]).expand(rows, 2)
    reward = torch.randn(rows, 2, generator=draw) * first
    ends = (torch.arange(rows) % 4 == 0).unsqueeze(1) & first
    return Experience({"observation": seen}, action, first, 0 * reward, reward, ends, torch.zeros_like(ends))


def built(recipe: Any) -> dict[str, Any]:
    """The recipe's models with weights of one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return {name: spec.build(SPEC) for name, spec in {"actor": recipe.actor, **recipe.critics}.items()}


def gradient(recipe: Any, stage: str, batch: Experience) -> dict[str, Tensor]:
    models = built(recipe)
    engine = probes.witness(recipe, models.pop("actor"), models)
    return engine.gradient(
        next(one for one in recipe.stages if one.name == stage), engine.annotate(batch, recipe.needs)
    )


# ---------------------------------------------------------------------------------------------------- bases
def test_the_conservative_term_is_the_slow_sum_over_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipes.cql(CONTINUOUS)
    models, batch, term = built(recipe), transitions(3), Conservative(weight=2.0, num=4)
    draws = {tag: torch.rand(3, 1, 4, 2, generator=torch.Generator().manual_seed(tag)) for tag in (4, 5, 6)}
    monkeypatch.setattr(StageView, "uniform", lambda view, shape, tag: draws[tag].view(*shape))
    view: Any = StageView(models, batch, frozenset(), None)  # type: ignore[arg-type]
    found, expected, seen = term(batch, view).sum, torch.zeros(()), batch.context["observation"]
    actor, q = models["actor"], models["q"]
    for row in range(3):
        terms = []
        for place in range(4):
            for tag, when in ((4, 0), (5, 1)):
                action, logp = actor.act({"observation": seen[row : row + 1, when]}, draws[tag][row, :, place])
                terms.append(q({"observation": seen[row : row + 1, :1]}, action.unsqueeze(0))[:, 0, 0] - logp)
            anything = 4.0 * draws[6][row, :, place] - 2.0
            terms.append(q({"observation": seen[row : row + 1, :1]}, anything.unsqueeze(0))[:, 0, 0] + math.log(16.0))
        here = q({"observation": seen[row : row + 1, :1]}, batch.action[row : row + 1, :1])[:, 0, 0]
        expected = expected + 2.0 * (torch.stack(terms).exp().mean(0).log() - here).sum()
    torch.testing.assert_close(found, expected)


def test_conservatism_moves_critics_and_not_the_policy() -> None:
    found = gradient(recipes.cql(CONTINUOUS), "critic", transitions())
    assert all(name.startswith("q.") for name in found)
    assert all(bool(torch.isfinite(value).all()) and bool(value.any()) for value in found.values())


def test_a_constant_critic_is_divided_by_something_finite() -> None:
    recipe = td3_bc()
    models = built(recipe)
    with torch.no_grad():
        for parameter in models["q"].parameters():
            parameter.zero_()
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    found = engine.gradient(recipe.stages[1], engine.annotate(transitions(), recipe.needs))
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def test_the_size_of_values_is_that_of_the_whole_batch_in_every_micro_batch() -> None:
    recipe, batch = td3_bc(), transitions()
    models = built(recipe)
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    noted = engine.annotate(batch, recipe.needs)
    now = batch.now
    expected = models["q"].first(now.context, now.action).abs().mean()
    torch.testing.assert_close(noted.column("q_size"), expected.detach().expand(ROWS, 2))


def test_iql_evaluates_no_action_that_was_not_recorded() -> None:
    """Every action that reaches the critics is one of the record's."""
    recipe, batch = recipes.iql(CONTINUOUS), transitions()
    models = built(recipe)
    asked: list[Tensor] = []
    engine = probes.witness(recipe, models.pop("actor"), models)
    for name in ("q", "q_target"):
        engine.models[name].register_forward_pre_hook(lambda module, inputs: asked.append(inputs[1]))
    for stage in recipe.stages:
        engine.gradient(stage, engine.annotate(batch, recipe.needs))
    assert asked
    assert all(torch.equal(action, batch.now.action) for action in asked)


# ---------------------------------------------------------------------------------------------------- subsets
def test_subsets_of_critics_are_drawn_alike_with_replacement() -> None:
    values = torch.arange(10.0).view(10, 1, 1).expand(10, 4000, 1)
    uniform = torch.rand(4000, 1, 2, generator=torch.Generator().manual_seed(0))
    picked = chosen(values, uniform)
    assert picked.shape == (2, 4000, 1)
    counts = torch.bincount(picked.long().flatten(), minlength=10)
    assert int(counts.min()) > 650
    assert abs(float((picked[0] == picked[1]).float().mean()) - 0.1) < 0.03


def test_a_subset_of_none_is_the_minimum_over_all() -> None:
    recipe, batch = recipes.cql(CONTINUOUS), transitions()
    alone = replace(recipe, stages=(replace(recipe.stages[0], critic=recipe.stages[0].critic[:1]), recipe.stages[1]))
    many = alone.set("target.subset", 60)  # both critics are among sixty draws
    for name, value in gradient(alone, "critic", batch).items():
        torch.testing.assert_close(value, gradient(many, "critic", batch)[name])


# ---------------------------------------------------------------------------------------------------- warm start
def test_during_the_warm_up_nothing_moves_and_the_log_is_gone() -> None:
    """No parameter, copy or optimizer changes before the replay holds the warm-up; then all models move."""
    task = catalogue.find_task("pendulum")
    recipe = wsrl(warmup=24).set("source.replay.updates", 4).set("source.replay.batch", 8)
    loop = Loop(recipe, task, seed=0, num_steps=5)
    assert loop.states["sources"][0]["log"] == {}
    before = {name: flat.values.clone() for name, flat in loop.engine.flats.items()}
    for _ in range(2):
        fresh = loop.step().fresh
        assert fresh is not None
        again = loop.actor.score(fresh, frozenset({Need.LOGP})).logp
        torch.testing.assert_close(again, fresh.logp, atol=1e-3, rtol=1e-3)
        assert all(torch.equal(flat.values, before[name]) for name, flat in loop.engine.flats.items())
    loop.step()
    assert loop.engine.updates == 4
    assert not any(torch.equal(flat.values, before[name]) for name, flat in loop.engine.flats.items())


def test_four_critic_steps_for_each_step_of_the_actor() -> None:
    recipe = wsrl()
    assert [stage.every for stage in recipe.stages] == [1, 4]
    assert recipe.source.replay.updates == 4 * recipe.rollout.steps * recipe.rollout.num_envs  # type: ignore[attr-defined, union-attr]


def test_a_share_of_the_log_is_in_every_batch() -> None:
    """Log rewards are scaled apart from the fresh ones, which are all 5."""
    task = catalogue.find_task("cartpole")
    source = Retained(Replay(batch=8, updates=3, warmup=4), Logged((Log(1, reward_scale=-1.0),)), kept=0.25)
    state = source.init(Scene(task))
    first = torch.tensor([[True, False]]).expand(6, 2)
    no = torch.zeros_like(first)
    seen = {"observation": torch.zeros(6, 2, 4)}
    fresh = Experience(seen, torch.zeros(6, 2, dtype=torch.long), first, 0.0 * first, 5.0 * first, no, no)
    found = list(source(feeding(task, fresh, Draw(0)), state))
    assert len(found) == 3
    for batch in found:
        assert batch.reward[:, 0].tolist() == [5.0] * 6 + [-1.0] * 2
        assert len(batch) == 8


def test_layer_norm_holds_far_inputs_to_the_size_of_near_ones() -> None:
    q: Any = Critic(Normalised((16, 16)), ActionValue(3)).build(SPEC)
    seen, action = torch.randn(20, 1, 3), torch.rand(20, 1, 2)
    near = q({"observation": 1e2 * seen}, action)
    far = q({"observation": 1e6 * seen}, action)
    torch.testing.assert_close(near, far, atol=0.05, rtol=0.05)
    torch.testing.assert_close(q({"observation": seen}, action)[0], q.first({"observation": seen}, action))


def test_normed_members_do_not_know_of_each_other() -> None:
    """A member alone, layer by layer, says what it says beside the others."""
    net = NormedEnsemble(3, 4, 2, (5, 6))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    rows = torch.randn(7, 4)
    hidden = rows
    for k, width in enumerate((5, 6)):
        inner = hidden @ net.linear.weights[k][1] + net.linear.biases[k][1]
        normed = torch.nn.functional.layer_norm(inner, (width,)) * net.scales[k][1] + net.shifts[k][1]
        hidden = normed.relu()
    torch.testing.assert_close(net(rows)[1], hidden @ net.linear.weights[2][1] + net.linear.biases[2][1])


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
        torch.testing.assert_close(named, actor.means({"observation": seen})[member])
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
    actor, q, dynamics = (engine.models[name] for name in ("actor", "q", "dynamics"))
    batch = engine.annotate(transitions(5), frozenset())
    stage = next(one for one in recipe.stages if one.name == "score")
    engine.update(stage, batch)
    for member in range(4):
        total, seen = torch.zeros(()), batch.context["observation"][:, :1]
        with torch.no_grad():
            for _ in range(10):
                action = actor.means({"observation": seen})[member]  # type: ignore[operator]
                total = total + q({"observation": seen}, action).amin(0).mean() / 10
                seen = seen + dynamics({"observation": seen}, action).mean(0)[:-1].movedim(0, -1)
        torch.testing.assert_close(actor.standing[member], total, rtol=1e-4, atol=1e-5)  # type: ignore[index]


def test_actions_beyond_the_bounds_are_worth_what_is_carried_out() -> None:
    q: Any = Critic(Perceptron((8,)), ClampedQ()).build(SPEC)
    seen = {"observation": torch.randn(4, 1, 3)}
    torch.testing.assert_close(q(seen, torch.full((4, 1, 2), 9.0)), q(seen, torch.full((4, 1, 2), 2.0)))


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
