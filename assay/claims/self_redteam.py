"""Claims of self-redteam: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace

import torch

from assay.claims import About, Claims, Exact, Measured, by_hand, probes, refuses, sorting
from assay.method import Experience
from assay.methods.self_redteam import FixedOpponents, recipe
from assay.tasks.language.redteam import RedTeaming

SMALL = recipe().set("actor.width", 64).set("rollout.num_starts", 16)


STATIC = replace(SMALL, rollout=FixedOpponents(num_starts=16, player=1))


def games(above: float = 0.0) -> Experience:
    """Returns sequences of two roles that share games: outcomes larger and less spread, and further `above` 0."""
    data = probes.sequences(num=24)
    role = torch.arange(len(data)) % 2
    second = data.reward + above * data.reward.clamp(min=0.0)
    reward = torch.where(role.unsqueeze(1) == 0, 0.3 * data.reward + 1.0, second)
    return replace(data, reward=reward, player=role, episode=torch.arange(len(data)) // 2)


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0)
    by_role = replace(data, reward=data.reward - 0.01 * moved, group=data.player)
    advantage = by_hand.standardised(by_role, epsilon=1e-4).unsqueeze(1)
    return -by_hand.mean_of_decisions(by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.2), data)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, each role normalised alone",
              lambda: probes.formula_gap(recipe(), games(), loss_by_hand), at_most=1e-9),
        Exact("its gradient is the formula's also with outcomes further above 0 than below it",
              lambda: probes.formula_gap(recipe(), games(above=2.0), loss_by_hand), at_most=1e-9),
        refuses("a task that is not a game is refused", recipe, sorting, RedTeaming, of=""),
        Measured("a defender of self-play is right more often on unseen combinations than one of static attacks",
                 "red-teaming", SMALL, STATIC, seeds=5, minutes=5.0, steps=60, warmup=100, about=About.HEADLINE),
    ),
)
