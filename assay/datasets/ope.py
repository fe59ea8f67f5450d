"""Off-policy evaluation: what a policy would return, from data of others. Axes: N rows, E episodes, D numbers, T.

    fqe   Q <- r + discount * Q'(s', pi(s')) by regression on the data;   value = mean over first states of Q(s_0, pi)
    wis   sum_e w_e G_e / sum_e w_e,   w_e = product over decisions of min(pi(a|s) / behaviour(a|s), e^4)
    dr    V(s_0) + sum_t discount^t * w_t * (r + discount * V(s_{t+1}) - Q(s_t, a_t)),  w_t weighted over episodes

Le et al. 2019 (fitted Q evaluation), Precup et al. 2000 (weighted importance sampling), Jiang & Li 2016 and Thomas &
Brunskill 2016 (doubly robust, weighted). All are of the discounted return of the policy that samples its actions, as it
gathers; a policy without a density is deterministic, and has `fqe` alone. `wis` and `dr` need the log-probabilities of
the recorded actions; over a long episode few weights carry all, as `effective` says, and the bound is a bias. `wis`
counts nothing after an episode was cut; the others estimate what follows. Intervals are bootstrapped over episodes;
those of `fqe` are over first states alone, and hold no error of the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need
from assay.core.slots import PathActor
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.datasets.dataset import REWARDS, Dataset
from assay.models.action_units import ActionUnits
from assay.models.bodies.perceptron import Ensemble
from assay.ops import random

ESTIMATORS = ("fqe", "dr", "wis")
BOOTSTRAPS = 1_000
LARGEST_LOG_RATIO = 4.0
"""The ratio of one decision is at most e^4."""
AT_ONCE = 1 << 16
"""Rows of the data that go through the networks together."""


@dataclass(frozen=True)
class Fqe:
    """How Q is fitted: layers, updates, batches, Adam's rate, the rate at which targets follow, members averaged.

    Targets reach their limit after a few times 1 / (rate * (1 - discount)) updates.
    """

    hidden: tuple[int, ...] = (64, 64)
    updates: int = 5_000
    batch: int = 256
    learning_rate: float = 1e-3
    rate: float = 0.1
    members: int = 2
    draws: int = 4
    """Actions of the policy for each state where its value is averaged."""


@dataclass(frozen=True)
class Evaluated:
    """An estimate of the discounted return with its 95 % interval, and how many of the episodes carry it."""

    value: float
    low: float
    high: float
    episodes: int
    effective: float
    """(sum w)^2 / sum w^2; all episodes for fqe."""


# ---------------------------------------------------------------------------------------------------- fitted values
class Values:
    """Q of a policy on the rows of a dataset; observations standardised, actions in half-ranges or one-hot."""

    def __init__(self, data: Dataset, spec: Spec, policy: Any, settings: Fqe, discount: float, seed: int) -> None:
        self.data, self.spec, self.policy, self.settings = data, spec, policy, settings
        self.discount, self.seed, self.draw = discount, seed, Draw(seed, (61,))
        self.units = ActionUnits(spec.action)
        seen = self.numbers(data.observation)
        self.mean, self.deviation = seen.mean(0), seen.std(0, correction=0) + 1e-3
        horizon = (1.0 - discount ** (len(data) / len(data.bounds))) / max(1.0 - discount, 1e-6)
        self.scale = float(data.reward.abs().mean()) * horizon + 1e-6
        size = seen.shape[1] + self.coded(data.action[:1]).shape[1]
        with random.seeded(seed):
            self.net, self.target = (Ensemble(settings.members, size, 1, settings.hidden) for _ in range(2))
        self.target.load_state_dict(self.net.state_dict())
        self.fit()

    def numbers(self, seen: Tensor) -> Tensor:
        """Returns observations as vectors, [N, D]; numbered states one-hot."""
        space = self.spec.observation
        return one_hot(seen, space.n).float() if isinstance(space, Discrete) else seen.float()

    def coded(self, action: Tensor) -> Tensor:
        """Returns actions as inputs, [N, A]."""
        space = self.spec.action
        return one_hot(action, space.n).float() if isinstance(space, Discrete) else self.units(action)

    def inputs(self, seen: Tensor, action: Tensor) -> Tensor:
        """Returns the rows that the networks read."""
        return torch.cat(((self.numbers(seen) - self.mean) / self.deviation, self.coded(action)), 1)

    @torch.no_grad()
    def decided(self, seen: Tensor, *place: int) -> Tensor:
        """Returns actions that the policy draws in these states."""
        uniform = random.uniform_tensor(self.draw.at(*place), (len(seen), self.policy.num_draws))
        action: Tensor = self.policy.act(context_of(seen, self.spec), uniform)[0]
        return action

    @torch.no_grad()
    def of_policy(self, seen: Tensor) -> np.ndarray:
        """Returns V(s), averaged over actions of the policy and over the members, [N]."""
        found = []
        for part, rows in enumerate(seen.split(AT_ONCE)):
            drawn = [self.decided(rows, 2, part, each) for each in range(self.settings.draws)]
            found.append(torch.stack([self.net(self.inputs(rows, action)) for action in drawn]).mean((0, 1)))
        return torch.cat(found).squeeze(-1).double().numpy() * self.scale

    def of_starts(self) -> np.ndarray:
        """Returns V of the first state of each episode, [E]."""
        return self.of_policy(self.data.observation[[first for first, _ in self.data.bounds]])

    @torch.no_grad()
    def of_data(self) -> np.ndarray:
        """Returns Q(s, a) of the recorded rows, [N]."""
        pairs = zip(self.data.observation.split(AT_ONCE), self.data.action.split(AT_ONCE), strict=True)
        found = torch.cat([self.net(self.inputs(*pair)).mean(0) for pair in pairs])
        return found.squeeze(-1).double().numpy() * self.scale

    def fit(self) -> None:
        """Regresses Q on r + discount * Q'(s', b), b drawn by the policy, on random rows."""
        data, given = self.data, self.settings
        fast, slow = (list[Tensor](each.parameters()) for each in (self.net, self.target))
        adam = torch.optim.Adam(fast, given.learning_rate)
        for update in range(given.updates):
            rows = torch.from_numpy(random.integers(self.draw.at(1, update), len(data), given.batch))
            after = data.next_observation[rows]
            with torch.no_grad():
                onward = self.target(self.inputs(after, self.decided(after, 3, update))).squeeze(-1).mean(0)
                goal = data.reward[rows] / self.scale + self.discount * onward * ~data.terminal[rows]
            known = self.net(self.inputs(data.observation[rows], data.action[rows])).squeeze(-1)
            loss = (known - goal).square().mean(1).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
            with torch.no_grad():
                torch._foreach_lerp_(slow, fast, given.rate)


def context_of(seen: Tensor, spec: Spec) -> Context:
    """Returns what a policy reads of these observations."""
    return {"state": seen} if isinstance(spec.observation, Discrete) else {"observation": seen.float()}


# ---------------------------------------------------------------------------------------------------- weights
@torch.no_grad()
def logp_of(policy: Any, seen: Tensor, action: Tensor, spec: Spec) -> Tensor:
    """Returns the policy's log-probabilities of these actions, [N], float64."""
    found = []
    for some, done in zip(seen.split(AT_ONCE), action.split(AT_ONCE), strict=True):
        context = {name: value.unsqueeze(1) for name, value in context_of(some, spec).items()}
        flat, no = torch.zeros(len(some), 1), torch.zeros(len(some), 1, dtype=torch.bool)
        rows = Experience(context, done.unsqueeze(1), ~no, flat, flat, no, no)
        found.append(policy.score(rows, frozenset({Need.LOGP})).logp[:, 0])
    return torch.cat(found).double()


@torch.no_grad()
def check_density(policy: Any, data: Dataset, spec: Spec, seed: int) -> None:
    """Raises AssayError unless the policy draws different actions in one state and scores those that it draws."""
    why = "wis and dr need the density of the policy's actions"
    num = min(64, len(data))
    seen, uniform = data.observation[:num], random.uniform_tensor(Draw(seed, (63,)), (2 * num, policy.num_draws))
    action, logp = policy.act(context_of(seen, spec), uniform[:num])
    again, _ = policy.act(context_of(seen, spec), uniform[num:])
    if isinstance(spec.action, Box) and bool((action == again).all()):
        raise AssayError(f"{why}, and it always takes the same one in a state. Use --ope fqe")
    if getattr(policy, "score", None) is None or isinstance(policy, PathActor):
        raise AssayError(f"{why}, and it has none. Use --ope fqe")
    if not torch.allclose(logp_of(policy, seen, action, spec), logp.double(), atol=1e-3, rtol=1e-3):
        raise AssayError(f"{why}, and it scores others than it takes. Use --ope fqe")


def weights(policy: Any, data: Dataset, spec: Spec, seed: int = 0) -> list[np.ndarray]:
    """Returns the logarithm of the running product of the ratios of each episode's decisions, bounded one by one;
    raises AssayError if there are none, or all are 0.
    """
    if data.logp is None:
        raise AssayError("wis and dr need the log-probabilities of the recorded actions ('logp'). Use --ope fqe")
    check_density(policy, data, spec, seed)
    logp = logp_of(policy, data.observation, data.action, spec)
    ratio = (logp - data.logp.double()).clamp(max=LARGEST_LOG_RATIO).numpy()
    found = [np.cumsum(ratio[first:last]) for first, last in data.bounds]
    if not any(np.isfinite(one[-1]) for one in found):
        raise AssayError("the policy takes the actions of no episode of the data. Use --ope fqe")
    return found


def padded(parts: list[np.ndarray], fill: Callable[[np.ndarray], float]) -> np.ndarray:
    """Returns episodes as rows of one table, [E, T]; after its end an episode has `fill` of its own numbers."""
    table = np.empty((len(parts), max(map(len, parts))))
    for row, part in zip(table, parts, strict=True):
        row[: len(part)], row[len(part) :] = part, fill(part)
    return table


def shares(log_weight: np.ndarray) -> np.ndarray:
    """Returns weights over their sum over episodes [E, ...], times the number of episodes; 0 where all are."""
    most = log_weight.max(0)
    scaled = np.exp(log_weight - np.where(np.isfinite(most), most, 0.0))
    total = scaled.sum(0)
    return np.asarray(scaled / np.where(total > 0, total, 1.0) * len(log_weight))


def effective(log_weight: np.ndarray) -> float:
    """Returns (sum w)^2 / sum w^2; 0 if all weights are 0."""
    share = shares(log_weight)
    return float(share.sum() ** 2 / (share**2).sum()) if share.any() else 0.0


# ---------------------------------------------------------------------------------------------------- estimates
def over_episodes(value_of: Callable[[np.ndarray], float], num: int, effective: float, seed: int) -> Evaluated:
    """Returns the estimate of all episodes, with the 2.5 and 97.5 % quantiles over episodes drawn with replacement."""
    draws = random.integers(Draw(seed, (62,)), num, BOOTSTRAPS * num).reshape(BOOTSTRAPS, num)
    low, high = np.quantile([value_of(rows) for rows in draws], (0.025, 0.975))
    return Evaluated(value_of(np.arange(num)), float(low), float(high), num, effective)


def fitted(values: Values) -> Evaluated:
    """Returns the mean of the fitted values of first states."""
    start = values.of_starts()
    return over_episodes(lambda rows: float(start[rows].mean()), len(start), float(len(start)), values.seed)


def weighted(policy: Any, data: Dataset, spec: Spec, discount: float, seed: int) -> Evaluated:
    """Returns the mean of the episodes' returns, weighted by the products of their ratios."""
    last = np.array([each[-1] for each in weights(policy, data, spec, seed)])
    rewards = padded([data.reward[first:end].double().numpy() for first, end in data.bounds], lambda part: 0.0)
    returns = rewards @ discount ** np.arange(rewards.shape[1])

    def value_of(rows: np.ndarray) -> float:
        return float((shares(last[rows]) * returns[rows]).mean())

    return over_episodes(value_of, len(last), effective(last), seed)


def doubly_robust(values: Values, weight: list[np.ndarray]) -> Evaluated:
    """Returns the mean of the fitted values of first states, corrected by weighted errors of the fit."""
    data, table = values.data, padded(weight, lambda part: float(part[-1]))
    start, onward = values.of_starts(), values.of_policy(data.next_observation) * ~data.terminal.numpy()
    error = data.reward.double().numpy() + values.discount * onward - values.of_data()
    gaps = padded([error[first:end] for first, end in data.bounds], lambda part: 0.0)
    gaps = gaps * values.discount ** np.arange(gaps.shape[1])

    def value_of(rows: np.ndarray) -> float:
        return float((start[rows] + (shares(table[rows]) * gaps[rows]).sum(1)).mean())

    return over_episodes(value_of, len(start), effective(table[:, -1]), values.seed)


def evaluated(
    estimator: str, policy: Any, data: Dataset, spec: Spec, discount: float, settings: Fqe = Fqe(), seed: int = 0
) -> Evaluated:
    """Returns an estimate of the policy's discounted return; raises AssayError for data that do not suffice."""
    if estimator not in ESTIMATORS:
        raise AssayError(f"--ope is '{estimator}'. Use {', '.join(ESTIMATORS)}")
    if not isinstance(spec.observation, Box | Discrete) or not isinstance(spec.action, Box | Discrete):
        raise AssayError("--ope reads vectors or numbered states, and one choice or bounded numbers. Play the policy")
    if spec.goal is not None:
        raise AssayError("--ope estimates the return of one task, and this one has goals. Play the policy")
    if not data.about.get(REWARDS, True):
        raise AssayError("the data have no rewards, so there is no return to estimate. Add them")
    if estimator == "wis":
        return weighted(policy, data, spec, discount, seed)
    if estimator == "fqe":
        return fitted(Values(data, spec, policy, settings, discount, seed))
    weight = weights(policy, data, spec, seed)  # refuses before a long fit
    return doubly_robust(Values(data, spec, policy, settings, discount, seed), weight)
