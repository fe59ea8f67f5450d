"""Columns of `Experience.extra`: how a part declares them, and the ones that need no part.

A part says in its own class which columns it writes, each with its axes and its meaning,

    writes: ClassVar[Mapping[str, str]] = {"clip_range": "BT: how far the ratio may leave 1"}

and in `reads` those that it reads. The axes alone ("B"), or a plain tuple of names, are enough where another part
states the meaning. Axes: B sequences, T decisions, N draws, A action dimensions, K costs. A plan in which a part reads
a column that no earlier part writes is an error. `assay.claims.discover.columns` gathers the table of all parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from assay.core.slots import Rollout, Source, Transform

GIVEN: dict[str, str] = {
    # Written when a task is played or judged.
    "start": "B: ordinal of the start",
    "sample": "B: number of the sample inside its group",
    "split": "B: 0 for training, 1 held out",
    "regime": "B: regime of an uncertain task that held in this episode",
    "answer": "BT: decisions of the whole episode, also those that are context here",
    "elapsed": "B: decisions of the episode before this row's own",
    "path": "BTN: inner steps of an actor that denoises or integrates",
    "logp_model": "BT: log-probability under the model, if sampling is truncated (top-k, top-p)",
    "experts": "BTE: experts that each token chose in all layers while it was sampled, plus one; 0: not recorded",
    "episode_return": "BT: undiscounted return, set at the last decision",
    "episode_length": "BT: number of decisions, set at the last decision",
    "episode_cost": "BTK: total of each cost, set at the last decision; of a task with costs",
    "success": "BT: the decision solved the task, by the data's column or the task's reward; of offline rows",
    "policy_fault": "B: the completion has no parsable answer",
    "infra_fault": "B: the infrastructure failed: the row is excluded from training",
    "outcome/value": "B: value of the outcome that was known when the rollout ended",
    "outcome/fault": "B: 0, or whose fault ended the rollout: 1 of the policy, 2 of the infrastructure",
    "outcome/kind": "B: 0, or the kind of that fault: a place in assay.rollouts.outcomes.KINDS, from 1",
    "turn_reward": "BT: reward of an utterance, on its last token, as its session gave it",
    "session": "B: seed of the row's session",
    # Written by the engine where a part needs them.
    "row": "B: index in the batch: the coordinate of random numbers in a loss",
    "value": "BT: state value, from the critic `value`",
    "logp_ref": "BT: log-probability under the frozen model `reference`",
}
"""Columns of the task and the engine, each with axes and meaning: they need no part of the recipe."""


def is_given(name: str) -> bool:
    """Returns whether the task or the engine writes the column."""
    return name in GIVEN


def texts(names: Collection[str]) -> Mapping[str, str]:
    """Returns what a part says about each column; '' where it gives the name alone."""
    return names if isinstance(names, Mapping) else dict.fromkeys(names, "")


def axes_of(names: Collection[str], name: str) -> str:
    """Returns the axes that a declaration states for a column; '' if it states none."""
    return texts(names).get(name, "").partition(":")[0]


def merge_columns(*several: Collection[str]) -> dict[str, str]:
    """Returns several declarations as one; of a column holds the first that says something about it."""
    found: dict[str, str] = {}
    for names in several:
        for name, text in texts(names).items():
            found[name] = found.get(name) or text
    return found


def writers_of(name: str, reader: type) -> str:
    """Returns, as text, which parts that are imported can write the column: those of the reader's module first, then
    shared ones. A part that itself reads the column only changes it.
    """
    found = {
        cls: (cls.__module__ != reader.__module__, not cls.__module__.startswith("assay.parts."), cls.__name__)
        for slot in (Transform, Rollout, Source)
        for cls in below(slot)
        if name in class_columns(cls, "writes") and name not in class_columns(cls, "reads")
    }
    shown = [f"{cls.__name__} ({getattr(cls, 'slot', 'part')})" for cls in sorted(found, key=found.__getitem__)[:3]]
    return f"{' or '.join(shown)} writes it" if shown else f"Put a part before it whose `writes` has '{name}'"


def below(cls: type) -> Iterator[type]:
    """Yields the classes that inherit a class, at any depth, of the modules that are imported."""
    inherited: list[type] = cls.__subclasses__()
    for inner in inherited:
        yield inner
        yield from below(inner)


def class_columns(cls: type, declaration: str) -> Collection[str]:
    """Returns `writes` or `reads` of a class; nothing where they depend on the settings of an instance."""
    found: Any = getattr(cls, declaration, ())
    return () if isinstance(found, property) else found
