"""Base recipes that learn from a stream: one update per decision, nothing stored."""

from dataclasses import replace

from assay.method import CONTROL, Averaging, Linear, ObGD, Preset, Recipe, Stage, Traced
from assay.methods.stream_x.losses import FitMoments, TracePolicy, TraceQ, TraceValue
from assay.methods.stream_x.models import Scaled, Sparse
from assay.methods.stream_x.stream import OneByOne, Stream
from assay.models import Critic, Greedy, Policy
from assay.parts import EpsilonGreedy

DISCOUNT, TRACE = 0.99, 0.8


def bounded(kappa: float) -> Traced:
    """Returns the optimizer of an output: a trace, with steps bounded by `kappa`."""
    return Traced(ObGD(kappa=kappa), DISCOUNT * TRACE)


def stream_ac(preset: Preset = CONTROL) -> Recipe:
    """Stream AC(lambda) (arXiv:2410.14606): traces, bounded steps, sparse normalised networks, running scales.

    Two layers of 32 for discrete actions and of 128 for continuous ones, as the authors have them.
    """
    body = Scaled(Sparse((32, 32) if preset.discrete else (128, 128)))
    return Recipe(
        name="stream-x",
        actor=Policy(body),
        critics={"value": Critic(body)},
        rollout=Stream(steps=1, discount=DISCOUNT),
        source=OneByOne(),
        stages=(
            Stage("moments", trains=("actor", "value"), critic=(FitMoments(),), optimizer=Averaging()),
            Stage("policy", trains=("actor",), objective=(TracePolicy(),), optimizer=bounded(3.0)),
            Stage("value", trains=("value",), critic=(TraceValue(),), optimizer=bounded(2.0)),
        ),
        steps=15_000,
    )


def stream_q(preset: Preset = CONTROL) -> Recipe:
    """Stream Q(lambda) (arXiv:2410.14606): the same stabilisers around Watkins' traces, epsilon-greedy."""
    return replace(
        stream_ac(preset),
        name="stream-q",
        actor=Policy(Scaled(Sparse((32, 32))), Greedy()),
        critics={},
        rollout=Stream(steps=1, discount=DISCOUNT, explore=EpsilonGreedy(Linear(1.0, 0.01, share=0.2))),
        stages=(
            Stage("moments", trains=("actor",), critic=(FitMoments(("actor",)),), optimizer=Averaging()),
            Stage("values", trains=("actor",), critic=(TraceQ(),), optimizer=bounded(2.0)),
        ),
    )
