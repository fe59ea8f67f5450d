"""kimi-k1.5: regresses log-ratios of answers to centred rewards, pays short right answers, repeats failed prompts.

    loss = mean over groups of mean_i (R_i - mean R - tau s_i)^2 / (2 tau),   s_i = sum_t log pi(y_t) - log pi_old(y_t)
    R = right + 0.5 lambda,   lambda = 1/2 - (n - shortest) / (longest - shortest), at most 0 for a wrong answer

Kimi Team 2025. A step of mirror descent: pi_old is the last iterate, which sampled the answers and is the reference.
At pi_old the gradient is rloo's times (k - 1) / k; later in the batch s pulls back, without a ratio or a clip.
The group's mean stands for tau log Z, so the minimum is the KL optimum only for large tau.

Axes: B sequences.
"""

from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, Adam, Curriculum, Delayed, Experience, Method, Preset, Recipe, RepeatingTask, Reward
from assay.method import Scene, State, Verifier, groups, random, recipes
from assay.parts import FreshSequences, RegressLogRatio, Rescored, Weighted, WeightedSum, next_starts


@dataclass(frozen=True)
class LengthReward(Rescored):
    """1/2 - (n - shortest) / (longest - shortest) within the group, n the number of decisions; not above 0 for a wrong
    answer (total of `reward` at most 1/2). arXiv:2501.12599. Degenerate: answers of one length get 0.
    """

    reward: Reward = Verifier()
    compares_group: ClassVar[bool] = True
    reads_shares: ClassVar[bool] = True

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        by_group, length = groups.row_groups(rewarded), groups.over_episode(rewarded.mask.sum(1), rewarded)
        shortest, negative = (
            groups.lowest(torch.where(by_group.share > 0, one.to(total_B.dtype), torch.inf), by_group)
            for one in (length, -length)
        )
        spread = -negative - shortest
        worth = torch.where(spread > 0, 0.5 - (length - shortest) / spread, 0.0)
        return torch.where(total_B > 0.5, worth, worth.clamp(max=0.0))


@dataclass(frozen=True)
class OftenFailed(Curriculum):
    """Draws each start with probability proportional to 1 - mean score of the answers that its prompt had so far.

    A prompt without answers counts as failed; if all are solved, all are equally likely. Degenerate: prompts that never
    repeat (a generator's) come in order.
    """

    def init(self, scene: Scene) -> State:
        """Returns the number of answers, their total score and the number of visits of each prompt: 0."""
        num = scene.task.num_training if isinstance(scene.task, RepeatingTask) else 0
        return {"next": 0, "score": np.zeros(num), "answers": np.zeros(num), "visits": np.zeros(num, dtype=np.int64)}

    def shares(self, state: State) -> np.ndarray:
        """Returns the probability of each prompt."""
        failed = 1.0 - state["score"] / np.maximum(state["answers"], 1.0)
        return failed / failed.sum() if failed.any() else np.full(len(failed), 1.0 / len(failed))

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the drawn prompts; every visit of one has a start of its own, so that no answer is sampled twice."""
        first, visits = state["next"], state["visits"]
        ordered = next_starts(scene, state, scene.num_starts)
        if not len(visits):
            return ordered
        point = random.uniform(scene.draw.at(8), np.arange(first, state["next"]))
        upper = self.shares(state).cumsum()
        starts = np.searchsorted(upper, point * upper[-1], side="right")
        for place, prompt in enumerate(starts.tolist()):
            starts[place] = prompt + len(visits) * visits[prompt]
            visits[prompt] += 1
        return starts

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Adds the scores, between 0 and 1, of rows with a decision."""
        if not len(state["visits"]):
            return
        there = experience.mask.any(1)
        prompt = experience.column("start")[there].cpu().numpy() % len(state["visits"])
        np.add.at(state["score"], prompt, experience.column("score")[there].double().clamp(0.0, 1.0).cpu().numpy())
        np.add.at(state["answers"], prompt, 1.0)


@dataclass(frozen=True)
class RestartedAdam(Adam):
    """Adam that forgets its moments at the beginning of every batch: each step of mirror descent is a problem of its
    own. Master weights stay.
    """

    def begin(self, state: State) -> None:
        torch._foreach_zero_([*state["first"], *state["second"], state["steps"]])


def recipe(preset: Preset = LANGUAGE, tau: float = 1.0, weight: float = 0.5, epochs: int = 4) -> Recipe:
    """Returns regression of log-ratios on centred rewards, with a reward for short right answers from a fifth of a
    run on.
    """
    base = recipes.rloo(preset)
    components = {"verifier": Weighted(Verifier()), "length": Weighted(LengthReward(), Delayed(weight, 0.2))}
    stage = replace(base.stages[0], objective=(RegressLogRatio(tau, reference=False, pairs=False),),
                    optimizer=RestartedAdam(**asdict(preset.optimizer)))  # fmt: skip
    return replace(base, name="kimi-k1.5", credit=(), rewards=(WeightedSum(components),), curriculum=OftenFailed(),
                   source=FreshSequences(epochs), stages=(stage,))  # fmt: skip


def any_length(preset: Preset = LANGUAGE) -> Recipe:
    """Without the length reward."""
    return recipe(preset, weight=0.0)


METHOD = Method(
    paper="arXiv:2501.12599",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="thinking",
    family="policy gradient",
    base=recipes.rloo,
    variants={"kimi-k1.5-any-length": any_length},
    key="kimi-k1.5",
    departures=(
        "tau 1, four steps a batch, length weight 0.5 after a fifth of the run: the report gives no values",
        "no partial rollouts, no stop at repetitions, no easy-to-hard order, no long-to-short stages (mean of weights, "
        "shortest of 8 as data, dpo, a last phase with a lower limit)",
        "generated prompts never repeat, so that only prompts of a file have a success rate to be drawn by",
        "not measured: lengths at an equal score, and partial rollouts, which are not built",
    ),
    pilots=(
        "two designs: the first, lengths on `thinking`, was given up for its cost before it had a result",
    ),
)
