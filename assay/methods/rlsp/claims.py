"""Rlsp's rewards by hand, on answers of given lengths."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.slots import Reward

PAID = {250: -3.0, 500: -1.0, 803: -0.24533, 804: -0.24378, 1000: 0.0, 2000: 0.5, 4096: 0.75586}
"""What a right answer of so many tokens, the end token included, gets with c = 1000."""
BY_LENGTH = {"." * (length - 2) + "7": paid for length, paid in PAID.items()}
BY_LENGTH |= {"." * 4095: -0.24414, " " * 4095: -0.74414}
"""The same with a wrong and a blank answer of full length."""
BY_STEPS = {"7": 0.8, "8 wait 7": 0.9, "8 wait 9 back 7": 0.95, "8 wait 9": 0.1}
"""What right answers with 0, 1 and 2 steps of search, and a wrong one with 1, get."""


def paid(effort: Reward) -> Tensor:
    """Returns what effort alone pays for answers of 1 to 64 tokens, at a limit of 64."""
    said = ["." * length for length in range(64)]
    return probes.rewarded(replace(recipes.ppo(), rewards=(effort,)), *probes.answered(said))
