"""Input that cannot be used ends in exit code 2 and one sentence with the field, the value and the fix; never in a
traceback, and before anything is trained or written.

`bad_inputs.txt` has one case a line: words of a command line => words of the error. `place.py` makes the files that
they name. Cases that need more than a command line stand beside what they test, and are counted here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from assay.cli import main as cli
from assay.engine.loop import Loop
from assay.runs.pools import Processes
from tests.users import place

LINES = (Path(__file__).parent / "bad_inputs.txt").read_text().splitlines()
CASES = dict(line.split(" => ") for line in LINES if " => " in line)
ELSEWHERE = {
    "tests.cli.test_cli": ("TRAIN", "OTHERS", "BROKEN_CONFIGS"),
    "tests.datasets.test_datasets": ("BAD", "D4RL_FAULTS"),
    "tests.models.test_transformers": ("REFUSED",),
    "tests.tasks.adapters.test_broken_environments": ("EARLY", "LATER"),
    "tests.tasks.language.test_prompts": ("NO_OUTCOMES", "UNUSABLE"),
}
"""Tables of further cases."""
NAMES = {"RUN": "run", "LANG": "lang", "MODEL": "model"}
NEEDS = {"my_env": "gymnasium", "-v0": "gymnasium", "-v99": "gymnasium", "models/": "transformers", "minari:": "minari"}
NEEDS |= {"MODEL": "transformers", ".hdf5": "h5py", " folder ": "h5py", '""': "h5py"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of unusable things, and what is in it."""
    made = tmp_path_factory.mktemp("place")
    place.make(made)
    return made


@pytest.fixture
def _refusing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Works in the folder; nothing may be trained, and the parser of all commands is built once."""

    def trained(*_: object) -> None:
        pytest.fail("this input was accepted: a step was trained")

    monkeypatch.chdir(folder)
    monkeypatch.setattr(Loop, "step", trained)
    monkeypatch.setattr(Processes, "start", trained)
    monkeypatch.setattr(cli, "parser", lambda made=cli.parser(): made)
    yield
    assert not (folder / "runs" / "data").exists(), "something was written"


def groups() -> dict[str, list[str]]:
    """Returns the cases by command."""
    found: dict[str, list[str]] = {}
    for line in CASES:
        found.setdefault(line.split()[0].strip('"-'), []).append(line)
    return found


@pytest.mark.usefixtures("_refusing")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", sorted(groups()))
def test_bad_input_is_refused_in_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for line in groups()[command]:
        if any(sign in f"{line} " and find_spec(package) is None for sign, package in NEEDS.items()):
            continue
        if line.endswith("--device cuda") and torch.cuda.is_available():
            continue  # there is a GPU
        pieces = [word.partition("@") for word in shlex.split(line)]
        words = [NAMES.get(name, name) + sign + rest for name, sign, rest in pieces]
        capsys.readouterr()
        try:
            code = cli.main(words)
        except SystemExit as left:
            code = int(left.code or 0)
        out, errors = capsys.readouterr()
        told = errors.replace(f"{os.getcwd()}/", "").replace(os.getcwd(), "")
        is_one_line = told.startswith("assay: ") and told.count("\n") == 1 and not out
        if code != 2 or not is_one_line or CASES[line] not in told:
            wrong.append(f"{line}\n    {code} {told[-300:]}{out[:100]}")
    assert not wrong, "\n".join(wrong)


def test_every_command_is_tried_and_there_are_hundreds_of_cases() -> None:
    known = {"train", "compare", "tune", "claim", "evaluate", "export", "ablate", "check", "report", "watch", "data"}
    assert known | {"serve", "show", "diff", "list", "resume"} <= set(groups())
    assert len(CASES) >= 800
    found = [getattr(import_module(name), table) for name, tables in ELSEWHERE.items() for table in tables]
    assert sum(map(len, found)) >= 180
