"""Groups of options: one declaration gives the command line, the record, the words of a command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.engine.placement import Placement
from assay.runs.options import RunOptions, add_run_groups, run_options
from assay.runs.options.group import Group, add_group, option, parsed_group, record_of, words_of
from assay.runs.options.placement import PlacementOptions
from assay.runs.options.training import LoggerOptions, SeedOptions, TrainingOptions


@dataclass(frozen=True)
class Example(Group):
    """One option of every kind."""

    max_tokens: int | None = option(None, "limit of an answer")
    kl: float = option(0.0, "coefficient")
    system: str | None = option(None, "system prompt")
    in_order: bool = option(False, "do not shuffle")
    reward: tuple[str, ...] = option((), "reward function")
    keep: int = option(3, "checkpoints kept", decisive=False)


def parsed(*words: str) -> Example:
    """Returns the group that a command line gives."""
    parser = argparse.ArgumentParser()
    add_group(parser, Example)
    return parsed_group(Example, vars(parser.parse_args(words)))


def test_an_empty_command_line_is_the_default() -> None:
    assert parsed() == Example()
    assert record_of(Example(), decisive=True) == record_of(Example(), decisive=False) == {}


def test_words_record_and_command_line_agree() -> None:
    words = ["--max-tokens", "64", "--kl", "0.5", "--system", "Be brief.", "--in-order", "--reward", "a.py:f"]
    group = parsed(*words, "--reward", "b.py:g", "--keep", "1")
    assert group == Example(64, 0.5, "Be brief.", True, ("a.py:f", "b.py:g"), 1)
    assert parsed(*words_of(group)) == group
    record = record_of(group, decisive=True)
    assert "keep" not in record
    assert parsed_group(Example, record | record_of(group, decisive=False)) == group


def test_a_record_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(AssayError, match="--kl is 'much'"):
        parsed_group(Example, {"kl": "much"})
    assert parsed_group(Example, {"kl": 1}).kl == 1.0
    for name, value in {"keep": None, "max_tokens": True, "in_order": 1, "reward": "a.py:f"}.items():
        with pytest.raises(AssayError, match=f"is {value!r}"):
            parsed_group(Example, {name: value})
    assert parsed_group(Example, {"max_tokens": None}).max_tokens is None


def test_the_options_of_all_groups_stand_on_one_command_line() -> None:
    parser = argparse.ArgumentParser()
    add_run_groups(parser)
    assert run_options(vars(parser.parse_args([]))) == RunOptions()


def test_a_command_may_have_some_options_of_a_group_with_another_help() -> None:
    parser = argparse.ArgumentParser()
    add_group(parser, Example, only={"kl": "", "keep": "trials kept"})
    told = {action.dest: (action.default, action.help) for action in parser._actions if action.dest != "help"}
    assert told == {"kl": (0.0, "coefficient"), "keep": (3, "trials kept")}


def test_every_option_of_train_is_declared_in_a_group() -> None:
    commands = next(one for one in cli.parser()._actions if isinstance(one, argparse._SubParsersAction))
    options = {action.dest for action in commands.choices["train"]._actions} - {"help", "json", "name", "task"}
    groups = [*map(type, RunOptions()), TrainingOptions, SeedOptions, PlacementOptions, LoggerOptions]
    assert sorted(options) == sorted(one.name for group in groups for one in fields(group))


def test_a_placement_has_the_defaults_of_its_options() -> None:
    assert Placement(**vars(PlacementOptions())) == Placement()
    changed = Placement("cuda:1", 8, None, 900, True, True, None, 4, 2, True)
    options = parsed_group(PlacementOptions, vars(changed))
    assert Placement(**vars(options)) == changed
    assert record_of(options, decisive=False) == {"ranks": 2, "sharded": True}


def test_a_run_folder_is_a_path_and_nothing_else() -> None:
    assert parsed_group(TrainingOptions, {"out": Path("runs")}).out == Path("runs")
    with pytest.raises(AssayError, match=r"--out is 'runs'\. Use a path"):
        parsed_group(TrainingOptions, {"out": "runs"})


def test_the_settings_of_a_plan_are_read_from_words() -> None:
    assert TrainingOptions(set_=("a.b=1", " c = x=y ")).arguments()["settings"] == {"a.b": "1", "c": "x=y"}
    for word in ("a.b", "=1", "a="):
        with pytest.raises(AssayError, match=r"is not of the form part\.field=value"):
            TrainingOptions(set_=(word,)).arguments()
