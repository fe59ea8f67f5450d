"""Writes the pages of the API reference: which names stand on which page. mkdocstrings fills in the docstrings."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import assay
import assay.core.slots
import assay.parts
import assay.recipes
import assay.statistics
from assay.claims import discover
from assay.core.lazy import homes_of
from assay.runs.options import CadenceOptions, EnvironmentOptions, GatherOptions, LanguageOptions, OwnOptions
from assay.runs.options.group import flag
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.training import LoggerOptions, PoolOptions, SeedOptions, TrainingOptions
from tools.docs_text import code, plain, table

TASKS = ("language.files", "language.prompts", "language.dialogue", "language.preferences", "adapters.gymnasium")
"""Modules of `assay.tasks` that make tasks of a user's data and environments."""
GROUPS = (
    TrainingOptions, LanguageOptions, OwnOptions, EnvironmentOptions, CadenceOptions, PlacementOptions, GatherOptions,
    SeedOptions, LoggerOptions, PoolOptions,
)  # fmt: skip
MEMBERS = {
    "api/record.md": ("The record", ("core.record", "core.columns", "core.spaces")),
    "api/claims.md": ("Claims", ("claims.claim", "claims.metrics", "claims.gradient")),
    "api/probes.md": ("Probes", ("claims.probes",)),
    "api/groups.md": ("Groups of rows", ("ops.groups", "ops.ranks")),
    "api/tasks.md": ("Tasks", tuple(f"tasks.{name}" for name in TASKS)),
    "api/errors.md": ("Schedules and settings", ("core.schedules", "core.settings")),
}
"""Pages that show whole modules: title and modules of `assay`."""


def pages() -> dict[str, str]:
    """Returns the pages by their path on the site."""
    made = {
        "api/index.md": public_page(),
        "api/slots.md": exported_page("Slots", assay.core.slots),
        "api/recipes.md": exported_page("Recipes", assay.recipes),
        "api/statistics.md": exported_page("Statistics", assay.statistics),
        "api/columns.md": columns_page(),
        "api/options.md": options_page(),
    }
    made |= {path: modules_page(title, names) for path, (title, names) in MEMBERS.items()}
    return made | {f"api/parts/{name}.md": modules_page(title_of(name), names) for name, names in parts().items()}


def navigation() -> list[Any]:
    """Returns the entries of the navigation."""
    fixed = ["options", "tasks", "claims", "slots", "recipes", "record", "columns", "groups", "statistics", "probes"]
    fixed.append("errors")
    titles = {
        "slots": "Slots",
        "recipes": "Recipes",
        "columns": "Columns",
        "statistics": "Statistics",
        "options": "Options of runs",
    }
    titles |= {Path(path).stem: title for path, (title, _) in MEMBERS.items()}
    named = [{titles[name]: f"api/{name}.md"} for name in fixed]
    return ["api/index.md", *named, {"Parts": [{title_of(name): f"api/parts/{name}.md"} for name in parts()]}]


def title_of(name: str) -> str:
    """Returns the title of a folder of parts."""
    return name.capitalize()


def parts() -> dict[str, list[str]]:
    """Returns the modules of `assay.parts` by folder; modules directly in it stand for themselves."""
    found = {}
    for info in pkgutil.iter_modules(assay.parts.__path__):
        inner = importlib.import_module(f"assay.parts.{info.name}")
        below = [one.name for one in pkgutil.iter_modules(inner.__path__)] if info.ispkg else []
        found[info.name] = [f"parts.{info.name}.{name}" for name in below] or [f"parts.{info.name}"]
    return found


def public_page() -> str:
    """Returns the page of the names that `import assay` has."""
    found = public_names()
    blocks = [f"::: {home}.{name}" for name, home in found.items() if not isinstance(getattr(assay, name), ModuleType)]
    names = [name for name in found if isinstance(getattr(assay, name), ModuleType)]
    modules = "\n".join(f"| `assay.{name}` | `{getattr(assay, name).__name__}` |" for name in names)
    text = "Names of `import assay`. Each is imported on first use, so `import assay` itself is fast."
    table = f"| module | is |\n| --- | --- |\n{modules}"
    return "\n\n".join(["# assay", text, "Modules that are reached the same way:", table, *blocks]) + "\n"


def public_names() -> dict[str, str]:
    """Returns the names of `import assay` and the modules that they come from."""
    return {name: home for name, home in homes_of(str(assay.__file__)).items() if not name.startswith("_")}


def exported_page(title: str, module: ModuleType) -> str:
    """Returns the page of the names that a package exports, after the package's own docstring."""
    names = [name for name in module.__all__ if hasattr(getattr(module, name), "__module__")]
    homes = {name: getattr(module, name).__module__ for name in names}
    blocks = [f"::: {homes[name]}.{name}" for name in names if homes[name].startswith("assay.")]
    return "\n\n".join([f"# {title}", *head(module.__name__), *blocks]) + "\n"


def head(name: str) -> list[str]:
    """Returns the block that shows the docstring of a module alone."""
    options = ("members: false", "show_root_heading: false", "show_root_toc_entry: false", "show_source: false")
    return ["\n".join([f"::: {name}", "    options:", *(f"      {one}" for one in options)])]


def modules_page(title: str, names: tuple[str, ...] | list[str]) -> str:
    """Returns the page of whole modules, without the names that the first page has."""
    shown = "|".join(public_names())
    lines = ("show_root_full_path: true", "show_source: false", f"filters: ['!^_', '!^({shown})$']")
    options = "\n".join(["    options:", *(f"      {line}" for line in lines)])
    return "\n\n".join([f"# {title}", *(f"::: assay.{name}\n{options}" for name in names)]) + "\n"


def options_page() -> str:
    """Returns the options of training as keywords of Python and options of the command line, by group."""
    text = (
        "Keywords of `assay.train` and of other functions that run something, and the options of the command line that "
        "they are. As objects they are these groups: `options=RunOptions(language=LanguageOptions(max_tokens=300))`."
    )
    told = ["# Options of runs", text]
    for group in GROUPS:
        about = (group.__doc__ or "").strip().partition("\n\n")[0]
        rows = []
        for one in fields(group):
            kind = (
                str(one.type).removeprefix("tuple[").removesuffix(", ...]") if "..." in str(one.type) else str(one.type)
            )
            shown = "several" if "..." in str(one.type) else "-" if one.default is None else repr(one.default)
            cells = (
                code(one.name),
                code(flag(one.name)).replace("<code>", '<code class="option">'),
                code(kind),
                code(shown),
                plain(one.metadata["help"]),
            )
            rows.append(cells)
        told += [f"## {group.__name__}", about, table(("keyword", "option", "type", "default", "meaning"), rows)]
    return "\n\n".join(told) + "\n"


def columns_page() -> str:
    """Returns the table of all columns of `Experience.extra`, as the parts declare them."""
    text = "Columns of `Experience.extra`. Each part declares those that it writes, with axes and meaning (`writes`)."
    rows = []
    for name, column in discover.columns().items():
        writers = ", ".join(f"`{cls.__name__}`" for cls in column.writers) or "task or engine"
        rows.append(f"| `{name}` | {column.axes} | {writers} | {column.meaning.replace('|', '&#124;')} |")
    table = "\n".join(["| column | axes | written by | meaning |", "| --- | --- | --- | --- |", *rows])
    return "\n\n".join(["# Columns", text, table]) + "\n"


def laws_table() -> str:
    """Returns the laws of each slot, from the docstrings of the slots."""
    every = laws_of(assay.core.slots.__doc__ or "", "Laws of every part:")
    rows = [f"| every part | {every} |"]
    for name in assay.core.slots.__all__:
        cls = getattr(assay.core.slots, name)
        text = laws_of(cls.__doc__ or "", "Laws:") if isinstance(cls, type) else ""
        if text:
            rows.append(f"| `{name}` | {text} |")
    return "| slot | laws |\n| --- | --- |\n" + "\n".join(rows)


def laws_of(text: str, word: str) -> str:
    """Returns the sentence after `word` in one line; "" without one."""
    _, found, rest = " ".join(text.split()).partition(word)
    return rest.strip().replace("|", "&#124;") if found else ""
