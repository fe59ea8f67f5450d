"""iwocs: a robust policy from a sequence of ordinary problems, each in the worst regime for the policy so far.

    Q_j = Q* of regime T_j, T_0 nominal;   pi(s) = argmax_a min_j Q_j(s, a);   T_{j+1} = argmin_T V^pi_T(s_0)
    the minimum is over the j that have data at (s, a);   stop when V^pi_T{j+1}(s_0) is not below min_j V_j(s_0)

Zouitine, Geist & Rachelson 2024. If the set is sa-rectangular, a fixed regime is as bad as a changing one, and max_pi
min_T = min_T max_pi: the lowest of some optima is a bound that the policy can reach.

Axes: B sequences, T decisions, N rows, D numbers, A actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.method import CONTROL, ActorSpec, Adam, AssayError, BoxedTask, Context, CriticLoss, CriticSpec, Draw
from assay.method import Experience, Linear, Loss, Method, Phase, Preset, Recipe, Scene, Spec, Stage, Task, TaskChange
from assay.method import UncertainTask, View, dqn, model_name, random, recipes
from assay.models import Acting, Greedy, Policy, feature_size, features, need_discrete, perceptron
from assay.parts import EpsilonGreedy, Fragments, FreshSequences, OverTransitions, Replay

FAST = 10.0
"""Factor of the log-limit's step size: errors span several powers of ten, weights do not."""


BEYOND = 2.0
"""Width of the box of candidates in units of its own: half of the numbers are at a bound, where the worst often is."""


FLOOR = 1e-4
"""Smaller errors count as this one: below it the optimizer's noise decides."""


class Coder(nn.Module):
    """Reconstructs s through a bottleneck, once for each action; (s, a) is valid where the mean squared error is at
    most `limit`.
    """

    def __init__(self, num_inputs: int, num_actions: int, size: int) -> None:
        super().__init__()
        self.shape, hidden = (num_actions, num_inputs), (4 * size,)
        self.encode = perceptron(num_inputs, size, hidden)
        self.decode = perceptron(size, num_actions * num_inputs, hidden)
        self.log_limit = nn.Parameter(torch.zeros(()))

    @property
    def limit(self) -> Tensor:
        """Returns the largest error of a valid (s, a)."""
        return (FAST * self.log_limit).exp()

    def errors(self, context: Context) -> Tensor:
        """Returns the mean squared error of each action's reconstruction, [..., A]."""
        seen = features(context)
        found = self.decode(self.encode(seen).tanh()).unflatten(-1, self.shape)
        return (found - seen.unsqueeze(-2)).square().mean(-1)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the error of the recorded action's reconstruction, [...]."""
        return self.errors(context).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def valid(self, context: Context) -> Tensor:
        """Returns whether (s, a) looks like the data, bool [..., A]."""
        return self.errors(context) <= self.limit.clamp(min=FLOOR)


@dataclass(frozen=True)
class Coding(CriticSpec):
    """A coder with a bottleneck of `size` numbers."""

    size: int = 16

    def build(self, spec: Spec) -> nn.Module:
        return Coder(feature_size(spec), need_discrete(spec, "Coding()").n, self.size)


@dataclass(frozen=True)
class FitCoder(OverTransitions, CriticLoss):
    """e(s, a) + max(share * u, (share - 1) * u),  u = log e(s, a) - log limit, without gradient into e in the second
    term.

    e is the reconstruction's error at recorded decisions. The second term's minimum is the quantile `share` of log e:
    so much of the data is valid.
    """

    share: float = 0.95
    coder: str = model_name("coder")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over decisions."""
        now, coder = batch.now, view.model(self.coder)
        error = coder(now.context, now.action)
        above = error.detach().clamp(min=FLOOR).log() - coder.limit.log()
        loss = (error + torch.maximum(self.share * above, (self.share - 1.0) * above)) * now.weight
        metrics = {"valid_share": (((above <= 0) * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


class MaxMinQ(Acting):
    """a = argmax_a min_j Q_j(s, a) over the j whose coder finds (s, a) valid, or over all if none does."""

    def __init__(self, members: Sequence[nn.Module], coders: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.members, self.coders = nn.ModuleList(members), nn.ModuleList(coders)
        self.num_actions = int(members[0].num_actions)  # type: ignore[arg-type]

    def values(self, context: Context) -> Tensor:
        """Returns min_j Q_j(s, .) over valid j, [..., A]."""
        values = torch.stack([member.values(context) for member in self.members])  # type: ignore[operator]
        if not self.coders:
            return values.amin(0)
        valid = torch.stack([coder.valid(context) for coder in self.coders])  # type: ignore[operator]
        return torch.where(valid | ~valid.any(0), values, torch.inf).amin(0)


@dataclass(frozen=True)
class MaxMin(ActorSpec):
    """`num` Q-networks, trained elsewhere and transferred to `members.0`, `members.1`, ...; equal ones act as one.

    `coder` tests where each has data, one for each network in `coders.0`, ...; without it they count everywhere.
    """

    member: Policy = Policy(head=Greedy())
    num: int = 3
    coder: Coding | None = Coding()

    def build(self, spec: Spec) -> nn.Module:
        if self.num < 1:
            raise AssayError(f"MaxMin: num={self.num} leaves no values. Use 1 or more")
        coders = [] if self.coder is None else [self.coder.build(spec) for _ in range(self.num)]
        return MaxMinQ([self.member.build(spec) for _ in range(self.num)], coders)


def uncertain(task: Task) -> UncertainTask:
    """Returns the task as one with several regimes; raises AssayError if it has one only."""
    if isinstance(task, UncertainTask):
        return task
    what = f"task '{task.name}' has only one regime of its transitions"
    raise AssayError(f"{what}. Use an uncertain task: uncertain-cartpole")


def discounted_return(experience: Experience, discount: float) -> Tensor:
    """Returns sum_t discount^t r_t of each row, [B]; assumes that rows are whole episodes."""
    time = experience.mask.long().cumsum(1) - 1
    return (experience.reward * experience.mask * discount**time).sum(1)


@dataclass(frozen=True)
class WorstRegime(TaskChange):
    """The regime in which the policy so far has the lowest return; the nominal one if there is no policy yet.

    All listed regimes are tried. If the task bounds their numbers, `candidates` more are drawn between the bounds, and
    then, `rounds` times in all, around the worst so far in a box half as wide each time; draws beyond a bound are at
    it. Returns None (stop) if the worst return is what the policy predicts: the mean over `starts` of max_a of its
    values, which are the lowest of all regimes solved so far, is at most `tolerance` above it, both discounted.
    """

    discount: float = 0.99
    starts: int = 16
    tolerance: float = 0.0
    candidates: int = 12
    rounds: int = 4

    @torch.no_grad()
    def __call__(self, scene: Scene) -> Task | None:
        several, policy = uncertain(scene.task), scene.actor
        if policy is None:
            return several.under(several.regimes[0])
        starts = np.arange(self.starts)

        def tried(regime: Any) -> tuple[float, Any, Experience]:
            played = several.under(regime).play(policy, starts, 0 * starts, scene.draw, split=0, greedy=True)
            return float(discounted_return(played, self.discount).mean()), regime, played

        worst = min(map(tried, several.regimes), key=itemgetter(0))
        for place in range(self.rounds if isinstance(several, BoxedTask) and several.bounds else 0):
            worst = min((worst, *map(tried, self.around(several, worst[1], place, scene.draw))), key=itemgetter(0))
        first = {name: column[:, 0] for name, column in worst[2].context.items()}
        expected = float(policy.values(first).amax(-1).mean())
        return None if worst[0] >= expected - self.tolerance else several.under(worst[1])

    def around(self, task: Any, worst: Any, place: int, draw: Draw) -> list[tuple[float, ...]]:
        """Returns the candidates of a round: in the whole box at first, then around the worst regime so far."""
        low, high = (np.asarray(side, dtype=np.float64) for side in task.bounds)
        middle = np.asarray(worst) if place else (low + high) / 2.0
        chance = random.uniform(draw.at(11, place), np.arange(self.candidates)[:, None], np.arange(len(low)))
        drawn = middle + BEYOND * 0.5**place * (high - low) * (chance - 0.5)
        return [tuple(one) for one in drawn.clip(low, high).tolist()]


@dataclass(frozen=True)
class AnyRegime(TaskChange):
    """A regime drawn for each episode: domain randomisation."""

    def __call__(self, scene: Scene) -> Task:
        return uncertain(scene.task).mixed()


def quick_dqn(preset: Preset = CONTROL) -> Recipe:
    """dqn for small problems: narrow networks, few updates per step."""
    base = dqn(preset)
    return replace(
        base,
        actor=MaxMin().member,
        copies={"target": replace(base.copies["target"], every=100)},
        rollout=Fragments(num_envs=8, steps=8, explore=EpsilonGreedy(Linear(1.0, 0.05, share=0.3))),
        source=Replay(capacity=50_000, batch=128, updates=8, warmup=1_000),
        stages=(replace(base.stages[0], optimizer=Adam(1e-3, clip_norm=10.0)),),
    )


def solver(preset: Preset, coder: Coding | None) -> Recipe:
    """Returns dqn for one problem, and the coder of the states and actions that it is trained on."""
    base = quick_dqn(preset)
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


def recipe(preset: Preset = CONTROL, problems: int = 3, steps: int = 200, coder: Coding | None = Coding()) -> Recipe:
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
            Phase(f"solve-{place}", solver(preset, coder), steps, hands=hands, task=WorstRegime()),
            Phase(f"candidate-{place}", assembled("candidate", problems, coder), 1, hands={}),
        ]
    return replace(assembled("iwocs", problems, coder), before=tuple(phases[:-1]))


METHOD = Method(
    paper="arXiv:2410.06212",
    recipe=recipe,
    presets=(CONTROL,),
    default_task="windy-walk",
    family="robust",
    base=recipes.dqn,
    departures=(
        "discrete actions only: no sac, and no candidates from several actors",
        "dqn solves the problems; the worst regime between bounds is found by draws in a box that narrows, not by "
        "an evolution strategy",
        "a network counts where an autoencoder of its own replay reconstructs (s, a) as well as 95 % of it, and all do "
        "where none does; the authors' indicator is predictive coding, whose form and threshold we did not find",
        "at most as many problems as the program has phases",
    ),
    results=(
        "regimes fixed per episode are not a rectangular set: with wind 0.2 in windy-walk pi waits forever in the calm",
        "why it fails with dqn: on ten of 15 seeds the learned policy never arrives in the worst wind (-40); on the "
        "other five it has -9 to -17, dqn -15. With exact values it holds: it is the learner",
    ),
)
