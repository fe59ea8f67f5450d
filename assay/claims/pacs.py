"""Claims of pacs: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.pacs import recipe
from assay.parts import OutcomeAsLabel


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    moved, right, losses = by_hand.moved(seen), by_hand.outcome(data) > 0.5, []
    for rows in by_hand.rows_of_groups(data):
        num = sum(bool(right[row]) for row in rows)
        for row in rows:
            psi = moved[row] - torch.stack([moved[other] for other in rows if other != row]).mean()
            weight = len(rows) / (2 * (num if right[row] else len(rows) - num)) if 0 < num < len(rows) else 1.0
            losses.append(weight * -torch.nn.functional.logsigmoid(psi if right[row] else -psi))
    return torch.stack(losses).mean()


REUSED = recipe(BIGRAMS).set("source.minibatches", 1).set("source.epochs", 8)
"""Eight passes over a whole batch, as its rival has."""


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        Measured("it learns faster than grpo when every batch is used eight times: mean pass rate", "levels",
                 REUSED, recipes.grpo(BIGRAMS).set("source.epochs", 8),
                 Area("pass_rate"), seeds=10, minutes=10.0, steps=50, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("wrong and right change places", OutcomeAsLabel.__call__, "> RIGHT", "<= RIGHT"),
        Edit("not centred", recipe, "centred=True", "centred=False"),
        Edit("a mean over decisions", OutcomeAsLabel.__call__, "self.scale * of_rows",
             "self.scale / batch.mask.sum(1).clamp(min=1) * of_rows"),
    ),
    equivalent={
        "extremes: -value -> value": "a mean of equal values is moved by a rounding error; the laws of groups hold it",
    },
)
