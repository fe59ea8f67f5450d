"""Which parts serve which worlds, as a table in Markdown: parts of the methods' recipes by the worlds they run in.

    python tools/parts_and_worlds.py

`make test-all` trains every method in each of its worlds, which shows that the parts work there.
"""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.core.settings import children
from assay.proof.discover import slot_of
from assay.runs import catalogue

SLOTS = (
    "credit",
    "prepare",
    "objective",
    "regularizer",
    "constraint",
    "critic",
    "critic_loss",
    "reward",
    "curriculum",
    "source",
    "rollout",
)


def parts_of(value: Any) -> set[str]:
    """'slot.Class' of the parts of a tree."""
    slot = slot_of(type(value)) if is_dataclass(value) else None
    own = set() if slot is None else {f"{slot}.{type(value).__name__}"}
    return own.union(*(parts_of(item) for _, item in children(value)))


def main() -> None:
    """Prints the table, parts of most worlds first."""
    found: dict[str, dict[str, str]] = {}
    for name, method in catalogue.methods().items():
        for world in method.worlds:
            for part in parts_of(method.recipe(world)):
                if part.split(".")[0] in SLOTS:
                    found.setdefault(part, {}).setdefault(world.name, name)
    worlds = ["language", "control", "continuous control", "table", "preference pairs"]
    print(f"| part | {' | '.join(worlds)} |")
    print("|---|" + "---|" * len(worlds))
    both = 0
    for part, where in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        tokens = bool({"language", "preference pairs"} & set(where))
        both += tokens and len(set(where) - {"language", "preference pairs"}) > 0
        print(f"| {part} | {' | '.join(where.get(world, '') for world in worlds)} |")
    print(f"\n{both} of {len(found)} parts serve tokens and another world; each cell names a method that does it.")


if __name__ == "__main__":
    main()
