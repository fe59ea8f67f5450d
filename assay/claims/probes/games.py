"""Small repeated games whose histories are all enumerated.

Axes: H histories of a game, P = 2 players, T rounds, N copies played in parallel, S states, A = 2 moves. State 0 is
the first round; state 1 + 2 * own move + opponent's move is the previous round as each player sees it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import Prepare


@dataclass(frozen=True, eq=False)
class AllGames:
    """States, moves and payoffs [H, P, T] of all histories of a game of two players with two moves."""

    state: Tensor
    action: Tensor
    reward: Tensor

    @property
    def shape(self) -> torch.Size:
        """Returns [H, P, T]."""
        return self.action.shape

    def logp(self, logits_SA: Tensor) -> Tensor:
        """Returns the log-probability of each move under a table, [H, P, T]."""
        return logits_SA.log_softmax(-1)[self.state, self.action]

    def copies(self, picked_NM: Tensor) -> Experience:
        """Returns groups of copies: row n of `picked_NM` names the histories of group n. Rows are (group, copy,
        player).
        """
        num, members = picked_NM.shape
        course = picked_NM.flatten()
        state, action, reward = (column[course].flatten(0, 1) for column in (self.state, self.action, self.reward))
        player = torch.arange(2).repeat(num * members)
        is_last = (torch.arange(self.shape[2]) == self.shape[2] - 1).expand(action.shape)
        return Experience(
            context={"state": state},
            action=action,
            mask=torch.ones_like(is_last),
            logp=torch.zeros_like(reward),
            reward=reward,
            terminal=is_last,
            truncated=torch.zeros_like(is_last),
            group=torch.arange(num).repeat_interleave(2 * members) * 2 + player,
            episode=torch.arange(num * members).repeat_interleave(2),
            player=player,
            turn=torch.arange(self.shape[2]).expand(action.shape),
        )


def all_games(payoff: Sequence[Sequence[float]], rounds: int) -> AllGames:
    """Returns all 4^rounds histories of a symmetric game; `payoff[own][other]` is a round's reward for two moves."""
    moves = torch.tensor(list(itertools.product(range(4), repeat=rounds)))
    action = torch.stack([moves // 2, moves % 2], 1)
    remembered = 1 + 2 * action + action.flip(1)
    state = torch.cat([torch.zeros_like(remembered[..., :1]), remembered[..., :-1]], -1)
    return AllGames(state, action, torch.tensor(payoff, dtype=torch.float64)[action, action.flip(1)])


def expected_game_gradient(credit: Sequence[Prepare], games: AllGames, logits_SA: Tensor, members: int = 2) -> Tensor:
    """Returns E[sum over players and rounds of A_t * d log pi(a_t | s_t) / d logits] in self-play, [S, A]: the mean
    over the copies of a group, by enumeration of all groups of `members` copies.
    """
    picked = torch.cartesian_prod(*[torch.arange(len(games.action))] * members).view(-1, members)
    experience = games.copies(picked)
    for part in credit:
        experience = part(experience)
    table = logits_SA.detach().requires_grad_()
    logp_HPT = games.logp(table)
    weight = logp_HPT.detach().sum((1, 2))[picked].sum(1).exp()
    advantage = experience.column("advantage").view(*picked.shape, *logp_HPT.shape[1:])
    value = (weight.view(-1, 1, 1, 1) * advantage * logp_HPT[picked]).sum() / members
    (slope,) = torch.autograd.grad(value, table)
    return slope


def exact_game_gradient(games: AllGames, logits_SA: Tensor) -> Tensor:
    """Returns sum_i d J_i / d theta_i at theta_1 = theta_2, [S, A]: each player's undiscounted return by its own
    moves.
    """
    tables = [logits_SA.detach().clone().requires_grad_() for _ in range(2)]
    logp_HP = torch.stack([games.logp(table)[:, player].sum(-1) for player, table in enumerate(tables)], 1)
    probability_H = logp_HP.sum(1).exp()
    total = torch.zeros_like(logits_SA)
    for player, table in enumerate(tables):
        value = (probability_H * games.reward[:, player].sum(-1)).sum()
        (slope,) = torch.autograd.grad(value, table, retain_graph=True)
        total = total + slope
    return total
