"""What an answer is worth by label, verdict and confidence. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import applied, placed, states_of
from assay.parts.rewards.labels import check_labels, labels_of


@dataclass(frozen=True)
class Confidence(Reward):
    """reward = exp(mean over decisions of log pi(a_t)): the geometric-mean probability of what was written, in [0, 1].

    Taken from the log-probabilities recorded when acting, so that it stays the same while the policy is updated, and
    carries no gradient. As a factor of a `Product` it scales another reward. Degenerate: no decision gives no reward.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with each row's confidence on its last decision."""
        mask = experience.mask
        mean = torch.where(mask, experience.logp, 0.0).sum(1) / mask.sum(1).clamp(min=1)
        return placed(experience, mean.exp())


@dataclass(frozen=True)
class ByVerdict(Reward):
    """reward = table[label][verdict], on the last decision.

    The verdict is the name of the first of `rules` whose total is above 1/2, else `otherwise`: abstained, right, wrong.
    Cells that a label's row leaves out are worth 0. The label is the fact `label` of the prompt. Logs the share of each
    verdict as `verdict/LABEL/VERDICT`.
    """

    table: Mapping[str, Mapping[str, float]]
    rules: Mapping[str, Reward] = field(default_factory=lambda: {"right": Verifier()})
    otherwise: str = "wrong"
    label: str = "label"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"table": {"": {"right": 1.0, "wrong": -0.5}}, "label": ""},)

    def __post_init__(self) -> None:
        names = {*self.rules, self.otherwise}
        unknown = sorted({verdict for row in self.table.values() for verdict in row} - names)
        if unknown:
            raise AssayError(f"ByVerdict.table has the verdict '{unknown[0]}', which no rule gives ({sorted(names)})")

    def init(self, scene: Scene) -> State:
        """Returns the rules' states; refuses a task whose prompts lack the label, or have another one."""
        check_labels(scene, self.label, self.table)
        return states_of(self.rules, scene)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the table's rewards."""
        rewarded, values = applied(self.rules, experience, scene, state)
        holds = {name: ((value * rewarded.mask).sum(1) > 0.5).tolist() for name, value in values.items()}
        verdicts = [
            next((name for name in self.rules if holds[name][row]), self.otherwise) for row in range(len(rewarded))
        ]
        labels = labels_of(rewarded, scene, self.label, self.table)
        self.log(labels, verdicts, rewarded.mask.any(1).tolist(), scene)
        total = [self.table[label].get(verdict, 0.0) for label, verdict in zip(labels, verdicts, strict=True)]
        return placed(rewarded, torch.tensor(total, device=rewarded.mask.device))

    def log(self, labels: list[str], verdicts: list[str], is_there: list[bool], scene: Scene) -> None:
        """Logs the share of every verdict among the rows of each label that have a decision."""
        for label, verdict, there in zip(labels, verdicts, is_there, strict=True):
            for name in (*self.rules, self.otherwise):
                scene.log(f"verdict/{label}/{name}", float(there and verdict == name), float(there))
