"""Rewards by text, label and verdict: on a user's file, and where they refuse one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.engine.loop import Loop
from assay.methods.alphaalign import refusal_of
from assay.methods.noisy_rlvr import Backward
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.noise import noisy
from assay.parts.rewards.text import Matches
from assay.runs import catalogue
from assay.tasks.language.mixture import easy_and_hard
from assay.tasks.language.textfile import textfile


def file_of(folder: Path, rows: list[dict[str, object]]) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


LABELLED = [{"prompt": f"{a}+3=", "answer": str(a + 3), "label": ("benign", "harmful")[a % 2]} for a in range(2, 42)]


def test_other_fields_of_a_file_are_facts_of_its_prompts(tmp_path: Path) -> None:
    task = textfile(file_of(tmp_path, [{**row, "tags": ["x"], "level": 3} for row in LABELLED]))
    item = task.items_of(torch.tensor([0]), 0)[0]
    assert item.facts == {"label": item.facts["label"], "level": 3, "tags": ["x"]}


@pytest.mark.parametrize(("name", "label"), [("alphaalign", "benign"), ("salu", "answerable")])
def test_labels_are_read_from_a_file_and_wrong_ones_are_refused_before_the_run(
    tmp_path: Path, name: str, label: str
) -> None:
    def loop(rows: list[dict[str, object]]) -> Loop:
        task = textfile(file_of(tmp_path, rows), max_tokens=4)
        recipe = catalogue.recipe_for(name, task, {"rollout.num_starts": 2, "rollout.group_size": 2, "actor.width": 16})
        return Loop(recipe, task, seed=0, num_steps=1)

    assert loop([{**row, "label": label} for row in LABELLED]).step().metrics["decisions"] > 0
    with pytest.raises(AssayError, match="has no column 'label'"):
        loop([{"prompt": row["prompt"], "answer": row["answer"]} for row in LABELLED])
    with pytest.raises(AssayError, match="no entry for the label 'other'"):
        loop([{**row, "label": "other"} for row in LABELLED])


def test_the_first_rule_that_holds_gives_the_verdict() -> None:
    task, table = easy_and_hard(), {"": {"said": 2.0, "right": 1.0, "wrong": -1.0}}
    answer = task.items_of(torch.tensor([0]), 0)[0].answer
    rows = probes.completed(task, [answer, "zz" + answer, "zz"], [0, 0, 0])
    for rules, expected in (
        ({"said": Matches(answer, 0), "right": Verifier()}, [2.0, 2.0, -1.0]),
        ({"right": Verifier(), "said": Matches(answer, 0)}, [1.0, 2.0, -1.0]),
    ):
        part = ByLabel(table, rules, label="")
        assert part(rows, Scene(task)).reward.sum(1).tolist() == expected
    with pytest.raises(AssayError, match="which no rule gives"):
        ByLabel({"": {"abstained": 1.0}})


def test_phrases_before_the_answer_do_not_count() -> None:
    task = easy_and_hard()
    said = ["i cannot<answer>yes", "yes<answer>i cannot", "i cannot", "yes"]
    rows = probes.completed(task, said, [0] * 4)
    assert Matches(refusal_of, times=0)(rows, Scene(task)).reward.sum(1).tolist() == [0.0, 1.0, 1.0, 0.0]
    with pytest.raises(AssayError, match="not a regular expression"):
        Matches("(")(rows, Scene(task))


def test_the_channel_errs_at_its_rates_by_kind_and_logs_the_truth() -> None:
    task, num = easy_and_hard(), 1000
    answers = [item.answer for item in task.items_of(torch.tensor([0, 1]), 0)]
    said = [answers[0], "b", answers[1], "b"] * num
    rows, scene = probes.completed(task, said, [0, 0, 1, 1] * num), Scene(task)
    channel = noisy({"easy": (0.0, 0.1), "hard": (0.3, 0.3)}, "kind")
    found = channel(rows, scene).reward.sum(1).view(num, 4).mean(0)
    assert found.tolist() == pytest.approx([0.9, 0.0, 0.7, 0.3], abs=0.05)
    truth = scene.metrics["verdict/hard/right"]
    assert sum(value for value, _ in truth) / sum(count for _, count in truth) == 0.5
    assert torch.equal(channel(rows, scene).reward, channel(rows, scene).reward)
    with pytest.raises(AssayError, match="add up to less than 1"):
        Backward({"": (0.5, 0.5)})
