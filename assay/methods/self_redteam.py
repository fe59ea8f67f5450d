"""self-redteam: one policy attacks and defends in one game, with separate credit by role and hidden thoughts.

    A = (R - mean of the role's R) / deviation of the role's R,   R = reward of the role - 0.01 sum log(pi / ref)
    loss = -mean over tokens of min(rho A, clip(rho) A)

Liu et al. 2025. Against a static attacker a defender stops improving: in self-play attacks move to where the defense
is weak, and the defense adapts. Rewards are those of the released code. Only answers are shown: see the tasks
`redteam` (a grammar with an exact judge) and `redteam_chat` (a chat model, and another that judges).

Axes: B rows.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Copy, Experience, GameTask, Method, Preset, Recipe, Rollout, RowStatistic
from assay.method import Scene, Stage, State, groups, recipes
from assay.parts import Clip, Demonstrations, Episodes, KlInReward, LogLikelihood, OutcomeCredit, PolicyGradient
from assay.parts import group_rows


def by_player(experience: Experience) -> groups.Groups:
    """Groups all rows of each player; without players all rows form one group."""
    rows = groups.row_groups(experience)
    label = torch.zeros_like(rows.index) if experience.player is None else experience.player
    return replace(groups.groups_of(label, len(experience), label.device), share=rows.share)


@dataclass(frozen=True)
class PlayerMean(RowStatistic):
    """Mean outcome of all episodes of the row's player, so that roles are not compared with each other.

    Degenerate: without players it is the batch mean.
    """

    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the baseline is a mean over all starts"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns one mean per player."""
        return groups.mean(outcome_B, by_player(experience))


@dataclass(frozen=True)
class PlayerDeviation(RowStatistic):
    """Standard deviation (n - 1) of the outcomes of the row's player plus `epsilon` (REINFORCE++, arXiv:2501.03262).

    Degenerate: a player with one episode, or with equal outcomes, has scale `epsilon` and advantages of 0.
    """

    epsilon: float = 1e-4
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the deviation is that of all starts"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviations, never 0."""
        return groups.deviation(outcome_B, by_player(experience)) + self.epsilon


@dataclass(frozen=True)
class SelfPlay(Episodes):
    """Gathers groups of games in which the policy plays every role: `Episodes` of a task that is a game."""

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task is not a game."""
        if not isinstance(scene.task, GameTask):
            told = f"self-play needs a game of several roles; '{scene.task.name}' has one role"
            raise AssayError(f"{told}. Use red-teaming, red-teaming:SEEDS.jsonl with a model, or a method such as grpo")
        return {}


@dataclass(frozen=True)
class FixedOpponents(Rollout):
    """Gathers groups of games in which the policy is `player` and the task's own fixed opponents are the others.

    Only the policy's rows are returned. `Episodes` is self-play; this is training against a static opponent.
    """

    num_starts: int = 32
    group_size: int = 8
    player: int = 0

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task is not a game with this player."""
        task = scene.task
        if not isinstance(task, GameTask):
            raise AssayError(f"FixedOpponents needs a game; '{task.name}' is not one. Use Episodes")
        if not 0 <= self.player < task.num_players:
            raise AssayError(f"'{task.name}' has no player {self.player}. Use 0 to {task.num_players - 1}")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` games; random numbers depend on (start, sample), not on the batch."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, GameTask)
        rows, samples = group_rows(starts, self.group_size)
        return task.play_against(actor, rows, samples, draw, player=self.player, split=0)


def recipe(preset: Preset = LANGUAGE, kl: float = 0.01, supervised: int = 0) -> Recipe:
    """Returns self-play; with `supervised`, that many demonstrations are trained on after each batch, to keep other
    skills.
    """
    objective = PolicyGradient(trust=Clip(0.2, 0.2))
    stages: tuple[Stage, ...] = (Stage("policy", ("actor",), (objective,), optimizer=preset.optimizer),)
    if supervised:
        likelihood = (LogLikelihood(),)
        shown = Demonstrations(supervised)
        stages += (Stage("supervised", ("actor",), likelihood, optimizer=preset.optimizer, source=shown),)
    credit = (KlInReward(kl), OutcomeCredit(PlayerMean(), PlayerDeviation()))
    episodes = preset.group_rollout
    assert isinstance(episodes, Episodes)
    rollout = SelfPlay(episodes.num_starts, episodes.group_size)
    base = replace(recipes.grpo(preset), name="self-redteam", rollout=rollout, copies={"reference": Copy(of="actor")})
    return replace(base, credit=credit, stages=stages)


METHOD = Method(
    paper="arXiv:2506.07468",
    recipe=recipe,
    default_task="red-teaming",
    family="games",
    base=recipes.grpo,
    variants={"with-sft": partial(recipe, supervised=16)},
    departures=(
        "by default the game is a grammar of obfuscations with an exact judge; free rewriting by a chat model, judged "
        "by another, is red-teaming:SEEDS.jsonl, where half of the seeds are attacked in expectation, kinds unbalanced",
        "no supervised batches over seeds; an evaluation shows held-out seeds as they are, not attacked",
        "groups of several games of a seed instead of one; supervised batches are off but in the variant with-sft",
        "roles are normalised over rows with n - 1, KL of the whole row included; theirs over tokens, KL from each on",
        "not measured: attacks drawn uniformly from the grammar, and over-refusal of benign strings, for their cost",
    ),
)
