"""Datasets some of whose actions are missing, completed by a model of the others. Axes: N rows, D numbers, A actions.

    (s_{t-k}, ..., s_t, s_{t+1}) -> N(mean, deviation) of artanh of the action in half-ranges;   a_t = tanh(mean)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Choice, Scene, Source
from assay.models.bodies.perceptron import perceptron
from assay.ops import random
from assay.parts.sources.logged import Logged

INSIDE = 1.0 - 1e-4
"""Actions at the bounds are moved inside by this, in half-ranges: their artanh is not finite."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a dataset in the order of their episodes; `acted` says whose action is recorded."""

    observation: Tensor
    next_observation: Tensor
    action: Tensor
    ends: Tensor
    acted: Tensor
    not_a_part: ClassVar[str] = "what the model below reads"


def windows(rows: Rows, past: int) -> Tensor:
    """Returns (s_{t-past}, ..., s_t, s_{t+1}) of each row, standardised, [N, (past + 2) D]; zeros before an episode.

    The next state is that of the row itself: the last row of an episode has one too.
    """
    seen = rows.observation.reshape(len(rows.acted), -1)
    deviation, mean = torch.std_mean(seen.double(), 0, correction=0)

    def scaled(states: Tensor) -> Tensor:
        return ((states.double() - mean) / (deviation + 1e-6)).float()

    here, place = scaled(seen), torch.arange(len(seen))
    begins = torch.cat((torch.ones(1, dtype=torch.bool), rows.ends[:-1]))
    first = torch.where(begins, place, 0).cummax(0).values
    parts = [scaled(rows.next_observation.reshape(len(seen), -1)), here]
    for back in range(1, past + 1):
        known = (place - back >= first).unsqueeze(1)
        parts.append(torch.where(known, here[(place - back).clamp(min=0)], 0.0))
    return torch.cat(parts[::-1], 1)


@dataclass(frozen=True)
class InverseDynamics(Choice):
    """Fits the action between two states, and `past` states before them, on rows that have it; gives it to the others.

    A squashed Gaussian by its likelihood, two networks of these layers, Adam; the action is tanh of the mean. Assumes
    that the action leaves a trace in the states. Degenerate: an action without effect is its mean. Source:
    arXiv:2210.06518.
    """

    hidden: tuple[int, ...] = (128, 128)
    updates: int = 2_000
    batch: int = 256
    learning_rate: float = 1e-3
    past: int = 1

    def completed(self, rows: Rows, draw: Draw) -> Tensor:
        """Returns the actions [N, A], the recorded ones as they are; raises AssayError if none is, or all are choices.
        """
        if not rows.action.is_floating_point():
            raise AssayError("missing actions are completed where they are numbers, and these are choices. Drop them")
        if not bool(rows.acted.any()):
            raise AssayError("no row has an action to learn from. Label some episodes")
        known = rows.action[rows.acted]
        low, high = known.amin(0), known.amax(0)
        centre, half = (low + high) / 2.0, ((high - low) / 2.0).clamp(min=1e-6)
        seen = windows(rows, self.past)
        mean = fitted(self, seen[rows.acted], ((known - centre) / half).clamp(-INSIDE, INSIDE).atanh(), draw)
        with torch.no_grad():
            guess = centre + half * mean(seen).tanh()
        return torch.where(rows.acted.unsqueeze(1), rows.action, guess.to(rows.action.dtype))


def fitted(model: InverseDynamics, seen: Tensor, latent: Tensor, draw: Draw) -> nn.Module:
    """Returns the network of the mean, of states and the inverse of tanh of their actions."""
    with random.seeded(random.seed_for_torch(draw)), torch.enable_grad():
        mean, spread = (
            perceptron(seen.shape[1], latent.shape[1], model.hidden, activation=nn.ReLU) for _ in range(2)
        )
        adam = torch.optim.Adam([*mean.parameters(), *spread.parameters()], model.learning_rate)
        for step in range(model.updates):
            rows = torch.from_numpy(random.integers(draw.at(step), len(seen), min(model.batch, len(seen))))
            variance = (-5.0 + 3.5 * (spread(seen[rows]).tanh() + 1.0)).mul(2.0).exp()
            loss = functional.gaussian_nll_loss(mean(seen[rows]), latent[rows], variance, eps=1e-8)
            adam.zero_grad()
            loss.backward()
            adam.step()
    return mean


def lowest(reward: Tensor, ends: Tensor, among: float, share: float, draw: Draw) -> Tensor:
    """Marks the rows of a share of all episodes, drawn among those with the lowest returns, at least one, bool [N]."""
    episode = ends.long().cumsum(0) - ends.long()
    returns = torch.zeros(int(episode.max()) + 1, dtype=torch.float64).index_add(0, episode, reward.double())
    num = len(returns)
    pool = returns.argsort(stable=True)[: max(1, round(among * num))]
    order = torch.from_numpy(random.permutation(draw, len(pool)))
    kept = torch.zeros(num, dtype=torch.bool)
    kept[pool[order[: max(1, round(share * num))]]] = True
    return kept[episode]


@dataclass(frozen=True)
class Completed(Source):
    """Batches of a dataset all but `share` of whose episodes have lost their actions, which a model completes.

    The labelled episodes are drawn among the lowest share `among` of the returns. With model None only the labelled
    rows are drawn. Degenerate: share 1 is the dataset itself. Assumes rows in the order in which they were recorded.
    Source: arXiv:2210.06518.
    """

    model: InverseDynamics | None
    log: Logged = Logged()
    share: float = 0.1
    among: float = 0.5
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"model": InverseDynamics(updates=20)}, {"model": None})

    def __post_init__(self) -> None:
        if not (0.0 < self.share <= 1.0 and 0.0 < self.among <= 1.0):
            raise AssayError(f"Completed has share {self.share} and among {self.among}. Use shares above 0, up to 1")

    def init(self, scene: Scene) -> State:
        """Returns the completed datasets."""
        state = self.log.init(scene)
        if self.share < 1.0:
            found = [self.completed(one, scene.draw.at(13, place)) for place, one in
                     enumerate(state["contents"].columns)]  # fmt: skip
            state["contents"].columns = tuple(found)
        return state

    def completed(self, columns: dict[str, Tensor], draw: Draw) -> dict[str, Tensor]:
        """Returns a dataset's columns with completed actions, or the labelled rows alone."""
        ends = (columns["terminal"] | columns["truncated"])[:, 0]
        acted = lowest(columns["reward"][:, 0], ends, self.among, self.share, draw)
        if self.model is None:
            return {name: column[acted] for name, column in columns.items()}
        seen = columns["context.observation"]
        hidden = torch.where(acted.unsqueeze(1), columns["action"][:, 0], 0.0)
        action = self.model.completed(Rows(seen[:, 0], seen[:, 1], hidden, ends, acted), draw)
        after = torch.where(ends.unsqueeze(1), 0.0, action.roll(-1, 0))
        return {**columns, "action": torch.stack((action, after), 1)}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next batches."""
        yield from self.log(scene, state)
