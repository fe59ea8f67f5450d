"""Forget one thing of the saved state when going on, and see that the comparison with the untouched run notices.

    python -m tests.resume.drops [part of a case's name]

A thing that is forgotten has the value that it had before the run began; one that did not exist then is missing.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core import store
from assay.engine.guards.alarms import Alarms, Watch
from assay.engine.guards.correctness import STANDARD, WeightsMove
from assay.engine.guards.learning import HeldOutFollows, OrderOne
from assay.engine.loop import Loop
from assay.runs.folder import METRICS, SAMPLES
from assay.runs.plan import Plan
from tests.resume.cases import CASES
from tests.resume.kills import FINISHED, Reference, differences, forked, reference, scratch, started, warm


def place_of(kind: type[Watch]) -> str:
    """Where the state of a guard of this kind is; an error unless exactly one of the standard guards is of it."""
    (place,) = [place for place, guard in enumerate(STANDARD) if type(guard) is kind]
    return f"loop.states.guards.{place}"


HARMLESS = {
    f"{place_of(WeightsMove)}.checksum": "the guard computes it anew before it reads it",
    f"{place_of(OrderOne)}.seen": "observations of these runs are of order one whenever the guard looks: no alarm",
    f"{place_of(HeldOutFollows)}.score": "every step computes it anew before an evaluation is compared with it",
    "loop.progress.updates": "the loop takes it from the engine's count after every step",
    "loop.states.sources.0.columns.truncated": "no episode of so short a run is cut: all zeros, as in a new column",
}
"""What may be forgotten without a trace, and why; a thing listed here that is noticed fails too."""

DROPPED = (
    "dqn cartpole",
    "sft addition-1",
    "ppo with a constraint",
    "rloo with skipped updates",
    "grpo addition-1, warmed up",
    "dpo tokens, warmed up",
)
"""Cases in which everything is forgotten in turn; together they hold every kind of state."""

ABSENT = object()


@dataclass
class Dropped:
    """What was forgotten: by the comparison or an error noticed, not noticed, and not tried since it had not moved."""

    noticed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    unmoved: list[str] = field(default_factory=list)

    def tried(self) -> list[str]:
        """Everything that was forgotten."""
        return [*self.noticed, *self.errors, *self.missed]


def nodes(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of everything in the tree, branches and leaves."""
    if path:
        yield path
    if isinstance(tree, Mapping | list) and not is_one(tree):
        for name, item in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from nodes(item, (*path, str(name)))


def is_one(tree: Any) -> bool:
    """The scores of a step, or the alarms: one thing together."""
    if not isinstance(tree, list) or not tree:
        return False
    return isinstance(tree[0], float) or (isinstance(tree[0], Mapping) and "guard" in tree[0])


def looked_up(tree: Any, path: tuple[str, ...]) -> Any:
    """The value at a path; ABSENT where there is none."""
    for name in path:
        if isinstance(tree, Mapping) and name in tree:
            tree = tree[name]
        elif isinstance(tree, list) and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            return ABSENT
    return tree


def changed(tree: Any, path: tuple[str, ...], new: Any) -> Any:
    """A copy of the tree with another value at the path, or without it."""
    if not path:
        return new
    if isinstance(tree, list):
        items = [changed(item, path[1:], new) if str(place) == path[0] else item for place, item in enumerate(tree)]
        return [item for item in items if item is not ABSENT]
    items = {name: changed(item, path[1:], new) if name == path[0] else item for name, item in tree.items()}
    return {name: item for name, item in items.items() if item is not ABSENT}


def before_the_run(plan: Plan) -> dict[str, Any]:
    """The tree of a run that has done nothing."""
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)
    return {"loop": loop.snapshot(), "journal": {METRICS: 0, SAMPLES: 0}, "scores": {}, "alarms": Alarms().snapshot()}


def noticed(untouched: Reference, copy: Path, folder: Path, path: tuple[str, ...], value: Any) -> str:
    """Goes on from the copy with one thing changed in what is loaded; how that was noticed, empty where it was not."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(copy, folder)
    load = store.load

    def work(descriptor: int) -> None:
        def forgetful(place: Path) -> store.Checkpoint | None:
            found = load(place)
            if found is None or place.parent != folder:
                return found
            return replace(found, tree=changed(found.tree, path, value))

        store.load = forgetful
        started(untouched.plan, folder)

    code, said = forked(work)
    if code != FINISHED:
        return f"error: {said.strip().splitlines()[-1] if said.strip() else code}"
    return ", ".join(differences(untouched, folder, tidy=False)[:3])


def drops(name: str, base: Path, branches: bool = True) -> Dropped:
    """Forgets everything of one case in turn, in the last save before its end; without `branches` a branch only where
    no leaf of it was noticed.
    """
    untouched = reference(CASES[name](), base)
    copies = [path for _, path in untouched.stages if (path / "checkpoints").is_dir()]
    copy = copies[-2]
    loaded = store.load(copy / "checkpoints")
    assert loaded is not None
    assert loaded.step < untouched.plan.steps
    assert not noticed(untouched, copy, base / "once", (), loaded.tree), "the control: nothing forgotten"
    fresh, result = before_the_run(untouched.plan), Dropped()
    kept = {name: item for name, item in loaded.tree.items() if name != "seconds"}
    for path in sorted(nodes(kept), key=len, reverse=True):  # leaves before their branches
        dotted, before = ".".join(path), looked_up(fresh, path)
        if before is not ABSENT and not store.difference({"": looked_up(kept, path)}, {"": before}):
            result.unmoved.append(dotted)
            continue
        below = {child for child in result.tried() if child.startswith(f"{dotted}.")}
        if below and not below - set(result.missed):
            continue  # a branch whose leaves may all be forgotten
        if not branches and below & set(result.noticed):
            result.noticed.append(dotted)  # without the branch a leaf is missing that is noticed
            continue
        how = noticed(untouched, copy, base / "once", path, before)
        (result.errors if how.startswith("error") else result.noticed if how else result.missed).append(dotted)
    return result


def main(wanted: str) -> int:
    warm()
    failures = 0
    for name in DROPPED:
        if wanted in name:
            start = time.monotonic()
            with scratch() as base:
                result = drops(name, base / "case")
            failures += len(set(result.missed) - set(HARMLESS))
            counts = f"{len(result.noticed)} noticed, {len(result.errors)} by an error, {len(result.missed)} not"
            print(f"{name}: {counts}, {len(result.unmoved)} had not moved, {time.monotonic() - start:.1f} s")
            print("".join(f"  not noticed: {path}: {HARMLESS.get(path, '???')}\n" for path in result.missed), end="")
    print(f"not noticed and not harmless: {failures}")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
