"""Writes the page of all commands and options, from the parser of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from assay.cli import main as cli
from tools.docs_text import capital, code, plain, table

PAGE = "commands.md"


def pages() -> dict[str, str]:
    """Returns the page."""
    told = ["# Command line", "All commands and options, as `assay COMMAND --help` prints them."]
    return {PAGE: "\n\n".join([*told, *(section(one) for one in commands(cli.parser()))]) + "\n"}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields every command that has no commands below it."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for one in action.choices.values():
            yield from commands(one)
    if not below:
        yield parser


def section(parser: argparse.ArgumentParser) -> str:
    """Returns a command: what it does, then its arguments and options by group."""
    told = [f"## {parser.prog}", f"{capital(parser.description or parser.prog)}."]
    for group in parser._action_groups:
        told_of = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        shown = [one for one in told_of if not isinstance(one, argparse._HelpAction)]
        if shown:
            name = str(group.title or "options")
            told.append(table((name, ""), [(code(words_of(one)), plain(one.help or "")) for one in shown]))
    return "\n\n".join(told)


def words_of(action: argparse.Action) -> str:
    """Returns how an argument or option is written."""
    value = action.metavar or (str(action.dest).upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return str(value if action.metavar else action.dest.upper())
    return " ".join([", ".join(action.option_strings), *([str(value)] if value and action.nargs != 0 else [])])
