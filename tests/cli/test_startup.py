"""What people wait for: lists and refusals need no torch, and what was shown once is shown again at once."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from assay.cli import remembered
from assay.cli.main import parser
from assay.cli.method_commands import made_sheet
from assay.report import sheet
from assay.report.sheet import Block

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_TORCH = """
import contextlib, io, json, sys
from pathlib import Path
from assay.cli.main import main
Path("rewards.py").write_text("import torch\\ndef correct(completions): return [0.0 for _ in completions]\\n")
found = {}
for words in ("list", "list no-such", "list language", "train grpo --no-such 3", "train grop", "show grop",
              "compare grpo rloo",
              "train grpo --task countdown --reward gone.py:f",
              "train grpo --task countdown --reward rewards.py:corect",
              "train grpo --task countdown --reward nowhere", "train grpo --task countdown --tool rewards.py:search",
              "train grpo --task gone.jsonl", "compare grpo rloo --task countdown gone.parquet"):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(words.split())
        except SystemExit as ended:
            code = ended.code
    found[words] = [code, "torch" in sys.modules, said.getvalue()]
print(json.dumps(found))
"""


def test_the_list_and_wrong_names_and_options_need_no_torch(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    ended = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, env=environment, capture_output=True,
                           text=True, timeout=120, check=True)  # fmt: skip
    found = json.loads(ended.stdout)
    assert [words for words, (_, has_torch, _) in found.items() if has_torch] == []
    assert {words for words, (code, _, _) in found.items() if code != 2} == {"list"}
    assert "Did you mean 'grpo'?" in found["train grop"][2]
    told = found["train grpo --task countdown --reward rewards.py:corect"][2]
    assert "Its methods: assay list --kind language" in found["list language"][2]
    assert f"{tmp_path / 'rewards.py'} has no 'corect'. It has: correct." in told


MOST_MODULES = {"list": 60, "train grpo --no-such 3": 45, "show grpo": 346, "show sac": 346, "diff dapo": 330}
"""Modules of the package that a command may load the first time. Each of the three hundred that `show` needs costs one
to two milliseconds, and torch takes most of the 2 cpu-seconds that are promised.
"""
LOADED = """
import contextlib, io, sys
from assay.cli.main import main
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(*sys.modules)
"""
READ = """
import atexit, gc, sys
from assay.cli import main
atexit.register(print, "torn down")
remembered = main.remembered
main.remembered = lambda options, run: (remembered(options, run), print("collects:", gc.isenabled()))[0]
sys.exit(main.main())
"""


@pytest.mark.parametrize("words", MOST_MODULES)
def test_the_first_time_a_command_loads_a_bounded_number_of_modules(words: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    code = [sys.executable, "-c", LOADED, *words.split()]
    ended = subprocess.run(code, env=environment, capture_output=True, text=True, timeout=120, check=True)
    loaded = ended.stdout.split()
    assert 0 < sum(name.partition(".")[0] == "assay" for name in loaded) <= MOST_MODULES[words]
    optional = {"transformers", "gymnasium", "scipy", "pandas", "matplotlib", "peft", "h5py"}
    assert not optional & set(loaded)


@pytest.mark.parametrize(("words", "code"), [("show sft", 0), ("show nothing", 2), ("list", 0)])
def test_a_command_that_only_shows_collects_no_garbage_and_leaves_at_once(
    words: str, code: int, tmp_path: Path
) -> None:
    """What it says arrives whole, also through a pipe, with the exit code that it had."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "100"}
    ran = [sys.executable, "-c", READ, *words.split()]
    ended = subprocess.run(ran, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code
    lines = ended.stdout.splitlines()
    assert lines[-1] == "collects: False"
    assert len(lines) > 20 or code
    assert "torn down" not in ended.stdout
    assert ("there is no method 'nothing'" in ended.stderr) == (code == 2)


def asked(*words: str) -> argparse.Namespace:
    """The options of a command."""
    options: argparse.Namespace = parser().parse_args(words)
    return options


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run, in a cache of their own, on a package of one file."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.py").write_text("a")
    monkeypatch.setattr(remembered, "PACKAGE", tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return []


def test_what_was_printed_is_printed_again_until_a_file_changes(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace) -> int:
        runs.append(options.command)
        print("\x1b[1mgrpo\x1b[0m é")
        return 0

    said = []
    for _ in range(2):
        assert remembered.remembered(asked("diff", "grpo"), run) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == "\x1b[1mgrpo\x1b[0m é\n"
    assert runs == ["diff"]
    remembered.remembered(asked("show", "grpo", "--json"), run)
    assert len(runs) == 2
    (tmp_path / "package" / "one.py").write_text("ab")
    remembered.remembered(asked("diff", "grpo"), run)
    assert len(runs) == 3
    assert len(list((tmp_path / "cache").rglob("*.txt"))) == 1, "those of the former package are gone"


def test_what_is_shown_of_a_method_is_kept_for_every_terminal_until_a_file_changes(
    runs: list[str], tmp_path: Path
) -> None:
    def make(name: str, everything: bool) -> list[Block]:
        runs.append(name)
        return made_sheet(name, everything)

    first = remembered.kept_sheet("dapo", False, make)
    assert remembered.kept_sheet("dapo", False, make) == first == made_sheet("dapo", False)
    assert remembered.kept_sheet("dapo", True, make) != first
    assert runs == ["dapo", "dapo"]
    (tmp_path / "package" / "one.py").write_text("ab")
    remembered.kept_sheet("dapo", False, make)
    assert len(runs) == 3
    for width in (80, 120):
        text = io.StringIO()
        sheet.draw(Console(file=text, width=width), first)
        assert "dapo: " in text.getvalue()
        assert "credit" in text.getvalue()
        assert max(map(len, text.getvalue().splitlines())) <= width


def test_a_kept_sheet_is_drawn_without_torch(tmp_path: Path) -> None:
    """The commands are started as users do."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    code = "import sys; from assay.cli.main import main; main(['show', 'sft']); print('torch' in sys.modules)"
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said[0].splitlines()[-1] == "True"
    assert said[1].splitlines()[-1] == "False"
    assert said[0].splitlines()[:-1] == said[1].splitlines()[:-1]
    assert "claims of sft" in said[1]


def test_a_formula_that_is_too_long_goes_on_further_in() -> None:
    text = "words that flow over the width\n    loss = -mean_i sum_t min(a, b) A_i\n    x = 1"
    assert sheet.folded(text, 24).splitlines() == [
        "words that flow over the width", "    loss = -mean_i sum_t", "        min(a, b) A_i", "    x = 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [("show", "mine.py"), ("show", "grpo"), ("show", "mine.py", "--json"), ("diff", "grpo", "mine.py"), ("claim",)],
)
def test_own_code_and_tasks_are_never_remembered(runs: list[str], tmp_path: Path, words: tuple[str, ...]) -> None:
    for _ in range(2):
        assert remembered.remembered(asked(*words), lambda options: runs.append("ran") or 0) == 0
    assert len(runs) == 2
    assert not (tmp_path / "cache").exists()


def test_an_error_is_not_remembered_and_a_cache_that_cannot_be_written_is_none(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remembered.remembered(asked("diff", "grpo"), lambda options: 2) == 2
    assert not (tmp_path / "cache").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert remembered.remembered(asked("diff", "grpo"), lambda options: 0) == 0
