"""Off-policy base recipes for control: replay buffer, target networks, one or several stages per update."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe, Stage
from assay.core.schedules import Linear
from assay.core.slots import Body, Rollout
from assay.models.bodies.perceptron import Vectors
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy, Temperature
from assay.parts.critics.td import Td
from assay.parts.objectives.pathwise import MatchEntropy, MaximizeQ, MaximizeSoftQ
from assay.parts.predictions import OfChoice
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.explore import EpsilonGreedy, GaussianNoise
from assay.parts.targets.one_step import DoubleQ, SmoothedTwin, SoftTwin
from assay.recipes.presets import CONTINUOUS, CONTROL, Preset
from assay.recipes.replay_settings import OffPolicy


def dqn(preset: Preset = CONTROL) -> Recipe:
    """Double DQN (arXiv:1509.06461): epsilon-greedy, replay buffer, a target network copied now and then."""
    settings = preset.choices
    loss = Td(DoubleQ(0.99), settings.fit, OfChoice())
    return Recipe(
        name="dqn",
        actor=Policy(preset.off_policy.body, Greedy()),
        copies={"target": Copy(of="actor", rate=1.0, every=settings.copy_every)},
        rollout=replace(settings.rollout, explore=EpsilonGreedy(settings.epsilon)),
        source=settings.replay,
        stages=(Stage("values", trains=("actor",), critic=(loss,), optimizer=settings.optimizer),),
        steps=settings.steps,
    )


def td3(preset: Preset = CONTINUOUS) -> Recipe:
    """TD3 (arXiv:1802.09477): twin critics, smoothed targets, the actor every second update.

    Exploration noise decays from the whole half-range to a tenth of it; the paper starts with random actions instead.
    """
    settings, step = preset.off_policy, preset.off_policy.optimizer
    noisy = replace(settings.rollout, explore=GaussianNoise(Linear(1.0, 0.1, share=settings.noise_share)))
    body, rollout = seen(settings, noisy, ("actor", "q", "q_target", "actor_target"))
    return Recipe(
        name="td3",
        actor=Policy(body, Deterministic()),
        critics={"q": Critic(body, ActionValue())},
        copies={"q_target": Copy(of="q", rate=0.005, every=2), "actor_target": Copy(of="actor", rate=0.005, every=2)},
        rollout=rollout,
        source=settings.replay,
        stages=(
            Stage("critic", trains=("q",), critic=(Td(SmoothedTwin(0.99)),), optimizer=step),
            Stage("actor", trains=("actor",), objective=(MaximizeQ(),), optimizer=step, every=2),
        ),
        steps=settings.steps,
    )


def sac(preset: Preset = CONTINUOUS) -> Recipe:
    """SAC (arXiv:1812.05905): soft twin critics, a squashed Gaussian, a temperature tuned to a target entropy."""
    settings, step = preset.off_policy, preset.off_policy.optimizer
    body, rollout = seen(settings, settings.rollout, ("actor", "q", "q_target"))
    return Recipe(
        name="sac",
        actor=Policy(body, SquashedGaussian()),
        critics={"q": Critic(body, ActionValue()), "temperature": Temperature(1.0)},
        copies={"q_target": Copy(of="q", rate=0.005)},
        rollout=rollout,
        source=settings.replay,
        stages=(
            Stage("critic", trains=("q",), critic=(Td(SoftTwin(0.99)),), optimizer=step),
            Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(), MatchEntropy(-1.0)), optimizer=step),
        ),
        steps=settings.steps,
    )


def seen(settings: OffPolicy, rollout: Fragments, models: tuple[str, ...]) -> tuple[Body, Rollout]:
    """Returns body and rollout, with observations standardised in these models if the settings say so."""
    if not settings.standardised:
        return settings.body, rollout
    from assay.models.bodies.standardised import Standardised  # here: most runs have no use for it
    from assay.parts.rollouts.standardised import Standardising

    assert isinstance(settings.body, Vectors)
    return Standardised(settings.body), Standardising(rollout, models)
