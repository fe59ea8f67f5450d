"""What serl's parts compute, against numbers worked out by hand. Axes: B rows, T columns, N critics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.probes import steps
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin, State
from assay.core.slots import Scene
from assay.tasks.control.peg import peg

TASK = peg()


@dataclass(frozen=True)
class Given:
    """A classifier that reads its logit from the observation."""

    def model(self, name: str) -> Any:
        """Returns the classifier."""
        return lambda context: context["observation"][..., 0]

    def over(self, name: str, rows: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """All rows at once."""
        return function(self.model(name), rows)


def gathered() -> Experience:
    """Returns random transitions, a third of which are demonstrations; some of each end."""
    data = probes.transitions(num=64)
    origin = torch.where(torch.arange(64) % 3 == 1, int(Origin.DATASET), int(Origin.POLICY))
    ends = data.mask & (torch.arange(64) % 4 == 1).unsqueeze(1)
    return replace(data, source=origin, terminal=data.terminal | ends)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, models, out = steps.step_of(seen), seen.models, steps.output
    logit, origin = out(models["success"], step.after), seen.experience.source
    assert origin is not None
    shown = step.here & (origin == int(Origin.DATASET)) & (step.goes_on == 0)
    own = step.here & (origin == int(Origin.POLICY))
    told = -(0.9 * logit.sigmoid().log() + 0.1 * (1 - logit.sigmoid()).log())[shown].mean()
    told = told - (0.1 * logit.sigmoid().log() + 0.9 * (1 - logit.sigmoid()).log())[own].mean()
    climbed = steps.sac_actor(seen, lambda now, action: out(models["q"], now, action).mean(0), least=1.0)
    return {"success": told, "critic": steps.rlpd_critics(seen, 0.96, (logit >= 0).double()), "actor": climbed}


def transitions(after: Sequence[float], *, reward: float = 0.0, ends: bool = False) -> Experience:
    """One transition for each first number of the observation after it."""
    num = len(after)
    seen = torch.zeros(num, 2, 2, dtype=torch.float64)
    seen[:, 1, 0] = torch.tensor(after, dtype=torch.float64)
    first = torch.tensor([[True, False]]).expand(num, 2)
    paid = reward * first.double()
    return Experience({"observation": seen}, torch.zeros(num, 2, 2), first, 0 * paid, paid, first & ends, first)


def paid(recipe: Recipe, after: Sequence[float], reward: float = 0.0) -> Tensor:
    """What the recipe's last reward gives for these logits of the states after."""
    rows = transitions(after, reward=reward)
    return recipe.rewards[-1](rows, Scene(models=Given())).reward.sum(1)


def drawn(recipe: Recipe, classifier_moves: float = 0.0) -> list[Experience]:
    """The batches of one step with 10,000 stored transitions; the first classifier finds all of them a success, later
    ones are moved by so much at each batch.
    """
    logit = [1.0]

    @dataclass(frozen=True)
    class Moving(Given):
        def model(self, name: str) -> Any:
            """A classifier that ignores what it sees."""
            return lambda context: torch.full(context["observation"].shape[:-1], logit[0])

    fresh = transitions([5.0] * 10_000)
    scene = Scene(TASK, Moving(), Draw(0, (1,)), fresh=fresh)
    state: State = recipe.source.init(scene)
    found = []
    for batch in recipe.source(scene, state):
        found.append(batch)
        logit[0] += classifier_moves
    return found


def rows_of_demonstrations(recipe: Recipe) -> float:
    """The smallest and the largest share of demonstrations in a batch, added."""
    shares = [
        float((batch.source == int(Origin.DATASET)).float().mean())
        for batch in drawn(recipe)
        if batch.source is not None
    ]
    return min(shares) + max(shares)


def wrong_ends(recipe: Recipe) -> float:
    """Own rows that end though nothing was classified or the other way around, in batches of the critics while the
    classifier turns, and own rows that end in batches of the classifier; stored rows do not end.
    """
    online, wrong = drawn(recipe, classifier_moves=-0.75), 0
    for batch in online:
        own = batch.rows(batch.source == int(Origin.POLICY)) if batch.source is not None else batch
        wrong += int((own.terminal != (own.reward > 0)).sum())
    stage = next(stage for stage in recipe.stages if stage.name == "success")
    assert stage.source is not None
    for batch in drawn(replace(recipe, source=stage.source)):
        wrong += int(batch.rows(batch.source == int(Origin.POLICY)).terminal.sum()) if batch.source is not None else 1
    return wrong


def first_gap(recipe: Recipe) -> int:
    """Returns what is wrong with the first phase: other rows than demonstrations, another loss than of their states,
    other weights handed on, another first temperature than 0.01.
    """
    (phase,) = recipe.before
    (stage,), source, scene = phase.recipe.stages, phase.recipe.source, Scene(TASK, draw=Draw(0))
    rows = next(iter(source(scene, source.init(scene))))
    assert rows.source is not None
    negative: Any = stage.critic[1].target  # type: ignore[attr-defined]
    shown = int(Origin.DATASET)
    wrong = [phase.hands != {"success": "success"}, bool((rows.source != shown).any()), negative.origin != shown]
    first: Any = recipe.critics["temperature"].build(TASK.spec)
    return sum(wrong) + int(abs(float(first().detach()) - 0.01) > 1e-6)
