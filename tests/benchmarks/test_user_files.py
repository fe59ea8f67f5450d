"""Methods on a user's data: which cases there are, how a command's end is read, and what the page says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from benchmarks import user_files
from benchmarks.user_files import BROKE, IDLE, REFUSED, TRAINS, UNREAD, Result, judged

STEPS = [{"step": 0, "evaluation": 0.5}, *({"step": step, "gradient_norm/policy": 0.1} for step in range(1, 6))]


def test_methods_are_tried_where_they_work() -> None:
    kinds = [kind for _, kind in user_files.cases_of(["nsr", "sac", "oreal"])]
    assert kinds == [*user_files.REWARD_KINDS, *user_files.CONTROL_KINDS, *user_files.REWARD_KINDS, "Hopper", "falls"]


def test_the_end_of_a_command_is_read() -> None:
    idle = [{**row, "gradient_norm/policy": 0.0} for row in STEPS]
    odd = [*STEPS[:-1], {"step": 5, "loss/PolicyGradient": math.nan}]
    assert judged(0, "assay: a note", STEPS, "Hopper") == (TRAINS, "")
    assert judged(0, "", idle, "signed") == (IDLE, "")
    assert judged(0, "", STEPS[:-1], "signed") == (BROKE, "4 of 5 steps")
    assert judged(0, "", odd, "signed") == (BROKE, "loss/PolicyGradient is nan")
    assert judged(2, "assay: X is 1. Use 2", [], "signed") == (REFUSED, "X is 1. Use 2")
    late = "assay: reward r did not return within 120 s. After fixing it, resume with: assay resume run"
    assert judged(2, late, [], "signed")[0] == BROKE, "the first step had begun"
    after = judged(2, "assay: X is 1. Use 2", STEPS, "signed")
    assert after == (BROKE, "assay: X is 1. Use 2"), "after three steps it is late"
    assert judged(1, "Traceback (most recent call last):\nKeyError: 'x'", [], "falls") == (BROKE, "KeyError: 'x'")


def test_a_run_that_never_asks_the_reward_is_told_apart() -> None:
    read = [*STEPS[:-1], {**STEPS[-1], "reward/signed": -0.5}]
    assert judged(0, "", read, "signed") == (TRAINS, "")
    assert judged(0, "", STEPS, "signed") == (UNREAD, "")
    assert judged(0, "", read, "graded") == (UNREAD, ""), "another reward's numbers"


def test_phases_and_warm_ups_are_short(tmp_path: Path) -> None:
    words = user_files.command_of("oreal", "signed", tmp_path, tmp_path / "run")
    assert "--set=before.tokens.steps=2" in words
    assert f"{tmp_path / 'rewards.py'}:signed" in words
    words = user_files.command_of("prerl-dsrl", "signed", tmp_path, tmp_path / "run")
    assert not any("before." in word for word in words), "its phase is left out with --model"
    words = user_files.command_of("sac", "falls", tmp_path, tmp_path / "run")
    assert "--set=source.warmup=5" in words
    assert words[words.index("--data") + 1] == str(tmp_path / "falls.npz")


def test_the_page_has_every_result_and_its_sentence(tmp_path: Path) -> None:
    found = {
        ("nsr", "signed"): Result("nsr", "signed", TRAINS, "", 2.0),
        ("nsr", "Hopper"): Result("nsr", "Hopper", REFUSED, "a | b", 1.0),
    }
    user_files.write_results(tmp_path / "results.json", found)
    assert user_files.read_results(tmp_path / "results.json") == found
    page = tmp_path / "page.md"
    page.write_text(f"Head\n{user_files.BEGIN}{user_files.END}")
    user_files.write_page(found, page)
    user_files.write_page(found, page)
    text = page.read_text()
    assert "| nsr |  | trains |  |" in text
    assert "| nsr | refused: a \\| b |  |" in text
    assert text.count("1 trains, 0 idle, 0 unread, 0 refused, 0 broke.") == 1


def test_the_files_are_what_a_user_has(tmp_path: Path) -> None:
    for package in ("transformers", "gymnasium", "mujoco"):
        pytest.importorskip(package)
    from assay.datasets.files import read

    user_files.write_files(tmp_path)
    data = read(tmp_path / "falls.npz")
    assert bool(data.terminal.any())
    assert not bool(data.truncated.any()), "every episode ends with a fall"


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_a_case_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """In this process: a process of its own takes longer to start than to train."""
    pytest.importorskip("transformers")

    monkeypatch.setattr(user_files, "forked", lambda words, said, seconds: (main(list(words)), ""))
    monkeypatch.setattr(user_files, "cases_of", lambda methods: [("nsr", "signed")])
    monkeypatch.setattr(user_files, "write_falls", lambda path: None)  # needs Hopper
    out = tmp_path / "results.json"
    assert user_files.main(["nsr", "--out", str(out)]) == 0
    (result,) = user_files.read_results(out).values()
    assert (result.method, result.kind, result.result) == ("nsr", "signed", TRAINS), result.sentence
    assert "nsr, signed: trains" in capsys.readouterr().out
    assert user_files.main(["nsr", "--out", str(out)]) == 0
    assert "nsr" not in capsys.readouterr().out


def test_a_command_is_forked_and_its_last_words_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "IMPORTED", [])
    code, said = user_files.forked(["train", "gppo"], tmp_path / "said", 120.0)
    result, sentence = judged(code or 0, said, [], "signed")
    assert result == REFUSED
    assert sentence.startswith("there is no method 'gppo'. Did you mean 'ppo'?")
