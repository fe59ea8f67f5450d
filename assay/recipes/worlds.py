"""The worlds a method can be asked to work in: sizes and models that fit tokens or torques.

A base names only its own parts and takes the rest from a world. A world is a value; `world_of` says which one a task
belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.core.optimizers import Adam
from assay.core.schedules import Linear
from assay.core.slots import ModelSpec, PairedTask, Rollout, Source, Task
from assay.core.spaces import Box, Discrete, Vocabulary
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic, Policy
from assay.parts.credit.temporal import Gae
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.sources.demonstrations import Pairs
from assay.parts.sources.fresh import FreshDecisions, FreshSequences


@dataclass(frozen=True)
class World:
    """Defaults of one world: models, how much is gathered, how it is reused, discounting, learning rate, budget."""

    name: str
    actor: ModelSpec
    value: Critic
    episodes: Rollout | None
    """Whole episodes in groups: what group methods gather."""
    fragments: Rollout | None
    """What actor-critic methods gather when they use it several times."""
    short: Rollout | None
    """What they gather when they use it once."""
    reuse: Source
    """How often a batch is used when there is a trust region."""
    once: Source
    gae: Gae
    optimizer: Adam
    steps: int
    more_steps: int = 8
    """How many times as many steps go with `short`."""


LANGUAGE = World(
    name="language",
    actor=Policy(Transformer()),
    value=Critic(Transformer()),
    episodes=Episodes(starts=32, members=8),
    fragments=Episodes(starts=64, members=4),
    short=Episodes(starts=64, members=4),
    reuse=FreshSequences(epochs=1, minibatches=2),
    once=FreshSequences(),
    gae=Gae(discount=1.0, decay=0.95),
    optimizer=Adam(learning_rate=3e-4, clip_norm=1.0),
    steps=150,
    more_steps=1,
)

CONTROL = World(
    name="control",
    actor=Policy(),
    value=Critic(),
    episodes=Episodes(starts=8, members=8),
    fragments=Fragments(instances=128, steps=16),
    short=Fragments(instances=16, steps=16),
    reuse=FreshDecisions(epochs=3, minibatches=4),
    once=FreshSequences(),
    gae=Gae(discount=0.98, decay=0.9),
    optimizer=Adam(learning_rate=Linear(4e-3, 0.0), epsilon=1e-5, clip_norm=0.5),
    steps=100,
)

CONTINUOUS = World(
    name="continuous control",
    actor=Policy(),
    value=Critic(),
    episodes=Episodes(starts=8, members=8),
    fragments=Fragments(instances=16, steps=128),
    short=Fragments(instances=16, steps=16),
    reuse=FreshDecisions(epochs=10, minibatches=16),
    once=FreshSequences(),
    gae=Gae(discount=0.95, decay=0.95),
    optimizer=Adam(learning_rate=1e-3, epsilon=1e-5, clip_norm=0.5),
    steps=100,
)

TABLE = World(
    name="table",
    actor=Policy(Table()),
    value=Critic(Table()),
    episodes=Episodes(starts=8, members=8),
    fragments=Fragments(instances=16, steps=16),
    short=Fragments(instances=16, steps=8),
    reuse=FreshDecisions(epochs=2, minibatches=2),
    once=FreshSequences(),
    gae=Gae(discount=0.99, decay=0.95),
    optimizer=Adam(learning_rate=0.1, clip_norm=1.0),
    steps=60,
    more_steps=2,
)


PREFERENCES = replace(
    LANGUAGE, name="preference pairs", episodes=None, fragments=None, short=None, reuse=Pairs(), once=Pairs()
)

EVERY = (LANGUAGE, CONTROL, CONTINUOUS, TABLE)


def world_of(task: Task) -> World:
    """The world that a task belongs to."""
    spec = task.spec
    if isinstance(task, PairedTask):
        return PREFERENCES
    if isinstance(spec.action, Vocabulary):
        return LANGUAGE
    if isinstance(spec.observation, Discrete):
        return TABLE
    return CONTINUOUS if isinstance(spec.action, Box) else CONTROL
