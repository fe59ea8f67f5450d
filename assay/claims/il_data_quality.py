"""Claims of il-data-quality: the bound and the measures in numbers, what noise leaves on record, what is foretold.

Axes: S states, A actions, H decisions, N rows.
"""

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Measured, probes, same_gradient, steps
from assay.claims.testbeds.control.detour import STEP, around, detour
from assay.method import Draw, Experience
from assay.methods.il_data_quality import divergence_bound, recipe, visited
from assay.statistics import Imitability, demonstrations, imitability
from assay.tasks.control import disturbed

MOVES = torch.tensor((((0.9, 0.1), (0.2, 0.8)), ((0.7, 0.3), (0.1, 0.9)))).double()
LEARNER, EXPERT = torch.tensor(((0.8, 0.2), (0.4, 0.6))).double(), torch.tensor(((0.6, 0.4), (0.5, 0.5))).double()
GRID = tuple((action, system) for action in (0.0, 0.4, 0.8) for system in (0.0, 0.4, 0.8))


def least_squares(seen: probes.Seen) -> Tensor:
    """Returns the loss of a Gaussian with mean f(s) and one deviation, without its constant."""
    step, actor = steps.step_of(seen), seen.models["actor"]
    error = (steps.in_half_ranges(step.action) - steps.output(actor, step.now)) / actor.log_std.exp()
    return step.mean((error.square() / 2 + actor.log_std).sum(-1))


def bound_gap() -> float:
    """Returns how far both sides of the bound are from 0.019494 and 0.122627 in the table, for four decisions."""
    found = divergence_bound(MOVES, LEARNER, EXPERT, torch.tensor((1.0, 0.0)).double(), 4)
    return probes.worst(abs(found[0] - 0.019494), abs(found[1] - 0.122627))


def largest_share() -> float:
    """Returns the largest left side over the right one in 50 random tables of three states and actions."""
    draw, found = torch.Generator().manual_seed(0), []
    for _ in range(50):
        moves, one, two = (
            (2 * torch.randn(*shape, 3, generator=draw).double()).softmax(-1) for shape in ((3, 3), (3,), (3,))
        )
        left, right = divergence_bound(moves, one, two, torch.tensor((0.2, 0.5, 0.3)).double(), 6)
        found.append(left / right)
    return max(found)


# ---------------------------------------------------------------------------------------------------- measures
def of_rows(states: object, actions: object, after: object, radius: float | None = None) -> Imitability:
    """Returns the measures of rows of one episode."""
    seen, done, then = (np.asarray(one) for one in (states, actions, after))
    return imitability(seen, done, then, np.arange(len(seen)) == len(seen) - 1, radius)


def variances_gap() -> float:
    """Returns how far the action variance is from 0 for an expert with one action in each of four states that are far
    apart, from 1 where it takes -1 and 1, and from a half for two choices in a numbered state.
    """
    states = np.repeat(np.array([0.0, 1.0, 2.0, 3.0]), 50)[:, None]
    sides = np.tile(np.array([-1.0, 1.0]), 100)[:, None]
    one = of_rows(states, np.sin(states), states, 0.3).action_variance
    two = of_rows(states, sides, states, 0.3).action_variance
    three = of_rows(np.repeat([4, 7], 10), np.tile([0, 1], 10), np.repeat([4, 7], 10)).action_variance
    four = of_rows(np.repeat([4, 7], 10), np.repeat([1, 0], 10), np.repeat([4, 7], 10)).action_variance
    return probes.worst(one, abs(two - 1.0), abs(three - 0.5), four)


def entropies_gap() -> float:
    """Returns how far transition entropies of system noise 0.05, 0.1, 0.2 are from -1.576794, -0.883647, -0.190499, how
    far action noise is from as much variance, and those of equal steps and of a table with chances 0.9 and 0.1 from the
    floor's and from 0.325083.
    """
    draw, gaps = np.random.default_rng(0).normal(size=(1_000, 1)), []
    noise, nothing = (draw - draw.mean()) / draw.std(), np.zeros((1_000, 1))
    for scale, entropy in ((0.05, -1.576794), (0.1, -0.883647), (0.2, -0.190499)):
        system = of_rows(nothing, nothing, scale * noise, 0.1)
        action = of_rows(nothing, scale * noise, scale * noise, 0.1)
        gaps += [abs(system.transition_entropy - entropy), system.action_variance]
        gaps += [abs(action.action_variance - scale**2), max(0.0, action.transition_entropy - entropy + 2.0)]
    steady = of_rows(np.linspace(0, 1, 200)[:, None], np.zeros((200, 1)), np.linspace(0.5, 1.5, 200)[:, None])
    gaps.append(abs(steady.transition_entropy - math.log(2 * math.pi * math.e * 1e-6) / 2))
    table = of_rows(np.zeros(20, int), np.repeat([0, 1], 10), np.array([0] * 9 + [1] + [1] * 10))
    return probes.worst(*gaps, abs(table.transition_entropy - 0.325083 / 2))


def order_gap() -> float:
    """Returns the largest difference of measures, the radius among them, of episodes in another order and twice, and
    how far from a hundredth of all pairs are neighbours.
    """
    draw = np.random.default_rng(1)
    seen, done, after = (draw.normal(size=(300, size)) for size in (2, 1, 2))
    ends = np.arange(300) % 30 == 29
    other = np.concatenate([np.arange(start, start + 30) for start in draw.permutation(10) * 30])
    one, *rest = (
        np.array(list(vars(imitability(seen[rows], done[rows], after[rows], ends[rows])).values()))
        for rows in (np.arange(300), other, np.tile(np.arange(300), 2))
    )
    rest[1][-1] /= 2.0
    return probes.worst(abs(one[2] - 0.01), *(float(np.abs(one - two).max()) for two in rest))


def wrong_records(action: float, system: float) -> float:
    """Returns how far the noise of recorded actions and that of what the system does with them are from these, where no
    bound clips, plus a tenth of the correlation of both axes.
    """
    (log,) = recipe(episodes=60, action_noise=action, system_noise=system).source.logs  # type: ignore[attr-defined]
    data = log.columns(detour())
    seen, done = data["context.observation"], data["action"][:, 0]
    meant = around({"observation": seen[:, 0]})
    inside = (done.abs() < 0.999).all(1) & (meant.abs() < 0.5).any(1)
    axis = (meant.abs() < 0.5)[inside]
    recorded, moved = done - meant, (seen[:, 1] - seen[:, 0]) / STEP - done
    both = moved[(done.abs() < 0.6).all(1)].T
    tied = 0.1 * float(torch.corrcoef(both)[0, 1].abs()) if system else 0.0
    recorded, moved = recorded[inside][axis], moved[inside][axis]
    return probes.worst(abs(float(recorded.std()) - action), abs(float(moved.std()) - system), tied)


# ---------------------------------------------------------------------------------------------------- what foretells
@cache
def cell(action: float, system: float, seed: int, num_steps: int = 60) -> tuple[float, float, float, float]:
    """Returns the success of a clone of ten demonstrations in 200 held-out episodes, then action variance, transition
    entropy and state entropy of its data.
    """
    made, task, starts = recipe(action_noise=action, system_noise=system, first=1_000 * seed), detour(), np.arange(200)
    actor = probes.trained(made, task, seed, num_steps).policy
    with torch.no_grad():
        played: Experience = task.play(actor, starts, 0 * starts, Draw(seed), split=1, greedy=True)
    (log,) = made.source.logs  # type: ignore[attr-defined]
    data = log.columns(task)
    ends = (data["terminal"] | data["truncated"])[:, 0].numpy()
    seen = data["context.observation"].numpy()
    of = imitability(seen[:, 0], data["action"][:, 0].numpy(), seen[:, 1], ends)
    success = float((played.reward * played.mask).sum(1).mean())
    return success, of.action_variance, of.transition_entropy, of.state_entropy


def success(action: float, system: float, seed: int, num_steps: int = 60) -> float:
    """Returns the success of the clone."""
    return cell(action, system, seed, num_steps)[0]


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks, of equal values their mean."""
    return np.array([(values < one).sum() + (values == one).sum() / 2 for one in values])


def rank_correlation(is_pair: bool, seed: int, num_steps: int = 60) -> float:
    """Returns Spearman's correlation over the grid of success with the pair, the rank of the transition entropy minus
    that of the action variance, or with the state entropy.
    """
    found = np.array([cell(*noises, seed, num_steps) for noises in GRID])
    told = ranks(found[:, 2]) - ranks(found[:, 1]) if is_pair else found[:, 3]
    return float(np.corrcoef(ranks(found[:, 0]), ranks(told))[0, 1])


def side(function: Callable[..., float], *given: float) -> Computed:
    """Returns a side of a comparison; its small version trains for two steps."""
    return Computed(partial(function, *given), small=partial(function, *given, num_steps=2))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is bc's, of least squares", recipe, least_squares, probes.transitions,
                      probes.BOX_SPEC),
        Exact("in a table of two states both sides of the bound are 0.019494 and 0.122627", bound_gap, at_most=1e-6),
        Exact("no random table exceeds the bound", largest_share, at_most=1.0, of="theory"),
        Exact("an expert with one action in a state has no action variance, one with -1 and 1 has 1, of choices 0.5",
              variances_gap, at_most=1e-12),
        Exact("system noise has the entropy of its density and no action variance, action noise its square",
              entropies_gap, at_most=5e-4),
        Exact("a hundredth of all pairs are neighbours, in whatever order episodes are, and if all are there twice",
              order_gap, at_most=1e-9),
        Exact("action noise is in what is recorded, and the system does what is", lambda: wrong_records(0.2, 0.0),
              at_most=0.02),
        Exact("system noise is in what is done, and the expert's own actions are recorded",
              lambda: wrong_records(0.0, 0.2), at_most=0.02),
        # What would refute it: that datasets are ranked as well by how diverse their states are.
        Measured("over nine pairs of noises action variance and transition entropy foretell success better than the "
                 "entropy of states", "", side(rank_correlation, True), side(rank_correlation, False), seeds=5,
                 minutes=8, about=About.HEADLINE),
        Measured("ten demonstrations whose noise is the system's are cloned better than ten whose actions have it", "",
                 side(success, 0.0, 0.4), side(success, 0.4, 0.0), seeds=5, minutes=3, about=About.MECHANISM),
        Measured("ten demonstrations with system noise are cloned better than ten without noise", "",
                 side(success, 0.0, 0.4), side(success, 0.0, 0.0), seeds=5, minutes=3, about=About.MECHANISM),
    ),
    mutants=(
        Edit("states of the expert", divergence_bound, "(ours * divergence", "(theirs * divergence"),
        Edit("weights of the other end", divergence_bound, "torch.arange(horizon - 1, -1, -1,",
             "torch.arange(horizon,"),
        Edit("the state after the last decision", visited, "range(horizon - 1)", "range(horizon)"),
        Edit("neighbours in state alone", imitability, "(apart, apart + acts)", "(apart, apart)"),
        Edit("the next state itself", imitability, "as_vectors(after) - state", "as_vectors(after)"),
        Edit("without the own row", demonstrations.near, "squared <= radius", "0 < squared <= radius"),
        Edit("the bias of a small neighbourhood", demonstrations.near, "SHARE * squared.size", "SHARE * len(squared)"),
        Edit("system noise is recorded", disturbed.demonstrated, "disturbed(task, system_noise)",
             "disturbed(task, action_noise)"),
        Edit("noise of one axis", disturbed.DisturbedSimulation.step, "np.arange(self.space.size)",
             "0 * np.arange(self.space.size)"),
    ),
)
