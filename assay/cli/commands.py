"""The commands of the command line: where the function of each stands; it takes the parsed options and returns the exit
code. A command imports what it needs and nothing of the others.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable

COMMANDS = {
    "ablate": ("ablate_command", "ablate"),
    "check": ("check_command", "check"),
    "claim": ("claim_commands", "claim"),
    "compare": ("compare_commands", "compare"),
    "data": ("data_commands", "data"),
    "diff": ("method_commands", "diff"),
    "evaluate": ("policy_commands", "evaluate"),
    "export": ("policy_commands", "export"),
    "list": ("method_commands", "list_methods"),
    "plan": ("plan_command", "plan"),
    "report": ("report_command", "report"),
    "reproduce": ("reproduce_command", "reproduce_run"),
    "resume": ("train_command", "resume"),
    "serve": ("server_commands", "serve_policy"),
    "show": ("method_commands", "show_method"),
    "train": ("train_command", "train"),
    "tune": ("compare_commands", "tune"),
    "watch": ("server_commands", "watch"),
}
"""Command -> module of `assay.cli`, function."""


def command_function(name: str) -> Callable[[argparse.Namespace], int]:
    """Returns the function of a command."""
    module, function = COMMANDS[name]
    found: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"assay.cli.{module}"), function)
    return found
