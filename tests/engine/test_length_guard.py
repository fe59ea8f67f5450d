"""The guard against a reward that rises because answers get longer: what raises it, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay.core.errors import DataWarning
from assay.core.record import Experience, Progress
from assay.core.verifier import VERIFIED
from assay.engine.guards.alarms import Alarm, Moment
from assay.engine.guards.correctness import STANDARD, MoreThanLength, by_length, regressed
from assay.runs import catalogue
from assay.runs.progress import Mode

PROMPTS, MEMBERS, LONGEST = 16, 8, 64
Paid = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
"""The reward of answers of these lengths that are right or not."""


def rows_of(length: np.ndarray, reward: np.ndarray, right: np.ndarray | None, is_text: bool = True) -> Experience:
    """Groups of eight answers; `right` is what a verifier said of them."""
    mask = torch.arange(LONGEST) < torch.from_numpy(length).unsqueeze(1)
    last = torch.arange(LONGEST) == torch.from_numpy(length).unsqueeze(1) - 1
    paid = torch.where(last, torch.from_numpy(reward).float().unsqueeze(1), 0.0)
    rows = Experience(
        context={"tokens": mask.long()} if is_text else {"observation": mask.float()}, action=mask.long(), mask=mask,
        logp=-mask.float(), reward=paid, terminal=last, truncated=~last & False,
        group=torch.arange(len(length)) // MEMBERS,
    )  # fmt: skip
    if right is None:
        return rows
    score = torch.from_numpy(right).float()
    return rows.add({"score": score, VERIFIED: torch.where(last, score.unsqueeze(1), 0.0)})


def alarms_of(
    paid: Paid, grows: float = 0.3, improves: float = 0.0, verified: bool = True, is_text: bool = True, steps: int = 100
) -> list[Alarm]:
    """The alarms of a run in which answers grow and improve by so much in a step, at random."""
    guard, draw = MoreThanLength(), np.random.default_rng(0)
    recipe = catalogue.recipe_for("grpo", catalogue.find_task("addition-1"), {})
    state, found = guard.init(), list[Alarm]()
    for step in range(steps):
        length = draw.integers(6, 15, PROMPTS * MEMBERS) + int(grows * step)
        right = (draw.random(len(length)) < 0.3 + improves * step).astype(float)
        rows = rows_of(length, paid(length, right, draw), right if verified else None, is_text)
        found += guard.gathered(Moment(recipe, Progress(step=step, num_steps=steps), None, rows, {}), state)
    return found


def bonus(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return 0.1 * length


def noisy(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return 0.1 * length + 0.05 * draw.standard_normal(len(length))


def saturating(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return np.log(length)


def beside(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return right + 0.05 * length


def small(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return right + 0.001 * length


def outcome(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return right


def long_enough(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return (length > 12).astype(float)


def judged(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return right + 0.02 * length + 0.5 * draw.standard_normal(len(length))


def shorter(length: np.ndarray, right: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return 5.0 - 0.1 * length


@pytest.mark.parametrize(
    ("paid", "options"),
    [
        (bonus, {}), (bonus, {"verified": False}), (noisy, {}), (saturating, {}), (beside, {}),
        (beside, {"improves": -0.002}),
    ],
)  # fmt: skip
def test_a_reward_that_rises_by_length_alone_is_reported(paid: Paid, options: dict[str, Any]) -> None:
    alarms = alarms_of(paid, **options)
    assert len(alarms) >= 3
    assert all(not alarm.stop and "a length bonus is trained" in alarm.message for alarm in alarms)


@pytest.mark.parametrize(
    ("paid", "options"),
    [
        (outcome, {"improves": 0.006}), (long_enough, {}), (long_enough, {"verified": False}),
        (beside, {"improves": 0.006, "grows": 0.03}), (small, {"improves": 0.006}), (bonus, {"grows": 0.0}),
        (judged, {"improves": 0.006}), (shorter, {"grows": -0.02}), (bonus, {"is_text": False}),
    ],
    ids=["right answers", "two values", "two values without a verifier", "score rises more", "small bonus",
         "lengths stay", "a noisy judge", "shorter is better", "control"],
)  # fmt: skip
def test_other_rewards_that_rise_are_not_reported(paid: Paid, options: dict[str, Any]) -> None:
    assert alarms_of(paid, **options) == []


def test_it_is_a_guard_of_every_run_and_an_alarm_comes_every_second_block() -> None:
    assert [type(guard) for guard in STANDARD].count(MoreThanLength) == 1
    alarms = alarms_of(bonus, steps=40)
    assert len(alarms) == 3, "eight blocks of five steps; from the second or third on longer by a tenth"


def test_the_regression_is_that_of_least_squares() -> None:
    draw = np.random.default_rng(1)
    length, right = draw.integers(3, 40, 64), draw.integers(0, 2, 64).astype(float)
    reward = 0.7 * right + 0.03 * length + draw.standard_normal(64)
    paid, long, *products = by_length(rows_of(length, reward, right))
    assert (paid, long) == pytest.approx((reward.mean(), length.mean()), rel=1e-6)
    values = (reward, length.astype(float), right)
    apart = [one - np.repeat(one.reshape(-1, MEMBERS).mean(1), MEMBERS) for one in values]
    (at_score, slope), *_ = np.linalg.lstsq(np.stack([apart[2], apart[1]], 1), apart[0], rcond=None)
    (alone,), *_ = np.linalg.lstsq(apart[2][:, None], apart[0], rcond=None)
    left = [apart[0] - alone * apart[2], apart[0] - at_score * apart[2] - slope * apart[1]]
    explained = 1.0 - (left[1] ** 2).sum() / (left[0] ** 2).sum()
    assert regressed(*products) == pytest.approx((slope, explained), rel=1e-5)
    component = rows_of(length, reward, None).add({"component/verifier": torch.from_numpy(right).float()})
    assert regressed(*by_length(component)[2:]) == pytest.approx((slope, explained), rel=1e-5)
    single = rows_of(length, reward, None).with_columns(group=torch.arange(64))
    assert regressed(*by_length(single)[2:])[0] == pytest.approx(np.polyfit(length, reward, 1)[0], rel=1e-5)


def test_a_users_length_bonus_raises_it_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def bonus(rows):\n    return [0.1 * len(row['completion']) for row in rows]\n")
    settings = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}
    with pytest.warns(DataWarning, match="the task's own verifier is not used"):
        run = assay.train(
            "grpo", "thinking-12", reward=f"{tmp_path / 'mine.py'}:bonus", steps=25, warmup=40, evaluations=0,
            settings=settings, out=tmp_path / "run", mode=Mode.SILENT,
        )  # fmt: skip
    (said, *_) = [alarm.message for alarm in run.alarms if alarm.guard == "more than length"]
    assert "100% of what tells" in said
