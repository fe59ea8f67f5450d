"""Groups of options: one declaration gives the command line, the record, the words of a command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest

from assay.core.errors import AssayError
from assay.runs.options import RunOptions, add_run_groups, run_options
from assay.runs.options.group import Group, add_group, option, parsed_group, record_of, words_of


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


def test_the_options_of_all_groups_stand_on_one_command_line() -> None:
    parser = argparse.ArgumentParser()
    add_run_groups(parser)
    assert run_options(vars(parser.parse_args([]))) == RunOptions()
