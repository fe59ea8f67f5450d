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


def add_serve_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of an address to `serve`."""
    text = "address to bind; on any but 127.0.0.1 other machines can replace the weights, and a token is needed"
    one.add_argument("--host", default="127.0.0.1", help=text)
    one.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    text = "what every request must send as 'Authorization: Bearer TOKEN' (default: ASSAY_SERVE_TOKEN, if it is set)"
    one.add_argument("--token", help=text)
