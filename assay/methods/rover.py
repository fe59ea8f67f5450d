"""rover: fits the log-ratio to the values of the uniform policy, without policy improvement.

    Q(s, a) = temperature * log(pi / pi_old)(a|s)
    loss = mean_t (Q(s_t, a_t) - A - mean over all tokens a of Q(s_(t+1), a))^2 / 2,   no gradient in the mean

He et al. 2025. In a deterministic tree with outcomes 0 or 1, acting greedily on the uniform policy's values is
optimal: evaluating it is enough, and sampling from their softmax keeps all paths to a correct answer. With graded
outcomes it is not: of leaves (.6, .6 | 1, 0) it takes the first pair.

Axes: B sequences, T decisions, V actions.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CONTROL, LANGUAGE, TABLE, Aggregation, Annotation, AssayError, Experience, Loss, Method, Need
from assay.method import Objective, Over, Preset, Recipe, View, recipes, with_policy
from assay.parts import FreshSequences, TokenMean, Weighed


@dataclass(frozen=True)
class UniformLogp(Annotation):
    """The column `uniform_logp_old`: mean over all actions of the acting policy's log-probabilities."""

    column: str = "uniform_logp_old"
    means: ClassVar[str] = "BT: mean log-probability over all actions under the acting policy"
    model: str = "actor"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column [B, T]."""

        def mean(actor: Any, rows: Experience) -> Tensor:
            return needed(actor.score(rows, frozenset({Need.LOGP, Need.UNIFORM})).uniform)

        return over(experience, mean)


def needed(uniform: Tensor | None) -> Tensor:
    """Returns the mean log-probability; AssayError if the policy has none."""
    if uniform is None:
        raise AssayError(
            "values of the uniform policy need an actor with discrete actions. Use Policy() on a discrete task"
        )
    return uniform


@dataclass(frozen=True)
class UniformValue(Weighed, Objective):
    """Fits Q(s, a) = temperature * log(pi / pi_old)(a|s) to the uniform policy's Bellman equation.

        loss_t = (Q(s_t, a_t) - y_t)^2 / 2,   y_t = A_t + next_scale * mean over all a of Q(s_(t+1), a), no gradient

    ROVER (arXiv:2509.24981). `advantage` is the centred reward, on every decision. The next term is 0 at an episode's
    end, where the next column is not a decision. At ratio one the gradient is temperature * REINFORCE's; next_scale 0
    regresses the log-ratio on the centred reward alone.
    """

    temperature: float = 1.0
    next_scale: float = 1.0
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.LOGP, Need.UNIFORM, UniformLogp()})
    first_order: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {
        "zero_credit": "a regression: without credit it pulls the ratio to the next value"
    }
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns half the squared Bellman error of each decision, weighted."""
        mask = batch.mask
        moved = torch.where(mask, view.scored.logp - batch.logp.detach(), 0.0)
        target = batch.column("advantage").detach() + self.next_scale * self.next_value(batch, view)
        error = torch.where(mask, self.temperature * moved - target, 0.0)
        loss = 0.5 * error.square() * self.aggregate.weigh(batch)
        metrics = {"bellman_error": (error.detach().square().sum(), batch.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)

    @torch.no_grad()
    def next_value(self, batch: Experience, view: View) -> Tensor:
        """Returns the uniform policy's value after each decision, [B, T]; 0 at an episode's end."""
        value = self.temperature * (needed(view.scored.uniform) - batch.column("uniform_logp_old"))
        goes_on = batch.mask[:, 1:] & ~(batch.terminal | batch.truncated)[:, :-1]
        return torch.nn.functional.pad(torch.where(goes_on, value[:, 1:], 0.0), (0, 1))


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo with a regression on values of the uniform policy, in four minibatches."""
    base = replace(recipes.grpo(preset), source=FreshSequences(minibatches=4))
    return with_policy(base, "rover", UniformValue())


METHOD = Method(
    paper="arXiv:2509.24981",
    recipe=recipe,
    presets=(LANGUAGE, CONTROL, TABLE),
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "half the squared error",
        "rewards are divided by the group's deviation, as in the released script",
        "four updates a batch, as in the released script; with one it is grpo without a clip",
    ),
    results=(
        "undecided after 10 seeds: 0.678 and grpo 0.683 after as many updates, effects beyond 0.036 excluded; "
        "at an equal pass rate within 64 tries +0.015 [-0.025, +0.099], though right answers are spread more evenly",
    ),
)
