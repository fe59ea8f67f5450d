"""A parser of commands whose errors are one sentence."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from assay.core.hints import option_hint


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence with exit code 2, and whose options cannot be abbreviated: a word that
    is another option one version later must not start a run.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Prints the error in one line on stderr and exits with code 2."""
        print(f"assay: {message} (see '{self.prog} --help')", file=sys.stderr)
        raise SystemExit(2)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses the words of a command; unknown ones are an error of the command, which names the nearest option."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            one: argparse.ArgumentParser = self
            while commands := [each for each in one._actions if isinstance(each, argparse._SubParsersAction)]:
                one = commands[0].choices[vars(found)[commands[0].dest]]
            options = [name for action in one._actions for name in action.option_strings if name.startswith("--")]
            hint = option_hint(rest[0].partition("=")[0], options) if rest[0].startswith("--") else ""
            one.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")
        return found
