"""dapo's loss by hand, and its soft limit of the length on given answers. Axes: B sequences, T decisions."""

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Exact, Expect, Final, Item, Loop, Measured, bandit, by_hand
from assay.claims import probes, same_gradient
from assay.method import CONTROL, PLACES, TABLE, Experience, Scene, Verifier, recipes
from assay.parts import Informative, OverlongPenalty

LENGTHS = (2, 10, 16, 17, 18, 19, 20)
"""Tokens of right answers, the end token included."""


def some_without_signal() -> Experience:
    """Returns six groups: the second and the last, where a row has no decision, are all right, the third all wrong."""
    data, group = probes.sequences(num=24), torch.arange(24).unsqueeze(1) // 4
    reward = torch.where((group == 1) | (group == 5), data.terminal | data.truncated, data.reward)
    return replace(data, reward=torch.where(data.mask & (group == 2), 0.0, reward))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    differs = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one != one[0]).any().double().expand_as(one))
    return by_hand.token_loss(seen, by_hand.standardised(data), high=0.28, kept=differs > 0)


def rounds_without_signal() -> float:
    """Returns the decisions sampled for one step where all rewards are equal, in batches of 8 starts x 8 samples."""
    loop = Loop(recipes.dapo(TABLE), bandit((0.5, 0.5)), seed=0, num_steps=1)
    loop.step()
    return loop.progress.decisions / 64


def distance_from_ramp(shown: int) -> Tensor:
    """Returns how far the advantages of one group are from those by hand, at a limit of 20 tokens and with
    demonstrations of up to `shown` tokens. Besides right answers there are one that is cut and a wrong one
    of 18 tokens.
    """
    task = probes.listed(Item("q", "7", "." * (shown - 2) + "7"), Item("r", "7", "7"), max_tokens=20)
    said = [*("." * (length - 2) + "7" for length in LENGTHS), "." * 19 + "7", "." * 17]
    found = probes.completed(task, said, [0] * len(said), cut=[len(LENGTHS)])
    for part in (Verifier(), *recipes.dapo().credit):
        found = part(found, Scene(task))
    begin = max(16, shown)
    total = torch.tensor([1.0 - max(0, length - begin) / max(1, 20 - begin) for length in (*LENGTHS, 20, 18)])
    total[-1] -= 1.0
    advantage = (total - total.mean()) / (total.std() + 1e-4)
    return torch.where(found.mask, found.column("advantage") - advantage.unsqueeze(1), 0.0).abs().max()


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's, without groups of equal rewards", recipes.dapo,
                      loss_by_hand, some_without_signal),
        Exact("answers get the ramp between 16 and 20 tokens", lambda: distance_from_ramp(2), at_most=1e-6),
        Exact("the ramp begins after the longest demonstration", lambda: distance_from_ramp(19), at_most=1e-6),
        Exact("on control its credit is grpo's: long episodes are not penalised",
              lambda: recipes.dapo(CONTROL).credit == recipes.grpo(CONTROL).credit, equals=1.0),
        Exact("groups of equal rewards are sampled again, in three rounds", rounds_without_signal, equals=3.0),
        Measured("fewer groups without signal reach the update than in grpo", "sorting-5", recipes.dapo(),
                 recipes.grpo(), Average("zero_advantage_groups"), Expect.BELOW, margin=0.05, seeds=5, minutes=4.0,
                 steps=100, warmup=60, about=About.COMPONENT),
        Measured("with four passes over a batch it is right more often than grpo after as many steps", "levels",
                 recipes.dapo(PLACES).set("epochs", 4), recipes.grpo(PLACES).set("epochs", 4), Final("pass_rate"),
                 seeds=10, minutes=6.0, steps=60, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("long answers gain", OverlongPenalty.apply, "begin - length", "length - begin"),
        Edit("the penalty replaces the reward", OverlongPenalty.apply, "experience.reward + penalty", "penalty"),
        Edit("the ramp begins at the limit's half", recipes.dapo, "OverlongPenalty()", "OverlongPenalty(margin=0.5)"),
        Edit("no ramp", recipes.dapo, "(OverlongPenalty(),) if preset.tokens else ()", "()"),
        Edit("long episodes of control are penalised", recipes.dapo, " if preset.tokens else ()", ""),
        Edit("grpo's upper clip", recipes.dapo, "0.28", "0.2"),
        Edit("one round of sampling", recipes.dapo, "Informative()", "Informative(max_rounds=1)"),
        Edit("groups that are all right are kept", Informative.apply,
             "groups.differs(groups.outcome(experience), groups.row_groups(experience))",
             "groups.outcome(experience) > 0"),
    ),
)
