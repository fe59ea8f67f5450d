"""Fifteen bugs that train without an error, as users write them, each caught by a law of `assay check` or by a guard;
and ten right parts of other styles, of which none is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from assay.claims.laws.file import Report, check_file
from assay.engine.guards.alarms import Alarm
from assay.engine.loop import Loop
from assay.runs import catalogue

HEAD = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from assay.core.record import Experience, Loss, Need, State
from assay.core.slots import Credit, CriticLoss, Objective, Regularizer, Reward, Scene
"""
ENVIRONMENT = """
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.normal()
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.time, self.place = self.time + 1, self.place + 2 * action - 1
        is_over = self.time >= 20
        return np.array([self.place], np.float32), float(self.place), TERMINATED, TRUNCATED, {}
"""


def term(slot: str, name: str, needs: str, body: str) -> str:
    """A loss as a part: `body` computes `loss`, one number for each decision."""
    return (
        HEAD
        + f"""
@dataclass(frozen=True)
class {name}({slot}):
    needs: ClassVar[frozenset] = frozenset({{{needs}}})
    together: ClassVar[None] = None
    first_order: ClassVar[bool] = False
    divergence: ClassVar[bool] = False

    def count(self, batch):
        return batch.mask.sum()

    def __call__(self, batch, view):
        logp, mask = view.scored.logp, batch.mask
        advantage = batch.column("advantage").detach()
        {body}
        return Loss((loss * mask).sum(), self.count(batch))
"""
    )


def function(arguments: str, *lines: str) -> str:
    """A plain loss."""
    return "import torch\n\ndef my_loss(" + arguments + "):\n    " + "\n    ".join(lines) + "\n"


RATIO = "ratio = (logp - logp_old).exp()"
CLIP = "loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)"
KL = "kl = (logp_ref - logp).exp() - (logp_ref - logp) - 1"


@dataclass(frozen=True)
class Bug:
    """A file of a user, and a law that must break; only laws of `also` may break with it."""

    text: str
    law: str
    also: tuple[str, ...] = ()


BUGS: dict[str, Bug] = {
    "1 advantage with gradient": Bug(
        HEAD + """
@dataclass(frozen=True)
class Mine(Credit):
    centred: ClassVar[bool] = False
    needs: ClassVar[frozenset] = frozenset({Need.VALUE})

    def apply(self, experience, scene, state):
        advantage = experience.reward.sum(1, keepdim=True) - experience.column("value")
        return experience.add({"advantage": advantage * experience.mask})
""", "no_gradient", ("ends", "episodes", "masked"),
    ),
    "2 mask ignored": Bug(function("logp, advantage, mask", "return -(logp * advantage).sum()"), "masked", ("empty",)),
    "3 bootstrap through terminals": Bug(
        """
import torch

def my_advantage(reward, mask, value, terminal, truncated):
    result = torch.zeros_like(reward)
    for t in range(reward.shape[1] - 1):
        result[:, t] = reward[:, t] + 0.9 * value[:, t + 1] - value[:, t]
    return result * mask
""", "ends", ("padding",),
    ),
    "4a truncation as terminal": Bug(
        """
import torch

def my_advantage(reward, mask, value, terminal, truncated):
    result = torch.zeros_like(reward)
    for t in range(reward.shape[1] - 1):
        over = (terminal | truncated)[:, t]
        result[:, t] = reward[:, t] + torch.where(over, 0.0, 0.9 * value[:, t + 1]) - value[:, t]
    return result * mask
""", "ends", ("padding",),
    ),
    "4b an environment whose time limit is terminated": Bug(
        ENVIRONMENT.replace("TERMINATED", "is_over").replace("TRUNCATED", "False"), "time limit"
    ),
    "5a a reward that a list of all answers wins": Bug(
        "def reward(rows):\n    return [float(row['answer'] in row['completion']) for row in rows]\n", "shotgun"
    ),
    "5b a reward minus the batch mean": Bug(
        """
def reward(rows):
    right = [float(row["completion"] == row["answer"]) for row in rows]
    return [one - sum(right) / len(right) for one in right]
""", "alone",
    ),
    "6 mean of means": Bug(
        function("logp, advantage, mask", "each = (-logp * advantage * mask).sum(1) / mask.sum(1).clamp(min=1)",
                 "return each.mean()"),
        "sums", ("micro_batches", "padding", "masked"),
    ),
    "7 log-probabilities off by one": Bug(
        function("logp, logp_old, advantage, mask", "logp = logp.roll(1, 1)", RATIO, CLIP, "return loss * mask"),
        "masked", ("sign", "padding", "finite", "clipped", "empty"),
    ),
    "8 old log-probabilities ignored": Bug(
        function("logp, logp_old, advantage, mask", "ratio = (logp - logp.detach()).exp()", CLIP, "return loss * mask"),
        "old_policy",
    ),
    "8 as a part": Bug(
        term("Objective", "Mine", "Need.LOGP", "ratio = (logp - logp.detach()).exp(); loss = -ratio * advantage")
        .replace("self.count(batch))", 'self.count(batch), {"ratio": ((ratio.detach() * mask).sum(), mask.sum())})'),
        "old_policy",
    ),
    "10 groups mixed": Bug("def my_advantage(reward, group):\n    return reward - reward.mean()\n", "groups_apart"),
    "11 statistics over padding": Bug(
        "def my_advantage(reward, group, mask):\n    return (reward - reward.mean()) * mask\n",
        "padding", ("groups_apart", "absent", "episodes", "masked"),
    ),
    "12 entropy with the wrong sign": Bug(
        term("Regularizer", "Mine", "Need.LOGP, Need.ENTROPY", "loss = 0.01 * view.scored.entropy"), "entropy"
    ),
    "12 inside a plain loss": Bug(
        function("logp, logp_old, advantage, mask, entropy", RATIO, CLIP, "return (loss + 0.01 * entropy) * mask"),
        "entropy",
    ),
    "13 KL with the wrong sign": Bug(
        term("Regularizer", "Mine", "Need.LOGP, Need.REFERENCE",
             'loss = -(logp - batch.column("logp_ref").detach()) ** 2'),
        "reference",
    ),
    "13 inside a plain loss": Bug(
        function("logp, logp_old, logp_ref, advantage, mask", RATIO, CLIP, KL, "return (loss - 0.1 * kl) * mask"),
        "reference", ("finite",),
    ),
    "14 statistics of other episodes in an environment": Bug(
        ENVIRONMENT.replace("TERMINATED", "False").replace("TRUNCATED", "is_over")
        .replace("super()", "self.episodes = getattr(self, 'episodes', 0) + 1; super()")
        .replace("float(self.place)", "float(self.place) / self.episodes"),
        "determinism",
    ),
    "15 an environment that never ends": Bug(
        ENVIRONMENT.replace("TERMINATED", "False").replace("TRUNCATED", "False"), "length"
    ),
    "PPO with max for min": Bug(
        function("logp, logp_old, advantage, mask", RATIO, CLIP.replace("minimum", "maximum"), "return loss * mask"),
        "clipped",
    ),
    "PPO without its min": Bug(
        function("logp, logp_old, advantage, mask", RATIO, "return -ratio.clamp(0.8, 1.2) * advantage * mask"),
        "way_back",
    ),
    "an advantage function of the wrong sign": Bug(
        """
import torch

def my_advantage(reward, group):
    return torch.stack([reward[group == one].mean() for one in group]) - reward
""", "prefers",
    ),
    "a loss of the wrong sign": Bug(
        function("logp, logp_old, advantage, mask", RATIO, "return ratio * advantage * mask"), "sign"
    ),
}  # fmt: skip


def reports(folder: Path, text: str) -> list[Report]:
    """What `assay check` says of a file."""
    path = folder / "mine.py"
    path.write_text(dedent(text), encoding="utf-8")
    return check_file(path)


@pytest.mark.parametrize("name", BUGS)
def test_a_silent_bug_breaks_its_law(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    if "gymnasium" in bug.text:
        pytest.importorskip("gymnasium")
    broken = {finding.law for report in reports(tmp_path, bug.text) for finding in report.broken}
    assert bug.law in broken
    assert broken <= {bug.law, *bug.also}, "no law that has nothing to do with the bug"


# -------------------------------------------------------------------------------------------------------------- guards
def shifted(temperature: float) -> Callable[[Any], Any]:
    """An actor that samples at another temperature than it records."""

    def change(act: Any) -> Any:
        def acted(context: Any, uniform: Any) -> tuple[torch.Tensor, torch.Tensor]:
            action, logp = act(context, uniform)
            return action, logp * temperature

        return acted

    return change


def alarms(settings: dict[str, Any], steps: int, change: Callable[[Any], Any] | None = None) -> list[Alarm]:
    """The alarms of a short run on the bandit."""
    task = catalogue.find_task("bandit")
    recipe = catalogue.recipe_for("rloo", task, {})
    names = [stage.name for stage in recipe.stages]
    wanted = {f"{name}.{key}": value for name in names for key, value in settings.items()}
    loop = Loop(catalogue.recipe_for("rloo", task, wanted), task, seed=0, num_steps=40)
    if change is not None:
        loop.actor.act = change(loop.actor.act)
    return [alarm for _ in range(steps) for alarm in loop.step().alarms]


def test_9_a_temperature_that_differs_between_sampling_and_training_stops_the_run() -> None:
    assert any(alarm.stop and alarm.guard == "sampled equals trained" for alarm in alarms({}, 1, shifted(0.7)))


def test_a_learning_rate_of_zero_on_every_stage_is_an_alarm_and_a_clean_run_has_none() -> None:
    assert "something is trained" in {alarm.guard for alarm in alarms({"learning_rate": 0.0}, 5)}
    assert alarms({}, 5) == []


# --------------------------------------------------------------------------------------------------------- right parts
SOUND: dict[str, str] = {
    "GRPO's loss with KL inside": function(
        "logp, logp_old, logp_ref, advantage, mask", RATIO, CLIP, KL, "loss = (loss + 0.04 * kl.clamp(max=1e4)) * mask",
        "return loss.sum(), mask.sum()",
    ),
    "PPO with an entropy bonus inside": function(
        "logp, logp_old, advantage, mask, entropy", RATIO, CLIP, "return (loss - 0.01 * entropy) * mask"
    ),
    "REINFORCE without old log-probabilities": function(
        "log_probs, advantages, response_mask", "return -(log_probs * advantages * response_mask).sum()"
    ),
    "a truncated importance weight": function(
        "logp, logp_old, advantage, mask", "weight = (logp - logp_old).detach().exp().clamp(max=2.0)",
        "return -(weight * advantage * logp * mask)",
    ),
    "RLOO as a loop over groups": """
import torch

def my_advantage(rewards, group_ids):
    result = torch.zeros_like(rewards)
    for label in group_ids.unique():
        members = (group_ids == label).nonzero().squeeze(1)
        for one in members.tolist():
            others = [other for other in members.tolist() if other != one]
            if others:
                result[one] = rewards[one] - rewards[others].mean()
    return result
""",
    "outcomes over the whole batch, without groups": """
def my_advantage(reward):
    return reward - reward.mean()
""",
    "a reward of the last number, with a format bonus": r'''
import re

def reward(completions, answers):
    found = [re.findall(r"-?\d+", one) for one in completions]
    return [float(bool(f) and f[-1] == a) + 0.1 * one.endswith(".") for f, a, one in zip(found, answers, completions)]
''',
    "a reward that ranks the completions of a prompt": """
def reward(rows):
    mine = {}
    for row in rows:
        mine.setdefault(row["prompt"], []).append(len(row["completion"]))
    return [sum(len(row["completion"]) > one for one in mine[row["prompt"]]) / len(mine[row["prompt"]]) for row in rows]

reward.compares_group = True
""",
    "an entropy bonus as a part": term(
        "Regularizer", "Mine", "Need.LOGP, Need.ENTROPY", "loss = -0.01 * view.scored.entropy"
    ),
    "an environment with a goal and a time limit": ENVIRONMENT.replace(
        "TERMINATED", "bool(abs(self.place) > 4)").replace("TRUNCATED", "is_over and abs(self.place) <= 4"
    ),
    "an environment that observes the time": ENVIRONMENT.replace("(1,))", "(2,))").replace(
        "np.array([self.place]", "np.array([self.place, self.time]").replace("TERMINATED", "is_over").replace(
        "TRUNCATED", "False"
    ),
    "an objective that masks both sides of the ratio": term(
        "Objective", "Mine", "Need.LOGP",
        "ratio = ((logp - batch.logp) * mask).clamp(max=20.0).exp(); "
        "loss = -ratio * advantage * ((ratio - 1).abs() < 0.3).detach()",
    ).replace("batch.logp)", "batch.logp.detach())"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_right_part_of_another_style_passes(tmp_path: Path, name: str) -> None:
    if "gymnasium" in SOUND[name]:
        pytest.importorskip("gymnasium")
    found = reports(tmp_path, SOUND[name])
    assert found
    assert [str(finding) for report in found for finding in report.broken] == []
