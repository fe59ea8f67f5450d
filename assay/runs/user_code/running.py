"""Own code while a run uses it: tried before anything is spent, its errors with place, traceback and the command that
resumes the run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.core import store
from assay.core.calls import OwnCodeError
from assay.core.errors import AssayError, DataWarning, warn
from assay.core.faults import TRACEBACK, any_fault, own_fault
from assay.core.recipe import Recipe
from assay.core.score_range import check_unit
from assay.core.slots import Task
from assay.core.trees import encode
from assay.runs.config import read_config
from assay.runs.signals import resume_command
from assay.runs.user_code.consent import Code
from assay.runs.user_code.known_runs import remember
from assay.runs.user_code.reward_range import Ranged
from assay.runs.user_code.rewards import VERIFIER, OwnRewards
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import check_scored


def is_begun(folder: Path | None) -> bool:
    """Returns whether a folder holds a run that began."""
    return folder is not None and (folder / "config.json").is_file()


@contextmanager
def own_code(accepted: Code, folder: Path) -> Iterator[None]:
    """Adds the command that resumes the run to errors of own code; records in config.json that the run is resumed with
    changed code that the user has `accepted`.
    """
    if accepted and (folder / "config.json").is_file():
        config = read_config(folder / "config.json")
        entry = {"at": time.strftime("%FT%TZ", time.gmtime()), "code": accepted}
        changed = config | {"accepted_code": [*config.get("accepted_code", []), entry]}
        remember(folder, encode(changed, "", None))
        store.write_json(folder / "config.json", changed)
    try:
        yield
    except OwnCodeError as error:
        raise AssayError(f"{str(error).rstrip('.')}. {after_fixing(folder)}") from error
    except Exception as error:
        if not isinstance(error, AssayError) and own_fault(error) is not None:
            error.add_note(after_fixing(folder))
        raise


def after_fixing(folder: Path) -> str:
    """Returns a sentence on what to do after own code failed: to resume, or to start again where no run had begun."""
    if not is_begun(folder):
        return "Nothing was spent: fix it and start the run again."
    return f"After fixing it, resume with: {resume_command(folder, accept=True)}"


@contextmanager
def kept_traceback(folder: Path) -> Iterator[None]:
    """Writes the traceback of an error in own code, or of one that is no AssayError, to traceback.txt in a run folder;
    a note of the error names the file.
    """
    try:
        yield
    except Exception as error:
        is_of_disk = isinstance(error, OSError) and own_fault(error) is None  # the folder may be what cannot be written
        if any_fault(error) is not None and not is_of_disk:
            folder.mkdir(parents=True, exist_ok=True)
            store.write_text(folder / TRACEBACK, "".join(traceback.format_exception(error)))
            error.add_note(f"The traceback is in {folder / TRACEBACK}")
        raise


def try_rewards(task: Task, recipe: Recipe, folder: Path | None = None) -> None:
    """Scores a few right, wrong and empty completions before anything is spent, and says what own rewards are for (see
    `say_what_is_rewarded`), unless the folder is of a run that said so when it began.

    AssayError if a score is outside of the declared range, or, where none is declared, not from 0 to 1 although a part
    of the recipe reads outcomes as right or wrong.
    """
    if not isinstance(task, PromptTask | DialogueTask) or task.scorer is None:
        return
    rows, scores = check_scored(task)
    rewards = task.scorer.rewards if isinstance(task.scorer, Ranged) else task.scorer
    names = " + ".join(rewards.weights) if isinstance(rewards, OwnRewards) else "of the task"
    check_unit(recipe, f"reward {names}", scores, rows)
    if isinstance(rewards, OwnRewards) and not is_begun(folder):
        say_what_is_rewarded(recipe, list(rewards.weights))


def say_what_is_rewarded(recipe: Recipe, names: Sequence[str]) -> None:
    """Warns if a recipe that samples nothing leaves own rewards to evaluation alone, or if they take the place of the
    task's verifier.
    """
    said = ", ".join(names)
    if all(one.rollout is None for one in (recipe, *(phase.recipe for phase in recipe.before))):
        warn(
            f"{recipe.name} learns from the task's own answers; by {said} only held-out samples are scored. To train "
            "on rewards, use a method that samples, such as grpo",
            DataWarning,
        )
    elif VERIFIER not in names:
        text = f"rewards and held-out scores are {said}; the task's own verifier is not used"
        python = f"{text} (reward=[..., '{VERIFIER}'] adds it)"
        warn(f"{text} (--reward {VERIFIER}=1.0 adds it)", DataWarning, python=python)
