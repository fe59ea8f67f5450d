"""Parts as trees: lists, reads, changes, parses, resolves and describes every setting by its path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from functools import partial
from typing import Any

from assay.core import hints
from assay.core.errors import AssayError
from assay.core.moved import recorded_name
from assay.core.record import Progress


def children(value: Any) -> list[tuple[str, Any]]:
    """Returns the named parts directly below: fields, entries, and elements of tuples (named by their own or their
    class's name; the second of a class in one tuple is Class-2). A field that follows another part has no settings of
    its own.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in fields(value) if f.init and "follows" not in f.metadata]
    if isinstance(value, Mapping):
        return [(str(name), item) for name, item in value.items()]
    if isinstance(value, tuple) and any(is_dataclass(item) for item in value):
        return list(zip(numbered([own_name(item) for item in value]), value, strict=True))
    return []


def own_name(part: Any) -> str:
    """Returns the part's own name if it has one (stages and phases do), else its class name."""
    return getattr(part, "name", None) or type(part).__name__


def numbered(names: Sequence[str]) -> list[str]:
    """Returns the names made unique: a, b, a -> a, b, a-2."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return result


def model_name(default: str | tuple[str, ...]) -> Any:
    """Returns a dataclass field for a setting that names the model, or models, the part reads."""
    return field(default=default, metadata={"names_models": True})


def models_read(part: Any) -> list[str]:
    """Returns the names of all models that a part and the parts inside it read by their settings, each once."""
    own = [one.name for one in fields(part) if one.metadata.get("names_models")] if is_dataclass(part) else []
    found: list[str] = []
    for name, value in children(part):
        named = [value] if isinstance(value, str) else value
        found += named if name in own else models_read(value)
    return list(dict.fromkeys(found))


def settings(value: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Returns every setting by its full path, in order; a schedule is a setting, and so are its own numbers."""
    below = children(value)
    if not below:
        return {above: value} if not is_dataclass(value) else {}
    found: dict[tuple[str, ...], Any] = {above: value} if is_schedule(value) else {}
    for name, item in below:
        found |= settings(item, (*above, name))
    return found


def read(value: Any, path: tuple[str, ...]) -> Any:
    """Returns the part or setting at a full path."""
    for name in path:
        value = dict(children(value))[name]
    return value


RENAMED = {
    "members": "group_size",
    "starts": "num_starts",
    "instances": "num_envs",
    "decay": "gae_lambda",
    "sharpness": "inverse_temperature",
}
"""Settings of version 0.1 and their current names; an old name is an error that names the new one."""
SYNONYMS = {"num_prompts": "num_starts"}
"""Synonyms of settings: a prompt is the start of a completion."""


def find_setting(recipe: Any, path: str) -> tuple[str, ...]:
    """Returns the one full path that `path` can mean: its words in order, the last one at the end; a full path means
    itself.

    A setting of the recipe itself takes precedence over one of its phases.
    """
    words = path.split(".")
    words[-1] = SYNONYMS.get(words[-1], words[-1])
    known = settings(recipe)
    written = [full for full in known if ".".join(full) == ".".join(words)]  # a name in it may have dots of its own
    if written:
        return written[0]
    matches = [full for full in known if full[-1] == words[-1] and is_subsequence(words, full)]
    matches = [full for full in matches if full[0] != "before"] or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        options = ", ".join(".".join(full) for full in matches)
        meaning = hints.meant(words[-1], known)
        also = f". {meaning.removesuffix('.')}" if meaning.startswith("For ") else ""
        raise AssayError(f"setting '{path}' is ambiguous in recipe '{recipe.name}'. Use one of {options}{also}")
    raise AssayError(why_unknown(recipe, words, known).replace("  ", " "))


def why_unknown(recipe: Any, words: list[str], known: Mapping[tuple[str, ...], Any]) -> str:
    """Returns the error text for a path that is not a setting: a part, a setting of that meaning or of similar letters,
    and how to list all.
    """
    path = ".".join(words)
    inner = [full for full in inner_paths(recipe) if full[-1] == words[-1] and is_subsequence(words, full)]
    if inner:
        full = min(inner, key=len)
        below = [".".join(setting) for setting in known if setting[: len(full)] == full]
        settable = f" Its settings: {', '.join(below[:4])}{', ...' if len(below) > 4 else ''}." if below else ""
        swap = f"replace(recipe, {full[0]}=...)" if full[0] != "stages" else "replace(recipe, stages=(...))"
        return f"'{path}' is a part of recipe '{recipe.name}', not a number. Swap it in Python: {swap}.{settable}"
    if words[-1] in RENAMED:
        return f"the setting '{words[-1]}' is called '{RENAMED[words[-1]]}' since version 0.2. Use the new name"
    hint = hints.meant(words[-1], known) or similar(words, list(known))
    return f"recipe '{recipe.name}' has no setting '{path}'. {hint} assay show {recipe.name} --all lists all settings"


def similar(words: Sequence[str], known: Sequence[tuple[str, ...]]) -> str:
    """Returns a question with the setting whose last word is nearest in letters, '' if none is near."""
    near = hints.nearest(words[-1], dict.fromkeys(full[-1] for full in known))
    paths = [full for full in known if full[-1] == near]
    same = [full for full in paths if is_subsequence([*words[:-1], full[-1]], full)] or paths
    return f"Did you mean '{'.'.join(same[0])}'?" if same else ""


def inner_paths(value: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the paths of all parts, and of all tuples and mappings of parts, that are not settings themselves."""
    below = children(value)
    own = [above] if above and (below or is_dataclass(value)) and not is_schedule(value) else []
    return [*own, *(path for name, item in below for path in inner_paths(item, (*above, name)))]


def is_subsequence(words: list[str], full: tuple[str, ...]) -> bool:
    """Returns whether `words` occur in `full` in this order."""
    rest = iter(full)
    return all(word in rest for word in words)


def changed(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """Returns a copy of the tree with the value at `path` replaced."""
    if not path:
        return new
    if isinstance(value, Mapping):
        return {name: changed(item, path[1:], new) if name == path[0] else item for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(changed(item, path[1:], new) if name == path[0] else item for name, item in children(value))
    return replace(value, **{path[0]: changed(getattr(value, path[0]), path[1:], new)})


def followed(value: Any, old: Any, new: Any) -> Any:
    """Returns the tree with `new` in those fields that follow another part (metadata `follows`) and contained `old`."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    below = {f.name: (getattr(value, f.name), "follows" in f.metadata) for f in fields(value) if f.init}
    moved = {n: new if follows and item == old else followed(item, old, new) for n, (item, follows) in below.items()}
    changes = {name: item for name, item in moved.items() if item is not below[name][0]}
    return replace(value, **changes) if changes else value


KINDS = {bool: "true or false", int: "a whole number", float: "a number", tuple: "values separated by commas"}


def coerced(path: str, old: Any, new: Any) -> Any:
    """Returns `new` as a value of the type of `old`. Text is parsed; a value of another type raises AssayError."""
    kind = float if is_schedule(old) else type(old)
    text = isinstance(new, str)
    try:
        if issubclass(kind, bool):
            return parsed_bool(new)
        if issubclass(kind, int | float) and not is_schedule(new):
            return parsed_number(new, kind)
        if issubclass(kind, tuple):
            inner = type(old[0]) if old else int
            words = new.strip("() ").removesuffix(",").split(",") if text else list(new)
            return tuple(inner(word) for word in words) if words != [""] else ()
    except (TypeError, ValueError):
        wanted = next(words for known, words in KINDS.items() if issubclass(kind, known))
        raise AssayError(f"{path} is {old!r}, so '{new}' has the wrong type. Use {wanted}") from None
    if text and not issubclass(kind, str):
        held = "" if old is None else f" ({kind.__name__})"
        raise AssayError(
            f"{path} is a part{held}, and '{new}' is text: --set writes numbers and words. Give a part in Python, "
            "assay.train(dataclasses.replace(recipe, ...)), or a file: --body, --loss or --advantage FILE.py:NAME"
        )
    return new


def parsed_number(value: Any, kind: type) -> Any:
    """Returns an int or a float; a fraction is not an int."""
    if isinstance(value, bool):
        raise ValueError
    result = float(value)
    if issubclass(kind, int) and not result.is_integer():
        raise ValueError
    return kind(result)


def parsed_bool(value: Any) -> bool:
    """Parses true/false, yes/no, 1/0."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def is_schedule(value: Any) -> bool:
    """Returns whether a value is a schedule (a recipe, which also has `at`, is not)."""
    return is_dataclass(value) and callable(getattr(value, "at", None)) and getattr(value, "stages", None) is None


def has_schedule(value: Any) -> bool:
    """Returns whether the tree contains a schedule."""
    return is_schedule(value) or any(has_schedule(item) for _, item in children(value))


def resolved(value: Any, progress: Progress) -> Any:
    """Returns the tree with schedules replaced by numbers."""
    if is_schedule(value):
        return value.at(progress)
    for name, item in children(value):
        if has_schedule(item):
            value = changed(value, (name,), resolved(item, progress))
    return value


def replaced(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Returns the tree with change(part) in place of every part of a kind; a tree without one is returned itself."""
    if isinstance(value, kind):
        return change(value)
    for name, item in children(value):
        if (new := replaced(item, kind, change)) is not item:
            value = changed(value, (name,), new)
    return value


def describe(value: Any) -> Any:
    """Returns a part as JSON: its class and settings, recursively, without fields that its repr leaves out."""
    if is_dataclass(value) and not isinstance(value, type):
        shown = [f.name for f in fields(value) if f.init and f.repr]
        return {"part": type(value).__name__} | {name: describe(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        return {str(name): describe(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [describe(item) for item in value]
    if isinstance(value, partial):
        return [describe(value.func), *(describe(item) for item in value.args), describe(value.keywords)]
    if callable(value):
        return recorded_name(value)
    return value
