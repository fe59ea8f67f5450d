"""The error that a user can fix."""


class AssayError(Exception):
    """What a user can mend; the message names the field, the value and the fix."""

    exit_code = 2
