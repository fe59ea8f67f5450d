"""What answers are paid for right and for their box, and the behaviours that are counted."""

from __future__ import annotations

from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Gated, Weighted, WeightedSum
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.text import Matches

BOX = r"\\boxed\{"
BEHAVIOURS = {
    "backtracking": r".*\b([Ww]ait|[Tt]ry again|[Ll]et me (redo|start over))\b.*",
    "verification": r".*\b([Cc]heck|[Vv]erify|[Vv]erifying)\b.*",
    "enumeration": r".*\b([Cc]ase 1|[Tt]ry each|[Ff]or each)\b.*",
    "subgoals": r".*\b([Ff]irst|[Ss]tep 1)\b.*",
}


def strict(box: str) -> Reward:
    """Returns 1 for right and boxed, -0.5 for wrong and boxed, -1 without a box."""
    return Gated(Matches(box, 0), ByLabel({"": (-0.5, 1.0)}, label=""), threshold=0.5, closed=-1.0)


def independent(box: str) -> Reward:
    """Returns 1, 0.5, -0.5, -1 for right and boxed, right, boxed, neither, up to a constant, which no advantage has."""
    return WeightedSum({"verifier": Weighted(Verifier(), 1.5), "box": Weighted(Matches(box, 0), 0.5)})
