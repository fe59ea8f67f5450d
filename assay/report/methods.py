"""Prints methods: the list, one method, and the difference of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.claims import stamps, verdicts
from assay.claims.find import broken_claims, find_claims
from assay.claims.headline import abouts, headline_state, headline_word
from assay.claims.mutants import trial
from assay.claims.records import read_verdict
from assay.core.difference import Change, brief, differences
from assay.core.errors import AssayError
from assay.core.settings import describe, settings
from assay.recipes.families import FAMILIES, alike
from assay.recipes.method import Method
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, PREFERENCES, TABLE, Preset, why_preset
from assay.report import claims
from assay.runs import catalogue, method_index

LETTERS = {LANGUAGE.name: "L", CONTROL.name: "D", CONTINUOUS.name: "C", TABLE.name: "T", PREFERENCES.name: "P"}
LETTERS_IN_WORDS = "L language, D control with discrete actions, C continuous control, T tabular, P preference pairs"


# ---------------------------------------------------------------------------------------------------- facts
def part_names(value: Any) -> list[str]:
    """Returns the class names of the parts of a recipe, each once."""
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, Mapping):
            if "part" in node and node["part"] not in ("Recipe", "Stage"):
                found.append(node["part"])
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(describe(value))
    return list(dict.fromkeys(found))


def changes_of(method: Method, preset: Preset | None = None) -> list[Change] | None:
    """Returns what a method changes in its base, on its first kind of task; None for a base."""
    place = method.presets[0] if preset is None else preset
    return None if method.base is None else differences(method.base(place), method.recipe(place))


def changes_as_json(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Returns changes as JSON."""
    return [
        {"path": ".".join(one.path), "slots": list(one.slots), "before": brief(one.before), "after": brief(one.after)}
        for one in changes
    ]


def method_rows() -> list[dict[str, Any]]:
    """Returns one row per method whose file and claims can be imported, by family and then by name."""
    rows, broken = [], broken_methods()
    for name, method in catalogue.methods().items():
        if name in broken:
            continue
        verdict = read_verdict(name)
        changes = changes_of(method)
        rows.append(
            {
                "name": name,
                "family": method.family,
                "paper": method.paper,
                "kinds": [preset.name for preset in method.presets],
                "worlds": [preset.name for preset in method.presets],  # the former name of `kinds`
                "summary": catalogue.method_text(name).splitlines()[0].partition(": ")[2],
                "task": method.default_task,
                "base": None if method.base is None else method.base(method.presets[0]).name,
                "studied": method.studied,
                "aliases": list(method.aliases),
                "variants": list(method.variants),
                "changes": sorted({slot for change in changes or () for slot in change.slots}),
                "parts": part_names(method.recipe(method.presets[0])),
                "claims": [claim.name for claim in find_claims(name).claims],
                "mutants": trial.read(name),
                "verdict": verdict,
                "headline": headline_word(name, verdict),
                "state": headline_state(name, verdict),
            }
        )
    return sorted(rows, key=lambda row: (FAMILIES.index(row["family"]), row["name"]))


def broken_methods() -> dict[str, str]:
    """Returns the methods whose file or claims cannot be imported, and why."""
    return {**method_index.broken_methods(), **broken_claims()}


def method_facts(name: str, task: str | None = None) -> dict[str, Any]:
    """Returns everything about one method or variant as JSON, with the settings of a task."""
    key, method = catalogue.find_method(name)
    place = None if task is None else catalogue.find_task(task)
    recipe = method.recipe(method.presets[0]) if place is None else catalogue.recipe_for(key, place, {})
    changes, verdict = changes_of(method), read_verdict(key)
    return {
        "name": key,
        "family": method.family,
        "paper": method.paper,
        "kinds": [preset.name for preset in method.presets],
        "worlds": [preset.name for preset in method.presets],  # the former name of `kinds`
        "task": method.default_task,
        "preset": None if place is None else why_preset(place),
        "studied": method.studied,
        "aliases": list(method.aliases),
        "variants": list(method.variants),
        "text": catalogue.method_text(key),
        "base": None if method.base is None else method.base(method.presets[0]).name,
        "changes": changes_as_json(changes or ()),
        "departs": list(method.departures),
        "pilots": list(method.pilots),
        "results": list(method.results),
        "parts": part_names(recipe),
        "recipe": describe(recipe),
        "settings": {".".join(path): describe(value) for path, value in settings(recipe).items()},
        "claims": [{"name": claim.name, "kind": type(claim).__name__.lower()} for claim in find_claims(name).claims],
        "about": abouts(catalogue.method_key(key)),
        "mutants": trial.read(catalogue.method_key(key)),
        "verdict": verdict,
        "states": {} if verdict is None else verdicts.states(catalogue.method_key(key), verdict),
    }


# ---------------------------------------------------------------------------------------------------- list
@dataclass(frozen=True)
class Filter:
    """Selects rows of the list; None selects all. AssayError for a word that no row has."""

    family: str | None = None
    kind: str | None = None
    changes: str | None = None
    verdict: str | None = None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Returns the selected rows."""
        kept = list(rows)
        for name, wanted in vars(self).items():
            if wanted is None:
                continue
            known = sorted({word for row in rows for word in words_of(row, name)})
            found = [word for word in known if alike(word, wanted)]
            if not found and not (name == "verdict" and wanted in claims.MEANINGS):
                raise AssayError(f"--{name} is '{wanted}'. Choose one of: {', '.join(known)}")
            kept = [row for row in kept if set(found) & set(words_of(row, name))]
        return kept


def words_of(row: Mapping[str, Any], name: str) -> list[str]:
    """Returns the words of a row that a filter compares."""
    if name == "verdict":
        stale = ["stale"] if row["state"] == stamps.STALE else []
        return [row["headline"] if row["verdict"] or row["studied"] else "no verdict", *stale]
    many: list[str] = [row["family"]] if name == "family" else row["kinds"] if name == "kind" else row["changes"]
    return many


# ---------------------------------------------------------------------------------------------------- difference
def compare_methods(name: str, other: str | None, kind: str | None) -> tuple[str, str, list[Change] | None]:
    """Returns the names of two recipes and their difference: a method and its base, or two methods; None for a base.

    They are compared on a kind of task, by default the first that both work on.
    """
    key, method = catalogue.find_method(name)
    second = None if other is None else catalogue.find_method(other)
    both = [one for one in method.presets if second is None or one in second[1].presets]
    chosen = [one for one in both if kind is None or alike(one.name, kind)]
    if not chosen:
        known = ", ".join(one.name for one in both) or "none in common"
        if kind is not None:
            raise AssayError(f"there is no kind of task '{kind}' to compare on. Kinds: {known}")
        raise AssayError(f"'{name}' and '{other}' have no kind of task in common. Compare methods that share one")
    if second is not None:
        return key, second[0], differences(method.recipe(chosen[0]), second[1].recipe(chosen[0]))
    changes = changes_of(method, chosen[0])
    return ("" if method.base is None else method.base(chosen[0]).name), key, changes
