"""lhf: algorithm distillation on learning histories resampled by their improvement and stability.

    U = (mean R + max R - min R) / (2 R*) + weight * (1 + mean{R_e+1 - R_e : R_e+1 < R_e} / R*)
    p_l = (U_l - min U) / (max U - min U) among the histories of one environment
    sweeps over them keep history l with chance p_l, until there are as many as before
    loss = -log pi(a_t | s_i, a_i, r_i of all i < t, s_t)

Chen et al. 2025. R_e are the returns of a history's attempts, R* the best of the environment. A transformer that
imitates histories across attempts learns to learn; from agents that learned nothing it learns that too: they go.

Axes: R rows, T decisions, L tokens, W width, N decisions of a dataset, H histories of an environment, E attempts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, CONTROL, TABLE, Ask, AssayError, Draw, Experience, Method, Preset, Recipe, Scene
from assay.method import Source, Spec, State, random, recipes
from assay.models import MAKES, CausalStack, Policy, Stack, Trajectory, TrajectoryOutputs
from assay.parts import Log, Windows


class OnceADecision(nn.Module):
    """Layers on the sums of the tokens of return, state and the action before, one sum a decision."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        found: int = self.stack.width  # type: ignore[assignment]
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Returns the hidden state of its decision for each token, [R, 3 T - 1, W]."""
        whole = nn.functional.pad(x, (0, 0, 1, 0))
        found: Tensor = self.stack(whole.unflatten(1, (-1, 3)).sum(2))
        return found.repeat_interleave(3, 1)[:, 1:]


@dataclass(frozen=True)
class Summed(Stack):
    """Layers with one token a decision, the sum of its three."""

    stack: Stack = CausalStack()
    not_a_part: ClassVar[str] = MAKES

    def build(self) -> nn.Module:
        return OnceADecision(self.stack.build())


class HistoryOutputs(TrajectoryOutputs):
    """Outputs of decisions that see what was paid before, not what will be."""

    def tokens(self, returns: Tensor, states: Tensor, done: Tensor, time: Tensor) -> Tensor:
        """Returns tokens [R, L, W] in which r_t-1 = R_t-1 - R_t stands for R_t; 0 where a window begins."""
        paid = nn.functional.pad(returns[:, :-1] - returns[:, 1:], (1, 0))
        return super().tokens(paid, states, done, time)


@dataclass(frozen=True)
class History(Trajectory):
    """A transformer over states, actions and rewards of the last decisions, across attempts (arXiv:2210.14215).

    A window of `length` decisions reaches over as many attempts as fit in. Degenerate: in a context without past it
    decides as at the start of a history. Assumes that an environment's attempts are one episode of its task.
    """

    stack: Stack = Summed()
    length: int = 60
    target: float | None = 0.0
    scale: float | None = 1.0

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        if ask.action or ask.members:
            raise AssayError("a history has outputs of decisions, not of actions. Use Perceptron()")
        return HistoryOutputs(self, spec, ask)


def utilities(returns: Tensor, weight: float) -> Tensor:
    """Returns improvement + weight * stability of histories of one environment, [H], given returns [H, E].

    Both are a constant plus something over R*: chances depend neither on R* nor on the zero of returns.
    """
    best = returns.max().clamp(min=1e-9)
    improvement = (returns.mean(1) + returns.amax(1) - returns.amin(1)) / (2.0 * best)
    fall = returns.diff(dim=1).clamp(max=0.0)
    stability = 1.0 + fall.sum(1) / (fall < 0).sum(1).clamp(min=1) / best
    return improvement + weight * stability


def resampled(utility: Tensor, draw: Draw) -> list[int]:
    """Returns as many histories as there are, by sweeps that keep each with its chance; all once if they are equal."""
    above = utility - utility.min()
    chance, kept, sweep = (above / above.max()).nan_to_num(1.0).numpy(), list[int](), 0
    while len(kept) < len(chance):
        kept += np.flatnonzero(random.uniform(draw, sweep, np.arange(len(chance))) <= chance).tolist()
        sweep += 1
    return kept[: len(chance)]


@dataclass(frozen=True)
class ByHistory(Source):
    """Windows of the histories of `log`, of which each `agents` are of one environment, resampled by their utility.

    A history is a logged episode, an attempt is `attempt` decisions of it. R* is the best attempt of the environment's
    histories. Degenerate: histories of equal utility are those of `log`, in their order. Assumes that histories of an
    environment follow each other (arXiv:2505.15143).
    """

    log: Windows = Windows()
    agents: int = 6
    attempt: int = 15
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.agents < 1 or self.attempt < 1:
            raise AssayError(f"source.agents is {self.agents}, source.attempt {self.attempt}. Use at least 1 of both")

    def init(self, scene: Scene) -> State:
        """Returns the datasets with the decisions of the kept histories; one that is kept twice counts twice."""
        state = self.log.init(scene)
        for place, log in enumerate(state["contents"].columns):
            rows = self.rows_of(log["reward"][log["place"]].double(), log["last"], scene.draw.at(18, place))
            log |= {name: log[name][rows] for name in ("mask", "place", "last")}
        return state

    def rows_of(self, reward: Tensor, last: Tensor, draw: Draw) -> Tensor:
        """Returns the decisions of the kept histories, given the rewards of all and the end of each one's history."""
        histories = torch.arange(len(reward)).split(last.unique_consecutive(return_counts=True)[1].tolist())
        attempts = -(-max(len(rows) for rows in histories) // self.attempt)
        found = list[Tensor]()
        for first in range(0, len(histories), self.agents):
            own = histories[first : first + self.agents]
            paid = torch.zeros(len(own), attempts * self.attempt, dtype=torch.float64)
            for one, rows in enumerate(own):
                paid[one, : len(rows)] = reward[rows]
            returns = paid.view(len(own), attempts, self.attempt).sum(2)
            found += [own[one] for one in resampled(utilities(returns, self.weight), draw.at(first))]
        return torch.cat(found)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next batches."""
        yield from self.log(scene, state)


def recipe(
    preset: Preset = CONTROL, log: Log | None = None, length: int = 60, weight: float = 1.0, filtered: bool = True
) -> Recipe:
    """Returns cloning of histories in windows of `length` decisions, filtered with this weight of stability, or not."""
    base = recipes.decision_transformer(preset, log, length, batch=32)
    body = History(length=length)
    source = ByHistory(base.source, weight=weight) if filtered else base.source  # type: ignore[arg-type]
    actor = Policy(body, base.actor.head)  # type: ignore[attr-defined]
    return replace(base, name="lhf", actor=actor, source=source, steps=60)


METHOD = Method(
    paper="arXiv:2505.15143",
    recipe=recipe,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="darkroom",
    family="offline",
    base=recipes.decision_transformer,
    variants={"distillation": partial(recipe, filtered=False)},
    departures=(
        "R* is the best attempt among the environment's histories, not the best that is possible: chances are the same",
        "histories of equal utility are all kept (0/0 in the paper)",
        "one token a decision, the sum of those of state, last action and last reward; two layers of 64 (a TinyLlama)",
        "a window has 60 decisions of a history of 120; agents are scripted, ever less random (1,000 decisions of PPO)",
        "the softmax of utilities, the backbones DPT and DICP and the weights 0, 0.5, 2 and 1000 are not measured",
    ),
)
