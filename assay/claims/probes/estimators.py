"""Expected gradient and variance of a recipe by enumeration, against the exact one. Axes: P, Y, S, A, N members.

    E[g] = sum over all ways to draw N episodes of each prompt of  probability * g(those episodes)

Everything is float64 and nothing is sampled. Not simulated: a recipe's `select` (all drawn groups are used).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.probes.episodes import AllEpisodes, bandit_episodes, bandit_experience
from assay.claims.probes.gradients import Witness, actor_gradient, witness
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience, Progress
from assay.core.spaces import Discrete, Spec
from assay.models.bodies.table import Table
from assay.models.model import Critic, Policy

MOST_DRAWS = 200_000


@dataclass(frozen=True, eq=False)
class Bias:
    """A recipe's expected gradient and the exact one, both as ascent [S, A]; `variance` [S, A] is that of one batch."""

    expected: Tensor
    exact: Tensor
    variance: Tensor

    @property
    def bias(self) -> Tensor:
        """Returns expected - exact."""
        return self.expected - self.exact

    @property
    def cosine(self) -> float:
        """Returns the cosine between the two: 1 if only the length differs, nan if one is zero."""
        return float((self.expected * self.exact).sum() / (self.expected.norm() * self.exact.norm()))

    @property
    def scale(self) -> float:
        """Returns the length of the expected gradient along the exact one, relative to the exact one's."""
        return float((self.expected * self.exact).sum() / self.exact.square().sum())


# --------------------------------------------------------------------------------------------- exact gradients
def exact_table_gradient(episodes: AllEpisodes, logits_SA: Tensor) -> Tensor:
    """Returns d/d logits of J = mean over prompts of sum_y pi(y) R(y), [S, A]."""
    logits = logits_SA.detach().double().requires_grad_()
    value = (episodes.logp(logits).exp() * episodes.outcome).sum(1).mean()
    (slope,) = torch.autograd.grad(value, logits)
    return slope


def exact_bandit_gradient(logits_A: Tensor, reward_A: Tensor) -> Tensor:
    """Returns d/d logits of J = sum_a pi(a) r(a), which is pi(a) * (r(a) - J), [A]."""
    prob, reward = logits_A.detach().double().softmax(-1), reward_A.double()
    return prob * (reward - (prob * reward).sum())


# --------------------------------------------------------------------------------------------- expected gradients
def table_of(logits_SA: Tensor) -> Any:
    """Returns a float64 table policy with these logits."""
    actor: Any = Policy(Table()).build(spec_of(logits_SA)).double()
    with torch.no_grad():
        actor.body.table.copy_(logits_SA)
    return actor


def spec_of(logits_SA: Tensor) -> Spec:
    """Returns the task of a table: its states and actions, one decision long."""
    return Spec(Discrete(len(logits_SA)), Discrete(logits_SA.shape[1]), 1)


def table_witness(recipe: Recipe, logits_SA: Tensor, reference_SA: Tensor | None) -> Witness:
    """Returns the recipe with a table as its actor and, if it has a state-value critic, a table of zeros for it."""
    models: dict[str, nn.Module] = {}
    for name in recipe.critics:
        if name != "value":
            raise AssayError(f"recipe '{recipe.name}' has the critic '{name}'; only 'value' can be a table")
        models[name] = Critic(Table()).build(spec_of(logits_SA)).double()
    if reference_SA is not None:
        models["reference"] = table_of(reference_SA)
    return witness(recipe, table_of(logits_SA), models)


def draws(episodes: AllEpisodes, members: int) -> Iterator[Tensor]:
    """Yields every way to draw `members` episodes of each prompt, [P, N]."""
    num = episodes.num_prompts * members
    if members < 1 or episodes.num_episodes**num > MOST_DRAWS:
        size = f"{episodes.num_episodes} episodes ^ ({episodes.num_prompts} prompts x {members} members)"
        raise AssayError(f"{size} is outside 1 to {MOST_DRAWS} draws. Use fewer members, tokens or prompts")
    for choice in itertools.product(range(episodes.num_episodes), repeat=num):
        yield torch.tensor(choice).view(episodes.num_prompts, members)


def moments(
    recipe: Recipe,
    episodes: AllEpisodes,
    logits_SA: Tensor,
    members: int,
    behaviour_SA: Tensor | None = None,
    reference_SA: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns mean and variance [S, A] of the loss gradient over batches of `members` episodes of each prompt."""
    recipe = recipe.at_limit(episodes.mask.shape[-1]).at(Progress())
    logits = logits_SA.detach().double()
    behaviour = logits if behaviour_SA is None else behaviour_SA.detach().double()
    engine = table_witness(recipe, logits, reference_SA)
    engine.updates = 1  # the first update of a run also checks for leaks, a second backward pass per draw
    chance_PY = episodes.logp(behaviour).exp()
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    for choice_PN in draws(episodes, members):
        chance = chance_PY.gather(1, choice_PN).prod()
        slope = actor_gradient(engine, recipe, episodes.record(choice_PN, behaviour))["body.table"]
        first += chance * slope
        second += chance * slope.square()
    return first, second - first.square()


def expected_table_gradient(
    recipe: Recipe,
    episodes: AllEpisodes,
    logits_SA: Tensor,
    members: int = 1,
    *,
    behaviour_SA: Tensor | None = None,
    reference_SA: Tensor | None = None,
) -> Tensor:
    """Returns E[d loss / d logits], [S, A], over groups of `members` episodes of `behaviour_SA` (default: the
    policy).
    """
    return moments(recipe, episodes, logits_SA, members, behaviour_SA, reference_SA)[0]


def compare(
    recipe: Recipe,
    episodes: AllEpisodes,
    logits_SA: Tensor,
    members: int = 1,
    *,
    behaviour_SA: Tensor | None = None,
    reference_SA: Tensor | None = None,
    exact: Tensor | None = None,
) -> Bias:
    """Returns the recipe's expected gradient and the exact one, by default that of the expected reward."""
    logits = torch.atleast_2d(logits_SA)
    mean, variance = moments(recipe, episodes, logits, members, behaviour_SA, reference_SA)
    return Bias(-mean, exact_table_gradient(episodes, logits) if exact is None else exact, variance)


# --------------------------------------------------------------------------------------------- bandits
def bandit_grad(recipe: Recipe, logits_A: Tensor, arm: int, reward: float) -> Tensor:
    """Returns d loss / d logits, [A], for one pull of one arm: a group of one."""
    return bandit_gradient_of(recipe, bandit_experience([arm], [reward], logits_A), logits_A)


def bandit_gradient_of(recipe: Recipe, experience: Experience, logits_A: Tensor) -> Tensor:
    """Returns d loss / d logits, [A], on given pulls."""
    recipe, logits = recipe.at_limit(1).at(Progress()), logits_A.detach().double().unsqueeze(0)
    return actor_gradient(table_witness(recipe, logits, None), recipe, experience)["body.table"][0]


def expected_gradient(recipe: Recipe, logits_A: Tensor, reward_A: Tensor, members: int = 1) -> Tensor:
    """Returns E[d loss / d logits], [A], over all A^members groups of pulls."""
    return moments(recipe, bandit_episodes(reward_A), logits_A.unsqueeze(0), members)[0][0]


def gradient_variance(recipe: Recipe, logits_A: Tensor, reward_A: Tensor, members: int = 1) -> Tensor:
    """Returns the variance of d loss / d logits, [A], over all A^members groups of pulls; its sum is the total
    variance.
    """
    return moments(recipe, bandit_episodes(reward_A), logits_A.unsqueeze(0), members)[1][0]
