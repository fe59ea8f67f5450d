"""A parser of commands whose errors are one sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from assay.core.hints import nearest, option_hint

FEW = 12
"""Options that a line of usage may list; of a command with more it says only that there are some."""


class Help(argparse.HelpFormatter):
    """argparse's help, whose usage does not repeat a long list of options before the reader has seen what they are."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        """Adds the usage, with `[options]` in the place of more than FEW."""
        listed = list(actions)
        named = [one for one in listed if one.option_strings]
        if usage is None and len(named) > FEW:
            words = [one.option_strings[-1] + f" {one.metavar or one.dest.upper()}" for one in named if one.required]
            words += [argument_word(one) for one in listed if not one.option_strings]
            usage = " ".join(["%(prog)s [options]", *words])
        super().add_usage(usage, listed, groups, prefix)

    def _format_action(self, action: argparse.Action) -> str:
        """Formats commands in one column, without a line that says COMMAND."""
        if isinstance(action, argparse._SubParsersAction):
            return "".join(self._format_action(one) for one in action._get_subactions())
        return super()._format_action(action)


def argument_word(action: argparse.Action) -> str:
    """Returns how a usage shows an argument: in brackets if it may be left out, with dots if there may be several."""
    word = str(action.metavar or action.dest)
    if action.nargs in ("*", "+"):
        word = f"{word} [{word} ...]"
    return f"[{word}]" if action.nargs in ("?", "*") else word


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence with exit code 2, and whose options cannot be abbreviated: a word that
    is another option one version later must not start a run.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, "formatter_class": Help, **settings})

    def error(self, message: str) -> NoReturn:
        """Prints the error in one line on stderr and exits with code 2."""
        print(f"assay: {message} (see '{self.prog} --help')", file=sys.stderr)
        raise SystemExit(2)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses the words of a command; unknown ones are an error of the command, which names the nearest option, and
        so is a command that does not exist. Without any word it prints the help.
        """
        words = list(sys.argv[1:] if args is None else args)
        known = [name for one in self._actions if isinstance(one, argparse._SubParsersAction) for name in one.choices]
        if known and not words:
            self.print_help(sys.stderr)
            raise SystemExit(2)
        if known and words[0] not in known and not words[0].startswith("-"):
            self.error(f"there is no command '{words[0]}'.{command_hint(words[0], known)}")
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            one: argparse.ArgumentParser = self
            while commands := [each for each in one._actions if isinstance(each, argparse._SubParsersAction)]:
                one = commands[0].choices[vars(found)[commands[0].dest]]
            options = [name for action in one._actions for name in action.option_strings if name.startswith("--")]
            hint = option_hint(rest[0].partition("=")[0], options)
            if not rest[0].startswith("-"):
                hint = f" Did you mean --task {rest[0]}?" if "--task" in options else ""
            one.error(f"unrecognized arguments: {' '.join(rest)}.{hint}")
        return found


def command_hint(word: str, known: Iterable[str]) -> str:
    """Returns a sentence on a command that does not exist: the one that begins so or is near in letters, or that the
    word is a method; else ''.
    """
    from assay.runs.method_index import key_of  # not before a command is wrong

    names = list(known)
    begun = [name for name in names if name.startswith(word)]
    near = begun[0] if len(begun) == 1 else nearest(word, names)
    if near:
        return f" Did you mean '{near}'?"
    return f" To train this method: assay train {word}." if key_of(word) else ""


def add_serve_options(one: argparse.ArgumentParser) -> None:
    """Adds the options of an address to `serve`."""
    text = "address to bind; on any but 127.0.0.1 other machines can replace the weights, and a token is needed"
    one.add_argument("--host", default="127.0.0.1", help=text)
    one.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    text = "what every request must send as 'Authorization: Bearer TOKEN' (default: ASSAY_SERVE_TOKEN, if it is set)"
    one.add_argument("--token", help=text)
