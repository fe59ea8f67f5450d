"""Learning from a stream, constraints in both worlds, duals of offline learning: against slow references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.optimizers import Adam, Averaging, ObGD, Traced
from assay.core.recipe import Stage
from assay.core.record import Draw, Experience, Origin, Scored
from assay.core.slots import ALONE, Scene, View
from assay.core.spaces import Box, Discrete, Spec
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.dual_rl.base import cloned, f_dvl, recoil
from assay.methods.dual_rl.conjugates import ChiSquare, ReverseKl, TotalVariation
from assay.methods.dual_rl.critics import MatchMixture
from assay.methods.dual_rl.fits import ImplicitMaximum
from assay.methods.safe_rl_review.projection import projection
from assay.methods.stream_x.base import plain_ac, stream_ac, stream_q
from assay.methods.stream_x.critics import FitMoments, TraceQ, TraceValue
from assay.methods.stream_x.models import Scaled, Sparse, sparse_perceptron
from assay.methods.stream_x.objectives import TracePolicy
from assay.methods.stream_x.rollout import Stream
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy
from assay.parts.constraints.cost import CostCritic, CostToGo, centred, episode_cost
from assay.parts.constraints.multiplier import Ascent, Multiplier, Pid
from assay.parts.credit.cost import EndAtCost
from assay.parts.credit.temporal import RewardToGo
from assay.parts.critics.td import Td
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.rewards.cost import LengthCost
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.recorded import RecordedAction
from assay.recipes.constrained import constrained, safe_ppo, with_cost_critic
from assay.recipes.defaults import CONTROL, EVERY, LANGUAGE
from assay.runs import catalogue
from assay.tasks.control.costs import slow_pendulum
from assay.tasks.control.hazards import hazards
from tests.scenes import feeding

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Discrete(2), horizon=10)
ONE = torch.ones(())


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream_of(num: int, terminal: Any = (), truncated: Any = ()) -> Experience:
    """One row of `num` decisions and a last context."""
    mask = torch.ones(1, num + 1, dtype=torch.bool)
    mask[:, -1] = False
    ends = [torch.zeros_like(mask) for _ in range(2)]
    for flags, places in zip(ends, (terminal, truncated), strict=True):
        flags[0, list(places)] = True
    context = {"observation": normal(1, 1, num + 1, 3)}
    action = torch.arange(num + 1).remainder(2).unsqueeze(0)
    return Experience(context, action, mask, torch.zeros(1, num + 1).double(), normal(2, 1, num + 1) * mask, *ends)


@dataclass
class Models(View):
    """Models by name, with the actor's scores."""

    models: dict[str, Any]
    scored: Any = None

    def model(self, name: str) -> Any:
        return self.models[name]


# ---------------------------------------------------------------------------------------------------- streams
def test_obgd_is_the_papers_rule() -> None:
    values, z, delta, kappa = [normal(3, 6)], torch.zeros(6).double(), [0.3, -5.0, 1e-3, 2.0], 2.0
    expected, optimizer = values[0].clone(), Traced(ObGD(kappa), decay=0.8)
    state = optimizer.init(values)
    for t, d in enumerate(delta):
        g = normal(10 + t, 6)
        z = 0.8 * z + g
        bound = kappa * max(abs(d), 1.0) * float(z.abs().sum())
        expected = expected + min(1.0, 1.0 / bound) * d * z
        optimizer.step(values, [-g], {"td_error": [(torch.tensor(d).double(), ONE)]}, state)
    assert torch.allclose(values[0], expected, atol=1e-12)


@pytest.mark.parametrize("inner", [ObGD(), Adam(clip_norm=0.0)])
def test_no_decision_or_no_error_leaves_the_first_step_still(inner: Any) -> None:
    values = [normal(3, 4).float()]
    before, optimizer = values[0].clone(), Traced(inner, 0.9)
    state = optimizer.init(values)
    optimizer.step(values, [torch.ones(4)], {}, state)
    optimizer.step(values, [torch.ones(4)], {"td_error": [(torch.zeros(()), ONE)]}, state)
    assert torch.equal(values[0], before)


def test_traces_are_emptied_after_an_end_and_before_a_cut() -> None:
    optimizer, values = Traced(ObGD(), 0.5), [torch.zeros(2)]
    state = optimizer.init(values)
    one = {"td_error": [(ONE, ONE)]}
    optimizer.step(values, [torch.ones(2)], one, state)
    optimizer.step(values, [torch.ones(2)], one, state)
    assert torch.equal(state["trace"][0], torch.full((2,), 1.5))
    optimizer.step(values, [torch.ones(2)], one | {"trace_cut": [(ONE, ONE)]}, state)
    assert torch.equal(state["trace"][0], torch.ones(2))
    optimizer.step(values, [torch.ones(2)], one | {"episode_over": [(ONE, ONE)]}, state)
    assert not state["trace"][0].any()


def test_averaging_moments_gives_mean_and_variance_of_all_that_was_seen() -> None:
    recipe = replace(
        stream_q(), stages=(Stage("m", ("actor",), critic=(FitMoments(("actor",)),), optimizer=Averaging()),)
    )
    engine = Engine(recipe, SPEC, 0, Placement())
    seen = stream_of(40).map(lambda c: c.float() if c.is_floating_point() else c)
    for t in range(40):
        pair = seen.columns(t, t + 2)
        engine.update(recipe.stages[0], replace(pair, mask=torch.tensor([[True, False]])))
    after: Tensor = seen.context["observation"][0, 1:]
    scale: Any = engine.models["actor"].body.scale
    assert torch.allclose(scale.mean, after.mean(0), atol=1e-5)
    assert torch.allclose(scale.variance, after.var(0, unbiased=False), atol=1e-5)
    assert torch.allclose(scale(after).std(0), torch.ones(3), atol=1e-4)
    assert scale.number.tolist() == [40.0]


def test_td_error_bootstraps_after_truncation_and_not_after_termination() -> None:
    batch, weight = stream_of(4, terminal=[1], truncated=[2]), normal(5, 3)
    value = Models({"value": lambda context: context["observation"] @ weight})
    v = batch.context["observation"][0] @ weight
    r, found = batch.reward[0], TraceValue(0.9)(batch, value).metrics
    expected = sum(r[t] + 0.9 * v[t + 1] * (t != 1) - v[t] for t in range(4))
    assert torch.allclose(found["td_error"][0], expected)
    assert float(found["episode_over"][0]) == 2.0


def test_trace_q_marks_decisions_that_were_not_greedy() -> None:
    actor: Any = Policy(Sparse((8,)), Greedy()).build(SPEC).double()
    batch = stream_of(6)
    greedy = actor.values(batch.context).argmax(-1)
    explored = replace(batch, action=torch.where(torch.arange(7) == 3, 1 - greedy, greedy))
    assert float(TraceQ()(explored, Models({"actor": actor})).metrics["trace_cut"][0]) == 1.0


def test_signed_entropy_is_ascended_whichever_way_the_error_points() -> None:
    batch = stream_of(1)
    for offset in (-9.0, 9.0):
        entropy = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
        scored = Scored(torch.zeros(1, 2, dtype=torch.float64), entropy)
        still = Models({"value": lambda context: torch.zeros(1, context["observation"].shape[1]).double()}, scored)
        loss = TracePolicy(entropy=0.5)(replace(batch, reward=torch.full_like(batch.reward, offset)), still)
        (slope,) = torch.autograd.grad(loss.sum, entropy)
        moved = -slope[0, 0] * loss.metrics["td_error"][0]
        assert float(moved) == pytest.approx(0.5 * abs(offset))


def test_a_decision_without_what_followed_is_refused() -> None:
    batch = stream_of(3)
    with pytest.raises(AssayError, match="after each decision"):
        TraceValue()(
            replace(batch, mask=torch.ones_like(batch.mask)), Models({"value": lambda c: c["observation"][..., 0]})
        )


def test_sparse_units_keep_a_tenth_of_their_inputs_and_at_least_one() -> None:
    net = sparse_perceptron(4, 2, (30, 30))
    first, second = (layer for layer in net[:-1] if isinstance(layer, torch.nn.Linear))
    assert (first.weight != 0).sum(1).tolist() == [1] * 30
    assert (second.weight != 0).sum(1).tolist() == [3] * 30


def test_rewards_are_scaled_by_the_spread_of_returns() -> None:
    stream, state = Stream(steps=1, discount=0.9), {"trace": 0.0, "mean": 0.0, "squares": 0.0, "number": 0}
    rewards, over, traces, u = [1.0, -2.0, 0.5, 3.0, 1.0], [False, False, True, False, False], [], 0.0
    for reward, end in zip(rewards, over, strict=True):
        found, u = stream.scaled(reward, end, state), 0.9 * u + reward
        traces.append(u)
        spread = float(torch.tensor(traces).double().var()) if len(traces) > 1 else 1.0
        assert found == pytest.approx(reward / (spread + 1e-8) ** 0.5, rel=1e-6)
        u = 0.0 if end else u


@pytest.mark.parametrize("recipe", [stream_ac(), stream_q(), plain_ac()], ids=lambda one: one.name)
def test_streams_go_on_bitwise_after_a_checkpoint(recipe: Any) -> None:
    task = catalogue.find_task("cartpole")
    through, stopped = (Loop(recipe, task, seed=3, num_steps=60) for _ in range(2))
    for _ in range(60):
        through.step()
    for _ in range(30):
        stopped.step()
    resumed = Loop(recipe, task, seed=3, num_steps=60)
    resumed.restore(stopped.snapshot())
    for _ in range(30):
        resumed.step()
    for name, flat in through.engine.flats.items():
        assert torch.equal(flat.values, resumed.engine.flats[name].values)
    assert through.engine.updates == through.progress.decisions


def test_the_actor_inside_sees_scaled_observations_when_it_acts_and_when_it_scores() -> None:
    actor: Any = Policy(Scaled()).build(SPEC)
    actor.body.scale.mean.data += 2.0
    actor.body.scale.variance.data += 2.5
    actor.body.scale.number.data += 2.0
    context = {"observation": torch.tensor([[4.0, -1.0, 2.0]])}
    scaled = {"observation": (context["observation"] - 2.0) / 5.0**0.5}
    assert torch.allclose(actor.logits(context), actor.body.inner(scaled), atol=1e-5)


# ---------------------------------------------------------------------------------------------------- constraints
def priced(costs: list[float], advantage: Tensor | None = None) -> Experience:
    """One terminal row with these costs."""
    batch = stream_of(len(costs), terminal=[len(costs) - 1])
    cost = torch.tensor([*costs, 0.0], dtype=torch.float64).view(1, -1, 1)
    return replace(batch, cost=cost).add(
        {"advantage": normal(7, 1, len(costs) + 1) if advantage is None else advantage}
    )


def test_pid_is_the_papers_controller() -> None:
    part, before, total = Multiplier(2.0, Pid(0.3, 0.1, 0.5)), None, 0.0
    state = part.init(ALONE)
    for cost in (5.0, 7.0, 1.0, 0.0, 4.0):
        growth = 0.0 if before is None else max(0.0, cost - before)
        total, before = max(0.0, total + cost - 2.0), cost
        expected = max(0.0, 0.3 * (cost - 2.0) + 0.1 * total + 0.5 * growth)
        part(priced([cost, 0.0]), ALONE, state)
        assert state["multiplier"] == pytest.approx(expected)


def test_projection_is_the_nearest_allowed_advantage() -> None:
    """Against a search over all multiples and random directions: nothing allowed is nearer."""
    part, batch = projection(limit=1.0, rate=0.2), priced([3.0, 0.0, 1.0, 0.5, 2.0])
    state = part.init(ALONE)
    part(batch, ALONE, state)
    merged, mask = part(batch, ALONE, state), batch.mask
    a, cost, new = (
        c[mask] for c in (batch.column("advantage"), merged.column("cost_advantage"), merged.column("advantage"))
    )
    asked = -0.2 * (episode_cost(batch, 0) - 1.0)
    assert float((new * cost).mean()) <= asked + 1e-9
    for seed in range(300):
        other = new + 0.3 * normal(seed, len(a))
        if float((other * cost).mean()) <= asked:
            assert float((other - a).square().sum()) >= float((new - a).square().sum()) - 1e-9


@pytest.mark.parametrize("part", [Multiplier(9.0), Multiplier(9.0, Pid()), projection(9.0, rate=10.0)])
def test_slack_leaves_the_advantage_as_it_is(part: Any) -> None:
    batch, state = priced([0.5, 0.0, 0.5]), part.init(ALONE)
    part(batch, ALONE, state)
    assert torch.allclose(part(batch, ALONE, state).column("advantage"), batch.column("advantage"))


def test_no_decision_and_no_cost_stay_finite() -> None:
    batch = priced([0.0, 0.0])
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    for part in (Multiplier(rule=Pid()), projection()):
        for each in (batch, empty):
            state = part.init(ALONE)
            part(each, ALONE, state)
            assert torch.isfinite(part(each, ALONE, state).column("advantage")).all()


def test_a_perfect_cost_critic_sees_no_advantage_in_costs_that_are_certain() -> None:
    batch = priced([1.0, 2.0, 3.0]).add({"cost_value": torch.tensor([[6.0, 5.0, 3.0, 0.0]], dtype=torch.float64)})
    columns = CostCritic(1.0, 0.9)(batch, 0)
    assert torch.allclose(columns["cost_advantage"], torch.zeros(1, 4).double())
    assert torch.allclose(columns["cost_return"], torch.tensor([[6.0, 5.0, 3.0, 0.0]], dtype=torch.float64))
    to_go = CostToGo(1.0)(batch, 0)["cost_advantage"]
    assert torch.allclose(to_go, centred(torch.tensor([[6.0, 5.0, 3.0, 0.0]]).double(), batch))


def test_a_spent_budget_ends_the_episode() -> None:
    batch = replace(priced([1.0, 0.0, 1.0, 1.0, 0.0]), reward=torch.ones(1, 6).double())
    cut = EndAtCost(limit=1.0, penalty=5.0)(batch)
    assert cut.mask[0].tolist() == [True] * 3 + [False] * 3
    assert cut.terminal[0].tolist() == [False, False, True, False, False, False]
    assert RewardToGo(1.0)(cut).column("return")[0, :3].tolist() == [-2.0, -3.0, -4.0]
    free = EndAtCost(limit=9.0)(batch)
    assert torch.equal(free.mask, batch.mask)
    assert torch.equal(free.terminal, batch.terminal)


def test_length_costs_follow_the_tasks_own() -> None:
    batch = priced([1.0, 0.0, 1.0, 1.0])
    both = LengthCost(limit=3)(batch, hazards(), 0)
    assert both.cost is not None
    assert both.cost[0, :, 1].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert torch.equal(both.cost[..., 0], batch.cost[..., 0])


SMALL = {"rollout.num_starts": 4, "rollout.group_size": 4, "rollout.num_envs": 8, "actor.width": 16, "value.width": 16}


@pytest.mark.parametrize(
    "constraint", [Multiplier(1.0), Multiplier(rule=Pid()), projection()], ids=["ascent", "pid", "projection"]
)
@pytest.mark.parametrize(("base", "world", "task"), [("ppo", CONTROL, "hazards"), ("grpo", LANGUAGE, "addition-1")])
def test_the_same_constraint_serves_tokens_and_torques(constraint: Any, base: str, world: Any, task: str) -> None:
    recipe = constrained(getattr(recipes, base)(world), constraint, max_length=2)
    for path, value in SMALL.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    loop = Loop(recipe, catalogue.find_task(task), seed=0, num_steps=3)
    costs = [loop.step().metrics["cost"] for _ in range(3)]
    assert all(np.isfinite(costs))
    assert max(costs) > 0.0


def test_grpo_pays_for_length_with_the_multiplier() -> None:
    recipe = constrained(recipes.grpo(LANGUAGE), Multiplier(0.0, Ascent(10.0)), max_length=2)
    for path, value in SMALL.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    loop = Loop(recipe, catalogue.find_task("addition-1"), seed=0, num_steps=2)
    loop.step()
    fresh = loop.step().fresh
    assert fresh is not None
    first = fresh.mask & (fresh.mask.cumsum(1) == 1)
    credit, length = (fresh.column("advantage") * first).sum(1), fresh.mask.sum(1)
    assert int(length.min()) < int(length.max())
    assert float(credit[length == length.max()].mean()) < float(credit[length == length.min()].mean())


@pytest.mark.parametrize("world", EVERY, ids=lambda one: one.name)
def test_a_cost_critic_can_be_added_in_every_world(world: Any) -> None:
    recipe = constrained(with_cost_critic(recipes.ppo(world), world), Multiplier(credit=CostCritic()))
    recipe.check()
    assert safe_ppo(world).critics["cost_value"] == world.value


@pytest.mark.parametrize("task", [hazards(), slow_pendulum()], ids=lambda one: one.name)
def test_simulations_with_costs_go_on_where_they_stopped(task: Any) -> None:
    first, second = task.simulate(4), task.simulate(4)
    first.reset(np.arange(4))
    num = 5 if isinstance(task.spec.action, Discrete) else 1

    def act(t: int) -> Tensor:
        return torch.arange(4).add(t).remainder(num) if num > 1 else torch.full((4, 1), 2.0 * (-1) ** (t // 9))

    for t in range(30):
        first.step(act(t))
    second.restore(first.snapshot())
    for t in range(30, 80):
        for mine, other in zip(first.step(act(t)), second.step(act(t)), strict=True):
            both = (mine, other) if isinstance(mine, Tensor) else (mine["observation"], other["observation"])
            assert torch.equal(*both)


def test_the_straight_way_costs_and_the_way_around_does_not() -> None:
    task = hazards()
    shown = task.demonstrate(np.arange(16), 0)
    assert shown.terminal.any(1).all()
    assert shown.cost is not None
    assert float(shown.cost.sum()) == 0.0

    @dataclass
    class Straight:
        num_draws: int = 0

        def act(self, context: Any, uniform: Any) -> tuple[Tensor, Tensor]:
            return torch.ones(len(context["observation"]), dtype=torch.long), torch.zeros(len(context["observation"]))

    straight = task.play(Straight(), np.arange(16), np.zeros(16, np.int64), Draw(0), split=0, greedy=True)
    assert straight.cost is not None
    assert float((straight.cost.sum((1, 2)) > 0).float().mean()) >= 0.5
    assert not straight.cost[~straight.mask].any()


# ---------------------------------------------------------------------------------------------------- duals
@pytest.mark.parametrize("f", [ChiSquare(), TotalVariation(), ReverseKl()], ids=lambda one: type(one).__name__)
def test_conjugates_are_the_supremum_over_ratios(f: Any) -> None:
    y = torch.linspace(-4.0, 0.5, 46, dtype=torch.float64)
    t = torch.linspace(0.0, 8.0, 160_001, dtype=torch.float64)
    rewarded = t.unsqueeze(0) * y.unsqueeze(1) - f.generator(t)
    best, place = rewarded.max(1)
    assert torch.allclose(f.conjugate(y), best, atol=1e-7)
    smooth = y[(y + 0.5).abs() > 1e-6] if isinstance(f, TotalVariation) else y
    smooth = smooth[(smooth - 0.5).abs() > 1e-6]
    kept = torch.isin(y, smooth)
    assert torch.allclose(f.ratio(smooth), t[place[kept]], atol=1e-4)


def least(part: ImplicitMaximum, x: Tensor) -> float:
    """The minimiser of the implicit maximum's loss over values of one state, by a fine search."""
    v = torch.linspace(float(x.min()) - 1.0, float(x.max()) + 1.0, 40_001, dtype=torch.float64)
    z = (x.unsqueeze(1) - v) / part.scale
    return float(v[(part.level * part.divergence.surrogate(z) - (1.0 - part.level) * z).mean(0).argmin()])


def test_implicit_maxima_are_a_quantile_and_a_soft_maximum() -> None:
    x = normal(21, 50)
    level = (2 * 0.8 - 1) / 0.8
    found = least(ImplicitMaximum(TotalVariation(), 0.8), x)
    assert float((x <= found + 1e-3).double().mean()) >= level >= float((x < found - 1e-3).double().mean())
    soft = 2.0 * float(((x / 2.0).exp().mean()).log())
    assert least(ImplicitMaximum(ReverseKl(), 0.5, scale=2.0), x) == pytest.approx(soft, abs=1e-3)
    assert least(ImplicitMaximum(ChiSquare(), 0.999), x) == pytest.approx(float(x.max()), abs=0.05)
    assert least(ImplicitMaximum(TotalVariation(), 0.8), 7.0 * x) == pytest.approx(7.0 * found, abs=2e-2)


def test_total_variation_bounds_what_a_transition_does_to_the_value() -> None:
    """A Q of 1e6 pulls V by at most `level`; reverse KL's pull grows as the exponential."""
    batch, value = stream_of(1), torch.zeros((), dtype=torch.float64, requires_grad=True)

    def pull(part: ImplicitMaximum, q: float) -> float:
        models = {
            "value": lambda context: value.expand(1, 1),
            "q_target": lambda c, a: torch.full((2, 1, 1), q).double(),
        }
        return float(torch.autograd.grad(Td(RecordedAction(), part, OfState())(batch, Models(models)).sum, value)[0])

    assert pull(ImplicitMaximum(TotalVariation(), 0.8), 1e6) == pytest.approx(-0.6)
    assert pull(ImplicitMaximum(ReverseKl(), 0.5), 5.0) == pytest.approx(-0.5 * (np.exp(5.0) - 1.0))


def test_recoils_critic_is_contrast_and_consistency() -> None:
    q: Any = Critic(Perceptron((8,)), ActionValue()).build(SPEC).double()
    rows = [replace(stream_of(1, terminal=[0] if k == 2 else ()), reward=torch.zeros(1, 2).double()) for k in range(4)]
    batch = replace(
        rows[0],
        **{
            name: torch.cat([getattr(row, name) for row in rows])
            for name in ("mask", "logp", "reward", "terminal", "truncated")
        },
    )
    batch = replace(
        batch,
        context={"observation": normal(31, 4, 2, 3)},
        action=torch.tensor([[0, 0], [1, 0], [1, 0], [0, 0]]),
        source=torch.tensor([Origin.TEACHER, Origin.DATASET, Origin.TEACHER, Origin.DATASET]),
    )
    value = Models({"q": q, "value": lambda context: context["observation"].sum(-1)})
    found = MatchMixture(0.3, 0.9)(batch, value)
    values, after = q(batch.now.context, batch.now.action), batch.context["observation"][:, 1].sum(-1)
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(4):
        expert, goes_on = row in (0, 2), row != 2
        y = 0.9 * after[row] * goes_on - values[:, row, 0]
        share = 0.3 if expert else 0.7
        expected = expected + (share / 2 * y.square() / 4 - (0.3 / 2 * values[:, row, 0] if expert else 0.0)).sum()
    assert torch.allclose(found.sum / found.count, expected)


def test_sharpness_zero_is_cloning() -> None:
    batch, logp = stream_of(5), normal(9, 1, 6).requires_grad_()
    models = {"value": lambda context: torch.zeros(1, 5).double(), "q_target": lambda c, a: normal(4, 2, 1, 5)}
    view = Models(models, Scored(logp * batch.mask))
    weighted, plain = AdvantageRegression(sharpness=0.0)(batch, view), LogLikelihood()(batch, view)
    assert torch.allclose(weighted.sum, plain.sum)
    limited = AdvantageRegression(sharpness=1e6, limit=10.0)(batch, view)
    assert float(torch.autograd.grad(limited.sum, logp)[0].abs().max()) <= 10.0 + 1e-9


@pytest.mark.parametrize("task", ["cartpole", "pendulum", "gridworld"])
def test_logs_are_made_again_with_the_same_contents(task: str) -> None:
    one, again, other = (
        Logged((Log(2, noise),)).init(Scene(catalogue.find_task(task)))["contents"] for noise in (0.5, 0.5, 0.6)
    )
    assert one.hash == again.hash != other.hash
    with pytest.raises(AssayError, match="started with"):
        one.restore(other.snapshot())


def test_a_log_without_noise_is_the_experts_and_rows_say_where_they_are_from() -> None:
    task: Any = catalogue.find_task("cartpole")
    source = Logged((Log(2, noise=1.0), Log(1, noise=0.0, first=50, origin=int(Origin.TEACHER))), batch=32, updates=1)
    (batch,) = source(feeding(task, None, Draw(1)), source.init(Scene(task)))
    expert = batch.source == Origin.TEACHER
    assert batch.source is not None
    assert int(expert.sum()) == 32
    seen = {"observation": batch.context["observation"][expert, 0]}
    assert torch.equal(task.expert(seen), batch.action[expert, 0])
    assert not torch.equal(
        task.expert({"observation": batch.context["observation"][~expert, 0]}), batch.action[~expert, 0]
    )


@pytest.mark.parametrize("recipe", [f_dvl(), recoil(), cloned()], ids=lambda one: one.name)
def test_learning_from_a_log_needs_no_interaction(recipe: Any) -> None:
    loop = Loop(
        recipe.set("source.batch", 16).set("source.updates", 2), catalogue.find_task("cartpole"), seed=0, num_steps=2
    )
    steps = [loop.step() for _ in range(2)]
    assert loop.progress.decisions == 0
    assert all(np.isfinite(list(step.metrics.values())).all() for step in steps)
    assert loop.engine.updates == 4
