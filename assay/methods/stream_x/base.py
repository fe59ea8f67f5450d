"""Base recipes that learn from a stream: one update per decision, nothing stored."""

from __future__ import annotations

from assay.core.optimizers import Adam, Averaging, ObGD, Traced
from assay.core.recipe import Recipe, Stage
from assay.core.schedules import Linear
from assay.methods.stream_x.losses import FitMoments, TracePolicy, TraceQ, TraceValue
from assay.methods.stream_x.models import Scaled
from assay.methods.stream_x.stream import OneByOne, Stream
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import Greedy
from assay.models.model import Critic, Policy
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.explore import EpsilonGreedy
from assay.recipes.defaults import CONTROL, Defaults

DISCOUNT, TRACE = 0.99, 0.8


def stream_ac(world: Defaults = CONTROL) -> Recipe:
    """Stream AC(lambda) (arXiv:2410.14606): traces, bounded steps, sparse normalised networks, running scales."""
    decay = DISCOUNT * TRACE
    return Recipe(
        name="stream-x",
        actor=Policy(Scaled()),
        critics={"value": Critic(Scaled())},
        rollout=Stream(steps=1, discount=DISCOUNT),
        source=OneByOne(),
        stages=(
            Stage("moments", trains=("actor", "value"), critic=(FitMoments(),), optimizer=Averaging()),
            Stage("policy", trains=("actor",), objective=(TracePolicy(),), optimizer=Traced(ObGD(kappa=3.0), decay)),
            Stage("value", trains=("value",), critic=(TraceValue(),), optimizer=Traced(ObGD(kappa=2.0), decay)),
        ),
        steps=15_000,
    )


def stream_q(world: Defaults = CONTROL) -> Recipe:
    """Stream Q(lambda) (arXiv:2410.14606): the same stabilisers around Watkins' traces, epsilon-greedy."""
    return Recipe(
        name="stream-q",
        actor=Policy(Scaled(), Greedy()),
        rollout=Stream(steps=1, discount=DISCOUNT, explore=EpsilonGreedy(Linear(1.0, 0.01, share=0.2))),
        source=OneByOne(),
        stages=(
            Stage("moments", trains=("actor",), critic=(FitMoments(("actor",)),), optimizer=Averaging()),
            Stage("values", trains=("actor",), critic=(TraceQ(),), optimizer=Traced(ObGD(kappa=2.0), DISCOUNT * TRACE)),
        ),
        steps=15_000,
    )


def plain_ac(learning_rate: float = 1e-3) -> Recipe:
    """AC(lambda) on the same stream without the stabilisers: dense networks, raw inputs and rewards, Adam."""
    optimizer = Traced(Adam(learning_rate, clip_norm=0.0), DISCOUNT * TRACE)
    return Recipe(
        name="plain-ac",
        actor=Policy(Perceptron((32, 32))),
        critics={"value": Critic(Perceptron((32, 32)))},
        rollout=Fragments(num_envs=1, steps=1),
        source=OneByOne(),
        stages=(
            Stage("policy", trains=("actor",), objective=(TracePolicy(),), optimizer=optimizer),
            Stage("value", trains=("value",), critic=(TraceValue(),), optimizer=optimizer),
        ),
        steps=15_000,
    )
