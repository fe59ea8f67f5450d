"""Multi-phase recipes for tasks with uncertain transitions: one ordinary problem after the other."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Phase, Recipe, Stage
from assay.core.schedules import Linear
from assay.methods.iwocs.models import MaxMin
from assay.methods.iwocs.task_changes import WorstRegime
from assay.methods.iwocs.validity import Coding, FitCoder
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.explore import EpsilonGreedy
from assay.parts.sources.fresh import FreshSequences
from assay.parts.sources.replay import Replay
from assay.recipes.defaults import CONTROL, Defaults
from assay.recipes.off_policy import dqn


def quick_dqn(world: Defaults = CONTROL) -> Recipe:
    """dqn for small problems: narrow networks, few updates per step."""
    base = dqn(world)
    return replace(
        base,
        actor=MaxMin().member,
        copies={"target": replace(base.copies["target"], every=100)},
        rollout=Fragments(num_envs=8, steps=8, explore=EpsilonGreedy(Linear(1.0, 0.05, share=0.3))),
        source=Replay(capacity=50_000, batch=128, updates=8, warmup=1_000),
        stages=(replace(base.stages[0], optimizer=Adam(1e-3, clip_norm=10.0)),),
    )


def solver(world: Defaults, coder: Coding | None) -> Recipe:
    """Returns dqn for one problem, and the coder of the states and actions that it is trained on."""
    base = quick_dqn(world)
    if coder is None:
        return base
    fit = Stage("coder", trains=("coder",), critic=(FitCoder(),), optimizer=Adam(1e-3, clip_norm=10.0))
    return replace(base, critics={"coder": coder}, stages=(*base.stages, fit))


def assembled(name: str, num: int, coder: Coding | None = None) -> Recipe:
    """Returns a policy of `num` transferred networks that is not trained further: one step, to evaluate it."""
    rollout = Fragments(num_envs=8, steps=8)
    return Recipe(
        name, actor=MaxMin(num=num, coder=coder), stages=(), source=FreshSequences(), rollout=rollout, steps=1
    )


def iwocs(world: Defaults = CONTROL, problems: int = 3, steps: int = 200, coder: Coding | None = Coding()) -> Recipe:
    """IWOCS (arXiv:2410.06212) around dqn: at most `problems` of them, each in the worst regime for the policy so
    far.

    Each network is transferred to its own slot and to all later ones, which therefore hold nothing new until their
    turn. `coder` decides where a network counts; None: everywhere.
    """
    phases: list[Phase] = []
    for place in range(problems):
        kinds = {"actor": "members"} if coder is None else {"actor": "members", "coder": "coders"}
        hands = {own: tuple(f"actor.{kind}.{later}" for later in range(place, problems)) for own, kind in kinds.items()}
        phases += [
            Phase(f"solve-{place}", solver(world, coder), steps, hands=hands, task=WorstRegime()),
            Phase(f"candidate-{place}", assembled("candidate", problems, coder), 1, hands={}),
        ]
    return replace(assembled("iwocs", problems, coder), before=tuple(phases[:-1]))
