"""Errors that a user can fix, and warnings that name the user's own line."""

import sys
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])
COMMANDS = str(Path(PACKAGE) / "cli")


class AssayError(Exception):
    """An error the user can fix. The message names the field, the bad value and a valid one."""

    exit_code = 2


class DataWarning(UserWarning):
    """What is odd about a user's data. It is said when a run is planned, once, and not when the run is read again."""


class TooLong(AssayError):
    """A text that has more tokens than its task allows."""


def warn(text: str, category: type[Warning] = UserWarning, *, python: str = "") -> None:
    """Warns of something at the line outside of the package that led to it; a notebook shows that line. `python`, if
    given, is the text where Python called and not the command line: a keyword has another name than an option.
    """
    frame, level, is_command = sys._getframe(1), 2, False
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        is_command = is_command or frame.f_code.co_filename.startswith(COMMANDS)
        frame, level = frame.f_back, level + 1
    warnings.warn(text if is_command else python or text, category, level)
