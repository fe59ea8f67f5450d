"""pasta: a transformer learns to complete trajectories, number by number; a small head on what it sees is the policy.

    tokens   s_0^1 .. s_0^S a_0^1 .. a_0^A s_1^1 ..;   token = E[bin(x)] + E[which number] + E[time], normalised
    bin(x)   of y = sign(x) log(1 + 255 |x|) / log 256, where x is a state in 4 deviations, an action in half-ranges
    before   loss = -mean log p(token | those before it), or of tokens that are masked, given all others
    then     pi(a_t|.) = head(mean over the state's tokens of the hidden states), which are frozen

Boige et al. 2024. A number that is missing has no token, so a sensor may fail (NaN) where a vector needs a stand-in;
and the head needs few episodes, since other data, without rewards, have shown what follows what.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from assay.method import CONTINUOUS, CONTROL, Method, Phase, Preset, Recipe, recipes
from assay.methods.pasta.losses import MaskedToken, NextToken
from assay.methods.pasta.tokens import Granularity, NumberTokens, VectorTokens
from assay.methods.pasta.trunk import OnTrajectories
from assay.models import Policy
from assay.parts import Log

FEW, MANY = Log(5, noise=0.0), Log(50, noise=0.2, first=1_000)


def recipe(
    preset: Preset = CONTINUOUS,
    log: Log | None = None,
    many: Log | None = None,
    tokens: Granularity = NumberTokens(),
    before: NextToken = NextToken(),
    reading: int = 100,
) -> Recipe:
    """Returns cloning of few episodes on a trunk that learned to complete `many` for `reading` steps; 0 leaves it
    random.
    """
    base = recipes.decision_transformer(preset, log or FEW, length=10)
    (stage,) = base.stages
    actor = Policy(OnTrajectories(tokens=tokens), base.actor.head)  # type: ignore[attr-defined]
    clone = replace(base, name="pasta", actor=actor, steps=100)
    return replace(clone, before=(completion(clone, stage, many, before, reading),) if reading else ())


def completion(clone: Recipe, stage: Any, many: Log | None, before: NextToken, reading: int) -> Phase:
    """Returns the phase that trains the trunk; its head stays as it was made."""
    source = replace(clone.source, logs=(many or MANY,))  # type: ignore[type-var]
    phase = replace(clone, name="completion", source=source, stages=(replace(stage, objective=(before,)),))
    return Phase("completion", phase, reading)


def offline(preset: Preset = CONTINUOUS, log: Log | None = None, reading: int = 100) -> Recipe:
    """Returns iql whose actor and critics read the trunk's view of the present state, in the place of the state."""
    base, clone = recipes.iql(preset, log), recipe(preset)
    body = OnTrajectories(length=1)
    of = {"actor": base.actor, **base.critics}
    models: dict[str, Any] = {name: replace(one, body=body) for name, one in of.items()}  # type: ignore[type-var]
    (stage,) = clone.stages
    actor = Policy(body, clone.actor.head)  # type: ignore[attr-defined]
    phase = completion(replace(clone, actor=actor), stage, None, NextToken(), reading)
    phase = replace(phase, hands={"actor.body.trunk": tuple(f"{name}.body.trunk" for name in of)})
    critics = {name: models[name] for name in base.critics}
    return replace(base, name="pasta-offline", actor=models["actor"], critics=critics, before=(phase,))


METHOD = Method(
    paper="arXiv:2307.10936",
    recipe=recipe,
    presets=(CONTROL, CONTINUOUS),
    default_task="pendulum",
    family="offline",
    base=recipes.decision_transformer,
    variants={
        "modalities": partial(recipe, tokens=VectorTokens()),
        "masked": partial(recipe, before=MaskedToken()),
        "iql": offline,
    },
    departures=(
        "one domain at a time: what several give at equal data, and low-rank adapters, are not measured",
        "episodes of scripted experts, a fifth of the actions random (the last fifth of SAC's experience)",
        "256 bins over four deviations, 15 % masked, a head of two layers of 64 on the mean of the state's tokens; "
        "two layers of 64 and windows of ten decisions (a tenth of their parameters)",
        "a trunk that completed masked tokens reads both ways then, and causally under a head, as the other does",
        "offline learning reads the present state alone; changed dynamics and zero-shot prediction are left out",
    ),
)
