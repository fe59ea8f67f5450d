"""Commands and snippets of the documentation work as they are written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.engine import evaluation
from tests.docs import blocks
from tests.docs.blocks import PAGES, ROOT, SHELL, Block, blocks_of, python_of
from tests.docs.dry import check
from tests.docs.exempt import ELSEWHERE, EXEMPT
from tests.models.test_conversations import TEMPLATES, save_chat_model

SNIPPETS = [
    page
    for path in PAGES
    if python_of(path) and "python" not in ELSEWHERE.get(page := path.relative_to(ROOT).as_posix(), {})
]
names = pytest.mark.parametrize("page", [path.relative_to(ROOT).as_posix() for path in PAGES])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a tiny pretrained model when a command first needs one."""
    return cache(lambda: Path(save_chat_model(tmp_path_factory.mktemp("model") / "chat", TEMPLATES["chatml"])))


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in an empty folder that modules are found in, with held-out scores of few starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    monkeypatch.setattr(evaluation, "EPISODES", 4)


def reason(text: str) -> str | None:
    """Why a command or block is left out, if it is."""
    return next((why for words, why in EXEMPT.items() if words in text), None)


def write_files_of(page: str) -> list[Block]:
    """Writes the files that the blocks of a page are; returns all of its blocks."""
    found = blocks_of(ROOT / page)
    for block in found:
        for name, text in block.files.items():
            Path(name).write_text(text)
    return found


def run_elsewhere(page: str, kind: str) -> bool:
    """Returns whether another test runs the blocks of this kind."""
    return kind in ELSEWHERE.get(page, {})


@names
@pytest.mark.filterwarnings("ignore::UserWarning")  # of made-up files
def test_every_command_can_be_planned(
    page: str, monkeypatch: pytest.MonkeyPatch, model: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for block in [] if run_elsewhere(page, "shell") else write_files_of(page):
        for command in [] if block.is_run else block.commands():
            if reason(command) is None:
                try:
                    check(command, monkeypatch, model)
                except (Exception, SystemExit) as error:
                    printed = capsys.readouterr().err
                    raise AssertionError(f"{block.page}:{block.line}: {command}: {error} {printed}") from error


@pytest.mark.parametrize(
    "block",
    [block for path in PAGES for block in blocks_of(path) if block.is_run],
    ids=lambda one: f"{one.page}:{one.line}",
)
def test_marked_commands_run(block: Block) -> None:
    assert block.language in SHELL, "a marker belongs to a block of a shell: Python is always run"
    write_files_of(block.page)
    for command in block.commands():
        program, *words = command.split()
        assert program == "assay"
        assert cli.main([*words, *block.more]) == block.exit_code


@pytest.mark.parametrize("page", SNIPPETS)
def test_python_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("snippet")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look up annotations
    write_files_of(page)
    for block in python_of(ROOT / page):
        if reason(block.text) is None:
            exec(compile(block.text, f"{page}:{block.line}", "exec", dont_inherit=True), vars(module))


def test_every_exemption_is_used() -> None:
    every = [block for path in PAGES for block in blocks_of(path)]
    texts = [command for block in every for command in block.commands()]
    texts += [block.text for block in every if block.language == "python"]
    assert [words for words in EXEMPT if not any(words in text for text in texts)] == []


def test_tests_that_run_pages_exist_and_read_them() -> None:
    for page in [page for page in ELSEWHERE if (ROOT / page).is_file()]:
        for test in ELSEWHERE[page].values():
            assert Path(page).name in (ROOT / test).read_text()


def test_blocks_say_their_language() -> None:
    assert [f"{block.page}:{block.line}" for path in PAGES for block in blocks_of(path) if not block.language] == []


@pytest.mark.parametrize(
    "command",
    [
        "assay train grpo --tsk countdown",
        "assay train grpo --task nowhere",
        "assay train ppo --task cartpole --set policy.rate=1",
        "assay compare ppo dqn --task pendulum",
        "assay list --family none",
        "make nothing",
        "pip install '.[nothing]'",
        "python -m assay.nothing",
        "curl somewhere",
    ],
)
def test_a_wrong_command_is_found(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssayError, AssertionError, ModuleNotFoundError, SystemExit)):
        check(command, monkeypatch, Path)


def test_markers_comments_and_continued_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    text = "<!-- test: run with --steps 2, exit code 1 -->\n"
    text += "```bash\nassay train \\\n  grpo  # why\n```\n\n    assay list\n"
    page.write_text(text)
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    run, indented = blocks.blocks_of(page)
    assert (run.commands(), run.more, run.exit_code, run.is_run) == (["assay train grpo"], ["--steps", "2"], 1, True)
    assert (indented.commands(), indented.line, indented.is_run) == (["assay list"], 7, False)
