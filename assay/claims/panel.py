"""The panel: twelve small recipes that together use every slot, with bitwise hashes of their results.

    python -m assay.claims.panel            compares with the committed hashes of this kind of machine
    python -m assay.claims.panel --write    writes them, after a change that is meant to change numbers

A refactoring must leave every hash as it is. Hashes are kept per machine kind in panel.json; no name of a metric,
parameter or part enters them.

Tensors have any shape.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from assay.claims.discover import slot_of
from assay.claims.stamps import machine_kind, reproducible, walked, weights_of
from assay.core import slots, store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw
from assay.core.settings import children
from assay.core.slots import Scene, Task
from assay.engine import evaluation
from assay.runs import catalogue

FILE = Path(__file__).with_name("panel.json")
PANEL = (
    ("dapo", "addition-1"), ("dpo", "addition-1"), ("hc-rlhf:certified-length", "addition-1"),
    ("safe-rl-review", "hazards"), ("dqn", "cartpole"), ("sac", "pendulum"), ("gbrl", "cartpole"),
    ("stream-x", "cartpole"), ("ota", "four-rooms"), ("fisor", "steered-hazards"), ("uni-o4", "pendulum"),
    ("iwocs", "windy-walk"),
)
"""Methods and tasks."""
SMALL: tuple[tuple[str, Any], ...] = (
    ("rollout.num_starts", 4), ("rollout.group_size", 3), ("rollout.members", 3),
    ("rollout.num_envs", 4), ("rollout.steps", 8), ("source.warmup", 8), ("source.updates", 2), ("source.batch", 8),
    ("source.capacity", 256), ("source.episodes", 2), ("actor.width", 16), ("actor.layers", 1), ("actor.heads", 2),
)
"""Settings that make a recipe cheap, where it has them."""
STEPS, SEED = 2, 1


def small(recipe: Recipe) -> Recipe:
    """Returns the recipe with cheap settings; skips those that it does not have, or has several of."""
    for path, value in SMALL:
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    return recipe


def recipes() -> Iterator[tuple[str, Recipe, Task]]:
    """Yields names, recipes and tasks of the panel."""
    for method, name in PANEL:
        task = catalogue.find_task(name)
        yield f"{method} on {name}", small(catalogue.recipe_for(method, task, {})), task


# ---------------------------------------------------------------------------------------------------- slots
def all_slots() -> set[str]:
    """Returns the slots that parts can have."""
    return {vars(cls)["slot"] for cls in vars(slots).values() if isinstance(cls, type) and "slot" in vars(cls)}


def slots_of(value: Any) -> set[str]:
    """Returns the slots that the parts of a tree fill; an annotation is used by the part that needs its column."""
    found = {slot_of(type(value)), *(slot_of(type(need)) for need in getattr(value, "needs", ()))}
    return {slot for slot in found if slot}.union(*(slots_of(item) for _, item in children(value)))


# ---------------------------------------------------------------------------------------------------- hashes
def digest(recipe: Recipe, task: Task) -> str:
    """Returns sixteen hex digits of weights and held-out scores after two steps of a recipe and of its phases.

    A phase that changes the task is run in the changed task, with the recipe's own policy.
    """
    loop, _ = walked(recipe, task, SEED, STEPS)
    words = tensor_words(weights_of(loop))
    with reproducible():
        words += [score.hex() for score in evaluation.scores(loop.policy, task, num=2).tolist()]
    for phase in recipe.before:
        with reproducible():
            there = task if phase.task is None else phase.task(Scene(task, draw=Draw(SEED, (9,)), actor=loop.policy))
        words.append(digest(small(phase.recipe), task if there is None else there))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def tensor_words(tensors: Iterable[torch.Tensor]) -> list[str]:
    """Returns a digest of each tensor's shape and bits, sorted."""
    bits = ((list(tensor.shape), tensor.contiguous().numpy().tobytes()) for tensor in tensors)
    return sorted(hashlib.sha256(str(shape).encode() + content).hexdigest() for shape, content in bits)


def hashes() -> dict[str, str]:
    """Returns the panel's hashes on this machine, by name."""
    return {name: digest(recipe, task) for name, recipe, task in recipes()}


def build_kind() -> str:
    """Returns what bits depend on: processor, version of torch, and the instructions that torch uses."""
    version = ".".join(torch.__version__.split(".")[:2])
    return f"{machine_kind()}, torch {version}, {torch.backends.cpu.get_cpu_capability()}"


def committed() -> dict[str, str] | None:
    """Returns the committed hashes for this build of torch on this kind of machine, if there are any."""
    known: dict[str, dict[str, str]] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return known.get(build_kind())


def main() -> int:
    """Compares or writes the hashes; returns 1 if one differs."""
    parser = argparse.ArgumentParser(description="Compares bitwise hashes of twelve small recipes.")
    parser.add_argument("--write", action="store_true", help="write the hashes of this kind of machine")
    is_writing = parser.parse_args().write
    begin, known, now = time.process_time(), committed() or {}, hashes()
    for name, found in now.items():
        print(f"{name:28}{found}  {'equal' if known.get(name) == found else 'different' if name in known else 'new'}")
    print(f"{len(now)} recipes, {time.process_time() - begin:.0f} cpu-seconds, {build_kind()}")
    if is_writing:
        everything = json.loads(FILE.read_text()) if FILE.is_file() else {}
        store.write_text(FILE, json.dumps({**everything, build_kind(): now}, indent=1) + "\n")
    return 0 if is_writing else int(known != now)


if __name__ == "__main__":
    raise SystemExit(main())
