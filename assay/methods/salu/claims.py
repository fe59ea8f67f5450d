"""salu's table on given completions, and its losses by hand."""

from __future__ import annotations

from torch import Tensor

from assay.claims import by_hand, probes
from assay.tasks.language.prompts import Item

TASK = probes.listed(Item("q", "7", "7", {"label": "answerable"}), Item("r", "n/a", "n/a", {"label": "unanswerable"}))
ROWS = (
    ("7", 0, 1.0), ("8", 0, -0.9), ("!", 0, -0.5), (" It cannot be answered.", 0, -0.5), ("88", 0, -0.5),
    ("!", 1, 1.0), ("cannot be answered", 1, 1.0), ("n/a", 1, 1.0), ("7", 1, -0.1), ("7", 0, 0.0),
)  # fmt: skip
"""Completion, start, reward; the fifth row is cut, the last one has left training."""
PROB = (0.3, 0.9, 0.3, 0.2, 0.5, 0.3, 0.3, 0.6, 0.1, 0.5)
"""The probability of each row's tokens."""


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return by_hand.ppo_losses(seen, 1.0, 0.95, -0.05 * by_hand.k3(seen))
