"""What serl learns from, against formulas and numbers by hand. Axes: B rows, T = 2 columns."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.claims.probes import steps
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin
from assay.core.slots import Scene
from assay.tasks.control.peg import peg

TASK, DATA = peg(), probes.of_origins(probes.transitions(num=64), Origin.POLICY, Origin.DATASET, Origin.POLICY)
LOGIT, SUCCESS = torch.tensor([[[9.0, 0.0], [9.0, -1e-9], [9.0, 5.0]], [[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]]).double()


def classified(seen: probes.Seen, negatives: Origin = Origin.DATASET) -> Tensor:
    step, origin = steps.step_of(seen), seen.experience.source
    logit = steps.output(seen.models["success"], step.after)
    shown, others = (step.here & (origin == int(one)) for one in (Origin.DATASET, negatives))
    ends = shown & (step.goes_on == 0)
    return by_hand.logistic(logit, 0.9)[ends].mean() + by_hand.logistic(logit, 0.1)[others].mean()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    paid = (steps.output(seen.models["success"], steps.step_of(seen).after) >= 0).double()
    return {
        "success": classified(seen, Origin.POLICY),
        "critic": steps.rlpd_critics(seen, 0.96, paid),
        "actor": steps.sac_actor(seen, lambda s, a: steps.output(seen.models["q"], s, a).mean(0), least=1.0),
    }


def wrong_rows(recipe: Recipe) -> int:
    """Rows of a step's batches that are not half demonstrations; whose reward, or end if they are own, is not what the
    classifier finds at this batch, which is failure from the third on; own rows that end for the classifier itself.
    """
    fresh, seen, wrong = probes.transitions(TASK.spec, num=8000, dtype=torch.float32), list[Experience](), 0
    models = probes.Only(lambda context: 0.5 - 0.3 * len(seen) + 0.0 * context["observation"][..., 0])
    scene = Scene(TASK, models, Draw(0), fresh=fresh.with_columns(terminal=torch.zeros_like(fresh.mask)))
    for batch in probes.drawn(recipe.source, scene):
        fires, own = len(seen) < 2, batch.own()
        wrong += abs(len(own) - 32) + int((batch.reward[:, 0] != fires).sum() + (own.terminal[:, 0] != fires).sum())
        seen.append(batch)
    for batch in probes.drawn(recipe.stages[0].source, scene):
        wrong += abs(len(batch.own()) - 32) + int(batch.own().terminal.sum())
    return wrong + abs(len(seen) - 32)
