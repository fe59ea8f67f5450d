"""Bases that learn from a stream: one decision, one update, nothing stored."""

from __future__ import annotations

from assay.actors.mlp import Mlp
from assay.actors.streaming import Normalized, SparseQ
from assay.critics.streaming import FitMoments, NormalizedValue, TraceQ, TraceValue
from assay.critics.value import StateValue
from assay.objectives.streaming import TracePolicy
from assay.optimizers import Adam, Averaging, ObGD, Traced
from assay.recipe import Recipe, Stage
from assay.rollouts.episodes import Fragments
from assay.rollouts.explore import EpsilonGreedy
from assay.rollouts.stream import Stream
from assay.schedules import Linear
from assay.sources.stream import OneByOne
from assay.worlds import CONTROL, World

DISCOUNT, TRACE = 0.99, 0.8


def stream_ac(world: World = CONTROL) -> Recipe:
    """Stream AC(lambda) (arXiv:2410.14606): traces, bounded steps, sparse normalised networks, running scales."""
    decay = DISCOUNT * TRACE
    return Recipe(
        name="stream-x",
        actor=Normalized(),
        critics={"value": NormalizedValue()},
        rollout=Stream(steps=1, discount=DISCOUNT),
        source=OneByOne(),
        stages=(
            Stage("moments", trains=("actor", "value"), critic=(FitMoments(),), optimizer=Averaging()),
            Stage("policy", trains=("actor",), objective=(TracePolicy(),), optimizer=Traced(ObGD(kappa=3.0), decay)),
            Stage("value", trains=("value",), critic=(TraceValue(),), optimizer=Traced(ObGD(kappa=2.0), decay)),
        ),
        steps=15_000,
    )


def stream_q(world: World = CONTROL) -> Recipe:
    """Stream Q(lambda) (arXiv:2410.14606): the same frame around Watkins' traces, epsilon-greedy."""
    return Recipe(
        name="stream-q",
        actor=Normalized(SparseQ()),
        rollout=Stream(steps=1, discount=DISCOUNT, explore=EpsilonGreedy(Linear(1.0, 0.01, share=0.2))),
        source=OneByOne(),
        stages=(
            Stage("moments", trains=("actor",), critic=(FitMoments(("actor",)),), optimizer=Averaging()),
            Stage("values", trains=("actor",), critic=(TraceQ(),), optimizer=Traced(ObGD(kappa=2.0), DISCOUNT * TRACE)),
        ),
        steps=15_000,
    )


def plain_ac(learning_rate: float = 1e-3) -> Recipe:
    """AC(lambda) from the same stream without the stabilisers: dense networks, raw inputs and rewards, Adam."""
    optimizer = Traced(Adam(learning_rate, clip_norm=0.0), DISCOUNT * TRACE)
    return Recipe(
        name="plain-ac",
        actor=Mlp((32, 32)),
        critics={"value": StateValue((32, 32))},
        rollout=Fragments(instances=1, steps=1),
        source=OneByOne(),
        stages=(
            Stage("policy", trains=("actor",), objective=(TracePolicy(),), optimizer=optimizer),
            Stage("value", trains=("value",), critic=(TraceValue(),), optimizer=optimizer),
        ),
        steps=15_000,
    )
