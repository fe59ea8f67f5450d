"""Reads run folders for a page. Damaged lines are counted, left out, and named in a note.

`find` walks to the run folders, a `Reader` reads one of them and remembers it, `name_arms` groups runs of one recipe
with equal settings. A run is finished if its last step is the planned one, running while the process that holds its
lock is alive, and stopped otherwise.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.store import LOCK, is_locked
from assay.report.journal import Journal, Lines, is_count, open_regular, parsed, plural, signature
from assay.runs.folder import METRICS, SAMPLES

CONFIG = "config.json"
NOT_SETTINGS = (
    "seed",
    "task",
    "task_settings",
    "machine",
    "fingerprint",
    "assay",
    "versions",
    "save_every",
    "evaluate_every",
    "held_out",
    "cadence",
)
LARGEST_CONFIG = 64 * 2**20


@dataclass
class Run:
    """One run folder as it is now."""

    folder: Path
    label: str
    config: dict[str, Any]
    method: str
    task: str
    seed: int
    journal: Journal
    notes: list[str] = field(default_factory=list)
    arm: str = ""
    level: float | None = None
    """The decisions at which its comparison reads its score; None for the last evaluation."""
    version: object = None
    """Changes with what is shown of the run."""

    @property
    def step(self) -> int:
        """Returns the last measured step."""
        return self.journal.steps[-1] if self.journal.steps else 0

    @property
    def steps(self) -> int | None:
        """Returns the planned steps, those added by --more-steps included, or None if the config does not say."""
        steps, more = self.config.get("steps"), self.config.get("more_steps", 0)
        return steps + more if is_count(steps) and isinstance(more, int) else None  # fewer if it had ended early

    @cached_property
    def state(self) -> str:
        """Returns finished, running or stopped."""
        if self.journal.steps and (self.journal.ended or (self.steps is not None and self.step >= self.steps)):
            return "finished"
        return "running" if is_locked(self.folder) else "stopped"

    @property
    def reason(self) -> str:
        """Returns why a run is not finished."""
        if self.state == "finished":
            return ""
        has_begun = bool(self.journal.steps)
        where = f"at step {self.step}" + (f" of {self.steps}" if self.steps is not None else "")
        if self.state == "running":
            return where if has_begun else "started, nothing measured yet"
        if not has_begun:
            return "nothing was measured"
        if self.steps is None:
            return f"{where}; its config does not say how many were planned"
        alarms = [text for some in self.journal.recent for text in some]
        return f"stopped {where}" + (f": {alarms[-1]}" if alarms else ", and no process holds the folder")

    @property
    def score(self) -> float | None:
        """Returns the score of the last evaluation, or that at the level."""
        return self.journal.last("evaluation") if self.level is None else self.journal.at("evaluation", self.level)

    @property
    def decisions(self) -> float | None:
        """Returns the number of decisions so far."""
        return self.journal.last("decisions_total")

    @cached_property
    def seconds(self) -> float | None:
        """Returns the seconds of the run so far."""
        return float(self.journal.seconds()[-1]) if self.journal.steps else None

    def phases(self) -> dict[str, float]:
        """Returns the seconds of each phase; `other` is the rest."""
        spent = self.journal.phases
        rest = (self.seconds or 0.0) - sum(spent.values())
        return {phase: round(value, 3) for phase, value in (spent | {"other": max(0.0, rest)}).items() if value > 0}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that define an arm: the config without names, seed, task, machine, versions and
        evaluations.
        """
        found = flat({key: value for key, value in self.config.items() if key not in NOT_SETTINGS})
        return {name: value for name, value in found.items() if name not in ("method", "recipe.name")}

    @cached_property
    def settings_text(self) -> str:
        """Returns the settings as one text, equal for runs of one arm."""
        return json.dumps(self.settings, sort_keys=True)


# ---------------------------------------------------------------------------------------------------- folders
def find(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Returns the run folders in and below the given ones, each once, with a short name; phases belong to their run."""
    found: dict[Path, str] = {}
    for given in map(Path, folders):
        if not given.is_dir():
            raise AssayError(f"{given} is not a folder. Name a run folder, or a folder that contains some.")
        for path in below(given):
            name = path.relative_to(given).as_posix()
            found.setdefault(path.resolve(), given.resolve().name if name == "." else f"{given.resolve().name}/{name}")
    if not found:
        where = ", ".join(map(str, folders)) or "no folder"
        raise AssayError(f"there is no run in {where}. Name a folder that holds {METRICS} or {CONFIG}.")
    return list(found.items())


def below(folder: Path) -> Iterator[Path]:
    """Returns the run folders at any depth, in order of name."""
    for path, folders, files in os.walk(folder):
        if METRICS in files or (CONFIG in files and SAMPLES in files) or (CONFIG in files and LOCK in files):
            folders.clear()
            yield Path(path)
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=in_words)


def in_words(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts seed-2 before seed-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


# ---------------------------------------------------------------------------------------------------- reading
class Reader:
    """Reads one run folder, and reads on when it has grown; what has not changed is not read again."""

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label = folder, label
        self.journal = Journal.of(folder / METRICS)
        self.samples = SampleLines(Lines(folder / SAMPLES))
        self.config: dict[str, Any] = {}
        self.config_notes: list[str] = []
        self.seen: tuple[object, ...] | None = None
        self.run: Run | None = None
        self.facts: dict[object, dict[str, Any]] = {}
        """What the page shows of the run, by what it depends on."""

    def read(self) -> Run:
        """Returns the run as it is now."""
        config, journal = signature(self.folder / CONFIG), signature(self.folder / METRICS)
        now = config, journal, is_locked(self.folder)
        if self.run is not None and now == self.seen:
            return self.run
        if self.seen is None or self.seen[0] != config:
            self.config_notes = []
            self.config = read_config(self.folder / CONFIG, self.label, self.config_notes)
        self.journal = self.journal.read()
        self.seen, self.run = now, self.made(now)
        return self.run

    def made(self, version: object) -> Run:
        """Returns the run of what was read; method and seed are those of the path if the config does not say."""
        config = self.config
        outer = [part for part in self.label.split("/") if not re.fullmatch(r"seed-\d+", part)] or [self.label]
        in_path = re.search(r"(?:^|/)seed-(\d{1,15})(?:/|$)", self.label) or re.search(r"-(\d{1,15})$", self.label)
        seed = config.get("seed")
        return Run(
            self.folder,
            self.label,
            config,
            method=str(config.get("method") or own_name(config) or outer[1 if len(outer) > 1 else 0])[:200],
            task=str(config.get("task") or "unknown task")[:200],
            seed=seed if is_count(seed) else int(in_path[1]) if in_path else 0,
            journal=self.journal,
            notes=self.config_notes + self.journal.notes(self.label, METRICS),
            version=version,
        )


def read_config(path: Path, label: str, notes: list[str]) -> dict[str, Any]:
    """Reads config.json; returns nothing and adds a note if it cannot be read."""
    try:
        with open_regular(path) as file:
            config = parsed(file.read(LARGEST_CONFIG))
        if config is not None:
            return config
        what = "is not a JSON object"
    except FileNotFoundError:
        what = "is missing"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    notes.append(f"{label}/{CONFIG} {what}: method and seed are taken from the path")
    return {}


@dataclass
class SampleLines:
    """The lines of samples.jsonl: offset and length of each, and the records that were asked for last."""

    lines: Lines
    places: list[tuple[int, int]] = field(default_factory=list)
    records: dict[int, dict[str, Any] | None] = field(default_factory=dict)
    problem: str = ""

    def read(self) -> None:
        """Finds the new lines."""
        if self.lines.has_restarted():
            self.places, self.records = [], {}
        try:
            self.places += [(offset, len(line)) for offset, line in self.lines.fresh() if line.strip()]
            self.problem = ""
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = error.strerror or str(error)

    def chosen(self, places: Iterable[int]) -> Iterator[dict[str, Any] | None]:
        """Yields the records of these lines, None for a damaged one."""
        wanted = [self.places[place] for place in places]
        if any(offset not in self.records for offset, _ in wanted):
            with open_regular(self.lines.path) as file:
                for offset, length in wanted:
                    if offset not in self.records:
                        file.seek(offset)
                        self.records[offset] = parsed(file.read(length))
        self.records = {offset: self.records[offset] for offset, _ in wanted}
        yield from self.records.values()

    def notes(self, label: str, damaged: int) -> Iterator[str]:
        """Yields one sentence for each thing that could not be read."""
        if self.problem:
            yield f"{label}/{SAMPLES} cannot be read ({self.problem})"
        if damaged:
            yield f"{label}/{SAMPLES}: {plural(damaged, 'damaged line')} left out"
        if self.lines.long:
            yield f"{label}/{SAMPLES}: {plural(self.lines.long, 'very long line')} left out"


# ---------------------------------------------------------------------------------------------------- arms
def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Returns settings by dotted path."""
    if isinstance(value, Mapping) and value:
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        items = enumerate(value)
    else:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in flat(item, f"{path}.{name}".lstrip(".")).items()}


def own_name(config: Mapping[str, Any]) -> str | None:
    """Returns the name of a run's recipe, for recipes that are not a method's."""
    recipe = config.get("recipe")
    return str(recipe["name"]) if isinstance(recipe, Mapping) and recipe.get("name") else None


def same_name(name: str) -> str:
    """Returns the name under which spellings of one method are equal: capitals and '_' for '-' do not matter."""
    return name.lower().replace("_", "-")
