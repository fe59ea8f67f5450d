"""advantage-alignment-llm: reinforces helping the opponent after positive advantages of its own; groups, no critic.

    A*_t = A_t + beta * gamma * (sum_(k < t) gamma^(t - k) A_k) * A'_t,   payoffs in units of their range
    A_t  = G_t - mean over the other copies of the game of their G_t,   G_t = r_t + gamma G_(t + 1)

Piche et al. 2025, after Advantage Alignment (arXiv:2406.14662). A' are the opponents' advantages. Naive self-play
ends in mutual defection; answering good with good and bad with bad makes cooperation stable and cannot be exploited.

Axes: B rows, T decisions, R turns.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Credit, Experience, GameTask, Method, Preset, Recipe, Scene, Stage, State
from assay.method import groups, recipes, returns
from assay.parts import EntropyBonus, NoTrust, PolicyGradient, Whiten


def turns_of(experience: Experience) -> Tensor:
    """Returns the turn of each decision, [B, T]; 0 where the mask is false."""
    mask = experience.mask
    count = mask.long().cumsum(1) - 1
    return torch.where(mask, count if experience.turn is None else experience.turn.expand(mask.shape), 0)


def by_turn(value_BT: Tensor, turn_BT: Tensor, num_turns: int) -> Tensor:
    """Sums over the decisions of each turn, [B, R]. Assumes that `value_BT` is 0 where the mask is false."""
    return value_BT.new_zeros(len(value_BT), num_turns).scatter_add(1, turn_BT, value_BT)


def over_rows(value_BR: Tensor, rows: groups.Groups) -> Tensor:
    """Returns for each row the sum over the rows of its group, [B, R]."""
    return value_BR.new_zeros(rows.num, value_BR.shape[1]).index_add_(0, rows.index, value_BR)[rows.index]


@dataclass(frozen=True)
class LeaveOneOutToGo(Credit):
    """A_t = G_t - mean of G_t over the other rows of the group that have turn t;  G_t = r_t + discount * G_(t+1).

    The group-relative baseline of repeated games (arXiv:2511.19405): copies of one start are compared round by round,
    without a critic. The baseline does not depend on the row's own decisions, so the gradient is unbiased. With
    `discount` 1 and rewards at the end it is the leave-one-out outcome. Degenerate: a turn that only one row has has
    baseline 0; a truncated episode counts the rewards that were seen.
    """

    discount: float = 1.0
    centred: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"episodes": "credit along time ends with its row, though a turn shares it"}
    writes: ClassVar[tuple[str, ...]] = ("advantage", "return")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `return`."""
        mask, reward, turn = experience.mask, experience.reward, turns_of(experience)
        first, to_go = first_of_turns(mask, turn), self.to_go(experience, turn)
        num = int(turn.max()) + 1
        own = by_turn(torch.where(first, to_go, 0.0), turn, num)
        there = by_turn(first.to(reward.dtype), turn, num)
        rows = groups.row_groups(experience)
        totals, counts = (over_rows(one, rows) - one for one in (own, there))
        baseline = torch.where(counts > 0.5, totals / counts.clamp(min=1), 0.0)
        advantage = (own - baseline).gather(1, turn) * mask
        return experience.add({"advantage": advantage, "return": own.gather(1, turn) * mask})

    def to_go(self, experience: Experience, turn: Tensor) -> Tensor:
        """Returns the reward to go, discounted per turn and not per decision, [B, T]."""
        mask, reward = experience.mask, experience.reward
        nothing = torch.zeros_like(reward)
        _, goes_on = returns.following_value(nothing, mask, experience.terminal, experience.truncated)
        here = torch.where(mask, turn, -1)
        # The turn of the next decision is the smallest later one, since turns never decrease along a row.
        later = torch.where(mask, turn, turn.max() + 1).flip(1).cummin(1).values.flip(1)
        following = torch.nn.functional.pad(later[:, 1:], (0, 1))
        step = torch.where(following == here, reward.new_tensor(1.0), reward.new_tensor(self.discount))
        return returns.accumulate(reward * mask, 1.0, mask, goes_on * step)


def first_of_turns(mask_BT: Tensor, turn_BT: Tensor) -> Tensor:
    """Marks the first decision of each turn, bool [B, T]."""
    seen = torch.where(mask_BT, turn_BT, -1).cummax(1).values
    before = torch.nn.functional.pad(seen[:, :-1], (1, 0), value=-1)
    return mask_BT & (turn_BT > before)


def own_and_others(experience: Experience, turn_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row's advantage by turn, the mean over the decisions of its player, and the sum over the other
    players of the game of theirs, [B, R] both.
    """
    advantage, mask = experience.column("advantage"), experience.mask
    num = int(turn_BT.max()) + 1
    mine, games = groups.episode_groups(experience), groups.game_groups(experience)
    total, decisions = (
        over_rows(by_turn(one, turn_BT, num), mine) for one in (advantage * mask, mask.to(advantage.dtype))
    )
    own = total / decisions.clamp(min=1)
    # Every row of a player holds the player's mean, so the sum over a game is taken over players, not rows.
    rows = torch.ones_like(own[:, :1])
    return own, over_rows(own / over_rows(rows, mine), games) - own


@dataclass(frozen=True)
class AddOthers(Credit):
    """A*_t = A_t + A'_t: the advantages of the sum of all players' rewards, the rival that anyone can exploit.

    Advantages to go are linear in rewards, so that summing them is summing rewards first. Degenerate: a record without
    players changes nothing.
    """

    centred: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`."""
        advantage, mask = experience.column("advantage"), experience.mask
        if experience.player is None or experience.episode is None:
            return experience.add({"advantage": advantage * mask})
        turn = turns_of(experience)
        _, others = own_and_others(experience, turn)
        return experience.add({"advantage": (advantage + others.gather(1, turn)) * mask})


@dataclass(frozen=True)
class AlignAdvantages(Credit):
    """A*_t = A_t + beta / unit * discount * (sum_(k < t) discount^(t - k) A_k) * A'_t,  A' the opponents' advantages.

    Advantage alignment (arXiv:2406.14662; with language models arXiv:2511.19405): reinforces what helps the opponent
    after positive advantages of its own, and what harms it after negative ones. Place it after any credit that writes
    `advantage`. Assumes that turn t is the same round in all rows of a game; a turn's advantage is the mean over its
    decisions in all rows of the player. Several opponents are summed. `unit` is what payoffs are divided by before they
    are aligned, since the product would else grow with their square: the authors divide by 5 and by 100. None is the
    range of a round's payoffs as the task states it, 1 if it does not. Degenerate: `beta` 0, a game of one player or a
    record without players changes nothing.
    """

    beta: float = 0.5
    discount: float = 0.9
    unit: float | None = None
    centred: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task is not a game of several players."""
        task = scene.task
        if task is not None and not (isinstance(task, GameTask) and task.num_players > 1):
            told = f"aligned advantages need a game of at least two players; '{task.name}' has one"
            raise AssayError(f"{told}. Use a game such as prisoners-dilemma, or a method such as rloo")
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`."""
        advantage, mask = experience.column("advantage"), experience.mask
        if experience.player is None or experience.episode is None or not self.beta:
            return experience.add({"advantage": advantage * mask})
        turn = turns_of(experience)
        own, others = own_and_others(experience, turn)
        shaping = self.beta / self.payoff_unit(scene) * self.discount * self.past(own) * others
        return experience.add({"advantage": (advantage + shaping.gather(1, turn)) * mask})

    def payoff_unit(self, scene: Scene) -> float:
        """Returns what payoffs are divided by."""
        stated = scene.task.spec.scores if scene.task is not None else None
        return self.unit or (stated[1] - stated[0] if stated else 1.0)

    def past(self, own_BR: Tensor) -> Tensor:
        """Returns sum_(k < t) discount^(t - k) A_k, [B, R]."""
        held, carry = [], torch.zeros_like(own_BR[:, 0])
        for turn in range(own_BR.shape[1]):
            held.append(carry)
            carry = self.discount * (carry + own_BR[:, turn])
        return torch.stack(held, 1)


def recipe(preset: Preset = LANGUAGE, beta: float = 0.5, discount: float = 0.9) -> Recipe:
    """Returns self-play with aligned group advantages, one on-policy step."""
    loss, bonus = (PolicyGradient(trust=NoTrust()),), (EntropyBonus(0.02),)
    stage = Stage("policy", ("actor",), loss, bonus, optimizer=preset.optimizer)
    credit = (LeaveOneOutToGo(discount), AlignAdvantages(beta, discount), Whiten(centre=False))
    return replace(recipes.rloo(preset), name="advantage-alignment-llm", credit=credit, stages=(stage,))


def sum_of_rewards(preset: Preset = LANGUAGE, discount: float = 0.9) -> Recipe:
    """Returns the rival in which every player maximises the sum of all payoffs."""
    base = recipe(preset, 0.0, discount)
    return replace(base, name="sum-of-rewards", credit=(base.credit[0], AddOthers(), *base.credit[2:]))


METHOD = Method(
    paper="arXiv:2511.19405",
    recipe=recipe,
    default_task="prisoners-dilemma",
    family="games",
    base=recipes.rloo,
    aliases=("advantage-alignment",),
    variants={"naive-self-play": partial(recipe, beta=0.0), "sum-of-rewards": sum_of_rewards},
    departures=(
        "matrix games, with messages before each move in those named -talk: of three tokens for a transformer that "
        "begins from nothing, in words for a chat model (--model), 8 rounds; no Trust-and-Split, no earlier opponents",
        "a move of a chat model that cannot be read is drawn at random; with a model nothing is measured",
        "payoffs are divided by their range for the alignment alone, by 5 and 100 in the authors' code; beta 0.5 and "
        "discount 0.9 are theirs for the dilemma",
        "the published code's options (signs, clipping, 1 / t, branches of alternative actions, gamma^t) are left out",
        "one plain policy-gradient step a batch; credit scaled to deviation 1, entropy bonus 0.02, no KL term",
    ),
    pilots=(
        "beta 0.5 with discount 0.9, and 1, 2 and 3 with 0.96, on the table's dilemma, seeds 900 and 901: -1.1 and "
        "-1.2 in self-play, the others -1.3, and all -2.1 against a defector",
        "on the game with talk, seed 900: with four rounds -2.0 after 100 steps; the sum of rewards has -1.1 in "
        "self-play and -2.9 against a defector after 20",
    ),
)
