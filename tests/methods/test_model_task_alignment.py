"""Interventions in a run and on a user's file: votes read no answer, one row is trained on, scores are true."""

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
from assay.methods.model_task_alignment import Majority, OneStart, incorrect, majority
from assay.runs import catalogue
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import textfile

SMALL = {"rollout.num_starts": 4, "rollout.group_size": 4, "actor.width": 16, "actor.layers": 1}
VARIANTS = ("", ":unclipped", ":true", ":incorrect", ":majority", ":one-example", ":negatives")


def file_of(folder: Path) -> PromptTask:
    rows = [{"prompt": f"{a}+3=", "answer": str(a + 3)} for a in range(2, 42)]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return textfile(str(path), max_tokens=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_intervention_trains_on_a_file_and_scores_by_its_answers(tmp_path: Path, variant: str) -> None:
    task = file_of(tmp_path)
    loop = Loop(catalogue.recipe_for(f"model-task-alignment{variant}", task, SMALL), task, seed=0, num_steps=2)
    for _ in range(2):
        fresh = loop.step().fresh
        assert fresh is not None
        true = task.judge(fresh, 0).column("score")
        assert torch.equal(fresh.column("score"), true)


def test_one_row_of_a_file_is_trained_on_with_samples_of_its_own(tmp_path: Path) -> None:
    task = file_of(tmp_path)
    settings = {**SMALL, "curriculum.start": 5}
    loop = Loop(catalogue.recipe_for("model-task-alignment:one-example", task, settings), task, seed=0, num_steps=2)
    for first in (0, 16):
        fresh = loop.step().fresh
        assert fresh is not None
        assert set(fresh.column("start").tolist()) == {5}
        assert fresh.column("sample").tolist() == list(range(first, first + 16))
    with pytest.raises(AssayError, match="0 or more"):
        OneStart(-1)


def test_votes_do_not_read_the_answer_and_keep_the_true_score() -> None:
    task, rows = probes.answered(["8", "8", "7", ""])
    voted = Majority()(Verifier()(rows, Scene(task)), Scene(task))
    assert voted.reward.sum(1).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert voted.column("score").tolist() == [0.0, 0.0, 1.0, 0.0]
    alone = Majority()(rows, Scene(task))
    assert torch.equal(alone.reward, voted.reward)


def test_a_group_without_answers_has_no_winner_and_tasks_without_text_are_refused() -> None:
    assert probes.rewarded(majority(), *probes.answered(["", ""])).tolist() == [0.0, 0.0]
    with pytest.raises(AssayError, match="Majority reads text; task 'cartpole' has none"):
        Majority().init(Scene(cartpole()))


def test_an_incorrect_reward_is_one_minus_the_true_one() -> None:
    assert probes.rewarded(incorrect(), *probes.answered(["7", "8", ""])).tolist() == [0.0, 1.0, 1.0]
