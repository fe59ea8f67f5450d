"""What must not change an update: micro-batches, padding, packing, row order. And what serves both worlds unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.claims import probes
from assay.claims.laws.benches import smaller
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience, Loss, Need, State, pad
from assay.core.slots import Scene, View
from assay.core.spaces import Box, Discrete, Spec, Vocabulary
from assay.engine.flat import Flat
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.engine.updates import Update
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic, Policy, Temperature
from assay.parts.credit.temporal import Gae
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.rewards.function import FromFunction
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.sources.fresh import flatten
from assay.recipes.presets import CONTROL, LANGUAGE
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition

WORDS = Vocabulary(11, pad=0, bos=1, eos=2)
LANGUAGE_SPEC = Spec(WORDS, WORDS, horizon=12)
CHOICES = Spec(Box((-1.0,) * 3, (1.0,) * 3), Discrete(3), horizon=10)
TORQUES = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-1.0, -2.0), (1.0, 2.0)), horizon=10)
SMALL = {"actor": Policy(Transformer(16, 1, 2)), "critics": {"value": Critic(Transformer(16, 1, 2))}}
DENSE = Transformer(16, 1, 2, pack_to=20)
PACKED = {"actor": Policy(DENSE), "critics": {"value": Critic(DENSE)}}


def tokens() -> Experience:
    """Twelve completions of prompts, in groups of unequal sizes; one has a hole, one is empty, two share an episode."""
    generator = torch.Generator().manual_seed(11)
    prompt = torch.tensor([2, 2, 2, 2, 4, 4, 4, 3, 3, 3, 3, 2])
    length = torch.tensor([5, 1, 3, 6, 2, 2, 4, 1, 6, 3, 5, 4])
    column = torch.arange(10)
    valid = column < (prompt + length).unsqueeze(1)
    mask = valid & (column >= prompt.unsqueeze(1))
    mask[3, 4], mask[7] = False, False
    written = torch.where(valid, torch.randint(3, 11, (12, 10), generator=generator), 0)
    written[:, 0] = 1
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    score = torch.tensor([1.0, 0.0, 0.5, 0.2, 1.0, 0.0, 0.1, 9.0, 0.3, 0.05, 1.0, 0.7])
    return Experience(
        context={"tokens": written, "valid": valid},
        action=written,
        mask=mask,
        logp=(-2.3 + 0.4 * torch.rand(12, 10, generator=generator)) * mask,
        reward=score.unsqueeze(1) * last,
        terminal=last,
        truncated=torch.zeros_like(mask),
        group=torch.tensor([5, 5, 5, 5, 1, 1, 1, 8, 8, 8, 8, 3]),
        episode=torch.tensor([0, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    )


def steps(spec: Spec) -> Experience:
    """Six fragments of control: ends inside, the masked column after them, the closing column."""
    generator = torch.Generator().manual_seed(12)
    shape = (6, 8)
    terminal, truncated = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    terminal[0, 2] = terminal[3, 6] = terminal[5, 0] = truncated[1, 4] = truncated[4, 3] = True
    mask = ~torch.nn.functional.pad((terminal | truncated)[:, :-1], (1, 0))
    mask[:, -1] = False
    action = torch.randint(0, 3, shape, generator=generator)
    if isinstance(spec.action, Box):
        action = 1.8 * torch.rand(*shape, spec.action.size, generator=generator) - 0.9
    return Experience(
        context={"observation": torch.randn(*shape, 3, generator=generator)},
        action=action,
        mask=mask,
        logp=(-1.0 - 0.4 * torch.rand(shape, generator=generator)) * mask,
        reward=torch.randn(shape, generator=generator) * mask,
        terminal=terminal & mask,
        truncated=truncated & mask,
        group=torch.tensor([0, 0, 0, 7, 7, 7]),
    )


def small(recipe: Recipe, spec: Spec) -> Recipe:
    """The recipe with models of a few hundred parameters."""
    if isinstance(spec.action, Vocabulary):
        return replace(recipe, actor=SMALL["actor"], critics=SMALL["critics"] if recipe.critics else {})
    critics = {name: smaller(part) for name, part in recipe.critics.items()}
    if "temperature" in critics:
        critics["temperature"] = Temperature(0.5)
    return replace(recipe, actor=smaller(recipe.actor), critics=critics)


CASES: dict[str, tuple[Callable[..., Recipe], Spec]] = {
    **{
        f"{base.__name__} on tokens": (base, LANGUAGE_SPEC)
        for base in (
            recipes.sft, recipes.reinforce, recipes.rloo, recipes.group_reinforce, recipes.grpo, recipes.dr_grpo,
            recipes.dapo,
            recipes.gspo, recipes.cispo, recipes.dpo, recipes.ppo, recipes.a2c,
        )
    },
    **{f"{base.__name__} on choices": (base, CHOICES) for base in (recipes.ppo, recipes.a2c, recipes.dqn, recipes.bc)},
    **{
        f"{base.__name__} on torques": (base, TORQUES)
        for base in (recipes.ppo, recipes.td3, recipes.sac, recipes.bc, recipes.grpo)
    },
}  # fmt: skip
TOKEN_CASES = [name for name, (_, spec) in CASES.items() if spec is LANGUAGE_SPEC]


@pytest.fixture
def _in_float64() -> None:
    torch.set_default_dtype(torch.float64)


def case(name: str) -> tuple[Recipe, Spec, Experience]:
    base, spec = CASES[name]
    recipe = small(base(LANGUAGE if spec is LANGUAGE_SPEC else CONTROL), spec).at_limit(spec.horizon)
    batch = tokens() if spec is LANGUAGE_SPEC else steps(spec)
    # A pair is two rows: rows that share an episode share its outcome, and equal outcomes are paired by row number.
    return recipe, spec, replace(batch, episode=None) if base is recipes.dpo else batch


def updates(recipe: Recipe, spec: Spec, batch: Experience, micro_batch: int = 0, shards: int = 1) -> dict[str, Tensor]:
    """Gradients, losses and metrics of every stage's update, as the engine computes them."""
    engine = probes.Witness(recipe, spec, 3, Placement(micro_batch=micro_batch, shards=shards))
    batch = probes.credited(recipe, engine.annotate(batch, recipe.needs))
    found: dict[str, Tensor] = {}
    for stage in recipe.stages:
        entries = engine.update(stage, batch).sums
        sums = {name: torch.tensor(some, dtype=torch.float64).sum(0) for name, some in entries.items()}
        assert max(float(value.abs().max()) for value in engine.gradients.values()) > 1e-6, stage.name
        found |= {f"{stage.name}: {name}": value for name, value in engine.gradients.items()}
        found |= {f"{stage.name}: {name}, mean": pair[0].double() / pair[1].clamp(min=1) for name, pair in sums.items()}
        found |= {f"{stage.name}: {name}, count": pair[1].double() for name, pair in sums.items() if "loss/" in name}
    return found


def assert_same(mine: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    assert mine.keys() == other.keys()
    for name, value in mine.items():
        assert torch.allclose(value, other[name], rtol=tolerance, atol=tolerance), name


# ---------------------------------------------------------------------------------------------------- updates
@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("micro_batch", [1, 5])
def test_micro_batches_do_not_change_an_update(name: str, micro_batch: int) -> None:
    recipe, spec, batch = case(name)
    assert_same(updates(recipe, spec, batch), updates(recipe, spec, batch, micro_batch))


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("name", CASES)
def test_shards_do_not_change_an_update(name: str) -> None:
    recipe, spec, batch = case(name)
    assert_same(updates(recipe, spec, batch), updates(recipe, spec, batch, micro_batch=2, shards=8), 1e-12)


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("name", CASES)
def test_padding_does_not_change_an_update(name: str) -> None:
    recipe, spec, batch = case(name)
    longer = pad(batch, batch.num_columns + 5)
    assert_same(updates(recipe, spec, batch), updates(recipe, spec, longer))
    assert_same(updates(recipe, spec, batch), updates(recipe, spec, longer, micro_batch=4))


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("name", TOKEN_CASES)
def test_packing_does_not_change_an_update(name: str) -> None:
    recipe, spec, batch = case(name)
    packed = replace(recipe, actor=PACKED["actor"], critics=PACKED["critics"] if recipe.critics else {})
    assert_same(updates(recipe, spec, batch), updates(packed, spec, batch))
    assert_same(updates(recipe, spec, batch), updates(packed, spec, pad(batch, 14), micro_batch=5))


def engine_loss(engine: probes.Witness, stage: Stage, batch: Experience) -> tuple[Tensor, list[Tensor]]:
    """The engine's loss on rows that keep their numbers, and its gradient."""
    loss = engine.loss(stage, batch, [term.count(batch) for term in stage.terms], Update())
    assert loss is not None
    parameters = [tensor for name in stage.trains for tensor in engine.flats[name].tensors]
    return loss.detach(), list(torch.autograd.grad(loss, parameters))


@pytest.mark.usefixtures("_in_float64")
@pytest.mark.parametrize("name", CASES)
def test_the_order_of_rows_does_not_change_an_update(name: str) -> None:
    """Rows take the numbers with them that their random draws come from (column `row`)."""
    recipe, spec, batch = case(name)
    order = torch.from_numpy(np.random.default_rng(5).permutation(len(batch)))
    engine = probes.Witness(recipe, spec, 3, Placement())
    batch = engine.annotate(batch, recipe.needs).add({"row": torch.arange(len(batch))})
    mine, other = probes.credited(recipe, batch), probes.credited(recipe, batch.rows(order))
    for column in ("advantage", "return", "chosen"):
        if column in mine.extra:
            assert torch.allclose(mine.extra[column][order], other.extra[column], rtol=0, atol=1e-12), column
    for stage in recipe.stages:
        (loss, slopes), (other_loss, other_slopes) = engine_loss(engine, stage, mine), engine_loss(engine, stage, other)
        assert torch.allclose(loss, other_loss, rtol=1e-10, atol=1e-10)
        for slope, other_slope in zip(slopes, other_slopes, strict=True):
            assert torch.allclose(slope, other_slope, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["grpo on tokens", "ppo on tokens", "dpo on tokens", "ppo on torques", "sac on torques"]
)
def test_in_float32_updates_agree_to_rounding(name: str) -> None:
    recipe, spec, batch = case(name)
    mine, other = updates(recipe, spec, batch), updates(recipe, spec, pad(batch, batch.num_columns + 3), micro_batch=5)
    for part, value in mine.items():
        assert torch.allclose(value, other[part], rtol=1e-5, atol=1e-5 * max(1e-3, float(value.abs().max()))), part


# ---------------------------------------------------------------------------------------------------- the optimizer
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_is_torch_adam(weight_decay: float) -> None:
    """Twenty steps on gradients of very different sizes; with weight decay it is AdamW."""
    mine, theirs = nn.Linear(7, 5), nn.Linear(7, 5)
    theirs.load_state_dict(mine.state_dict())
    settings = Adam(learning_rate=3e-2, betas=(0.8, 0.95), epsilon=1e-6, weight_decay=weight_decay)
    values = [Flat(mine).values]
    state = settings.init(values)
    kind = torch.optim.AdamW if weight_decay else torch.optim.Adam
    optimizer = kind(theirs.parameters(), lr=3e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        gradients = [10.0 ** (step % 5 - 3) * torch.randn(p.shape, generator=generator) for p in theirs.parameters()]
        for parameter, gradient in zip(theirs.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        with torch.no_grad():
            settings.step(values, [torch.cat([gradient.reshape(-1) for gradient in gradients])], {}, state)
        for own, other in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(own, other, rtol=0, atol=1e-6)


# ---------------------------------------------------------------------------------------------------- both worlds
SEEN: list[tuple[int, str]] = []


def world_seen(batch: Experience) -> str:
    return "tokens" if "tokens" in batch.context else "torques"


class WatchedGae(Gae):
    """Says who was called, and on what."""

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        SEEN.append((id(self), world_seen(experience)))
        return super().apply(experience, scene, state)


class WatchedPolicyGradient(PolicyGradient):
    """Says who was called, and on what."""

    def __call__(self, batch: Experience, view: View) -> Loss:
        SEEN.append((id(self), world_seen(batch)))
        return super().__call__(batch, view)


def number_of_characters(rows: Sequence[dict[str, Any]]) -> list[float]:
    return [float(len(row["completion"])) for row in rows]


def test_the_same_credit_and_objective_objects_serve_cartpole_and_tokens() -> None:
    gae, objective = WatchedGae(discount=0.99, gae_lambda=0.95), WatchedPolicyGradient()
    base = recipes.ppo(CONTROL)
    stages = (replace(base.stages[0], objective=(objective,)), *base.stages[1:])
    shared = replace(base, credit=(gae, *base.credit[1:]), stages=stages)
    control = replace(small(shared, CHOICES), rollout=Fragments(num_envs=4, steps=16))
    episodes = Episodes(num_starts=2, group_size=3)
    language = replace(small(shared, LANGUAGE_SPEC), rollout=episodes, source=LANGUAGE.minibatch_source)
    language = replace(language, rewards=(FromFunction(number_of_characters),))
    SEEN.clear()
    loops = [Loop(control, cartpole(), seed=0, num_steps=2), Loop(language, addition(1), seed=0, num_steps=2)]
    fresh = [loop.step().fresh for loop in loops]
    for loop in loops:
        now = loop.recipe.at(loop.progress)
        assert now.credit[0] is gae
        assert now.stages[0].objective[0] is objective
        assert loop.progress.updates > 0
    for part in (gae, objective):
        assert {world for who, world in SEEN if who == id(part)} == {"torques", "tokens"}
    assert {who for who, _ in SEEN} == {id(gae), id(objective)}
    assert all(one is not None and bool((one.column("advantage") != 0).any()) for one in fresh)


def test_a_control_batch_under_the_name_of_tokens_has_bitwise_the_same_loss() -> None:
    """Nothing in credit, policy loss, entropy or value loss looks at what kind of context there is."""
    control = flatten(steps(CHOICES))
    for torques in (steps(CHOICES), control):
        written = torch.where(torques.mask, torques.action, 0)
        named = replace(torques, context={"tokens": written, "valid": torch.ones_like(torques.mask)})
        values = torch.randn(torques.mask.shape, generator=torch.Generator().manual_seed(4))
        recipe = recipes.ppo(CONTROL)
        mine, other = (
            probes.loss(recipe, record, record.logp - 0.1 * values, entropy=-record.logp, value=values)
            for record in (torques, named)
        )
        assert float(mine.loss) == float(other.loss)
        assert mine.means == other.means
        assert {name: float(value) for name, value in mine.sums.items()} == {n: float(v) for n, v in other.sums.items()}
        assert torch.equal(mine.experience.column("advantage"), other.experience.column("advantage"))


@pytest.mark.parametrize("name", ["grpo on tokens", "ppo on choices", "td3 on torques"])
def test_no_gradient_comes_from_masked_decisions(name: str) -> None:
    """Recorded actions and log-probabilities of masked columns can be anything."""
    recipe, spec, batch = case(name)
    hidden = ~batch.mask
    wide = hidden if batch.action.dim() == 2 else hidden.unsqueeze(-1)
    junk = replace(
        batch,
        action=torch.where(wide, 1, batch.action).to(batch.action.dtype),
        logp=torch.where(hidden, -9.0, batch.logp),
    )
    assert Need.HIDDEN not in recipe.needs
    assert_same(updates(recipe, spec, batch), updates(recipe, spec, junk), 0.0)


@pytest.mark.parametrize(
    "base", [recipes.reinforce, recipes.rloo, recipes.grpo, recipes.dr_grpo, recipes.dpo, recipes.ppo]
)
def test_a_sequence_without_decisions_changes_nobodys_credit(base: Callable[..., Recipe]) -> None:
    """Row 7 left training, as an infrastructure fault makes it: the others are credited as if it were not there."""
    recipe, whole = base(LANGUAGE), replace(tokens(), episode=None)
    whole = whole.add({"value": torch.linspace(-1, 1, 120).view(12, 10), "logp_ref": whole.logp})
    kept = whole.mask.any(1)
    mine, other = probes.credited(recipe, whole), probes.credited(recipe, whole.rows(kept))
    for column in ("advantage", "chosen"):
        if column in mine.extra:
            assert torch.allclose(mine.extra[column][kept], other.extra[column], atol=1e-6), column


def in_segments(batch: Experience, row: int) -> Experience:
    """The same decisions, those of one row in two rows of one episode, as multi-turn rollouts record them."""
    index = torch.cat([torch.arange(len(batch)), torch.tensor([row])])
    decided = batch.mask[row].nonzero().flatten()
    early = torch.arange(batch.num_columns) < decided[len(decided) // 2]
    mask = batch.mask[index].clone()
    mask[row] &= early
    mask[-1] &= ~early
    return replace(batch.rows(index), mask=mask, episode=torch.arange(len(batch))[index])


@pytest.mark.parametrize("base", [recipes.group_reinforce, recipes.grpo, recipes.dapo, recipes.cispo])
def test_an_episode_in_two_rows_is_credited_and_weighed_as_one(base: Callable[..., Recipe]) -> None:
    whole = replace(tokens().map(lambda x: x.double() if x.is_floating_point() else x), episode=None)
    parts = in_segments(whole, row=3)
    mine, other = (probes.loss(base(LANGUAGE), record, record.logp + 0.05) for record in (whole, parts))
    assert float(mine.loss) == pytest.approx(float(other.loss), abs=1e-12)
    assert int(mine.counts["PolicyGradient"]) == int(other.counts["PolicyGradient"])
