"""Two files of prompts as one task: trained on the one, scored on all of the other, and nothing in both."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.runs import catalogue, run
from assay.runs.plan import make_plan, plan_of
from assay.tasks.language.prompts import PromptTask

GSM8K = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k"


def rows(numbers: Sequence[int], answer: str = "#### {}") -> list[dict[str, str]]:
    return [{"prompt": f"{n} and {n} make", "answer": answer.format(2 * n)} for n in numbers]


def written(path: Path, lines: Sequence[dict[str, str]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def task_of(train: Path, test: Path) -> PromptTask:
    made = catalogue.find_task(f"{train},{test}")
    assert isinstance(made, PromptTask)
    return made


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    train, test = rows(range(1, 41)), rows(range(1001, 1008))
    renamed = [{"question": f"{row['prompt']} now", "answer": row["answer"]} for row in test]
    return written(tmp_path / "sums" / "train.jsonl", train), written(tmp_path / "sums" / "test.jsonl", renamed)


def test_every_row_of_the_second_file_is_held_out_and_none_of_the_first(files: tuple[Path, Path]) -> None:
    task = task_of(*files)
    assert task.name == "sums-train-test"
    assert [task.items.item(k, 0).prompt for k in range(41)] == [
        f"{k % 40 + 1} and {k % 40 + 1} make" for k in range(41)
    ]
    assert [task.items.item(k, 1).answer for k in range(8)] == [str(2 * (1001 + k % 7)) for k in range(8)]
    assert task.max_prompt == len("1001 and 1001 make now") + 1
    for split in (0, 1):
        shown = task.demonstrate(np.arange(7), split)
        assert task.judge(shown, split).reward.sum() == 7
    assert task.items.verify(task.items.item(0, 1), "That makes 2002 in all.") == Score(1.0)
    assert pickle.loads(pickle.dumps(task)) == task
    assert task != task_of(files[0], written(files[1], rows(range(1001, 1007))))
    with pytest.raises(AssayError, match="split is 2"):
        task.items.item(0, 2)


def test_numbers_are_looked_for_only_where_both_files_are_worked(files: tuple[Path, Path]) -> None:
    task = task_of(files[0], written(files[1], rows(range(1001, 1008), "{}")))
    assert task.items.verify(task.items.item(0, 1), "2002") == Score(1.0)
    assert task.items.verify(task.items.item(0, 1), "That makes 2002 in all.") == Score(0.0)


def test_a_problem_in_both_files_is_refused(files: tuple[Path, Path]) -> None:
    leaked = [{"prompt": "7  and 7\nMAKE", "answer": "#### 14"}, *rows(range(50, 53)), *rows([9])]
    with pytest.raises(AssayError, match=r"2 of 5 rows of .*test.jsonl are also in .*train.jsonl .*'7  and 7\\nMAKE'"):
        task_of(files[0], written(files[1], leaked))


def test_what_is_no_pair_of_prompt_files_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    pairs = written(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    with pytest.raises(AssayError, match="files of prompts and files of pairs"):
        catalogue.find_task(f"{files[0]},{pairs}")
    with pytest.raises(AssayError, match="does not say what each file is for"):
        catalogue.find_task(f"{files[0]},{files[1]},{files[1]}")
    with pytest.raises(AssayError, match="there is no file"):
        catalogue.find_task(f"{files[0]},nothing.jsonl")
    odd = written(tmp_path / "with,comma.jsonl", rows(range(1, 31)))
    assert catalogue.find_task(str(odd)).name == "with,comma"


def test_a_run_is_scored_on_the_second_file_and_goes_on_from_elsewhere(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    settings = {"actor.width": 16, "actor.layers": 1, "actor.heads": 1, "batch": 2}
    plan = make_plan("sft", "train.jsonl,test.jsonl", steps=1, settings=settings)
    assert plan.address == f"{files[0]},{files[1]}"
    done = run.execute(plan, tmp_path / "run")
    assert done.task.items.item(0, 1).prompt == "1001 and 1001 make now"  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    assert plan_of(tmp_path / "run").config()["fingerprint"] == plan.config()["fingerprint"]


@pytest.mark.filterwarnings("ignore:.*the prompt contains the answer")
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not on this machine")
def test_gsm8k_is_scored_on_its_test_file() -> None:
    task = task_of(GSM8K / "train.jsonl", GSM8K / "test.jsonl")
    assert len({task.items.item(k, 0).prompt for k in range(7473)}) == 7473
    assert len({task.items.item(k, 1).prompt for k in range(1319)}) == 1319
    assert task.items.verify(task.items.item(0, 1), "She makes 18 dollars.") == Score(1.0)
