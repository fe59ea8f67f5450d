"""The gradient of a recipe against an independent formula, on random experience. Axes: B sequences, T decisions.

    Exact("its gradient is the formula's", lambda: formula_gap(recipe(TABLE), sequences(), loss), at_most=1e-9)

`sequences` and `transitions` hold what hides mistakes: other log-probabilities than the policy's, masked columns and
rows, terminal and truncated ends, unequal lengths, rewards on several decisions. All models are float64 with random
weights, target networks and references differ from their models, so a mixed-up model changes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.probes.gradients import Witness, witness
from assay.claims.probes.tensors import worst
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress, Scored, State
from assay.core.slots import ALONE, ModelSpec, Scene, Transform
from assay.core.spaces import Box, Discrete, Spec, Vocabulary
from assay.core.verifier import VERIFIED
from assay.engine.engine import Engine, StageView
from assay.engine.loop_metrics import means
from assay.models.bodies.table import Table
from assay.models.model import Critic, Policy
from assay.ops import random

TABLE_SPEC = Spec(Discrete(5), Discrete(4), horizon=6)
"""The task of `sequences`: 5 states, 4 actions, at most 6 decisions."""
LOGITS_SA = torch.randn(5, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
"""The policy of table tasks: `sequences` were sampled near it."""
BOX_SPEC = Spec(Box((-3.0,) * 3, (3.0,) * 3), Box((-2.0, -1.0), (2.0, 0.5)), horizon=20)
"""A continuous task of `transitions`: 3 observations, 2 actions with uneven bounds."""
CHOICE_SPEC = Spec(Box((-3.0,) * 3, (3.0,) * 3), Discrete(4), horizon=20)
"""A task of `transitions` with 4 discrete actions."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What a formula may use: the experience as gathered, all models, and the random numbers of the update."""

    experience: Experience
    models: Mapping[str, Any]
    engine: Witness

    def logp(self, model: str = "actor") -> Tensor:
        """Returns the log-probability of each recorded decision under a table of logits, 0 where masked."""
        logits = self.models[model].body.table[self.experience.context["state"]]
        chosen = logits.log_softmax(-1).gather(-1, self.experience.action.unsqueeze(-1)).squeeze(-1)
        return torch.where(self.experience.mask, chosen, 0.0)

    def value(self, model: str = "value") -> Tensor:
        """Returns the value of each column's state in a table, [B, T]."""
        found: Tensor = self.models[model].body.table[self.experience.context["state"]].squeeze(-1)
        return found

    def uniform(self, *shape: int, tag: int) -> Tensor:
        """Returns the uniform numbers that a loss draws under this tag, [B, *shape]."""
        rows = self.experience.add({"row": torch.arange(len(self.experience))})
        engine = self.engine
        return StageView(engine.models, rows, frozenset(), engine.draw.at(engine.updates)).uniform(
            (len(rows), *shape), tag
        )


def sequences(
    seed: int = 0,
    num: int = 16,
    group_size: int = 4,
    dtype: torch.dtype = torch.float64,
    spread: float = 1.0,
    tied: int = 0,
) -> Experience:
    """Returns random sequences of a table task in groups: a masked first column (a prompt), lengths 1 to 5, one row
    without any decision (an infrastructure fault), ends that are terminal and truncated, rewards on every decision,
    log-probabilities of another policy, and arbitrary numbers wherever the mask is false. With a larger `spread` the
    other policy is further away: ratios beyond 5 need about 4. The first `tied` groups have no rewards.
    """
    draw = torch.Generator().manual_seed(seed)
    length_B = torch.arange(num) * 3 % 5 + 1
    column_T = torch.arange(7)
    mask = (column_T >= 1) & (column_T <= length_B.unsqueeze(1))
    mask[num - 1] = False
    last = mask & (column_T == length_B.unsqueeze(1))
    cut_B = (torch.arange(num) % 3 == 1).unsqueeze(1)
    state, action = (torch.randint(0, top, mask.shape, generator=draw) for top in LOGITS_SA.shape)
    ends = torch.randn(num, 1, generator=draw, dtype=dtype)
    reward = 0.1 * torch.randn(mask.shape, generator=draw, dtype=dtype) + ends * last
    row = torch.arange(num)
    reward = torch.where((row < tied * group_size).unsqueeze(1), 0.0, reward)
    # From nearly on-policy, inside every trust region, to far outside of it.
    distance = spread * torch.tensor([0.5, 1e-4, 0.05, 0.2])[(row + row // 4) % 4].unsqueeze(1)
    moved = distance * torch.randn(mask.shape, generator=draw, dtype=dtype)
    chosen = LOGITS_SA.to(dtype).log_softmax(-1)[state, action]
    logp = (chosen + moved).clamp(max=-0.01)
    columns = {"start": row // group_size, "sample": row % group_size, "score": (reward * mask).sum(1)}
    return Experience(
        {"state": state},
        action,
        mask,
        logp,
        reward,
        last & ~cut_B,
        last & cut_B,
        group=row // group_size,
        extra=columns,
    )


def verified(num: int = 32, group_size: int = 8, dtype: torch.dtype = torch.float64) -> Experience:
    """Returns `sequences` whose outcomes are 0 or 1, on the last decision: one group is all right, one all wrong, one
    has a single failure, the others a few right answers.
    """
    data, row = sequences(num=num, group_size=group_size, dtype=dtype), torch.arange(num)
    member = row % group_size
    right = torch.stack((member >= 0, member < 0, member != 2, member % 3 == 1))[row // group_size % 4, row]
    last = data.terminal | data.truncated
    reward = (right.unsqueeze(1) & last).to(dtype)
    return replace(data, reward=reward, extra={**data.extra, "score": reward.sum(1)})


def transitions(spec: Spec = BOX_SPEC, seed: int = 0, num: int = 8, dtype: torch.dtype = torch.float64) -> Experience:
    """Returns random transitions, two columns each, the second masked: half of them go on, some are terminal, some
    truncated, some both, some have no decision; observations exceed their bounds a little.
    """
    draw = torch.Generator().manual_seed(seed)
    row = torch.arange(num)
    # Of every eight rows, 1 and 4 are terminal, 2 and 4 truncated, 7 has no decision.
    place = row % 8
    mask = torch.stack((place != 7, torch.zeros(num, dtype=torch.bool)), 1)
    ends, cuts = ((place == 1) | (place == 4), (place == 2) | (place == 4))
    terminal, truncated = (torch.stack((one & mask[:, 0], torch.zeros_like(one)), 1) for one in (ends, cuts))
    context: dict[str, Tensor]
    if isinstance(spec.observation, Discrete):
        context = {"state": torch.randint(0, spec.observation.n, (num, 2), generator=draw)}
    else:
        assert isinstance(spec.observation, Box)
        context = {"observation": torch.randn(num, 2, spec.observation.size, generator=draw, dtype=dtype)}
    reward = torch.randn(num, 2, generator=draw, dtype=dtype)
    logp = -torch.rand(num, 2, generator=draw, dtype=dtype)
    return Experience(context, random_actions(spec, draw, num, dtype), mask, logp, reward, terminal, truncated)


def fragments(seed: int = 0, num: int = 64, dtype: torch.dtype = torch.float64, lower: float = 0.0) -> Experience:
    """Returns random fragments of a table task: what `sequences` hold, and episodes that end inside a row, continue
    after columns that are not decisions, or are cut by the end of the fragment, with and without a last column.
    Rewards are `lower` by a number: with 1 most advantages are negative.
    """
    # d: a decision, t: a terminal one, c: a truncated one, b: both, a dot: not a decision
    kinds = ("ddtddd.", "dc.ddt.", "d..dd.t", "ddddddd", ".......", "t.dc.d.", ".ddb.dd", "ddddc..")
    kind = torch.tensor([[".dtcb".index(letter) for letter in kinds[row % 8]] for row in range(num)])
    base = sequences(seed, num, dtype=dtype)
    draw = torch.Generator().manual_seed(seed + 1)
    reward = torch.randn(kind.shape, generator=draw, dtype=dtype) - lower
    ends, cuts = ((kind == own) | (kind == 4) for own in (2, 3))
    return replace(base, mask=kind > 0, reward=reward, terminal=ends, truncated=cuts, group=None, extra={})


def random_actions(spec: Spec, draw: torch.Generator, num: int, dtype: torch.dtype) -> Tensor:
    """Returns random actions of two columns, inside the bounds."""
    if isinstance(spec.action, Discrete | Vocabulary):
        return torch.randint(
            0, spec.action.n if isinstance(spec.action, Discrete) else spec.action.size, (num, 2), generator=draw
        )
    assert isinstance(spec.action, Box)
    low, high = (torch.tensor(side, dtype=dtype) for side in (spec.action.low, spec.action.high))
    return low + (high - low) * (0.05 + 0.9 * torch.rand(num, 2, len(low), generator=draw, dtype=dtype))


def built(recipe: Recipe, spec: Spec, seed: int = 0) -> Witness:
    """Returns a witness of the recipe in float64 with random weights in every model, copies included.

    Tasks with numbered states have tables for the actor and for critics of states, whatever the recipe's networks.
    """
    tabular = spec == TABLE_SPEC
    with random.seeded(seed):
        actor: nn.Module = (Policy(Table()) if tabular else recipe.actor).build(spec)
        critics = {
            name: (tabulated(critic) if tabular and name.endswith("value") else critic).build(spec).double()
            for name, critic in recipe.critics.items()
        }
        engine = witness(recipe, actor.double(), critics, spec=spec)
        for model in engine.models.values():
            for tensor in model.parameters():
                tensor.data.add_(0.3 * torch.randn_like(tensor))
        if tabular:
            engine.model("actor").body.table.data.copy_(LOGITS_SA)
            for name in ("actor", *(copy for copy, one in recipe.copies.items() if one.of == "actor")):
                policy: Any = engine.models[name]
                policy.score = partial(scored_everywhere, policy.score)
    engine.updates = 1  # a run's first update also checks for leaks
    return engine


def scored_everywhere(score: Callable[..., Scored], batch: Experience, needs: frozenset[Any]) -> Scored:
    """Scores columns that are not decisions too, as token policies may: a loss must not use these numbers."""
    return score(replace(batch, mask=torch.ones_like(batch.mask)), needs)


def tabulated(critic: ModelSpec) -> Critic:
    """Returns a critic of states as a table, with its own head."""
    return replace(critic, body=Table()) if isinstance(critic, Critic) else Critic(Table())


def prepared(recipe: Recipe, engine: Engine, experience: Experience, earlier: Sequence[Experience] = ()) -> Experience:
    """Returns the experience as the recipe's losses see it: rewards after the task's own, selection, columns of
    models, credit, constraints; the states of credit and constraints have seen the `earlier` batches. A credit part
    whose columns the experience has already is left out.
    """
    scene = ALONE.given(models=engine)
    credit = [part.init(scene) if is_applied(part, experience) else {} for part in recipe.credit]
    limits = [part.init(scene) for part in recipe.constraints]
    for batch in (*earlier, experience):
        experience = credited_in(scene, recipe, engine, batch, credit)
        for constraint, state in zip(recipe.constraints, limits, strict=True):
            experience = constraint(experience, scene, state)
    return experience


def credited_in(
    scene: Scene, recipe: Recipe, engine: Engine, experience: Experience, states: Sequence[State]
) -> Experience:
    """Returns the experience after rewards, selection, columns of models and credit with these states."""
    given = experience
    is_judged = bool(recipe.rewards) and VERIFIED in recipe.rewards[0].writes  # the experience has the task's rewards
    later = recipe.rewards[1:] if is_judged else recipe.rewards
    for part in (*later, *((recipe.select,) if recipe.select else ())):
        experience = part(experience, scene)
    experience = engine.annotate(experience, recipe.needs)
    for part, state in zip(recipe.credit, states, strict=True):
        if is_applied(part, given):
            experience = part(experience, scene, state)
    return experience


def is_applied(part: Transform, experience: Experience) -> bool:
    """Returns whether a part has a column to write that the experience does not have, or writes none."""
    return not part.writes or not set(experience.extra).issuperset(part.writes)


def source_gap(recipe: Recipe, experience: Experience, batches: int, epochs: int) -> float:
    """Returns how far a step of the recipe's source is from `batches` that hold each decision `epochs` times."""
    place = torch.arange(experience.mask.numel()).view_as(experience.mask)
    scene = ALONE.given(fresh=experience.add({"place": place}), draw=Draw(0))
    found = [batch.column("place")[batch.mask] for batch in recipe.source(scene, recipe.source.init(scene))]
    used = torch.bincount(torch.cat(found), minlength=place.numel()).view_as(place)
    return float((used - epochs * experience.mask.long()).abs().max() + abs(len(found) - batches))


Formula = Callable[[Seen], "Tensor | Mapping[str, Tensor]"]
"""A loss by hand, with gradient into `seen.models`; one for each stage by name if there are several."""


Data = Callable[[], Experience]
"""Makes the experience of a claim when it runs."""


def formula_gap(
    recipe: Recipe,
    experience: Experience | Sequence[Data],
    formula: Formula,
    spec: Spec = TABLE_SPEC,
    seed: int = 0,
    earlier: Sequence[Experience] = (),
) -> float:
    """Returns the largest difference between the recipe's gradient and the formula's, over the largest entry.

    Compares every parameter of every stage that the formula has a loss for. The recipe runs with its own settings, at
    the beginning of its schedules; its credit and constraints have seen the `earlier` batches. Of several data, the
    largest. 0 if both are the same function, 1 or more if they have nothing in common; infinite if the recipe lacks a
    stage of the formula.
    """
    if not isinstance(experience, Experience):
        return max(formula_gap(recipe, make(), formula, spec, seed, earlier) for make in experience)
    recipe = recipe.at_limit(spec.horizon).at(Progress())
    engine = built(recipe, spec, seed)
    losses = formula(Seen(experience, engine.models, engine))
    named = losses if isinstance(losses, Mapping) else {recipe.stages[0].name: losses}
    if missing := named.keys() - {stage.name for stage in recipe.stages}:
        raise AssayError(f"recipe '{recipe.name}' has no stage '{min(missing)}'. Give losses of its own stages")
    batch, worst = prepared(recipe, engine, experience, earlier), [0.0]
    for stage in recipe.stages:
        if stage.name not in named:
            continue
        found = engine.gradient(stage, batch)
        tensors = [tensor for model in stage.trains for tensor in engine.flats[model].tensors]
        right = torch.autograd.grad(named[stage.name], tensors, allow_unused=True, materialize_grads=True)
        gap = torch.stack([(mine - other).abs().max() for mine, other in zip(found.values(), right, strict=True)]).max()
        largest = torch.stack([other.abs().max() for other in right]).max()
        worst.append(float((gap / largest).nan_to_num(torch.inf)))
    return max(worst)


def report_gap(recipe: Recipe, make: Data, formula: Callable[[Seen], Mapping[str, Tensor]], spec: Spec) -> float:
    """Returns the largest relative difference of the metrics that an update of all stages reports from the formula's
    numbers; infinite if one is missing, or carries a gradient: that would keep every update's graph.
    """
    recipe = recipe.at_limit(spec.horizon).at(Progress())
    experience, engine = make(), built(recipe, spec)
    right = {name: float(one.detach()) for name, one in formula(Seen(experience, engine.models, engine)).items()}
    batch = prepared(recipe, engine, experience)
    found = [engine.update(stage, batch).sums for stage in recipe.stages]
    if any(number.requires_grad for sums in found for pairs in sums.values() for pair in pairs for number in pair):
        return float("inf")
    told = means(found)
    return worst(*(abs(told.get(name, float("inf")) - one) / (1.0 + abs(one)) for name, one in right.items()))
