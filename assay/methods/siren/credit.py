"""The entropy of the start as an anchor. Axes: B rows, T decisions, K candidates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, Scene
from assay.ops.logits import likeliest, nucleus_entropy, over_logits
from assay.parts.regularizers.entropy import mean_above


@dataclass(frozen=True)
class AnchorEntropy(Prepare):
    """Writes `entropy_weight` [B], 2 (Hbar - anchor) in every row, and `candidates` [B, T, K, 2], the acting policy's
    `num` likeliest actions with their log-probabilities.

        Hbar = mean over rows of the mean entropy above the row's quantile `peak`; anchor = Hbar of the first batch

    With these weights the gradient of `MaskedEntropy` is that of (Hbar - anchor)^2. One forward pass a batch. The
    anchor is state. Degenerate: the first batch has weight 0.
    """

    mass: float = 0.8
    crossing: bool = False
    peak: float = 0.8
    num: int = 100
    actor: str = model_name("actor")
    writes: ClassVar[tuple[str, ...]] = ("candidates", "entropy_weight")
    not_a_part: ClassVar[str] = "the laws have no models here: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns no anchor yet."""
        return {"anchor": None}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes the columns, and logs the entropy and its distance from the anchor."""
        of_rows = partial(over_logits, function=lambda logits, _: likeliest(logits, self.num))
        found = scene.models.over(self.actor, experience, of_rows)
        entropy = nucleus_entropy(found[..., 1], self.mass, self.crossing)
        mean_B = mean_above(entropy, experience.mask, self.peak)
        level = float(mean_B.double().sum() / experience.mask.any(1).sum().clamp(min=1))
        state["anchor"] = level if state["anchor"] is None else state["anchor"]
        scene.log("nucleus_entropy", level)
        scene.log("anchor_distance", abs(level - state["anchor"]))
        weight = mean_B.new_full((len(experience),), 2.0 * (level - state["anchor"]))
        return experience.add({"candidates": found, "entropy_weight": weight})
