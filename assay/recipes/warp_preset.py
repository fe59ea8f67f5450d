"""Defaults for simulations of thousands of worlds on a GPU (tasks warp:NAME).

Apart from `presets`, which every command reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from assay.core.optimizers import Adam
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.standardised import Standardised
from assay.models.model import Critic, Policy
from assay.parts.credit.temporal import Gae
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.standardised import Standardising
from assay.parts.sources.fresh import FreshDecisions
from assay.parts.sources.replay import Replay
from assay.recipes.replay_settings import OffPolicy

Base = TypeVar("Base", bound=Any)
BODY = Standardised(Perceptron((256, 128, 64), nn.ELU))
REPLAYED = OffPolicy(
    body=Perceptron((512, 256)),
    optimizer=Adam(learning_rate=3e-4, clip_norm=0.0),
    rollout=Fragments(num_envs=1_024, steps=4),
    replay=Replay(capacity=1_048_576, batch=4_096, updates=32, warmup=16_384),
    noise_share=0.1,
    steps=5_000,
    standardised=True,
)
"""20 million decisions of 1,024 worlds; after every fourth decision of each world 32 updates of 4,096 transitions, so
that a transition is drawn 32 times on average."""


def with_worlds(base: Base) -> Base:
    """Returns a preset of continuous control for thousands of worlds.

    65 million decisions in batches of 131,072: 4,096 worlds times 32 decisions, 4 epochs of 4 minibatches, observations
    standardised and rewards scaled by running moments, three layers with ELU as the usual libraries for robots on GPUs
    have. A rate of 1e-3 goes with minibatches of 32,768.
    """
    return replace(
        base,
        suite="warp",
        actor=Policy(BODY),
        value=Critic(BODY),
        fragment_rollout=Standardising(Fragments(num_envs=4_096, steps=32), ("actor", "value"), reward=True),
        short_rollout=Standardising(Fragments(num_envs=4_096, steps=8), ("actor", "value"), reward=True),
        minibatch_source=FreshDecisions(epochs=4, minibatches=4),
        gae=Gae(discount=0.99, gae_lambda=0.95),
        optimizer=Adam(learning_rate=1e-3, epsilon=1e-5, clip_norm=1.0),
        steps=500,
        more_steps=4,
        off_policy=REPLAYED,
    )
