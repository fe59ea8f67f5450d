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

Base = TypeVar("Base", bound=Any)
BODY = Standardised(Perceptron((256, 128, 64), nn.ELU))


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
    )
