"""Errors that a user can fix."""


class AssayError(Exception):
    """An error the user can fix. The message names the field, the bad value and a valid one."""

    exit_code = 2


class TooLong(AssayError):
    """A text that has more tokens than its task allows."""
