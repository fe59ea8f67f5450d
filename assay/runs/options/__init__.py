"""The options of a run in groups: those that change its task and recipe (`RunOptions`), what it trains, and where.

A field of a group is declared once, with `option(default, help)`. From it come the option of the command line, the
entry in config.json, the words of the command that repeats the run, and the argument in Python: `assay.train(...,
options=RunOptions(language=LanguageOptions(...)))`. These modules import no torch, so that --help is fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from assay.runs.options.cadence import CadenceOptions
from assay.runs.options.environment import EnvironmentOptions
from assay.runs.options.gathering import GatherOptions
from assay.runs.options.group import Group, add_group, changed, parsed_group, record_of, words_of
from assay.runs.options.language import LanguageOptions
from assay.runs.options.own import OwnOptions
from assay.runs.options.sandbox import SandboxOptions
from assay.runs.options.sessions import SessionOptions

__all__ = [
    "CadenceOptions",
    "EnvironmentOptions",
    "GatherOptions",
    "LanguageOptions",
    "OwnOptions",
    "RunOptions",
    "SandboxOptions",
    "SessionOptions",
    "add_run_groups",
    "run_options",
]


@dataclass(frozen=True)
class RunOptions:
    """The options that change a run's task and recipe; the default of each group changes nothing."""

    own: OwnOptions = OwnOptions()
    sessions: SessionOptions = SessionOptions()
    language: LanguageOptions = LanguageOptions()
    environment: EnvironmentOptions = EnvironmentOptions()
    cadence: CadenceOptions = CadenceOptions()
    gathering: GatherOptions = GatherOptions()
    sandbox: SandboxOptions = SandboxOptions()

    def __iter__(self) -> Iterator[Group]:
        """Returns the groups in order; later groups see the changes of earlier ones."""
        return (getattr(self, one.name) for one in fields(self))

    def check(self) -> None:
        """Refuses values out of range."""
        for group in self:
            group.check()

    def record(self, *, decisive: bool) -> dict[str, Any]:
        """Returns values that differ from their default, as JSON; those that decide numbers, or the others."""
        return {name: value for group in self for name, value in record_of(group, decisive=decisive).items()}

    def words(self) -> list[str]:
        """Returns the options as words of a command line."""
        return [word for group in self for word in words_of(group)]

    def or_else(self, usual: RunOptions) -> RunOptions:
        """Returns the options with those of `usual` where they have their default."""
        groups: list[Any] = [replace(theirs, **changed(ours)) for theirs, ours in zip(usual, self, strict=True)]
        return RunOptions(*groups)


def add_run_groups(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a command; those of separate samplers belong to `train` alone."""
    for group in RunOptions():
        if not isinstance(group, GatherOptions):
            add_group(parser, type(group))


def run_options(values: Mapping[str, Any]) -> RunOptions:
    """Returns the options from parsed arguments or from records in config.json; other names are ignored.

    AssayError for a value of a wrong type or out of range.
    """
    groups: list[Any] = [parsed_group(type(group), values) for group in RunOptions()]
    options = RunOptions(*groups)
    options.check()
    return options
