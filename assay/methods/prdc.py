"""prdc: td3-bc that is pulled towards the nearest state and action of the whole dataset, not the recorded action.

    actor loss = -weight * Q_1(s, mu(s)) / mean |Q_1| + mean over dimensions of (mu(s) - a_n)^2
    n = argmin over rows j of |beta * (s - s_j)|^2 + |mu(s) - a_j|^2,   states standardised, actions in half-ranges

Ran et al. 2023. Where the action recorded in s was poor, cloning holds the actor to it; here it may take what was done
in a state nearby, and stays near what was ever done somewhere. beta says how near a state has to be: with beta to
infinity it is td3-bc, with 0 the state does not matter.

Axes: B sequences, T decisions, N rows, D numbers of a state, A action dimensions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Box, Context, Experience, Method, Preset, Recipe, Scene, Source, State
from assay.method import View, logged, model_name, td3_bc
from assay.models import features
from assay.ops.neighbours import nearest
from assay.parts import Log, Logged, NearRecorded

NEAREST = "nearest_action"
EPSILON = 1e-3


class Rows:
    """All states and actions of a dataset; a checkpoint does not store them, since the dataset has them."""

    def __init__(self, context: Context, action: Tensor, space: Box, beta: float) -> None:
        seen, self.action = features(context), action
        deviation, mean = torch.std_mean(seen.double(), 0, correction=0)
        self.mean, self.scale = mean.to(seen.dtype), beta / (deviation + EPSILON).to(seen.dtype)
        low, high = (torch.tensor(side, dtype=seen.dtype) for side in (space.low, space.high))
        self.half_range = (high - low) / 2.0
        self.table = self.key(context, action)

    def key(self, context: Context, action: Tensor) -> Tensor:
        """Returns beta * (s - mean) / (deviation + 1e-3), and the action in half-ranges, [..., D + A]."""
        return torch.cat(((features(context) - self.mean) * self.scale, action / self.half_range), -1)

    def near(self, context: Context, action: Tensor) -> Tensor:
        """Returns the recorded action nearest to each of these states and actions, [..., A]."""
        keys = self.key(context, action).to(self.table.dtype)
        return self.action[nearest(self.table, keys.flatten(0, -2))].view_as(action)

    def snapshot(self) -> State:
        """Returns nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Keeps the rows."""


def decided(actor: Any, rows: Experience) -> Tensor:
    """Returns the actor's actions."""
    action: Tensor = actor.decide(rows.context)
    return action


@dataclass(frozen=True)
class Neighbours(Source):
    """Batches of `log` with the column `nearest_action`: of all its rows, the action of the one nearest to the actor's
    decision now.

    Assumes continuous actions with bounds, rows that fit into memory, and stages that leave the actor as it is until
    its own step. Degenerate: beta infinity gives the recorded action, where no state was recorded twice. Source:
    arXiv:2306.06569.
    """

    log: Logged = Logged()
    beta: float = 2.0
    actor: str = model_name("actor")
    breaks: ClassVar[Mapping[str, str]] = {"own": "it yields what the dataset recorded"}
    writes: ClassVar[Mapping[str, str]] = {NEAREST: "BTA: recorded action of the nearest state and action"}

    def __post_init__(self) -> None:
        if not self.beta >= 0.0:
            raise AssayError(f"Neighbours.beta is {self.beta}. Use 0 or more, such as 2")

    def init(self, scene: Scene) -> State:
        """Returns the datasets and their rows as a table."""
        state, space = self.log.init(scene), scene.task.spec.action
        if not isinstance(space, Box):
            raise AssayError(f"task '{scene.task.name}' has discrete actions, which have no neighbours. Use iql or cql")
        sets = state["contents"].columns
        names = [name for name in sets[0] if name.startswith("context.")]
        context = {name.removeprefix("context."): torch.cat([one[name][:, 0] for one in sets]) for name in names}
        rows = Rows(context, torch.cat([one["action"][:, 0] for one in sets]), space, self.beta)
        return {**state, "rows": rows}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next batches; the actor decides when its batch is asked for."""
        decide: Callable[[Any, Experience], Tensor] = decided
        for batch in self.log(scene, state):
            action = scene.models.over(self.actor, batch.now, decide)
            there = state["rows"].near(batch.now.context, action)
            yield batch.add({NEAREST: torch.cat((there, torch.zeros_like(batch.action[:, -1:])), 1)})


def recorded_action(batch: Experience) -> Tensor:
    """Returns the recorded actions."""
    return batch.action


@dataclass(frozen=True)
class NearNeighbour(NearRecorded):
    """coefficient * mean over dimensions of ((mu(s) - nearest action) / half range)^2 (arXiv:2306.06569).

    Assumes that a source wrote the column `nearest_action`. Degenerate: where it is the recorded one it is
    `NearRecorded`.
    """

    reads: ClassVar[tuple[str, ...]] = (NEAREST,)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {NEAREST: recorded_action}

    def goal(self, batch: Experience, view: View, decided: Tensor) -> tuple[Tensor, Tensor | None]:
        return batch.now.column(NEAREST).detach(), None


def recipe(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float = 2.5, beta: float = 2.0) -> Recipe:
    """Returns td3-bc, pulled towards neighbours; see `Neighbours` for beta."""
    base = td3_bc(preset, log, weight)
    critic, actor = base.stages
    actor = replace(actor, regularizers=(NearNeighbour(),))
    return replace(base, name="prdc", source=Neighbours(logged(preset, log), beta), stages=(critic, actor))


METHOD = Method(
    paper="arXiv:2306.06569",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=td3_bc,
    departures=(
        "the squared distance of the action alone is added, as in the authors' code; the paper writes the distance of "
        "state and action, whose gradient has the same direction",
        "rows are compared block by block instead of in a k-d tree: the same neighbour, at a cost that grows with the "
        "dataset",
        "neighbours are looked up at every update, and used at every second, in which the actor moves",
        "weight 2.5 and beta 2 everywhere, which are the authors' for hopper and walker2d (halfcheetah: 40 and 2)",
        "the other departures of td3-bc",
    ),
)
