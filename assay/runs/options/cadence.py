"""How often a run is evaluated and saved, where it starts, and when it stops."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, option

MOST_STARTS = 1_000_000
"""Largest number of held-out starts of an evaluation."""
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class CadenceOptions(Group):
    """How often a run is evaluated and saved, where it starts, and when it stops."""

    title: ClassVar[str] = "evaluation and checkpoints"

    evaluations: int | None = option(
        None, "evaluations during training (0: only before and after; default: at most a tenth of the decisions)"
    )
    eval_prompts: int | None = option(None, "held-out prompts of an evaluation (default: 256; language tasks)")
    eval_episodes: int | None = option(None, "held-out episodes of an evaluation (default: 20; control tasks)")
    save_every: str = option(
        "",
        "time or steps between checkpoints (default: a twentieth of the time, at most 10 minutes apart)",
        metavar="10min|200steps",
        decisive=False,
    )
    keep: int = option(2, "checkpoints to keep (default: 2)", decisive=False)
    best: bool = option(False, "also keep the checkpoint with the best held-out score", decisive=False)
    until: str = option("", "stop once the held-out score reaches this", metavar="score=X")
    from_: str = option("", "start from the weights of another run (RUN, or RUN@STEP, or RUN@best)", metavar="RUN")

    def check(self) -> None:
        """Raises AssayError for values out of range."""
        if self.evaluations is not None and self.evaluations < 0:
            raise AssayError(f"evaluations is {self.evaluations}. Use 0 (only before and after training) or more.")
        for name, value in (("eval-prompts", self.eval_prompts), ("eval-episodes", self.eval_episodes)):
            if value is not None and not 1 <= value <= MOST_STARTS:
                rule = "at least 1" if value < 1 else f"at most {MOST_STARTS:,}"
                raise AssayError(f"--{name} is {value}. Use {rule}.")
        if self.keep < 1:
            raise AssayError(f"--keep is {self.keep}. Use at least 1.")
        spacing(self.save_every)
        self.target()

    @property
    def save_seconds(self) -> float:
        """Seconds between checkpoints; 0 if they are counted in steps, or left to the run."""
        return spacing(self.save_every)[1]

    def target(self) -> float:
        """Returns the held-out score at which the run stops; infinite without one."""
        if not self.until:
            return math.inf
        name, sign, value = self.until.partition("=")
        try:
            target = float(value)
        except ValueError:
            target = math.nan
        if name.strip() != "score" or not sign or not math.isfinite(target):
            raise AssayError(f"--until is '{self.until}'. Use a held-out score, for example --until score=0.9")
        return target

    def starts(self, *, of_language: bool) -> int | None:
        """Returns the held-out starts of an evaluation; None leaves them to the task."""
        given, other = (self.eval_prompts, self.eval_episodes)[:: 1 if of_language else -1]
        if other is not None:
            right, wrong = ("prompts", "episodes")[:: 1 if of_language else -1]
            raise AssayError(f"--eval-{wrong} is {other}, but the task has {right}. Use --eval-{right}.")
        return given


def spacing(text: str) -> tuple[int, float]:
    """Returns (steps, seconds) between checkpoints from '200steps', '10min', '90s' or '1h'; one of them is 0, both for
    the default.
    """
    if not text:
        return 0, 0.0
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(steps?|s|min|h)\s*", text)
    if found is None or float(found[1]) <= 0 or (found[2].startswith("step") and not found[1].isdecimal()):
        raise AssayError(f"--save-every is '{text}'. Use a time or a number of steps: 10min, 90s, 1h or 200steps.")
    if found[2].startswith("step"):
        return int(found[1]), 0.0
    return 0, float(found[1]) * UNITS[found[2]]
