"""Defaults of methods that draw batches: from a replay buffer, or from an offline dataset."""

from __future__ import annotations

from dataclasses import dataclass

from assay.core.optimizers import Adam
from assay.core.schedules import Linear
from assay.core.slots import Body, Regression
from assay.models.bodies.perceptron import Perceptron
from assay.parts.fits.squared import Huber, Squared
from assay.parts.rollouts.episodes import Fragments
from assay.parts.sources.logged import Log
from assay.parts.sources.replay import Replay


@dataclass(frozen=True)
class OffPolicy:
    """Defaults of methods with a replay buffer: networks, optimizer, decisions and updates per step, budget."""

    body: Body = Perceptron((256, 256))
    optimizer: Adam = Adam(learning_rate=1e-3, clip_norm=0.0)
    rollout: Fragments = Fragments(num_envs=1, steps=8)
    replay: Replay = Replay(capacity=1_000_000, batch=256, updates=8, warmup=1_000)
    noise_share: float = 0.2
    """Share of the run over which exploration noise falls to its final level."""
    steps: int = 1_000
    standardised: bool = False
    """Whether networks see observations in units of their running deviation."""


@dataclass(frozen=True)
class ValuesOfChoices:
    """Defaults of methods that learn the values of discrete actions from a replay buffer; the first are those commonly
    tuned for CartPole, with a decaying step size.
    """

    optimizer: Adam = Adam(Linear(2.3e-3, 0.0), clip_norm=10.0)
    rollout: Fragments = Fragments(num_envs=8, steps=32)
    replay: Replay = Replay(capacity=100_000, batch=64, updates=128, warmup=1_000)
    epsilon: Linear = Linear(1.0, 0.04, share=0.16)
    copy_every: int = 128
    """Updates between two copies into the target network."""
    fit: Regression = Squared()
    steps: int = 200


FROM_IMAGES = ValuesOfChoices(
    optimizer=Adam(1e-4, clip_norm=10.0),
    rollout=Fragments(num_envs=8, steps=32),
    replay=Replay(capacity=100_000, batch=32, updates=64, warmup=10_000),
    epsilon=Linear(1.0, 0.01, share=0.1),
    copy_every=1_000,
    fit=Huber(),
    steps=3_907,
)
"""A million decisions on images, an update for every four: Adam 1e-4, batches of 32, errors clipped at 1, a copy every
1,000 updates, epsilon to 0.01 in the first tenth: the usual settings for Atari (Mnih et al., Nature 2015, with Adam).
The buffer is a tenth of theirs: 100,000 transitions of 4 x 84 x 84 bytes, with both observations, are 5.6 GB."""

GENERAL_CHOICES = ValuesOfChoices(
    optimizer=Adam(1e-4, clip_norm=10.0),
    rollout=Fragments(num_envs=8, steps=32),
    replay=Replay(capacity=1_000_000, batch=32, updates=64, warmup=256),
    epsilon=Linear(1.0, 0.05, share=0.1),
    copy_every=2_500,
    fit=Huber(),
    steps=1_954,
)
"""Half a million decisions with the defaults of stable-baselines3 2.9: Adam 1e-4, batches of 32, an update for every
four decisions, a copy every 10,000 decisions, epsilon to 0.05 in the first tenth, Huber's loss, gradients clipped at
10. Updates begin after 256 decisions (100)."""


@dataclass(frozen=True)
class Offline:
    """Defaults of methods that learn from an offline dataset: networks, optimizer, batches, budget, the dataset."""

    body: Body = Perceptron()
    optimizer: Adam = Adam(learning_rate=1e-3, clip_norm=0.0)
    batch: int = 128
    updates: int = 10
    """Batches per step of the loop."""
    steps: int = 200
    log: Log = Log(episodes=50, noise=0.5)
    """The dataset where no file is given: 10,000 transitions of the pendulum, half of the actions random."""
    standardised: bool = False
    """Whether td3-bc sees states with the data's mean 0 and deviation 1."""
    decisions: int = 0
    """Decisions of an episode where rewards are scaled by the range of returns; 0 takes the longest of the data."""
    penalty: float = 1.0
    """Weight of CQL's penalty beside half of the squared error."""
    slow: Adam | None = None
    """Optimizer of CQL's actor and temperature; None takes `optimizer`."""
