"""MDPs with uncertain transitions: solved, robustly solved, and by brute force.

Axes: K candidates, S states, A actions. Each (state, action) has K candidates for its transition, and nature chooses
one for each of them (an sa-rectangular set): a regime is a choice [S, A], and there are K^(S A) of them. float64.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Edit, Engine, Exact, Expect, Final, Measured, Placement, probes, steps
from assay.method import AssayError, Discrete, Draw, Phase, Spec, random
from assay.methods.iwocs import MaxMin, MaxMinQ, WorstRegime, recipe as iwocs, quick_dqn
from assay.models import Greedy, Policy, Table
from assay.tasks.tabular.table import Table as Process, tabular
from assay.tasks.tabular.uncertain import Regime, Uncertain, windy_table

SETTLED = 1e-12


def picked(index: Tensor, axis: int) -> Callable[[Tensor], Tensor]:
    """Returns a function that picks entries along an axis: the candidates of a regime, the actions of a policy."""
    return lambda values: values.gather(axis, index.unsqueeze(axis)).squeeze(axis)


@dataclass(frozen=True, eq=False)
class UncertainTable:
    """P [K, S, A, S], R [S, A] and `terminal` [S]; candidate 0 everywhere is the nominal regime; starts in `first`."""

    P: Tensor
    R: Tensor
    terminal: Tensor
    discount: float
    first: int = 0

    @property
    def nominal(self) -> Tensor:
        """Returns candidate 0 for every state and action."""
        return torch.zeros(self.R.shape, dtype=torch.int64)

    def backup(self, value_S: Tensor) -> Tensor:
        """Returns R + discount * P_k V under every candidate, [K, S, A]; 0 in terminal states."""
        return (self.R + self.discount * self.P @ value_S) * (~self.terminal)[:, None]

    def settled(self, of_candidates: Callable[[Tensor], Tensor], improve: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns Q [S, A] with Q = of_candidates(backup(improve(Q)))."""
        q = torch.zeros(self.R.shape, dtype=torch.float64)
        for _ in range(100_000):
            new = of_candidates(self.backup(improve(q)))
            if float((new - q).abs().max()) <= SETTLED:
                return new
            q = new
        raise AssayError(f"values with discount={self.discount} do not converge. Lower it")

    def optimal(self, regime_SA: Tensor) -> Tensor:
        """Returns Q* of one regime, by value iteration."""
        return self.settled(picked(regime_SA, 0), lambda q: q.amax(1))

    def robust(self) -> Tensor:
        """Returns Q of robust value iteration: nature chooses the worst candidate again at every step."""
        return self.settled(lambda q_KSA: q_KSA.amin(0), lambda q: q.amax(1))

    def worst_regime(self, action_S: Tensor) -> Tensor:
        """Returns the regime [S, A] that minimises the policy's value in all states at once."""
        take = picked(action_S, 1)
        return self.backup(take(self.settled(lambda q_KSA: q_KSA.amin(0), take))).argmin(0)

    def value(self, action_S: Tensor, regime_SA: Tensor) -> float:
        """Returns the policy's value from the first state in one regime."""
        q = self.settled(picked(regime_SA, 0), picked(action_S, 1))
        return float(q[self.first, action_S[self.first]])

    def worst_value(self, action_S: Tensor) -> float:
        """Returns the policy's value from the first state in its worst regime."""
        return self.value(action_S, self.worst_regime(action_S))

    def best(self, q_SA: Tensor) -> float:
        """Returns the best value in the first state."""
        return float(q_SA[self.first].max())


def acting(values: Sequence[Tensor]) -> Any:
    """Returns the method's own actor over tables of action values [S, A]: argmax_a min_j Q_j."""
    spec = Spec(Discrete(values[0].shape[0]), Discrete(values[0].shape[1]), 1)
    actor: Any = MaxMin(Policy(Table(), Greedy()), len(values), coder=None).build(spec)
    for member, table in zip(actor.members, values, strict=True):
        member.body.table.data = table.clone()
    return actor


def worst_case_search(table: UncertainTable, limit: int = 50) -> tuple[float, int]:
    """IWOCS (arXiv:2410.06212): solve the nominal regime; act by argmax_a min_j Q_j; solve the worst regime for that;
    stop when the worst value is what the regimes solved so far predict, or nothing new is found. Returns the policy's
    worst value, and the number of regimes solved.
    """
    regimes, values = [table.nominal], [table.optimal(table.nominal)]
    while True:
        action = acting(values).act({"state": torch.arange(len(table.R))}, None)[0]
        worst, value = table.worst_regime(action), table.worst_value(action)
        predicted = min(map(table.best, values))
        seen = any(torch.equal(worst, regime) for regime in regimes)
        if value >= predicted - 1e-9 or seen or len(regimes) == limit:
            return value, len(regimes)
        regimes, values = [*regimes, worst], [*values, table.optimal(worst)]


def best_worst_value(table: UncertainTable) -> float:
    """Returns max over deterministic policies of min over regimes of the value in the first state, by enumeration."""
    num_candidates, num_states, num_actions = table.P.shape[:3]
    state, best = torch.arange(num_states), -float("inf")
    for action in map(torch.tensor, product(range(num_actions), repeat=num_states)):
        choices = map(torch.tensor, product(range(num_candidates), repeat=num_states))
        regimes = (table.nominal.index_put((state, action), choice) for choice in choices)  # of the actions taken
        best = max(best, min(table.value(action, regime) for regime in regimes))
    return best


def random_table(seed: int, num_states: int = 4, num_actions: int = 2, num_candidates: int = 2) -> UncertainTable:
    """Returns uniformly drawn transitions and rewards, discount 0.8; no terminal state."""
    shape = (num_candidates, num_states, num_actions, num_states)
    numbers = torch.from_numpy(random.uniform(Draw(seed), np.arange(int(np.prod(shape))))).view(shape)
    reward = torch.from_numpy(random.uniform(Draw(seed, (1,)), np.arange(num_states * num_actions)))
    drawn = numbers.pow(4)
    nowhere = torch.zeros(num_states, dtype=torch.bool)
    return UncertainTable(drawn / drawn.sum(-1, keepdim=True), reward.view(num_states, num_actions), nowhere, 0.8)


def windy_walk(seed: int = 0, winds: tuple[float, ...] = (0.0, 0.2, 0.4)) -> UncertainTable:
    """The walk of `windy_table` on 5 x 6 cells, in a wind that is nature's choice for each (cell, action); a third of
    the cells, drawn by the seed, are calm.
    """
    is_calm = torch.from_numpy(random.uniform(Draw(seed), np.arange(30)) < 1 / 3)
    walks = [windy_table(wind * (~is_calm).double(), height=5) for wind in winds]
    P, first = torch.stack([walk.P for walk in walks]), int(walks[0].initial.argmax())
    return UncertainTable(P, walks[0].R, walks[0].terminal, 0.99, first)


LATE = ((4.0, 2.0), (1.0, 2.5), (2.0, 3.0))
"""Rewards of the two actions of the second decision, in each of three regimes."""


def two_steps(regimes: tuple[Regime, ...]) -> Any:
    """Returns a task of two decisions: the first leads to state 1 without reward, the second ends it with LATE's."""
    P, R = torch.zeros(3, 2, 3, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    P[0, :, 1], P[1:, :, 2], R[1] = 1.0, 1.0, torch.tensor(regimes[0], dtype=torch.float64)
    ends, starts = torch.tensor([False, False, True]), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    return tabular("two-steps", Process(P, R, ends, starts, 2))


def wrong_regimes() -> float:
    """Counts wrong answers of the shipped phases' task change, by the reward of the second decision under it.

    The policy takes action 0, worth 0.99 * (4, 1, 2). Without a policy the nominal regime counts; with a prediction
    above 0.99 the worst one does; with one below, the search is over.
    """
    changes: list[Any] = [phase.task for phase in iwocs().before[::2]]
    task, wrong = Uncertain("two-steps", LATE, two_steps), float(len(changes) != 3)
    for change in changes:
        for predicted, wanted in ((None, 4.0), (3.0, 1.0), (0.991, 1.0), (0.989, None)):
            policy = None
            if predicted is not None:
                low = torch.tensor([[predicted, 0.0], [1.0, 0.0], [0.0, 0.0]])
                policy = acting([low, low + 5.0])
            found = change(ALONE.given(task=task, actor=policy))
            wrong += float((None if found is None else reward_in(found)) != wanted)
    return wrong


def reward_in(task: Any) -> float:
    """Returns the return of action 0 in a task of two steps."""
    first = acting([torch.tensor([[1.0, 0.0]] * 3)])
    played = task.play(first, np.arange(1), np.zeros(1, np.int64), ALONE.draw, split=0, greedy=True)
    return float((played.reward * played.mask).sum())


def bowl(regimes: tuple[Regime, ...]) -> Any:
    """Returns two decisions whose second pays the squared distance of the regime to (0.3, 0.7), inside its box."""
    ((x, y),) = regimes
    return two_steps((((x - 0.3) ** 2 + (y - 0.7) ** 2, 9.0),))


def slope(regimes: tuple[Regime, ...]) -> Any:
    """Returns two decisions whose second pays least in the corner (0, 1)."""
    ((x, y),) = regimes
    return two_steps(((1.0 + x - y, 9.0),))


def search_gap() -> float:
    """Returns how far the regimes that a phase finds between bounds are from the worst, in their reward: at most 0.01
    of a bowl, of a slope nothing. None of them is listed.
    """
    low = torch.tensor([[5.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    change, policy, gaps = cast(Any, iwocs().before[2].task), acting([low, low + 5.0]), []
    for make, spare in ((bowl, 0.01), (slope, 0.0)):
        for seed in range(5):
            task = Uncertain("box", ((0.5, 0.5), (1.0, 0.0)), make, bounds=((0.0, 0.0), (1.0, 1.0)))
            found = change(ALONE.given(task=task, actor=policy, draw=Draw(seed)))
            gaps.append(max(0.0, reward_in(found) - spare))
    return probes.worst(*gaps)


def misplaced_networks() -> float:
    """Returns how many of the final actor's three members, and of the candidates', do not hold the network solved in
    their phase: an empty place holds the last one solved before.
    """
    recipe, wrong = iwocs(), 0.0
    given: dict[str, Tensor] = {}
    for number, phase in enumerate((*recipe.before, Phase("final", recipe, 1, hands={}))):
        engine = Engine(phase.recipe, probes.CHOICE_SPEC, 0, Placement())
        if number % 2:  # a candidate, or the final policy: it acts with what the phases before it handed on
            engine.load(given, phase.recipe)
            acts: Any = engine.models["actor"]
            for place, pair in enumerate(zip(acts.members, acts.coders, strict=True)):
                numbers = [p for member in pair for p in member.parameters()]
                wrong += float(any(bool((p != min(place, number // 2)).any()) for p in numbers))
            wrong += float(len(acts.members) != 3)
            continue
        wrong += float(set(phase.hands) != {"actor", "coder"})
        for own in phase.hands:
            engine.flats[own].values.fill_(number // 2)
        given |= probes.handed_on(phase, engine)
    return wrong


def solving_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of a problem: double DQN's, and that of the reconstruction and its 95 % quantile."""
    step, coder = steps.step_of(seen), seen.models["coder"]
    code = coder.encode(step.now).tanh()
    found = coder.decode(code).view(len(step.now), -1, step.now.shape[-1])
    error = (found[torch.arange(len(step.now)), step.action] - step.now).square().mean(-1)
    above = error.detach().clamp(min=1e-4).log() - 10.0 * coder.log_limit
    fit = step.mean(error + torch.where(above > 0, 0.95 * above, -0.05 * above))
    return {"values": step.mean(steps.double_q(seen, 0.99)[1]), "coder": fit}


def validity_errors() -> float:
    """Counts wrong actions of the shipped actor with Q = (3, 2) and Q' = (-5, 4), valid as stated; the third is Q."""
    spec, wrong = replace(probes.CHOICE_SPEC, action=Discrete(2)), 0.0
    actor: Any = iwocs().actor.build(spec)
    for place, numbers in enumerate(((3.0, 2.0), (-5.0, 4.0), (3.0, 2.0))):
        for parameter in actor.members[place].parameters():
            parameter.data.zero_()
        list(actor.members[place].parameters())[-1].data.copy_(torch.tensor(numbers))
    seen = {"observation": torch.ones(1, 3)}
    for first, second, wanted in (((1, 1), (0, 1), 0), ((1, 1), (1, 1), 1), ((0, 0), (0, 0), 1), ((0, 0), (0, 1), 1)):
        for coder, valid in zip(actor.coders, (first, second, first), strict=True):
            coder.decode[-1].weight.data.zero_()
            coder.decode[-1].bias.data.copy_(torch.tensor([1.0 if one else 1.2 for one in valid]).repeat_interleave(3))
            coder.log_limit.data.fill_(math.log(0.03) / 10.0)  # the errors are 0 and 0.04
        wrong += float(int(actor.act(seen, None)[0]) != wanted)
    return wrong


def solving_gap() -> float:
    """Returns the largest gap between the gradients of the phases that solve a problem and double DQN's."""
    data = probes.transitions(probes.CHOICE_SPEC)
    phases = iwocs().before[::2]
    return max(probes.formula_gap(phase.recipe, data, solving_by_hand, probes.CHOICE_SPEC) for phase in phases)


def found(seed: int) -> float:
    return worst_case_search(windy_walk(100 + seed))[0]


def nominal(seed: int) -> float:
    walk = windy_walk(100 + seed)
    return walk.worst_value(walk.optimal(walk.nominal).argmax(1))


def on_average(seed: int) -> float:
    """Returns the worst value of the policy that is best if every step draws its candidate: domain randomisation."""
    walk = windy_walk(100 + seed)
    mean = replace(walk, P=walk.P.mean(0, keepdim=True))
    return walk.worst_value(mean.optimal(mean.nominal).argmax(1))


def by_value_iteration(seed: int) -> float:
    walk = windy_walk(100 + seed)
    return walk.best(walk.robust())


CLAIMS = Claims(
    mutants=(
        Edit("the mean of the values", MaxMinQ.values, "torch.inf).amin(0)", "0.0).mean(0)"),
        Edit("every network counts everywhere", MaxMinQ.values, "valid | ~valid.any(0)", "valid | True"),
        Edit("where none is valid nothing counts", MaxMinQ.values, "valid | ~valid.any(0)", "valid"),
        Edit("the nominal regime in every phase", WorstRegime.__call__, "if policy is None", "if True"),
        Edit("the search never ends", WorstRegime.__call__, "worst[0] >= expected - self.tolerance", "False"),
        Edit("each network only in its own place", iwocs, "range(place, problems)", "range(place, place + 1)"),
        Edit("candidates stay in the whole box", WorstRegime.around, "0.5**place", "1.0"),
        Edit("the listed regimes alone", WorstRegime.__call__, "self.rounds if", "0 if"),
        Edit("candidates never reach a bound", WorstRegime.around, "BEYOND * ", "0.9 * "),
        Edit("returns without discount", WorstRegime.__call__, "played, self.discount", "played, 1.0"),
    ),
    claims=(
        Exact("after its phases nothing is trained: no target network, no stage",
              lambda: len(iwocs().copies) + len(iwocs().stages), equals=0.0),
        Exact("a phase trains in the worst regime, or the search is over", wrong_regimes, equals=0.0),
        Exact("between bounds it finds the worst regime, inside them and in a corner", search_gap, at_most=1e-6,
              of="bounds"),
        Exact("solved networks take their places, the last one also the empty ones", misplaced_networks,
              equals=0.0),
        Exact("networks count where they have data, all where none has", validity_errors, equals=0.0),
        Exact("networks learn by double DQN; coders fit their data and its 95 % quantile", solving_gap, at_most=1e-9),
        Measured("on windy walks its worst value is above the nominal policy's", "", found, nominal, minutes=0.1,
                 about=About.HEADLINE),
        Measured("on windy walks its worst value is above domain randomisation's", "", found, on_average, minutes=0.1,
                 about=About.HEADLINE),
        Measured("on windy walks its worst value is robust value iteration's", "", found, by_value_iteration,
                 expect=Expect.WITHIN, margin=1e-6, minutes=0.1, about=About.MECHANISM),
        Measured("with dqn its worst return is above dqn's", "windy-walk", iwocs(), quick_dqn().set("steps", 600),
                 metric=Final("evaluation_worst"), seeds=5, minutes=10.0, looks=4, about=About.HEADLINE),
    ),
)
