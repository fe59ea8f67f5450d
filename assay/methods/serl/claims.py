"""What serl's parts compute, against numbers worked out by hand. Axes: B rows, T columns, N critics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin, State
from assay.core.slots import Scene
from assay.tasks.control.peg import peg

TASK = peg()


@dataclass(frozen=True)
class Given:
    """Models of known output: critics 0, 1, ..., 9, an actor with log-probability 3, a classifier that reads its logit
    from the observation.
    """

    uniforms: Tensor
    temperature: float = 1.0
    num_draws: int = 1

    def model(self, name: str) -> Any:
        """By name."""
        critics = torch.arange(10.0).double()
        named: dict[str, Callable[..., Any]] = {
            "q": lambda context, action: critics.view(10, 1, 1).expand(10, *action.shape[:2]),
            "temperature": lambda: torch.tensor(self.temperature),
            "success": lambda context: context["observation"][..., 0],
        }
        named["q_target"] = named["q"]
        return self if name == "actor" else named[name]

    def over(self, name: str, rows: Experience, function: Callable[[Any, Experience], Tensor]) -> Tensor:
        """All rows at once."""
        return function(self.model(name), rows)

    def sample(self, context: Any, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Action 0, log-probability 3."""
        seen = context["observation"]
        return torch.zeros_like(seen), torch.full(seen.shape[:-1], 3.0)

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """The actor's own action and its log-probability in the first column."""
        return self.sample({"observation": torch.zeros(len(self.uniforms), 1, 2)}, self.uniforms)

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """The given numbers where critics are drawn."""
        return self.uniforms.view(*shape) if tag == 3 else torch.full(tuple(shape), 0.5)


def transitions(after: Sequence[float], *, reward: float = 0.0, ends: bool = False) -> Experience:
    """One transition for each first number of the observation after it."""
    num = len(after)
    seen = torch.zeros(num, 2, 2, dtype=torch.float64)
    seen[:, 1, 0] = torch.tensor(after, dtype=torch.float64)
    first = torch.tensor([[True, False]]).expand(num, 2)
    paid = reward * first.double()
    return Experience({"observation": seen}, torch.zeros(num, 2, 2), first, 0 * paid, paid, first & ends, first & False)


def targets(recipe: Recipe, temperature: float = 1.0, ends: bool = False) -> Tensor:
    """The critic's targets [100] over all pairs of critics, reward 1 / 2."""
    middle = (torch.arange(10) + 0.5) / 10
    term: Any = next(stage for stage in recipe.stages if stage.name == "critic").critic[0]
    view = Given(torch.cartesian_prod(middle, middle), temperature)
    return term.target(transitions([0.0] * 100, reward=0.5, ends=ends), view).flatten()


def actor_loss(recipe: Recipe) -> Tensor:
    """The first loss of the actor, of critics 0 to 9, log-probability 3 and temperature 1, for one decision."""
    stage = next(stage for stage in recipe.stages if stage.name == "actor")
    found = stage.objective[0](transitions([0.0]), Given(torch.zeros(1, 1)))  # type: ignore[arg-type]
    return found.sum / found.count


def paid(recipe: Recipe, after: Sequence[float], reward: float = 0.0) -> Tensor:
    """What the recipe's last reward gives for these logits of the states after."""
    rows = transitions(after, reward=reward)
    return recipe.rewards[-1](rows, Scene(models=Given(torch.zeros(1)))).reward.sum(1)


def drawn(recipe: Recipe, classifier_moves: float = 0.0) -> list[Experience]:
    """The batches of one step with 10,000 stored transitions; the first classifier finds all of them a success, later
    ones are moved by so much at each batch.
    """
    logit = [1.0]

    @dataclass(frozen=True)
    class Moving(Given):
        def model(self, name: str) -> Any:
            """A classifier that ignores what it sees."""
            return lambda context: torch.full(context["observation"].shape[:-1], logit[0])

    fresh = transitions([5.0] * 10_000)
    scene = Scene(TASK, Moving(torch.zeros(1)), Draw(0, (1,)), fresh=fresh)
    state: State = recipe.source.init(scene)
    found = []
    for batch in recipe.source(scene, state):
        found.append(batch)
        logit[0] += classifier_moves
    return found


def rows_of_demonstrations(recipe: Recipe) -> float:
    """The smallest and the largest share of demonstrations in a batch, added."""
    shares = [
        float((batch.source == int(Origin.DATASET)).float().mean())
        for batch in drawn(recipe)
        if batch.source is not None
    ]
    return min(shares) + max(shares)


def slope(recipe: Recipe, logit: float, is_demonstrated: bool, ends: bool) -> Tensor:
    """Gradient of the classifier's losses by the logit of one state."""
    stage = next(stage for stage in recipe.stages if stage.name == "success")
    rows = transitions([logit], ends=ends)
    seen = rows.context["observation"].requires_grad_()
    origin = Origin.DATASET if is_demonstrated else Origin.POLICY
    rows = replace(rows, source=torch.tensor([int(origin)]))
    total = torch.stack([term(rows, Given(torch.zeros(1))).sum for term in stage.critic]).sum()  # type: ignore[arg-type]
    return torch.autograd.grad(total, seen)[0].sum()
