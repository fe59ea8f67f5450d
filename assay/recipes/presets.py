"""Default models, sizes and optimizers of each kind of task.

A base recipe names only its own parts and takes the rest from a `Preset`. Recipes ask what the task is like
(`tokens`, `discrete`, `tabular`), never which preset they were given, so `replace(LANGUAGE, steps=10)` keeps its
meaning.
`preset_for_spec` chooses by the task's spaces, `preset_for` also by the preset that the task names.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.schedules import Linear
from assay.core.slots import ModelSpec, PairedTask, PresetTask, Rollout, Source, Task
from assay.core.spaces import Box, Discrete, Image, Spec, Vocabulary
from assay.models.bodies.convolution import convolution_for
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.reading_table import ReadingTable
from assay.models.bodies.table import Table
from assay.models.bodies.token_table import TokenTable
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic, Policy
from assay.parts.credit.temporal import Gae
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.rollouts.stale import Stale
from assay.parts.sources.demonstrations import Pairs
from assay.parts.sources.fresh import FreshDecisions, FreshSequences
from assay.parts.sources.replay import Replay
from assay.recipes.replay_settings import FROM_IMAGES, GENERAL_CHOICES, Offline, OffPolicy, ValuesOfChoices

CLASSIC = "classic"
"""The preset of tasks that name none: small networks, budgets of minutes."""


@dataclass(frozen=True)
class Preset:
    """Defaults for one kind of task: models, how much is gathered, how often it is used, discounting, optimizer,
    budget; and what the kind is like.

    `name` is the kind's name in messages and in `assay list`, `suite` the set of numbers (classic, mujoco, ...). Two
    presets with equal `kind` fit the same tasks.
    """

    name: str
    actor: ModelSpec
    value: Critic
    group_rollout: Rollout | None
    """Rollout of group methods: whole episodes in groups."""
    fragment_rollout: Rollout | None
    """Rollout of actor-critic methods that use a batch several times."""
    short_rollout: Rollout | None
    """Rollout of actor-critic methods that use a batch once."""
    minibatch_source: Source
    """Source of methods with a trust region: how often a batch is used."""
    on_policy_source: Source
    """Source of methods that use a batch once."""
    gae: Gae
    optimizer: Adam
    steps: int
    more_steps: int = 8
    """Factor of the number of steps that goes with `short_rollout`."""
    entropy: float = 0.003
    """Coefficient of PPO's entropy bonus."""
    warmup: int = 0
    """Supervised steps on demonstrations before a method."""
    off_policy: OffPolicy = OffPolicy()
    choices: ValuesOfChoices = ValuesOfChoices()
    offline: Offline = Offline()
    suite: str = CLASSIC
    tokens: bool = False
    """Whether actions are tokens of a vocabulary."""
    discrete: bool = False
    """Whether an action is one of finitely many; tokens are."""
    tabular: bool = False
    """Whether observations are numbered states."""
    paired: bool = False
    """Whether the task is a set of preference pairs, so that nothing is gathered."""

    @property
    def kind(self) -> tuple[bool, ...]:
        """(tokens, discrete, tabular, paired)."""
        return self.tokens, self.discrete, self.tabular, self.paired


LANGUAGE = Preset(
    name="language",
    actor=Policy(Transformer()),
    value=Critic(Transformer()),
    group_rollout=Episodes(num_starts=32, group_size=8),
    fragment_rollout=Episodes(num_starts=64, group_size=4),
    short_rollout=Episodes(num_starts=64, group_size=4),
    minibatch_source=FreshSequences(epochs=1, minibatches=2),
    on_policy_source=FreshSequences(),
    gae=Gae(discount=1.0, gae_lambda=0.95),
    optimizer=Adam(learning_rate=3e-4, clip_norm=1.0),
    steps=150,
    more_steps=1,
    warmup=200,
    tokens=True,
    discrete=True,
)

CONTROL = Preset(
    name="control",
    actor=Policy(),
    value=Critic(),
    group_rollout=Episodes(num_starts=8, group_size=8),
    fragment_rollout=Fragments(num_envs=128, steps=16),
    short_rollout=Fragments(num_envs=16, steps=16),
    minibatch_source=FreshDecisions(epochs=3, minibatches=4),
    on_policy_source=FreshSequences(),
    gae=Gae(discount=0.98, gae_lambda=0.9),
    optimizer=Adam(learning_rate=Linear(4e-3, 0.0), epsilon=1e-5, clip_norm=0.5),
    steps=100,
    discrete=True,
)

CONTINUOUS = Preset(
    name="continuous control",
    actor=Policy(),
    value=Critic(),
    group_rollout=Episodes(num_starts=8, group_size=8),
    fragment_rollout=Fragments(num_envs=16, steps=128),
    short_rollout=Fragments(num_envs=16, steps=16),
    minibatch_source=FreshDecisions(epochs=10, minibatches=16),
    on_policy_source=FreshSequences(),
    gae=Gae(discount=0.95, gae_lambda=0.95),
    optimizer=Adam(learning_rate=1e-3, epsilon=1e-5, clip_norm=0.5),
    steps=100,
)

TABLE = Preset(
    name="table",
    actor=Policy(Table()),
    value=Critic(Table()),
    group_rollout=Episodes(num_starts=8, group_size=8),
    fragment_rollout=Fragments(num_envs=16, steps=16),
    short_rollout=Fragments(num_envs=16, steps=8),
    minibatch_source=FreshDecisions(epochs=2, minibatches=2),
    on_policy_source=FreshSequences(),
    gae=Gae(discount=0.99, gae_lambda=0.95),
    optimizer=Adam(learning_rate=0.1, clip_norm=1.0),
    steps=60,
    more_steps=2,
    offline=Offline(optimizer=Adam(learning_rate=0.05, clip_norm=0.0)),
    discrete=True,
    tabular=True,
)

PREFERENCES = replace(
    LANGUAGE,
    name="preference pairs",
    group_rollout=None,
    fragment_rollout=None,
    short_rollout=None,
    minibatch_source=Pairs(),
    on_policy_source=Pairs(),
    paired=True,
)

MUJOCO = replace(
    CONTINUOUS,
    suite="mujoco",
    fragment_rollout=Fragments(num_envs=1, steps=2048),
    minibatch_source=FreshDecisions(epochs=10, minibatches=32),
    gae=Gae(discount=0.99, gae_lambda=0.95),
    optimizer=Adam(learning_rate=3e-4, epsilon=1e-5, clip_norm=0.5),
    steps=488,
    entropy=0.0,
    off_policy=OffPolicy(
        optimizer=Adam(learning_rate=3e-4, clip_norm=0.0),
        replay=Replay(capacity=1_000_000, batch=256, updates=8, warmup=100),
        noise_share=0.025,
        steps=125_000,
    ),
    offline=Offline(
        body=Perceptron((256, 256)),
        optimizer=Adam(learning_rate=3e-4, clip_norm=0.0),
        batch=256,
        updates=1_000,
        steps=1_000,
        penalty=2.5,
        slow=Adam(learning_rate=1e-4, clip_norm=0.0),
    ),
)
"""A million decisions with the published settings for MuJoCo: PPO (arXiv:1707.06347, table 3: 2,048 decisions, 10
epochs of batches of 64, Adam 3e-4, no entropy bonus; the rate does not fall to 0 as in the authors' code, which would
end the learning of short runs), SAC (arXiv:1812.05905, table 1) and TD3 (arXiv:1802.09477, with Adam 3e-4 and batches
of 256 as in the authors' later code). Random or initial behaviour is short: 100 decisions before the first update
instead of SAC's 10,000 and TD3's 25,000, and TD3's noise falls over the first 25,000. A million updates for offline
methods."""

GENERAL = replace(
    MUJOCO,
    suite="general",
    fragment_rollout=Fragments(num_envs=8, steps=256),
    off_policy=replace(MUJOCO.off_policy, noise_share=0.05, steps=12_500),
    offline=Offline(),
)
"""Continuous control of any environment that is neither MuJoCo's nor a pendulum, with the defaults of stable-baselines3
2.9: PPO (2,048 decisions, here of 8 environments, 10 epochs of batches of 64, Adam 3e-4, discount 0.99, lambda 0.95, no
entropy bonus), SAC (Adam 3e-4, discount 0.99, targets at rate 0.005, updates after 100 decisions). A million decisions
for on-policy methods, 100,000 with replay."""

GENERAL_CONTROL = replace(
    CONTROL,
    suite="general",
    fragment_rollout=GENERAL.fragment_rollout,
    minibatch_source=GENERAL.minibatch_source,
    gae=GENERAL.gae,
    optimizer=GENERAL.optimizer,
    steps=GENERAL.steps,
    entropy=GENERAL.entropy,
    choices=GENERAL_CHOICES,
)
"""The same for discrete actions; DQN as `GENERAL_CHOICES`."""

RELU = Perceptron((256, 256), nn.ReLU)
D4RL = replace(
    MUJOCO,
    suite="d4rl",
    actor=Policy(RELU),
    value=Critic(RELU),
    offline=replace(MUJOCO.offline, standardised=True, decisions=1_000),
)
"""MUJOCO with the wide networks of offline methods on D4RL: TD3+BC (arXiv:2106.06860, table 3), IQL (arXiv:2110.06169,
appendix B) and CQL (arXiv:2006.04779): two layers of 256 with ReLU, Adam 3e-4, batches of 256, targets at rate 0.005, a
million updates; TD3+BC on standardised states, IQL on rewards times 1000 / (best - worst return). CQL has the numbers
of its authors' code: weight 5 beside a squared error, which is 2.5 beside half of one, and 1e-4 for the actor."""

PLACES = replace(
    LANGUAGE,
    suite="places",
    actor=Policy(TokenTable(rank=32)),
    value=Critic(TokenTable()),
    minibatch_source=FreshSequences(),
    optimizer=Adam(learning_rate=0.05, clip_norm=1.0),
    warmup=0,
)
"""Language testbeds: logits linear in 32 features of prompt and place, uniform at the start; one update a step.

Contexts share parameters, as in a network: where they do not (rank 0), one prompt never costs another anything."""

READING = replace(PLACES, suite="reading", actor=Policy(ReadingTable(rank=32)))
"""PLACES with a policy that copies what its prompt shows with probability 0.86: hints act as on a model that reads."""

BIGRAMS = replace(PLACES, suite="bigrams", actor=Policy(TokenTable(1, rank=16)), value=Critic(TokenTable(1)))
"""PLACES with 16 features of prompt, place and last token."""

STALE = replace(
    BIGRAMS,
    suite="stale",
    actor=Policy(TokenTable(1)),
    group_rollout=Stale(Episodes(num_starts=32, group_size=8)),
    fragment_rollout=Stale(Episodes(num_starts=64, group_size=4)),
    short_rollout=Stale(Episodes(num_starts=64, group_size=4)),
)
"""A separate row for each prompt, place and last token, and rollouts by an older policy; `rollout.delay` counts
updates, since a step has one."""

EVERY = (LANGUAGE, CONTROL, CONTINUOUS, TABLE)
"""The classic presets of tasks that are played."""

OTHERS = (GENERAL, GENERAL_CONTROL, MUJOCO, D4RL, PLACES, READING, BIGRAMS, STALE)
SUITES: Mapping[str, tuple[Preset, ...]] = {
    name: tuple(one for one in OTHERS if one.suite == name) for name in dict.fromkeys(one.suite for one in OTHERS)
}
"""Presets beside the classic ones, by name: one for each kind of task that the name has numbers for."""
WORLDS = "warp"
"""The preset for thousands of worlds on a GPU, in `assay.recipes.warp_preset`."""


def preset_for_spec(spec: Spec) -> Preset:
    """Returns the classic preset for the task's action and observation spaces."""
    if isinstance(spec.action, Vocabulary):
        return LANGUAGE
    if isinstance(spec.observation, Discrete):
        return TABLE
    vectors = CONTINUOUS if isinstance(spec.action, Box) else CONTROL
    return on_images(vectors, spec.observation) if isinstance(spec.observation, Image) else vectors


def on_images(preset: Preset, space: Image) -> Preset:
    """Returns the defaults with convolutions as bodies and PPO's settings for Atari (arXiv:1707.06347, table 5): 8 x
    128 decisions, Adam 2.5e-4 that falls to 0, discount 0.99, entropy bonus 0.01; four epochs, a million decisions.
    DQN has `FROM_IMAGES`.
    """
    body = convolution_for(space)
    return replace(
        preset,
        actor=Policy(body),
        value=Critic(body),
        fragment_rollout=Fragments(num_envs=8, steps=128),
        minibatch_source=FreshDecisions(epochs=4, minibatches=4),
        gae=Gae(discount=0.99, gae_lambda=0.95),
        optimizer=Adam(learning_rate=Linear(2.5e-4, 0.0), epsilon=1e-5, clip_norm=0.5),
        steps=976,
        entropy=0.01,
        off_policy=replace(preset.off_policy, body=body),
        choices=FROM_IMAGES,
    )


def preset_for(task: Task, suite: str | None = None) -> Preset:
    """Returns the preset of a task: that of `suite` (classic, mujoco, ...), else of the suite that the task names, else
    `preset_for_spec` its spec.

    Raises AssayError if there is no such preset, or if it is for another kind of task.
    """
    classic = PREFERENCES if isinstance(task, PairedTask) else preset_for_spec(task.spec)
    name = suite_of(task) if suite is None else suite
    if name == CLASSIC:
        return classic
    if name not in (*SUITES, WORLDS):
        raise AssayError(f"there is no preset '{name}'. Use {', '.join((CLASSIC, *SUITES, WORLDS))}.")
    there = presets_of(name)
    fitting = [one for one in there if one.kind == classic.kind]
    if not fitting:
        kinds = " and ".join(one.name for one in there)
        what = f"preset '{name}' is for {kinds}; task '{task.name}' is {classic.name}"
        raise AssayError(f"{what}. Use --preset {CLASSIC}.")
    space = task.spec.observation
    return on_images(fitting[0], space) if isinstance(space, Image) else fitting[0]


def presets_of(suite: str) -> tuple[Preset, ...]:
    """Returns the presets of a suite beside the classic ones."""
    if suite == WORLDS:
        from assay.recipes.warp_preset import with_worlds  # here: its parts are read only where it is used

        return (with_worlds(MUJOCO),)
    return SUITES[suite]


def suite_of(task: Task) -> str:
    """Returns the name of the suite whose preset a task asks for; classic if it names none."""
    return task.preset if isinstance(task, PresetTask) else CLASSIC


REASONS: Mapping[str, str] = {
    CLASSIC: "its numbers were tuned on the tasks that are built in",
    GENERAL.suite: "no numbers here were tuned on this environment, so they are the usual ones",
    MUJOCO.suite: "MuJoCo computes its physics",
    WORLDS: "thousands of its worlds are simulated at once",
}


def why_preset(task: Task) -> str:
    """Returns the name of the preset that a task gets, and why, in one sentence."""
    name = suite_of(task)
    return f"task '{task.name}' has the preset {name}: {REASONS.get(name, 'the task names it')}. Choose by --preset"


RENAMED: dict[str, Any] = {
    "Defaults": Preset,
    "defaults_of": preset_for,
    "defaults_for": preset_for_spec,
    "preset_of": suite_of,
}


def __getattr__(name: str) -> Any:
    """Returns what has a name of version 0.2, with a warning; the old names go with version 0.4."""
    if name not in RENAMED:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    warnings.warn(f"{name} is now {RENAMED[name].__name__}", DeprecationWarning, stacklevel=2)
    return RENAMED[name]
