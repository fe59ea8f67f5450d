"""Errors that a user can fix."""


class AssayError(Exception):
    """An error the user can fix. The message names the field, the bad value and a valid one."""

    exit_code = 2


class DataWarning(UserWarning):
    """What is odd about a user's data. It is said when a run is planned, once, and not when the run is read again."""


class TooLong(AssayError):
    """A text that has more tokens than its task allows."""
