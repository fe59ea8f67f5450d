"""simba: sac with networks biased towards simple functions, so that larger ones help instead of overfitting.

    x = linear((s - mean) / deviation);  each block: x = x + linear(relu(linear(norm(x))));  out = linear(norm(x))
    target and losses of critics, actor and temperature are those of sac

Lee et al. 2025. Mean and deviation run over all observations met; the residual path keeps what is linear linear, the
last norm bounds the features. Critics are wider than the actor: here lies what more parameters buy.
"""

from dataclasses import replace

from assay.method import CONTINUOUS, Method, Preset, Recipe, sac
from assay.models import ActionValue, Critic, Policy, Residual, SquashedGaussian, Standardised
from assay.parts import Standardising


def recipe(preset: Preset = CONTINUOUS, actor_width: int = 64, critic_width: int = 128) -> Recipe:
    """Returns sac with residual networks on standardised observations: one block for the actor, two for critics."""
    base, step = sac(preset), replace(preset.off_policy.optimizer, learning_rate=1e-4, weight_decay=1e-2)
    q = Critic(Standardised(Residual(critic_width, 2)), ActionValue())
    return replace(
        base,
        name="simba",
        actor=Policy(Standardised(Residual(actor_width, 1)), SquashedGaussian()),
        critics={**base.critics, "q": q},
        rollout=Standardising(preset.off_policy.rollout, ("actor", "q", "q_target")),
        stages=tuple(replace(stage, optimizer=step) for stage in base.stages),
    )


METHOD = Method(
    paper="arXiv:2410.09754",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    base=sac,
    departures=(
        "two critics on every task and one update for each decision (two updates; one critic on some suites)",
        "widths of 64 and 128, blocks of about sac's size; the claim on HalfCheetah has the paper's, 128 and 512",
        "target entropy of sac, -1 for each dimension (-1/2)",
        "moments are fixed during a step, and observations clipped to +-10 deviations",
    ),
)
