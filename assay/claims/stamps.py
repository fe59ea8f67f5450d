"""Stamps: a few numbers computed by the two sides of a measured claim, so that a changed method is detected.

The stamp of a recipe is two projections of its weights after three updating steps with seed 0, at six significant
digits, of the recipe and of each of its phases. Metrics and names do not enter: renaming, splitting or merging code
keeps the stamp, any changed update changes it. Stamps are kept per machine kind, since other kernels round
differently. An untrained language model earns no reward, and without reward most methods do not change the weights,
so the stamped recipe has one more reward than the measured one: `Parity`.

Two recipes that three steps do not tell apart, since they differ in what begins later, are stamped after twelve, or
after 48. The stamp of a function is its value with three seeds, at a small size where it takes long (`Computed`). Sides
with one stamp are refused: a change of one into the other would not be seen.

A stamp does not cover what these steps do not run: the supervised warm-up, a target network that is copied every
hundred updates, a phase's change of the task to one with the same spaces.

Axes: B rows, T columns; weights have the shapes of parameters.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.claim import Computed, Expect, Measured
from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Phase, Recipe
from assay.core.record import Experience, State
from assay.core.settings import describe
from assay.core.slots import Reward, Scene, Task
from assay.core.spaces import Vocabulary
from assay.core.verifier import Verifier
from assay.engine.loop import Loop, Step
from assay.runs import catalogue
from assay.runs.config import as_json

SIDES = ("ours", "theirs")
STEPS, SEED, DIGITS = 3, 0, 6
LATER = (12, 48)
"""Steps of the stamps of two recipes that are equal after STEPS."""
SEEDS = (0, 1, 2)
"""Seeds of the values that stamp a function."""
MOST = 300
"""Maximum steps of a loop until its first update."""
CHEAP = 3.0
"""Planned seconds of one value of a function side above which it is to have a small version, `Computed`."""
RELATIVE, ABSOLUTE = 1e-5, 1e-6
"""Tolerance of two equal stamps: more than rounding in the sixth digit, less than any change of a method."""

FITS, STALE, UNKNOWN, NEW, FORMER = "fits", "stale", "unknown here", "new", "former"
STATES = {
    FITS: "recipes are unchanged since the claim was measured",
    STALE: "recipes, task or rule have changed since the claim was measured. Run: assay claim KEY",
    NEW: "the claim was stated after the others were measured. Run: assay claim KEY",
    FORMER: "the method no longer states this claim. Run: assay claim KEY",
    UNKNOWN: "the verdict has no stamp for this kind of machine. Run: assay claim KEY --stamp",
}
Memo = MutableMapping[str, str]
"""Stamps of sides by their description, so that sides shared by several claims run once."""


def machine_kind() -> str:
    """Returns the processor family that stamps are kept for: x86_64, aarch64."""
    return platform.machine()


@contextmanager
def reproducible() -> Iterator[None]:
    """Uses one thread and no oneDNN inside, so that sums have one order on any number of cores."""
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.mkldnn.enabled = onednn


# ---------------------------------------------------------------------------------------------------- behaviour
@dataclass(frozen=True)
class Parity(Reward):
    """Gives an answer whose tokens sum to an odd number at least reward 1, so that every group has different rewards.

    reward <- max(reward, 1) where an answer ends and the sum of its tokens is odd. Control tasks, which give rewards
    from the first step on, keep theirs.
    """

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with rewards that an untrained model earns too."""
        if not isinstance(scene.task.spec.action, Vocabulary):
            return experience
        odd_B1 = (experience.action * experience.mask).sum(1, keepdim=True) % 2 == 1
        ends_BT = (experience.terminal | experience.truncated) & experience.mask
        reward = torch.where(ends_BT & odd_B1, experience.reward.clamp(min=1.0), experience.reward)
        return replace(experience, reward=reward)


def walked(recipe: Recipe, task: Task, seed: int, steps: int) -> tuple[Loop, list[Step]]:
    """Returns a loop after this many steps with an update, run reproducibly, and the results of these steps.

    Earlier steps that only fill a replay buffer are not counted. Schedules are at their beginning in the first counted
    step, and near their end in the last. If a guard would stop the run, it ends early.
    """
    verified = sum(isinstance(part, Verifier) for part in recipe.rewards[:1])  # later rewards see those of Parity
    rewarded = replace(recipe, rewards=(*recipe.rewards[:verified], Parity(), *recipe.rewards[verified:]))
    found: list[Step] = []
    with reproducible():
        loop = Loop(rewarded, task, seed=seed, num_steps=MOST)
        while len(found) < steps and loop.progress.step < MOST:
            before, step = loop.progress.updates, loop.step()
            if loop.progress.updates > before or not recipe.stages:
                found.append(step)
            if any(alarm.stop for alarm in step.alarms):
                break
            if len(found) == 1:
                loop.progress = replace(loop.progress, num_steps=loop.progress.step + steps - 1)
    return loop, found


def weights_of(loop: Loop) -> list[Tensor]:
    """Yields the tensors of all models, copies included, in no particular order."""

    def leaves(tree: Any) -> Iterator[Tensor]:
        if isinstance(tree, Mapping):
            for item in tree.values():
                yield from leaves(item)
        elif tree is not None:
            yield torch.as_tensor(tree).detach().cpu()

    return list(leaves(loop.snapshot()["engine"]["models"]))


def behaviour(recipe: Recipe, task: Task, steps: int = STEPS) -> list[float]:
    """Computes numbers that depend on the first updates of the recipe, but not on names or the order of tensors.

    They are the sum over all tensors w, and the sum of squares, of p(w) = sum_i cos(i) w_i. Then the same of its
    phases, each from fresh weights; equal phases count once.
    """
    phases: list[tuple[Recipe, Task]] = []
    for phase in recipe.before:
        if all(phase.recipe != one for one, _ in phases):
            phases.append((phase.recipe, task_of(phase, task)))
    numbers: list[float] = []
    for one, there in ((recipe, task), *phases):
        loop, _ = walked(one, there, SEED, steps)
        flat = [tensor.double().flatten() for tensor in weights_of(loop)]
        projected = [float(w @ torch.arange(len(w), dtype=torch.float64).cos()) for w in flat]
        numbers += [sum(sorted(projected)), sum(sorted(p * p for p in projected))]
    return numbers


def task_of(phase: Phase, task: Task) -> Task:
    """Returns the task on which a phase is stamped: its own if models of the plan's task cannot read it."""
    own = None if phase.task is None else phase.task(Scene(task))
    return task if own is None or own.spec == task.spec else own


def stamp(claim: Measured, memo: Memo | None = None) -> dict[str, str]:
    """Returns the stamps of both sides, on this machine kind; AssayError if they are one and the same."""
    known, are_recipes = {} if memo is None else memo, all(isinstance(getattr(claim, side), Recipe) for side in SIDES)
    for steps in (STEPS, *LATER) if are_recipes else (STEPS,):
        found = {side: side_stamp(claim, side, known, steps) for side in SIDES}
        if not agrees(found["ours"], found["theirs"]) or is_equal_by_right(claim):
            return found
    what = f"train the same weights for {steps} steps" if are_recipes else "are the same numbers"
    raise AssayError(
        f"the two sides of the claim '{claim.name}' {what}: {found['ours']}. Give a rival that differs, or a Computed "
        "whose small version is large enough to differ"
    )


def is_equal_by_right(claim: Measured) -> bool:
    """Returns whether two sides may have one stamp: a number, and functions that the claim says are equal."""
    is_number = not callable(claim.theirs) and not isinstance(claim.theirs, Recipe)
    return is_number or (claim.expect is Expect.WITHIN and not isinstance(claim.ours, Recipe))


def side_stamp(claim: Measured, side: str, memo: Memo, steps: int = STEPS) -> str:
    """Returns a side's stamp as text: numbers of a recipe or of a function, or the number that it is."""
    what = getattr(claim, side)
    if isinstance(what, Recipe):
        key = f"{describe_side(claim, side)}-{steps}"
        if key not in memo:
            memo[key] = text_of(behaviour(what, catalogue.find_task(claim.task), steps))
        return memo[key]
    if not callable(what):
        return text_of([float(what)])
    with reproducible():
        small = what.small if isinstance(what, Computed) else what
        return text_of([float(small(seed)) for seed in SEEDS])


def planned_seconds(claim: Measured) -> float:
    """Returns the planned seconds of one value of a function side; 0 without one, or with a small version."""
    sides = [side for side in (claim.ours, claim.theirs) if callable(side) and not isinstance(side, Recipe | Computed)]
    return 60.0 * claim.minutes / claim.seeds / len(sides) if sides else 0.0


def text_of(numbers: list[float]) -> str:
    """Formats numbers at six significant digits, separated by spaces."""
    return " ".join(f"{number:.{DIGITS}g}" for number in numbers)


def agrees(old: str, new: str) -> bool:
    """Returns whether two stamps are equal up to rounding."""
    try:
        pair = [np.array(text.split(), dtype=np.float64) for text in (old, new)]
    except ValueError:
        return old == new
    is_equal = len(pair[0]) == len(pair[1])
    return is_equal and bool(np.allclose(pair[0], pair[1], rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))


# ---------------------------------------------------------------------------------------------------- states
def describe_side(claim: Measured, side: str) -> str:
    """Returns sixteen hex digits of a side's description: its recipe and its task with all settings, and the budget."""
    task = catalogue.find_task(claim.task) if claim.task else None
    facts = {"recipe": getattr(claim, side), "task": task, "steps": claim.steps, "warmup": claim.warmup}
    return store.fingerprint({"address": claim.task} | {name: as_json(describe(one)) for name, one in facts.items()})


def deciding(claim: Measured) -> dict[str, Any]:
    """Returns the settings that decide the verdict beside the recipes."""
    return {
        "task": claim.task,
        "metric": as_json(describe(claim.metric)),
        "expect": claim.expect.name,
        "margin": claim.margin,
        "seeds": claim.seeds,
        "steps": claim.steps,
        "warmup": claim.warmup,
    } | ({"looks": claim.looks} if claim.looks > 1 else {})


def recorded_state(claim: Measured, entry: Mapping[str, Any]) -> str:
    """Returns the state of a claim's entry recorded in the file, without running anything: stale if the settings
    differ, a later check has marked it or its stamp is the name of a function, unknown if it has no stamp for this
    machine kind.
    """
    kept = entry.get("stamps", {})
    if entry.get("stale") or entry.get("decided_by") != deciding(claim) or any(map(has_name, kept.values())):
        return STALE
    return FITS if machine_kind() in kept else UNKNOWN


def has_name(stamp: Mapping[str, str]) -> bool:
    """Returns whether a stamp has something else than numbers: names of functions, as old verdicts have."""
    try:
        return not [float(number) for text in stamp.values() for number in text.split()]
    except ValueError:
        return True


def state(claim: Measured, entry: Mapping[str, Any], memo: Memo | None = None) -> str:
    """Returns the state of a claim's entry by running its sides."""
    known = entry.get("stamps", {}).get(machine_kind())
    if known is None or entry.get("decided_by") != deciding(claim):
        return recorded_state(claim, entry)
    now = stamp(claim, memo)
    return FITS if all(agrees(known.get(side, ""), now[side]) for side in SIDES) else STALE


def worst(states: list[str]) -> str:
    """Returns the state of several claims: stale, new or former ones are stale, before unknown before fits; no claims
    give fits.
    """
    if {STALE, NEW, FORMER} & set(states):
        return STALE
    return UNKNOWN if UNKNOWN in states else FITS
