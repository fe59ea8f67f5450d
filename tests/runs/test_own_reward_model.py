"""A reward model: trained on pairs, scored by their order, and a frozen reward of other runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay
from assay.core.errors import AssayError
from assay.runs.options import OwnOptions, RunOptions
from assay.runs.plan import plan_of
from assay.runs.run import restored
from assay.runs.user_code.reward_model import reward_model

SMALL = {"critics.score.body.width": 16, "source.batch": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a reward model of answers that are letters: "yes" is chosen, "no" rejected."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = [{"prompt": f"Is {k} good?", "chosen": "yes", "rejected": "no"} for k in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = assay.train("reward-model", str(folder / "pairs.jsonl"), steps=30, settings=SMALL, out=folder / "run")
    assert run.after.value == 1.0  # every held-out pair is in the right order
    return folder / "run"


def test_scores_are_those_of_texts_and_do_not_depend_on_other_rows(trained: Path) -> None:
    model = reward_model(str(trained), restored(plan_of(trained), trained)[0])
    rows = [{"prompt": "Is 7 good?", "completion": said, "answer": ""} for said in ("yes", "no", "a longer answer")]
    scores = [float(one or 0.0) for one in model(rows)]
    assert scores[0] > scores[1]
    assert model(rows[1:2]) == pytest.approx(scores[1:2], abs=1e-5)


def test_a_run_is_rewarded_by_it_and_refuses_other_weights(trained: Path, tmp_path: Path) -> None:
    options = RunOptions(own=OwnOptions(reward_model=str(trained), reward_model_weight=0.5))
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    with pytest.warns(UserWarning, match="rewards and held-out scores are reward_model"):
        run = assay.train(
            "grpo", "addition-1", steps=1, warmup=0, settings=settings, options=options, out=tmp_path / "r"
        )
    last = run.curves[-1]
    assert last["evaluation"] == pytest.approx(0.5 * last["evaluation_reward/reward_model"], abs=1e-5)
    assay.train("reward-model", str(trained.parent / "pairs.jsonl"), steps=1, settings=SMALL, out=tmp_path / "other")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    source = f"reward-model:{trained}"
    config["code"][source]["weights"] = "0" * 16
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    with pytest.raises(AssayError, match=r"own code has changed .*: weights of reward-model:"):
        plan_of(tmp_path / "r")


def test_a_folder_without_a_reward_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"has no checkpoint\. Name the folder of 'assay train reward-model'"):
        assay.train("grpo", "addition-1", options=RunOptions(own=OwnOptions(reward_model=str(tmp_path))))
