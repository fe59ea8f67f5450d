"""Pairs of turns by hand: their loss, its minimum, where they begin, what they share.

Axes: B sequences, T decisions.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, probes
from assay.claims.probes.estimators import bandit_gradient_of
from assay.method import BIGRAMS, Draw, Experience, Preset, Recipe
from assay.methods.refuel import EarlyTurn, FutureOfTurn, PairsFromTurn, last_turn, recipe
from assay.parts import Episodes
from assay.tasks.language.twenty_questions import twenty_questions


def in_turns() -> Experience:
    """Returns pairs of rows in turns of two columns, rewards on all of them, each pair with a turn of its own."""
    data = probes.sequences(num=24, group_size=2)
    turn = (torch.arange(7) // 2).expand_as(data.action)
    return replace(data, turn=turn).add({"pair_turn": torch.arange(24) // 2 % 3})


def gap(ours: Recipe, eta: float) -> float:
    def loss_by_hand(seen: probes.Seen) -> Tensor:
        data, moved, pairs = seen.experience, seen.logp() - seen.experience.logp, []
        assert data.turn is not None
        for one in range(0, len(data), 2):
            turn = data.turn[one] - data.column("pair_turn")[one]
            own, later = (data.mask[one : one + 2] & there for there in (turn == 0, turn >= 0))
            if bool(own.any(1).all()):
                value = (data.reward[one : one + 2] * later).sum(1)
                apart = torch.where(own, moved[one : one + 2], 0.0).sum(1).diff()
                pairs.append((apart - eta * value.diff()).square() / (4 * eta))
        return torch.cat(pairs).mean()

    return probes.formula_gap(ours, in_turns(), loss_by_hand)


def slope(ours: Recipe, *policy: float) -> Tensor:
    """Returns the largest slope at a policy over three turns worth 1, 0 and -1, whose pairs (.5, .3, .2) drew."""
    old = torch.tensor([0.5, 0.3, 0.2]).double().log()
    data = probes.bandit_experience([0, 1, 0, 2, 1, 2], [1.0, 0.0, 1.0, -1.0, 0.0, -1.0], old, members=2)
    return bandit_gradient_of(ours, data, torch.tensor(policy).double().log()).abs().max()


def distance_from_shares(ours: Recipe) -> float:
    """Returns how far the shares of the turns of 20,000 conversations of five are from those of the formula."""
    assert isinstance(ours.rollout, PairsFromTurn)
    starts = np.arange(20_000)
    found = np.bincount(ours.rollout.turn(np.full(20_000, 5), starts, Draw(3)), minlength=5) / 20_000
    return float(np.abs(found - [137 / 300, 77 / 300, 47 / 300, 27 / 300, 12 / 300]).max())


def wrong_pairs(ours: Recipe, starts: int = 24) -> float:
    """Returns how many pairs of conversations do not: share the tokens before their turn, decide from there on with
    the recorded log-probabilities, and end; plus 1 if most pairs do not differ, or a turn is missing.
    """
    task = twenty_questions(2)
    (found,), actor, _ = probes.gathered(ours, task, starts=starts)
    with torch.no_grad():
        wrong = float(not (actor.score(found, frozenset()).logp - found.logp * found.mask).abs().max() <= 1e-4)
    assert found.turn is not None
    assert found.group is not None
    told, differ, turns = found.column("answer"), 0, found.column("pair_turn")
    for one in range(starts):
        pair = (found.group == one).nonzero().flatten().tolist()
        first = [int(found.mask[row].nonzero()[0]) for row in pair]
        tokens = [found.action[row, : first[0]].tolist() for row in pair]
        wrong += len(pair) != 2 or first[0] != first[-1] or tokens[0] != tokens[-1]
        for row in pair:
            later = found.turn[row] >= turns[row]
            wrong += not torch.equal(found.mask[row], told[row] & later) or not bool(found.terminal[row].any())
        differ += not torch.equal(*(found.action[row] for row in pair))
    return wrong + (differ < starts // 2) + (set(turns.tolist()) != {0, 1, 2, 3})


def answers_gap(ours: Recipe) -> float:
    """Returns the distance of its push on answers without turns from REBEL's, which has no credit of its own."""
    data = probes.bandit_experience([0, 1, 2, 0], [1.0, 0.0, 1.0, -1.0], torch.zeros(3), members=2)
    logp = data.logp + torch.tensor([[0.3], [-0.2], [0.0], [0.1]]).double()
    rebel = replace(ours, credit=())
    return float((probes.decision_weights(ours, data, logp) - probes.decision_weights(rebel, data, logp)).abs().max())


def whole(preset: Preset) -> Recipe:
    """Returns the regression of whole conversations, two from each prompt, all turns at once."""
    return replace(recipe(preset), name="whole", credit=(), rollout=Episodes(128, 2))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's, of rewards from the turn on and of that turn's log-ratios alone",
              lambda: max(gap(recipe(), 1.0), gap(recipe(eta=0.2), 0.2)), at_most=1e-9),
        Exact("the minimum over all pairs is (.5, .3, .2) exp(Q) / Z",
              lambda: slope(recipe(), 0.78440, 0.17314, 0.04246), at_most=1e-4, illustrates=True),
        Exact("turns are drawn early: .457, .257, .157, .090 and .040 of five", lambda: distance_from_shares(recipe()),
              at_most=0.01),
        Exact("pairs share the conversation before their turn and differ after it", lambda: wrong_pairs(recipe()),
              equals=0.0),
        Exact("on answers without turns it is REBEL, bit by bit", lambda: answers_gap(recipe()), equals=0.0,
              tolerance=0.0, illustrates=True),
        Measured("with equally many generated tokens it succeeds more often in conversations of three turns than REBEL "
                 "on their last turns", "elicitation:turns=3", recipe(BIGRAMS), last_turn(BIGRAMS),
                 AtEqual("evaluation", "decisions_total"), seeds=5, minutes=6.0, steps=30, looks=2,
                 about=About.HEADLINE),
        Measured("with equally many generated tokens it succeeds more often in conversations of three turns than the "
                 "regression of whole conversations", "elicitation:turns=3", recipe(BIGRAMS), whole(BIGRAMS),
                 AtEqual("evaluation", "decisions_total"), seeds=5, minutes=6.0, steps=30, looks=2,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("all later turns are trained", FutureOfTurn.apply, "since == 0", "since >= 0"),
        Edit("rewards of the turn alone", FutureOfTurn.apply, "reward * later", "reward * mask"),
        Edit("turns are uniform", EarlyTurn.__call__, "range(2)", "range(1)"),
        Edit("the second conversation has its own prompt alone", PairsFromTurn.__call__, "is_shared.sum(1)",
             "0 * is_shared.sum(1)"),
        Edit("shared turns are decisions", PairsFromTurn.__call__, "first.mask & ~is_shared", "first.mask"),
    ),
    equivalent={
        "inside: mean.detach().clamp(smallest, largest) - mean.detach() -> mean.detach().clamp(smallest, largest) + "
        "mean.detach()": "the mean of two numbers is never rounded to a number outside of them",
    },
)
