"""What a type checker says of a user's script: it knows the public names, their words and their results.

`typed_script.py` is among the files that mypy reads in `make test`: a name that it does not know is an error
there, and a wrong word that it no longer sees is an unused `type: ignore`. Here is held that it is read so.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import assay

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "tests/users/typed_script.py"
WRONG = ("call-arg", "arg-type", "attr-defined")


def test_a_typed_script_is_typed_and_a_wrong_word_in_it_is_found() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert SCRIPT in settings["files"]
    assert settings["warn_unused_ignores"]
    assert "ignore-without-code" in settings["enable_error_code"]
    assert "mypy" in (ROOT / "Makefile").read_text().split("\ntest:")[1].split("\n\n")[0]
    lines = (ROOT / SCRIPT).read_text().splitlines()
    ignored = [line.split("type: ignore[")[1].rstrip("]") for line in lines if "type: ignore[" in line]
    assert ignored == list(WRONG), "each kind of mistake once, and nothing of the right script is ignored"
    assert (Path(assay.__file__).parent / "py.typed").is_file(), "checkers read the package's types"
