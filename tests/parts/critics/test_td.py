"""Time: what follows a decision, by hand, against a slow reference, and against Bellman's equation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.record import Draw, Experience, Scored
from assay.core.slots import CriticLoss, Scene
from assay.models.bodies.table import Table
from assay.models.model import Policy
from assay.ops import returns
from assay.parts.credit.temporal import Gae
from assay.parts.critics.td import Td
from assay.parts.predictions import OfChoice
from assay.parts.rollouts.episodes import Fragments
from assay.parts.targets.one_step import DoubleQ, SmoothedTwin, SoftTwin
from assay.tasks.tabular.table import action_values, chain, table_of
from tests.scenes import gathering


@dataclass
class Stubs:
    """A view of hand-made models."""

    models: Mapping[str, Any]
    number: float = 0.5
    scored: Scored = field(default_factory=lambda: Scored(torch.zeros(0)))

    def model(self, name: str) -> Any:
        return self.models[name]

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        return torch.full(tuple(shape), self.number, dtype=torch.float64)


@dataclass
class Stub:
    """Whatever a loss asks of a model."""

    values: Callable[[Mapping[str, Tensor]], Tensor] = lambda context: context["state"]
    decide: Callable[[Mapping[str, Tensor]], Tensor] = lambda context: context["state"]
    sample: Callable[[Mapping[str, Tensor], Tensor], tuple[Tensor, Tensor]] = lambda context, uniform: (
        uniform,
        uniform,
    )
    half_range: float = 1.0
    num_draws: int = 1

    def clamp(self, action: Tensor) -> Tensor:
        return action.clamp(-1.0, 1.0)


def transition(terminal: bool, truncated: bool, action: Tensor | None = None) -> Experience:
    """One decision in state 0 with reward 1, and state 1 after it."""
    mask = torch.tensor([[True, False]])
    return Experience(
        context={"state": torch.tensor([[0, 1]])},
        action=torch.zeros(1, 2, dtype=torch.long) if action is None else action,
        mask=mask,
        logp=torch.zeros(1, 2, dtype=torch.float64),
        reward=torch.tensor([[1.0, 0.0]], dtype=torch.float64),
        terminal=mask & terminal,
        truncated=mask & truncated,
    )


# ---------------------------------------------------------------------------------------------------- by hand
@pytest.mark.parametrize(("terminal", "first", "second"), [(False, 1.125, 0.5), (True, 0.75, -1.0)])
def test_gae_bootstraps_a_truncated_step_and_not_a_terminal_one(terminal: bool, first: float, second: float) -> None:
    """Discount and decay 1/2, V = 1 2 3 4 5 6, rewards 1. Columns 0 1 | 2 the final context | 3 4 | 5 what follows.

    Truncated: delta_1 = 1 + 3/2 - 2 = 1/2, A_0 = (1 + 2/2 - 1) + 1/4 * 1/2. Terminal: delta_1 = 1 - 2, A_0 = 1 - 1/4.
    Columns 3, 4 go on past the fragment: delta_4 = 1 + 6/2 - 5 = -1, A_3 = (1 + 5/2 - 4) - 1/4.
    """
    mask = torch.tensor([[True, True, False, True, True, False]])
    end = torch.tensor([[False, True, False, False, False, False]])
    experience = Experience(
        context={},
        action=torch.zeros(1, 6),
        mask=mask,
        logp=torch.zeros(1, 6),
        reward=torch.ones(1, 6).double(),
        terminal=end & terminal,
        truncated=end & (not terminal),
        extra={"value": torch.arange(1.0, 7.0).double().unsqueeze(0)},
    )
    seen = Gae(discount=0.5, gae_lambda=0.5)(experience)
    expected = torch.tensor([[first, second, 0.0, -0.75, -1.0, 0.0]]).double()
    assert torch.equal(seen.column("advantage"), expected)
    assert torch.equal(seen.column("return"), (expected + experience.column("value")) * mask)


ENDINGS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize(("terminal", "truncated"), ENDINGS)
def test_double_q_learning_by_hand(terminal: bool, truncated: bool) -> None:
    """Q(1, .) = 2 3 chooses action 1, which the target values 4: y = 1 + 4/2 = 3; Q(0, 0) = 2.5 has the Huber loss
    0.5^2 / 2. A terminal step has y = 1 and the loss 1.5 - 1/2."""
    q, target = torch.tensor([[2.5, 0.0], [2.0, 3.0]]).double(), torch.tensor([[0.0, 0.0], [10.0, 4.0]]).double()
    view = Stubs(
        {"actor": Stub(lambda context: q[context["state"]]), "target": Stub(lambda context: target[context["state"]])}
    )
    loss = Td(DoubleQ(0.5), of=OfChoice())(transition(terminal, truncated), view)
    assert float(loss.sum) == (1.125 if terminal else 0.125)
    assert int(loss.count) == 1


TWIN_NOW = torch.tensor([2.5, 3.5], dtype=torch.float64).view(2, 1, 1)


def twin_view(actor: Stub, number: float = 0.5) -> Stubs:
    """Q = 2.5 and 3.5 now, 4 and 6 in the targets, a temperature of 1/4."""
    models = {
        "actor": actor,
        "actor_target": actor,
        "q": lambda context, action: TWIN_NOW,
        "q_target": lambda context, action: torch.tensor([4.0, 6.0]).double().view(2, 1, 1),
        "temperature": lambda: torch.tensor(0.25).double(),
    }
    return Stubs(models, number)


@pytest.mark.parametrize(("terminal", "truncated"), ENDINGS)
def test_td3_takes_the_smaller_target_by_hand(terminal: bool, truncated: bool) -> None:
    """y = 1 + 4/2 = 3: errors 1/2 and 1/2, loss 1/4. Terminal: y = 1, errors 1.5 and 2.5, loss (2.25 + 6.25) / 2."""
    actor = Stub(decide=lambda context: context["state"].unsqueeze(-1).double())
    loss = Td(SmoothedTwin(0.5))(transition(terminal, truncated), twin_view(actor))
    assert float(loss.sum) == pytest.approx(4.25 if terminal else 0.25)


def test_td3_limits_the_noise_and_stays_in_the_bounds() -> None:
    """mu'(s') = 0.9, noise 0.2 z cut at 0.5, bounds -1 and 1: actions 1.0 (z large) and 0.4 (z very negative)."""
    asked: list[float] = []

    def q_target(context: Mapping[str, Tensor], action: Tensor) -> Tensor:
        asked.append(float(action))
        return torch.zeros(2, 1, 1).double()

    actor = Stub(decide=lambda context: torch.full((1, 1, 1), 0.9).double())
    for number in (1 - 1e-9, 1e-9):
        view = twin_view(actor, number)
        Td(SmoothedTwin(0.5))(transition(False, False), Stubs({**view.models, "q_target": q_target}, number))
    assert asked == pytest.approx([1.0, 0.4])


@pytest.mark.parametrize(("terminal", "truncated"), ENDINGS)
def test_sac_subtracts_the_log_probability_of_the_next_action_by_hand(terminal: bool, truncated: bool) -> None:
    """log pi(a'|s') = -2: y = 1 + (4 + 2/4) / 2 = 3.25, errors -0.75 and 0.25. A terminal step has no next action."""
    actor = Stub(sample=lambda context, uniform: (uniform, torch.full((1, 1), -2.0).double()))
    loss = Td(SoftTwin(0.5))(transition(terminal, truncated), twin_view(actor))
    assert float(loss.sum) == pytest.approx(4.25 if terminal else 0.3125)


# ---------------------------------------------------------------------------------------------------- autoreset
VALUE_S = torch.tensor([0.3, -0.8, 1.1, 0.4, 2.0], dtype=torch.float64)
Q_SA = torch.stack([VALUE_S, VALUE_S.flip(0)], 1)


def fragment() -> Experience:
    """A random walk in a chain of five states: episodes end at the goal or are cut after twenty decisions."""
    task = chain(5)
    rollout = Fragments(num_envs=8, steps=96)
    actor = Policy(Table()).build(task.spec)
    record = rollout(gathering(task, actor, np.empty(0, np.int64), Draw(3, (0,))), rollout.init(Scene(task)))
    assert int(record.terminal.sum()) > 8
    assert int(record.truncated.sum()) > 8
    inside = ~record.mask[:, 1:-1]
    assert bool(inside.any()), "the step after an end is recorded and is no decision"
    return replace(record, reward=record.reward.double(), logp=record.logp.double())


def losses(record: Experience) -> dict[str, Tensor]:
    """Loss and gradient of the policy, the value and the action values on a fragment."""
    actor: Any = Policy(Table()).build(chain(5).spec).double()
    value = VALUE_S[record.context["state"]].requires_grad_()
    logp = actor.score(record, frozenset()).logp
    entropy = torch.zeros_like(logp) + 0.1 * logp
    ppo = probes.loss(recipes.ppo(), record.rows(slice(None)), logp, entropy=entropy, value=value)
    policy_slope, value_slope = torch.autograd.grad(ppo.loss, (actor.body.table, value))
    view = Stubs({name: Stub(lambda context: Q_SA[context["state"]]) for name in ("actor", "target")})
    values = Td(DoubleQ(0.9), of=OfChoice())(record, view)
    return {
        "ppo": ppo.loss.detach(),
        "policy": policy_slope,
        "value": value_slope,
        "dqn": values.sum,
        "count": values.count,
    }


def test_the_column_after_an_end_is_no_decision() -> None:
    """Reward, action and log-probability of masked columns can be anything."""
    record = fragment()
    hidden = ~record.mask
    junk = replace(
        record,
        reward=torch.where(hidden, 77.0, record.reward),
        action=torch.where(hidden, 1 - record.action, record.action),
        logp=torch.where(hidden, -5.0, record.logp),
    )
    before, after = losses(record), losses(junk)
    for name, value in before.items():
        assert torch.equal(value, after[name]), name


def test_the_context_after_an_end_counts_where_the_episode_was_cut_and_nowhere_else() -> None:
    record = fragment()
    hidden = ~record.mask
    state = record.context["state"]
    moved = replace(record, context={"state": torch.where(hidden, (state + 1) % 5, state)})
    for credit in (Gae(discount=0.9, gae_lambda=0.0), Gae(discount=0.9, gae_lambda=0.7)):
        seen, other = (
            credit(r.add({"value": VALUE_S[r.context["state"]]})).column("advantage") for r in (record, moved)
        )
        changed = seen != other
        bootstraps = record.mask & ~record.terminal & torch.nn.functional.pad(hidden[:, 1:], (0, 1))
        if credit.gae_lambda == 0.0:
            assert torch.equal(changed, bootstraps)
            gap = VALUE_S[moved.context["state"]] - VALUE_S[state]
            shifted = torch.nn.functional.pad(gap[:, 1:], (0, 1)) * 0.9
            assert torch.allclose((other - seen)[bootstraps], shifted[bootstraps], atol=1e-14)
        assert bool(changed[record.truncated & ~record.terminal].all())
        assert not bool(changed[record.terminal].any())
        assert not bool(changed[hidden].any())
    assert not torch.equal(losses(record)["dqn"], losses(moved)["dqn"])


# ---------------------------------------------------------------------------------------------------- a slow reference
def slow_gae(
    reward: Tensor, value: Tensor, mask: Tensor, terminal: Tensor, truncated: Tensor, discount: float, decay: float
) -> Tensor:
    """Row by row, decision by decision, as a forward sum of one-step errors."""
    result = torch.zeros_like(reward)
    for row in range(len(mask)):
        decisions = mask[row].nonzero().flatten().tolist()
        errors: list[float] = []
        stops: list[bool] = []
        for place, now in enumerate(decisions):
            following = decisions[place + 1] if place + 1 < len(decisions) else None
            is_end = bool(terminal[row, now]) or bool(truncated[row, now]) or following is None
            column = now + 1 if is_end else following
            after = 0.0 if bool(terminal[row, now]) or column == mask.shape[1] else float(value[row, column])
            errors.append(float(reward[row, now]) + discount * after - float(value[row, now]))
            stops.append(is_end)
        for place, now in enumerate(decisions):
            weight, total = 1.0, 0.0
            for error, stop in zip(errors[place:], stops[place:], strict=True):
                total += weight * error
                weight *= discount * decay
                if stop:
                    break
            result[row, now] = total
    return result


@st.composite
def tracks(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Rewards, values, and masks with holes, terminal and truncated steps anywhere."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 8)))
    finite = st.floats(-3, 3, allow_nan=False, width=32)
    reward, value = (torch.from_numpy(draw(arrays(np.float64, shape, elements=finite))) for _ in range(2))
    mask, terminal, truncated = (torch.from_numpy(draw(arrays(np.bool_, shape))) for _ in range(3))
    return reward, value, mask, terminal & mask, truncated & mask


unit = st.floats(0, 1, allow_nan=False)


@given(track=tracks(), discount=unit, decay=unit)
def test_gae_equals_the_slow_reference(track: tuple[Tensor, ...], discount: float, decay: float) -> None:
    expected = slow_gae(*track, discount, decay)  # type: ignore[misc]
    assert torch.allclose(returns.gae(*track, discount, decay), expected, rtol=0, atol=1e-12)  # type: ignore[misc]


@given(track=tracks(), discount=unit)
def test_decay_zero_is_the_one_step_error_and_decay_one_the_return(track: tuple[Tensor, ...], discount: float) -> None:
    reward, value, mask, terminal, truncated = track
    after, goes_on = returns.following_value(value, mask, terminal, truncated)
    one_step = (reward + discount * after - value) * mask
    assert torch.allclose(returns.gae(*track, discount, 0.0), one_step, rtol=0, atol=1e-13)  # type: ignore[misc]
    bootstrapped = torch.where(goes_on, reward, reward + discount * after)
    to_go = returns.accumulate(bootstrapped, discount, mask, goes_on) - value * mask
    assert torch.allclose(returns.gae(*track, discount, 1.0), to_go, rtol=0, atol=1e-12)  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------------- Bellman
def every_transition(slip: float) -> tuple[Experience, Tensor, Tensor]:
    """All (s, a, s') of a slippery chain as rows of two columns; P(s'|s, a) of each row; the terminal states."""
    table = table_of(chain(5, slip))
    state, action, after = (
        t.flatten() for t in torch.meshgrid(torch.arange(5), torch.arange(2), torch.arange(5), indexing="ij")
    )
    mask = torch.tensor([[True, False]]).expand(len(state), 2)
    rows = Experience(
        context={"state": torch.stack([state, after], 1)},
        action=torch.stack([action, action], 1),
        mask=mask,
        logp=torch.zeros(len(state), 2).double(),
        reward=torch.stack([table.R[state, action], torch.zeros(len(state)).double()], 1),
        terminal=mask & table.terminal[after].unsqueeze(1),
        truncated=torch.zeros_like(mask),
    )
    return rows, table.P.double()[state, action, after], table.terminal


def test_the_expected_one_step_target_is_the_bellman_operator() -> None:
    """E[r + discount V(s') | s, a] = R + discount P V for any V; for V of the policy the expected advantage is 0."""
    rows, chance, terminal = every_transition(slip=0.3)
    table, goes_on = table_of(chain(5, 0.3)), (~terminal).double()
    policy = torch.tensor([0.35, 0.65], dtype=torch.float64).expand(5, 2)
    own = probes.evaluate_table(table.P, table.R, policy, 0.9, terminal)
    for value in (own, VALUE_S * goes_on):
        seen = Gae(discount=0.9, gae_lambda=0.0)(rows.add({"value": value[rows.context["state"]]}))
        target_SA = (chance * seen.column("return")[:, 0]).view(5, 2, 5).sum(-1)
        assert torch.allclose(target_SA, table.R + 0.9 * table.P @ value, atol=1e-14)
        advantage_S = ((chance * seen.column("advantage")[:, 0]).view(5, 2, 5).sum(-1) * policy).sum(-1)
        assert (float((advantage_S * goes_on).abs().max()) < 1e-14) == (value is own)


def q_learning_errors(loss: CriticLoss, rows: Experience, q_SA: Tensor) -> Tensor:
    """d loss / d Q(s, a) of each row: Q - y, where that is below 1."""
    chosen = q_SA[rows.context["state"]].clone().requires_grad_()
    calls = iter([chosen[:, 1:], chosen[:, :1]])  # the target comes first
    view = Stubs({"actor": Stub(lambda context: next(calls)), "target": Stub(lambda context: q_SA[context["state"]])})
    (slope,) = torch.autograd.grad(loss(rows, view).sum, chosen)
    return slope[:, 0].gather(1, rows.action[:, :1]).squeeze(1)


def test_q_learning_has_no_expected_error_at_the_optimal_values_and_only_there() -> None:
    rows, chance, terminal = every_transition(slip=0.3)
    optimal = action_values(table_of(chain(5, 0.3)), discount=0.9)
    for q_SA, is_fixed_point in ((optimal, True), (optimal + 0.2, False)):
        error_SA = (chance * q_learning_errors(Td(DoubleQ(0.9), of=OfChoice()), rows, q_SA)).view(5, 2, 5).sum(-1)
        assert (float(error_SA[~terminal].abs().max()) < 1e-10) == is_fixed_point
