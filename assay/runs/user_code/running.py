"""Own code while a run uses it: tried before anything is spent, its errors with the command that resumes the run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.core import store
from assay.core.calls import OwnCodeError
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.runs.checks import walked
from assay.runs.config import read_config
from assay.runs.signals import resume_command
from assay.runs.user_code.consent import Code
from assay.runs.user_code.rewards import VERIFIER, OwnRewards
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import check_scored


@contextmanager
def own_code(accepted: Code, folder: Path) -> Iterator[None]:
    """Adds the command that resumes the run to errors of own code; records in config.json that the run is resumed with
    changed code that the user has `accepted`.
    """
    if accepted and (folder / "config.json").is_file():
        config = read_config(folder / "config.json")
        entry = {"at": time.strftime("%FT%TZ", time.gmtime()), "code": accepted}
        store.write_json(folder / "config.json", config | {"accepted_code": [*config.get("accepted_code", []), entry]})
    try:
        yield
    except OwnCodeError as error:
        again = f"{resume_command(folder)} --accept-changed-code"
        raise AssayError(f"{str(error).rstrip('.')}. After fixing it, resume with: {again}") from error


def try_rewards(task: Task, recipe: Recipe) -> None:
    """Scores a few demonstrations before anything is spent, and warns if the task's verifier is left out.

    AssayError if a score is not from 0 to 1 and a part of the recipe reads outcomes as right (above 1/2) or wrong, or
    as shares of right answers: it states `reads_shares = True`.
    """
    if not isinstance(task, PromptTask | DialogueTask) or task.scorer is None:
        return
    outside = [score for score in check_scored(task) if not 0.0 <= score <= 1.0]
    readers = [type(part).__name__ for part in walked(recipe) if getattr(part, "reads_shares", False)]
    if outside and readers:
        raise AssayError(
            f"the reward of a demonstration is {outside[0]:g}, but {readers[0]} of '{recipe.name}' reads rewards as "
            "right or wrong. Return rewards from 0 to 1, weigh them so (--reward FILE.py:NAME=WEIGHT), or use grpo."
        )
    if isinstance(task.scorer, OwnRewards) and VERIFIER not in task.scorer.weights:
        names = ", ".join(task.scorer.weights)
        warnings.warn(
            f"rewards and held-out scores are {names}; the task's own verifier is not used (--reward verifier=1.0 "
            "adds it)",
            stacklevel=2,
        )
