"""Commands and blocks of the documentation that cannot be checked here, each with the reason."""

EXEMPT = {
    "--device cuda": "needs a GPU",
    "assay --version": "ends the process; tests/test_package.py runs the command",
}
"""A part of a command, or the first words of a block of Python, and why it is left out."""
