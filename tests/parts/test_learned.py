"""Rewards that a model gives, batches that are rewarded when they are drawn, and data that must end or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Experience, Origin
from assay.core.slots import Scene
from assay.parts.predictions import OfAction
from assay.parts.rewards.learned import FromModel
from assay.parts.rewards.scaled import ScaledReward
from assay.parts.sources.conditions import Ends, Successes, with_success
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.targets.labels import Label
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.peg import peg
from tests.scenes import feeding

LOGIT = torch.tensor([[1.0, -1.0, 0.0, 2.0]])


def row() -> Experience:
    """Four decisions with rewards 1 to 4, of which the third is masked."""
    data = probes.one_sequence(1.0, 2.0, 3.0, 4.0)
    return replace(data, mask=torch.tensor([[True, True, False, True]]), terminal=torch.zeros_like(data.mask))


def paid(part: FromModel, rows: Experience, model: Any = lambda context: LOGIT) -> tuple[list[float], list[bool]]:
    found = part(rows, Scene(models=probes.Only(model)))
    return found.reward[0].tolist(), found.terminal[0].tolist()


def test_a_classifier_pays_decisions_where_its_logit_is_not_negative() -> None:
    assert paid(FromModel(), row()) == ([1.0, 0.0, 0.0, 1.0], [False] * 4)


def test_what_follows_a_decision_is_paid_and_ends_the_episode() -> None:
    assert paid(FromModel(after=True, ends=True), row()) == ([0.0, 1.0, 0.0, 0.0], [False, True, False, False])


def test_nothing_is_paid_for_padding_after_a_decision() -> None:
    rows = row()
    rows = replace(rows, context={**rows.context, "valid": torch.tensor([[True, True, False, True]])})
    assert paid(FromModel(after=True), rows)[0] == [0.0, 0.0, 0.0, 0.0]


def test_any_worth_of_an_ensembles_mean_is_added() -> None:
    def model(context: Any, action: Tensor) -> Tensor:
        return torch.stack((LOGIT, 3.0 * LOGIT))

    part = FromModel(OfAction("q"), lambda said_N, scene: -0.5 * said_N, adds=True)
    assert paid(part, row(), model)[0] == [0.0, 3.0, 3.0, 2.0]


def test_the_mean_worth_is_logged_under_the_models_name() -> None:
    scene = Scene(models=probes.Only(lambda context: LOGIT))
    FromModel()(row(), scene)
    assert scene.metrics["success_reward"] == [(2.0, 3.0)]


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_batches_have_the_rewards_of_the_moment(kept: float) -> None:
    task, fresh = cartpole(), replace(probes.one_sequence(*[5.0] * 9), context={"observation": torch.zeros(1, 9, 4)})
    source = Retained(Replay(batch=8, updates=3, warmup=4), Logged((Log(1),)), kept, ScaledReward(10.0))
    batches = list(probes.drawn(source, feeding(task, fresh)))
    own = 8 - int(8 * kept)
    assert [batch.reward[:, 0].tolist() for batch in batches] == [[50.0] * own + [10.0] * (8 - own)] * 3


def test_ends_are_no_successes() -> None:
    flags, none = torch.tensor([[True, False], [False, False]]), torch.zeros(2, 2, dtype=torch.bool)
    Successes()(peg(), [{"terminal": none, "success": flags}])
    with pytest.raises(AssayError, match=r"'peg' have no column 'success' \(1 decisions are terminal, .*: add to"):
        Successes()(peg(), [{"terminal": flags}])
    with pytest.raises(AssayError, match="have no successes in their column 'success'"):
        Successes()(peg(), [{"terminal": flags, "success": none}])


def test_a_positive_reward_is_a_success_only_where_the_task_says_so() -> None:
    columns = {"reward": torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])}
    columns["mask"] = torch.tensor([True, False]).expand(3, 2)
    assert with_success(columns, peg())["success"].tolist() == [[False, False], [True, False], [False, False]]
    assert "success" not in with_success(columns, cartpole())
    told = {**columns, "success": columns["mask"]}
    assert torch.equal(with_success(told, peg())["success"], told["success"])


def test_rows_of_the_replay_are_not_known_to_be_successes() -> None:
    fresh = replace(probes.one_sequence(*[1.0] * 9), context={"observation": torch.zeros(1, 9, 2)})
    fresh = replace(fresh, action=torch.zeros(1, 9, 2))
    source = Retained(Replay(batch=8, updates=1, warmup=4), Logged((Log(3, noise=0.0),)), 0.5)
    (batch,) = probes.drawn(source, feeding(peg(), fresh))
    solved = batch.column("success")[:, 0]
    assert not solved[:4].any()
    assert torch.equal(solved[4:], batch.terminal[4:, 0])


def test_a_label_of_successes_reads_their_column() -> None:
    rows = probes.of_origins(probes.transitions(num=6), Origin.DATASET)
    solved = torch.tensor([0, 1, 0, 0, 1, 0]).bool().unsqueeze(1) & rows.mask
    rows = replace(rows, terminal=~solved & rows.mask).add({"success": solved})
    label = Label(0.9, int(Origin.DATASET), after=True, solved=True)
    assert torch.equal(label.rows(rows).mask, solved[:, :1])


def test_data_must_have_ends_or_must_not() -> None:
    columns = {"terminal": torch.tensor([[True, False], [False, False]])}
    Ends(True, "")(cartpole(), [columns])
    with pytest.raises(AssayError, match="1 decisions in the data of task 'cartpole' are terminal: use another"):
        Ends(False, "use another")(cartpole(), [columns])
    with pytest.raises(AssayError, match="0 decisions"):
        Ends(True, "")(cartpole(), [{"terminal": torch.zeros(2, 2, dtype=torch.bool)}])
