"""il-data-quality: cloning demonstrations with two kinds of noise, and what of a dataset foretells how well it goes.

    action noise   recorded = done = expert(s) + sigma_p n
    system noise   recorded = expert(s),   done = expert(s) + sigma_s n
    KL(rho_A || rho_E) <= 1/H sum over t < H of (H - 1 - t) E_{s ~ rho_A^t} KL(pi_A(.|s) || pi_E(.|s))

Belkhale, Cui & Sadigh 2023. A dataset is good if its clone stays where the data are: where like states have like
actions (a small action divergence), and where the system has shown what follows small errors (transition diversity).
Both noises have the same states, so the diversity of states says nothing of it. `assay data describe` prints the
measures (`assay.statistics.imitability`), and `assay data make TASK demonstrated` makes such data.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Draw, Method, Origin, Preset, Recipe, Task, recipes
from assay.parts import Logged, transitions
from assay.parts.sources.recordings import Described
from assay.tasks.control.disturbed import demonstrated
from assay.tasks.control.stepping import SteppedTask


@dataclass(frozen=True)
class NoisyDemonstrations(Described):
    """Episodes of the task's expert from start `first` on, with both kinds of noise in half-ranges of the actions.

    Source: arXiv:2306.02437. Assumes a scripted expert with continuous actions. Degenerate: without noise it is the
    expert.
    """

    episodes: int = 10
    action_noise: float = 0.0
    system_noise: float = 0.0
    first: int = 0
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)

    def columns(self, task: Task) -> dict[str, Tensor]:
        if not isinstance(task, SteppedTask):
            raise AssayError(f"task '{task.name}' has no simulation to disturb. Name an offline dataset: --data FILE")
        starts = np.arange(self.first, self.first + self.episodes)
        played = demonstrated(task, starts, self.action_noise, self.system_noise, Draw(7))
        return transitions(replace(played, reward=self.reward_scale * played.reward))


def visited(moves: Tensor, policy: Tensor, start: Tensor, horizon: int) -> Tensor:
    """Returns rho^t of a policy [S, A] in a table [S, A, S], for each t < horizon, [H, S]."""
    found = [start]
    for _ in range(horizon - 1):
        found.append(torch.einsum("s,sa,sax->x", found[-1], policy, moves))
    return torch.stack(found)


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """Returns KL(one || other) of distributions [..., A]."""
    return (one * (one / other).log()).sum(-1)


def divergence_bound(
    moves: Tensor, learner: Tensor, expert: Tensor, start: Tensor, horizon: int
) -> tuple[float, float]:
    """Returns KL of the mean state distributions of learner and expert, and its bound by KL of their actions where the
    learner goes.
    """
    ours, theirs = (visited(moves, one, start, horizon) for one in (learner, expert))
    left = torch.arange(horizon - 1, -1, -1, dtype=moves.dtype)
    per_step = (ours * divergence(learner, expert)).sum(1)
    return float(divergence(ours.mean(0), theirs.mean(0))), float((left * per_step).sum() / horizon)


def recipe(
    preset: Preset = CONTINUOUS, episodes: int = 10, action_noise: float = 0.0, system_noise: float = 0.4,
    first: int = 0,
) -> Recipe:  # fmt: skip
    """Returns bc on demonstrations with these noises: what is new is the data and what is measured of them."""
    log = NoisyDemonstrations(episodes, action_noise, system_noise, first)
    source = Logged((log,), preset.offline.batch, preset.offline.updates)
    return replace(recipes.bc(preset), name="il-data-quality", source=source)


METHOD = Method(
    paper="arXiv:2306.02437",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="detour",
    family="imitation",
    base=recipes.bc,
    departures=(
        "a measurement of bc: its loss is unchanged; what a dataset is worth is measured and not optimised",
        "the paper shows system noise by noise of the dynamics; here it is added to actions and left out of the record",
        "the transition entropy, of a normal fit among neighbours in state and action, is an estimate of our own",
        "a point and an obstacle, 10 demonstrations (robomimic and PointMaze, up to 1,000); horizons are not varied",
        "the bound has H - 1 - t in the place of H - t: the state of t = 0 does not depend on the policy",
    ),
)
