"""Own code while a run uses it: tried before anything is spent, its errors with place, traceback and the command that
resumes the run.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
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
    """Scores a few right, wrong and empty completions before anything is spent, and warns if the task's verifier is
    left out, unless the folder is of a run that said so when it began.

    AssayError if a score is outside of the declared range, or, where none is declared, not from 0 to 1 although a part
    of the recipe reads outcomes as right or wrong.
    """
    if not isinstance(task, PromptTask | DialogueTask) or task.scorer is None:
        return
    rows, scores = check_scored(task)
    rewards = task.scorer.rewards if isinstance(task.scorer, Ranged) else task.scorer
    names = " + ".join(rewards.weights) if isinstance(rewards, OwnRewards) else "of the task"
    check_unit(recipe, f"reward {names}", scores, rows)
    if isinstance(rewards, OwnRewards) and VERIFIER not in rewards.weights and not is_begun(folder):
        warn(
            f"rewards and held-out scores are {', '.join(rewards.weights)}; the task's own verifier is not used "
            "(--reward verifier=1.0 adds it)",
            DataWarning,
        )
