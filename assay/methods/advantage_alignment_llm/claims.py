"""The loss by hand on games of several decisions a round, and expected gradients over all games."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Experience

GAMES = probes.all_games(((-1.0, -3.0), (0.0, -2.0)), rounds=3)
LOGITS_SA = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64).view(5, 2)


def rounds(seed: int = 0) -> Experience:
    """Returns games of two players in groups of four; a round is up to two decisions, and some games are shorter."""
    data, row = probes.sequences(seed, num=32), torch.arange(32)
    turn = (torch.arange(data.num_columns) - 1).clamp(min=0) // 2
    data = replace(data, player=row % 2, episode=row // 2, group=row // 8 * 2 + row % 2)
    return replace(data, turn=turn.expand(data.mask.shape))


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, own, aligned = seen.experience, {}, torch.zeros_like(seen.experience.reward)
    assert data.group is not None
    assert data.turn is not None
    to_go: dict[tuple[int, int], torch.Tensor] = {}
    for row, mask in enumerate(data.mask):
        for turn in data.turn[row][mask].unique().tolist():
            later = mask & (data.turn[row] >= turn)
            to_go[row, turn] = (data.reward[row] * 0.96 ** (data.turn[row] - turn).double())[later].sum()
    for (row, turn), value in to_go.items():
        others = [to_go[b, r] for b, r in to_go if r == turn and b != row and data.group[b] == data.group[row]]
        own[row, turn] = value - sum(others) / max(1, len(others))
    for (row, turn), value in own.items():
        past = sum(0.96 ** (turn - k) * own[row, k] for k in range(turn))
        shaped = value + 0.96 * past * own.get((row + 1 - 2 * (row % 2), turn), 0.0)
        aligned[row, data.mask[row] & (data.turn[row] == turn)] = shaped
    aligned = aligned / (aligned[data.mask].std() + 1e-8)
    return -by_hand.mean_of_decisions(aligned * seen.logp() + 0.02 * by_hand.entropy(seen), data)


def bias_of_base(recipe: Callable[..., Recipe]) -> torch.Tensor:
    found = probes.expected_game_gradient(recipe(beta=0.0, discount=1.0).credit[:2], GAMES, LOGITS_SA)
    return (found - probes.exact_game_gradient(GAMES, LOGITS_SA)).norm()


def push_to_cooperate(recipe: Callable[..., Recipe], beta: float, state: int) -> torch.Tensor:
    """Returns the uniform policy's expected gradient; state 1 follows mutual cooperation, 4 mutual defection."""
    return probes.expected_game_gradient(recipe(beta=beta).credit[:2], GAMES, 0 * LOGITS_SA)[state, 0]
