"""mdpo: several gradient steps on the surrogate with a KL to the acting policy, instead of a clip or constraint.

    loss = mean_t [ -rho_t A_t + KL(pi || pi_old) / step ],   step = 1 - k/K at iteration k of K

Tomar et al. 2020. Mirror descent in policy space: the exact solution of each iteration is pi_old exp(step A) / Z.
trpo makes the KL a constraint, ppo a clip; with a uniform policy in place of pi_old the solution is sac's.

Axes: B, T decisions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, Copy, Experience, Linear, Loss, Method, Objective, Preset, Recipe
from assay.method import Schedule, TrustRegion, View, model_name, number, recipes
from assay.parts import LARGEST_LOG_RATIO, OverTransitions, OwnAction, PolicyGradient, Td


@dataclass(frozen=True)
class MirrorDescent(TrustRegion):
    """-A * ratio + (ratio * log ratio - ratio + 1) / step_size: MDPO, on-policy (arXiv:2005.09814).

    The second term, averaged over the behaviour policy, is KL(pi || pi_old), with the KL's gradient: an estimate from
    the recorded decisions alone, not negative and 0 at ratio 1, for discrete and continuous actions. The averaged
    loss is smallest at pi_old * exp(step_size * A) / Z. Nothing is clipped. Degenerate: at ratio 1 it is REINFORCE.
    """

    step_size: float | Schedule = 1.0
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "without credit it pulls towards the behaviour policy"}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, whether the ratio was bounded to stay finite)."""
        bounded = log_ratio.clamp(max=LARGEST_LOG_RATIO)
        ratio = bounded.exp()
        proximity = ratio * bounded - ratio + 1.0
        return -advantage * ratio + proximity / number(self.step_size), log_ratio > LARGEST_LOG_RATIO


@dataclass(frozen=True)
class MirrorDescentQ(OverTransitions, Objective):
    """loss = KL(pi || pi_old) / step_size - min_i Q_i(s, a), a reparameterised: MDPO, off-policy (arXiv:2005.09814).

    At states of the replay; pi_old is the copy `old`, which gets no gradient. The loss is smallest at pi_old
    exp(step_size Q) / Z. Assumes squashed Gaussians, whose KL is that of the Gaussians before the squashing: sum over
    dimensions of log(std_old / std) + (std^2 + (mean - mean_old)^2) / (2 std_old^2) - 1/2.
    """

    step_size: float | Schedule = 1.0
    actor: str = model_name("actor")
    q: str = model_name("q")
    old: str = model_name("old")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the KL to the old policy minus the value of the actor's own action."""
        now, (action, _) = batch.now, view.sampled
        mean, log_std = view.model(self.actor).parameters_of(now.context)
        with torch.no_grad():
            mean_old, log_std_old = view.model(self.old).parameters_of(now.context)
        apart, ratio = (mean - mean_old) / log_std_old.exp(), log_std - log_std_old
        kl = ((2.0 * ratio).exp() / 2 + apart.square() / 2 - ratio - 0.5).sum(-1)
        value = view.model(self.q)(now.context, action).amin(0)
        loss = (kl / number(self.step_size) - value) * now.weight
        metrics = {"kl_old": ((kl.detach() * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


def off_policy(preset: Preset = CONTINUOUS, step_size: float = 1.0, every: int = 100) -> Recipe:
    """Returns off-policy MDPO: `every` updates towards pi_old exp(step_size Q) / Z, then pi_old is the policy.

    Targets have no entropy: r + discount * min_i Q'_i(s', a'), a' of the policy. For continuous actions.
    """
    base = recipes.sac(preset)
    critic = replace(base.stages[0], critic=(Td(OwnAction(0.99)),))
    actor = replace(base.stages[1], trains=("actor",), objective=(MirrorDescentQ(step_size),))
    copies = {**base.copies, "old": Copy("actor", rate=1.0, every=every)}
    return replace(base, name="mdpo", critics={"q": base.critics["q"]}, copies=copies, stages=(critic, actor))


def recipe(preset: Preset = CONTROL, step_size: float | Linear = Linear(1.0, 0.0)) -> Recipe:
    """Returns ppo with a KL to the acting policy in place of the clip, and without an entropy bonus."""
    base = recipes.ppo(preset)
    objective = PolicyGradient(trust=MirrorDescent(step_size))
    policy = replace(base.stages[0], objective=(objective,), regularizers=())
    return replace(base, name="mdpo", stages=(policy, *base.stages[1:]))


METHOD = Method(
    paper="arXiv:2005.09814",
    recipe=recipe,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    variants={"off-policy": off_policy},
    departures=(
        "the KL is estimated from the recorded decisions, without bias; the authors' is in closed form",
        "minibatches, epochs and the value network's steps are ppo's here; the authors take m full-batch steps",
        "mdpo:off-policy has sac's twin critics in place of the authors' value network, and a constant step size of 1",
    ),
)
