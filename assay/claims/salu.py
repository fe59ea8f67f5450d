"""salu's table on given completions, and its losses by hand. Axes: B sequences, T decisions."""

from dataclasses import replace

from torch import Tensor

from assay.claims import About, Average, Claims, Exact, Expect, Item, Measured, by_hand, probes, same_gradient
from assay.method import Verifier
from assay.methods.salu import ABSTAINED, recipe
from assay.parts import ByLabel

TASK = probes.listed(Item("q", "7", "7", {"label": "answerable"}), Item("r", "n/a", "n/a", {"label": "unanswerable"}))


ROWS = (
    ("7", 0, 1.0), ("8", 0, -0.9), ("!", 0, -0.5), (" It cannot be answered.", 0, -0.5), ("88", 0, -0.5),
    ("!", 1, 1.0), ("cannot be answered", 1, 1.0), ("n/a", 1, 1.0), ("7", 1, -0.1), ("7", 0, 0.0),
)
"""Completion, start, reward; the fifth row is cut, the last one has left training."""


PROB = (0.3, 0.9, 0.3, 0.2, 0.5, 0.3, 0.3, 0.6, 0.1, 0.5)
"""The probability of each row's tokens."""


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return by_hand.ppo_losses(seen, 1.0, 0.95, -0.05 * by_hand.k3(seen))


SMALL = recipe().set("actor.width", 64).set("critics.value.width", 64).set("rollout.num_starts", 32)


CORRECTNESS = replace(SMALL, name="salu-correctness", rewards=(
    ByLabel({"answerable": {"right": 1.0}, "unanswerable": {}}, {"abstained": ABSTAINED, "right": Verifier()}),
))  # fmt: skip


WITHOUT_CONFIDENCE = replace(SMALL, name="salu-table", rewards=(
    ByLabel({"answerable": {"right": 1.0, "abstained": -0.5, "wrong": -1.0},
             "unanswerable": {"abstained": 1.0, "right": 1.0, "wrong": -1.0}},
            {"abstained": ABSTAINED, "right": Verifier()}),
))  # fmt: skip
"""The table alone: every invention costs 1, however sure."""


BUDGET = {"seeds": 5, "minutes": 3.0, "steps": 60, "warmup": 100}


CLAIMS = Claims(
    claims=(
        Exact("rows get the table with confidence; a fault gets nothing", lambda: probes.table_gap(
              recipe(), TASK, ROWS, cut=[4], faults=[9], prob=PROB), equals=0.0),
        same_gradient("for given rewards its gradients are those of ppo with the KL to the reference",
                      lambda: replace(recipe(), rewards=()), losses_by_hand, probes.fragments),
        same_gradient("its gradients are those of ppo with the KL also where most advantages are negative",
                      lambda: replace(recipe(), rewards=()), losses_by_hand, lambda: probes.fragments(lower=1.0)),
        Measured("its held-out score (right, or abstained where due) is above that of correctness alone",
                 "needle-1", SMALL, CORRECTNESS, about=About.HEADLINE, **BUDGET),  # type: ignore[arg-type]
        Measured("fewer unanswerable questions get an answer than with correctness alone",
                 "needle-1", SMALL, CORRECTNESS,
                 Average("verdict/unanswerable/wrong", 0.25), Expect.BELOW,
                 about=About.MECHANISM, **BUDGET),  # type: ignore[arg-type]
        Measured("its held-out score is above that of the same table without confidence", "needle-1", SMALL,
                 WITHOUT_CONFIDENCE, looks=3, about=About.COMPONENT, **BUDGET),  # type: ignore[arg-type]
    ),
)
