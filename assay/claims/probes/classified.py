"""A classifier of success and the rewards that it gives, by hand: for `assay.recipes.classified`.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims.probes import by_hand, steps
from assay.claims.probes.formulas import Seen, transitions
from assay.claims.probes.offline import drawn
from assay.claims.probes.rollouts import Only, last_paid
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin
from assay.core.slots import Scene, Task

LOGIT, SUCCESS = torch.tensor([[[9.0, 0.0], [9.0, -1e-9], [9.0, 5.0]], [[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]]).double()


def success_loss(seen: Seen, negatives: Origin = Origin.DATASET) -> Tensor:
    """Returns the loss of the model `success`: demonstrated successes to 0.9, the states of these rows to 0.1."""
    step, origin = steps.step_of(seen), seen.experience.source
    logit = steps.output(seen.models["success"], step.after)
    shown, others = (step.here & (origin == int(one)) for one in (Origin.DATASET, negatives))
    solved = shown & seen.experience.extra["success"][:, 0]
    return by_hand.logistic(logit, 0.9)[solved].mean() + by_hand.logistic(logit, 0.1)[others].mean()


def with_successes(data: Experience) -> Experience:
    """Returns transitions of which every second end is a success, and some decisions that end nothing are."""
    place = torch.arange(len(data)).unsqueeze(1)
    solved = torch.where(data.terminal, place % 2 == 0, place % 5 == 0)
    return data.add({"success": solved & data.mask})


def success_of(seen: Seen) -> Tensor:
    """Returns 1 where the model `success` finds the state after a decision as likely as not, else 0, [B]."""
    return (steps.output(seen.models["success"], steps.step_of(seen).after) >= 0).double()


def success_gap(recipe: Recipe) -> Tensor:
    """Returns how far the last reward is from 1 where the logit after a decision is at least 0, else 0."""
    return (last_paid(recipe, transitions(num=3), lambda context: LOGIT) - SUCCESS).abs().max()


def num_pretrained(recipe: Recipe, task: Task) -> int:
    """Returns the batches on which the classifier is trained before the policy acts."""
    phase = recipe.before[0]
    return phase.steps * len(list(drawn(phase.recipe.source, Scene(task))))


def early_batches(recipe: Recipe, task: Task, warmup: int) -> int:
    """Returns how many batches are drawn one decision before `warmup` of them are stored, less those that are missing
    at `warmup`.
    """
    fresh = transitions(task.spec, num=2 * warmup, dtype=torch.float32)
    fresh = fresh.rows(fresh.mask[:, 0].nonzero().squeeze(1))
    scene = Scene(task, Only(lambda context: 0.0 * context["observation"][..., 0]))
    before, then = (len(list(drawn(recipe.source, scene.given(fresh=fresh.rows(slice(0, num)))))) for num in
                    (warmup - 1, warmup))  # fmt: skip
    return before + abs(then - 32)


def wrong_rows(recipe: Recipe, task: Task) -> int:
    """Rows of a step's batches that are not half demonstrations; whose reward, or end if they are own, is not what the
    classifier finds at this batch, which is failure from the third on; own rows that end for the classifier itself;
    batches that are not 32, and 8 for the classifier.
    """
    fresh, seen, wrong = transitions(task.spec, num=8000, dtype=torch.float32), list[Experience](), 0
    models = Only(lambda context: 0.5 - 0.3 * len(seen) + 0.0 * context["observation"][..., 0])
    scene = Scene(task, models, Draw(0), fresh=fresh.with_columns(terminal=torch.zeros_like(fresh.mask)))
    for batch in drawn(recipe.source, scene):
        fires, own = len(seen) < 2, batch.own()
        wrong += abs(len(own) - 32) + int((batch.reward[:, 0] != fires).sum() + (own.terminal[:, 0] != fires).sum())
        seen.append(batch)
    others = list(drawn(recipe.stages[0].source, scene))
    for batch in others:
        wrong += abs(len(batch.own()) - 32) + int(batch.own().terminal.sum())
    return wrong + abs(len(seen) - 32) + abs(len(others) - 8)
