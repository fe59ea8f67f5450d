"""Exceptions by their place in a user's code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.core.calls import OwnCodeError, rewards_of
from assay.core.errors import AssayError
from assay.core.faults import Fault, any_fault, chain_of, own_fault, sentence
from assay.runs.user_code.loading import load


def caught(call: object) -> Exception:
    """Returns what a call raises."""
    assert callable(call)
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def written(tmp_path: Path, text: str, name: str = "mine") -> object:
    """Returns a function of a file of the user's."""
    path = tmp_path / "mine.py"
    path.write_text(text)
    return vars(load(str(path)))[name]


def test_the_place_is_the_innermost_line_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\n\ndef inner(x):\n    return torch.stack(x)\n\ndef mine():\n    return inner([])\n"
    mine = written(tmp_path, text)
    error = caught(mine)
    found = own_fault(error)
    assert found == Fault("RuntimeError", str(tmp_path / "mine.py"), 4)
    assert sentence(error).startswith("mine.py, line 4: RuntimeError: ")


def test_a_cause_has_the_place_and_the_sentence_of_the_outer_error_stays(tmp_path: Path) -> None:
    mine = written(tmp_path, "def mine(rows):\n    return [1 / 0 for row in rows]\n")
    error = caught(lambda: rewards_of(mine, [{"completion": "a"}], "mine.py:mine"))  # type: ignore[arg-type]
    assert isinstance(error, OwnCodeError)
    assert f"ZeroDivisionError: division by zero ({tmp_path / 'mine.py'}, line 2)" in sentence(error)
    found = any_fault(error)
    assert found == Fault("ZeroDivisionError", str(tmp_path / "mine.py"), 2)


def test_lines_of_libraries_and_of_this_package_are_not_the_users() -> None:
    for call in (lambda: json.loads("{"), lambda: load("/there/is/none.py")):
        error = caught(call)
        assert own_fault(error) is not None, "this file is a user's"
        outer = error.__traceback__
        assert outer is not None
        assert outer.tb_next is not None
        inner = error.with_traceback(outer.tb_next.tb_next)
        assert own_fault(inner) is None
        found = any_fault(inner)
        assert (found is None) == isinstance(error, AssayError), "an AssayError says by itself what is wrong"
        assert found is None or found.file.endswith("decoder.py")


def test_notes_follow_the_error_in_one_line() -> None:
    error = ValueError("a\nb")
    error.add_note("first")
    error.add_note("second")
    assert sentence(error) == "ValueError: a b. first. second"
    assert sentence(error, notes=False) == "ValueError: a b"


def test_causes_that_are_a_ring_are_told_once() -> None:
    """An exception that is raised again from what it had caused: following its causes would never end."""
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__context__ = second, first
    assert list(chain_of(first)) == [first, second]
