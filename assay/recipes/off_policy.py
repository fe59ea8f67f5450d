"""Off-policy base recipes for control: replay buffer, target networks, one or several stages per update."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.schedules import Linear
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy, Temperature
from assay.parts.critics.td import Td
from assay.parts.objectives.pathwise import MatchEntropy, MaximizeQ, MaximizeSoftQ
from assay.parts.predictions import OfChoice
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.explore import EpsilonGreedy, GaussianNoise
from assay.parts.sources.replay import Replay
from assay.parts.targets.one_step import DoubleQ, SmoothedTwin, SoftTwin
from assay.recipes.presets import CONTINUOUS, CONTROL, Preset


def dqn(preset: Preset = CONTROL) -> Recipe:
    """Double DQN (arXiv:1509.06461): epsilon-greedy, replay buffer, a target network copied every 128 updates.

    Sizes are those commonly tuned for CartPole, with a decaying step size.
    """
    optimizer = Adam(Linear(2.3e-3, 0.0), clip_norm=10.0)
    return Recipe(
        name="dqn",
        actor=Policy(preset.off_policy.body, Greedy()),
        copies={"target": Copy(of="actor", rate=1.0, every=128)},
        rollout=Fragments(num_envs=8, steps=32, explore=EpsilonGreedy(Linear(1.0, 0.04, share=0.16))),
        source=Replay(capacity=100_000, batch=64, updates=128, warmup=1_000),
        stages=(Stage("values", trains=("actor",), critic=(Td(DoubleQ(0.99), of=OfChoice()),), optimizer=optimizer),),
        steps=200,
    )


def td3(preset: Preset = CONTINUOUS) -> Recipe:
    """TD3 (arXiv:1802.09477): twin critics, smoothed targets, the actor every second update.

    Exploration noise decays from the whole half-range to a tenth of it; the paper starts with random actions instead.
    """
    settings, step = preset.off_policy, preset.off_policy.optimizer
    return Recipe(
        name="td3",
        actor=Policy(settings.body, Deterministic()),
        critics={"q": Critic(settings.body, ActionValue())},
        copies={"q_target": Copy(of="q", rate=0.005, every=2), "actor_target": Copy(of="actor", rate=0.005, every=2)},
        rollout=replace(settings.rollout, explore=GaussianNoise(Linear(1.0, 0.1, share=settings.noise_share))),
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
    return Recipe(
        name="sac",
        actor=Policy(settings.body, SquashedGaussian()),
        critics={"q": Critic(settings.body, ActionValue()), "temperature": Temperature(1.0)},
        copies={"q_target": Copy(of="q", rate=0.005)},
        rollout=settings.rollout,
        source=settings.replay,
        stages=(
            Stage("critic", trains=("q",), critic=(Td(SoftTwin(0.99)),), optimizer=step),
            Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(), MatchEntropy(-1.0)), optimizer=step),
        ),
        steps=settings.steps,
    )
