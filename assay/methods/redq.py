"""redq: sac with ten critics, targets by the minimum of a random pair of them, and twenty updates for each decision.

    y = r + discount * (1 - terminal) * (min_{i in K} Q'_i(s', a') - temperature * log pi(a'|s')),   |K| = 2 of 10
    actor, once in twenty updates: temperature * log pi(a|s) - mean_i Q_i(s, a)

Chen et al. 2021. Twenty updates of two critics diverge by overestimation; the size of the ensemble lowers the variance
of the target, the size of the subset its bias.

Axes: B sequences, T decisions, N critics.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Experience, Method, Preset, Recipe, Target, View, model_name, sac
from assay.models import ActionValue, Critic
from assay.parts import MatchEntropy, MaximizeSoftQ, Td, one_step_target, sampled_next


@dataclass(frozen=True)
class SoftSubset(Target):
    """y = r + discount * (min over `subset` distinct critics of Q'(s', a') - temperature * log pi(a'|s')), a' ~ pi.

    The critics are drawn for each decision. Degenerate: a subset of all critics is SAC's target.
    """

    discount: float = 0.99
    subset: int = 2
    actor: str = model_name("actor")
    q: str = model_name("q_target")
    temperature: str = model_name("temperature")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns the targets; raises AssayError for a subset larger than the ensemble."""
        action, logp = sampled_next(batch, view, self.actor)
        values = view.model(self.q)(batch.after.context, action)
        if not 1 <= self.subset <= len(values):
            what = f"SoftSubset.subset is {self.subset}, of {len(values)} critics"
            raise AssayError(f"{what}. Use 1 to {len(values)}: --set subset=2")
        order = view.uniform((*batch.now.mask.shape, len(values)), tag=3).argsort(-1).movedim(-1, 0)
        lowest = values.gather(0, order[: self.subset]).amin(0)
        return one_step_target(batch.now, lowest - view.model(self.temperature)() * logp, self.discount)


def recipe(preset: Preset = CONTINUOUS, critics: int = 10, subset: int = 2, ratio: int = 20) -> Recipe:
    """Returns sac with `critics` critics and `ratio` updates where sac has one; the actor moves as often as sac's."""
    base, replay = sac(preset), preset.off_policy.replay
    critic, actor = base.stages
    critic = replace(critic, critic=(Td(SoftSubset(subset=subset)),))
    actor = replace(actor, objective=(MaximizeSoftQ(averaged=True), MatchEntropy(-1.0)), every=ratio)
    q = Critic(base.critics["q"].body, ActionValue(critics))  # type: ignore[attr-defined]
    source = replace(replay, updates=ratio * replay.updates)
    return replace(base, name="redq", critics={**base.critics, "q": q}, source=source, stages=(critic, actor))


METHOD = Method(
    paper="arXiv:2101.05982",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    base=sac,
    departures=(
        "the pair is drawn for each decision, not once for a minibatch: the same target in expectation",
        "sac's numbers of each preset: warm-up (5,000 random decisions in the paper), rate, steps",
    ),
)
