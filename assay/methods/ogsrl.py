"""ogsrl: a policy improved in a learned model of a log, under two costs: leaving what the log supports, and danger.

    model: s', r, cost of (s, a), Gaussians fitted to the log;   episodes begin where the log's begin
    f(x) = mean over the log of exp(-|x - x_i|^2 / (2 width^2)),   x = (s, a) scaled to [-1, 1]
    guardian cost g(s, a) = 1 where f(s, a) < quantile of f in the log at `share`, else 0
    max_pi J_r  with  J_danger <= limit  and  J_g <= outside:   one multiplier for each, ppo in the model

Yan et al. 2025. A model is right only where the log is, and a policy that is improved in it goes where it is wrong.
The guardian keeps (s, a) where the model can be believed; that alone allows whatever clinicians did, dangerous or not,
so safety has a cost and a multiplier of its own. Merged into one, either pays for the other.

Axes: B sequences, T decisions, N rows of the log, K rows that are asked about, D numbers of a state and an action.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Box, Experience, Method, Phase, Preset, Recipe, Reward, Scene, Stage
from assay.method import State, logged, ppo, random
from assay.models import Critic, Dynamics, Perceptron, StandardisedByData, features
from assay.parts import CostToGo, DynamicsLikelihood, EndAtCost, Episodes, FreshDecisions, Imagine, Log
from assay.parts import Logged, LogLikelihood, Multiplier, TaskCost, WithCosts

MOST = 4_096
"""Rows of a log that carry the density: of more, so many are drawn."""


def kernel_density(table_ND: Tensor, keys_KD: Tensor, width: float) -> Tensor:
    """Returns mean_i exp(-|key - row_i|^2 / (2 width^2)), [K]."""
    return (-torch.cdist(keys_KD, table_ND).square() / (2.0 * width**2)).exp().mean(1)


class Support:
    """The states and actions of a log, scaled to [-1, 1], and the density that a share of them does not reach."""

    def __init__(self, rows: Tensor, width: float, share: float) -> None:
        low, high = rows.amin(0), rows.amax(0)
        self.centre, self.half, self.width = (low + high) / 2.0, ((high - low) / 2.0).clamp(min=1e-6), width
        self.table = (rows - self.centre) / self.half
        self.least = kernel_density(self.table, self.table, width).quantile(share)

    def outside(self, rows: Tensor) -> Tensor:
        """Returns which rows [..., D] have a lower density."""
        keys = (rows - self.centre) / self.half
        return (kernel_density(self.table, keys.flatten(0, -2), self.width) < self.least).view(rows.shape[:-1])

    def snapshot(self) -> State:
        """Returns nothing: it can be made again."""
        return {}

    def restore(self, state: State) -> None:
        """Keeps the rows."""


@dataclass(frozen=True)
class Guardian(Reward):
    """Gives every decision whose state and action have a lower density than all but a share of the log's a cost of 1,
    as a new channel after the task's own.

    Degenerate: share 0 allows what is as dense as the loneliest row. Assumes vectors, and a log with gaps: of one that
    covers everything nothing is outside but its edge. Source: arXiv:2505.16242.
    """

    log: Logged = Logged()
    width: float = 0.2
    share: float = 0.05
    not_a_part: ClassVar[str] = "it refuses the tasks of the laws, which have no vectors"

    def __post_init__(self) -> None:
        if not (self.width > 0.0 and 0.0 <= self.share < 1.0):
            found = f"Guardian has width {self.width} and share {self.share}"
            raise AssayError(f"{found}. Use a width above 0 and a share from 0 to below 1")

    @property
    def writes(self) -> Collection[str]:
        return ()

    def init(self, scene: Scene) -> State:
        """Returns the support of the log; raises AssayError for a task without vectors."""
        spec = scene.task.spec
        if not (isinstance(spec.observation, Box) and isinstance(spec.action, Box)):
            raise AssayError(f"task '{scene.task.name}' has no vectors, whose density a guardian estimates. Use cql")
        columns = self.log.init(scene)["contents"].columns
        rows = torch.cat([torch.cat((one["context.observation"], one["action"]), -1)[:, 0] for one in columns])
        some = random.permutation(scene.draw.at(31), len(rows))[:MOST]
        return {"support": Support(rows[torch.from_numpy(some).sort().values], self.width, self.share)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        rows = torch.cat((features(experience.context), experience.action), -1)
        cost = (state["support"].outside(rows) & experience.mask).to(experience.reward.dtype).unsqueeze(-1)
        return replace(experience, cost=cost if experience.cost is None else torch.cat((experience.cost, cost), -1))


def recipe(
    preset: Preset = CONTINUOUS, log: Log | None = None, limit: float | None = 1.0, outside: float | None = 1.0,
    guardian: Guardian = Guardian(), penalty: float = 0.0,
) -> Recipe:
    """Returns the model's phase and ppo in it, under limits of the episode's danger and of its decisions outside; None
    leaves one out. With a `penalty` the first decision outside ends the episode and costs so much.
    """
    base, settings = ppo(preset), preset.offline
    data = replace(logged(preset, log), condition=WithCosts())
    dynamics = Critic(StandardisedByData(Perceptron((128, 128))), Dynamics())
    stages = (
        Stage("dynamics", ("dynamics",), critic=(DynamicsLikelihood(),), optimizer=settings.optimizer),
        Stage("clone", ("actor",), (LogLikelihood(),), optimizer=settings.optimizer),
    )
    model = Recipe(
        name="ogsrl:model",
        actor=base.actor,
        critics={"dynamics": dynamics},
        source=data,
        stages=stages,
        steps=settings.steps,
    )
    limits = ((limit, 0), (outside, 1))
    ends = (EndAtCost(0.0, penalty, 1),) if penalty else ()
    return replace(
        base,
        name="ogsrl",
        critics={**base.critics, "dynamics": dynamics},
        rollout=Imagine(Episodes(num_starts=64, group_size=1), data),
        rewards=(*base.rewards, TaskCost(), replace(guardian, log=data)),
        credit=(*ends, *base.credit),
        constraints=tuple(
            Multiplier(most, credit=CostToGo(preset.gae.discount), channel=channel)
            for most, channel in limits if most is not None
        ),
        source=FreshDecisions(epochs=5, minibatches=8),
        steps=60,
        before=(Phase("model", model, model.steps, {"dynamics": "dynamics", "actor": "actor"}),),
    )


METHOD = Method(
    paper="arXiv:2505.16242",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="treatment",
    family="safe",
    base=ppo,
    variants={
        "unguarded": partial(recipe, outside=None),
        "guardian": partial(recipe, limit=None),
        "absorbing": partial(recipe, outside=None, penalty=25.0),
    },
    departures=(
        "a multiplier for each limit, by gradient ascent, around ppo; the paper's solver is CPO, and the authors' "
        "code penalises the first pair outside and compares the mean of normalised cost advantages, about 0, with "
        "its limit",
        "the density of states and actions is the paper's practice; its theory has a sum-of-squares polynomial of "
        "least volume",
        "the model is an ensemble of Gaussians for next state, reward and costs; theirs is the next state of the "
        "nearest logged pair, which cannot leave the log's states; costs are predicted and not read off the "
        "predicted state",
        "the policy begins as a clone: from an untrained one every decision is outside, and a cost of 0 or 1 has no "
        "slope",
        "width 0.2 of pairs scaled to [-1, 1] (0.535 of fifteen features); of a longer log 4,096 rows carry the "
        "density",
        "64 imagined episodes and 40 updates a step, 60 steps (32 episodes of 20 decisions, 20,000 steps)",
        "`absorbing` ends an episode at the first decision outside, at a cost of 25; theirs goes on and pays at "
        "each step",
        "simulated patients, three numbers each; theirs are records of sepsis, and the simulator is fitted to all "
        "of them",
        "cql, guarded or not, is not measured",
    ),
    pilots=(
        "treatment, seed 1000, 60 steps: true return, cost, share outside of both limits -12.8, 0.0, 0.03; guardian "
        "alone -10.6, 11.3, 0.02; limit of cost alone -12.1, 0.0, 1.00; neither -20.2, 17.0, 1.00; clone -14.3, "
        "0.0, 0.04; the log itself -12.75, 3.5",
        "a deviation of costs that depends on (s, a) predicted 0.02 for episodes that cost 12: rare costs were "
        "noise",
    ),
)
