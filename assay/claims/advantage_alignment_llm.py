"""The loss by hand on games of several decisions a round, and expected gradients over all games.

Axes: B games, R rounds.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, bandit, by_hand, probes, refuses
from assay.method import TABLE, Draw, Experience, Recipe, Scene
from assay.methods.advantage_alignment_llm import AlignAdvantages, own_and_others, recipe, sum_of_rewards
from assay.tasks.games.repeated import LEVELS
from assay.tasks.games.talk import LEVELS as TALK

GAMES = probes.all_games(((-1.0, -3.0), (0.0, -2.0)), rounds=3)


LOGITS_SA = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64).view(5, 2)


def rounds(seed: int = 0) -> Experience:
    """Returns games of two players in groups of four; a round is up to two decisions, and some games are shorter."""
    data, row = probes.sequences(seed, num=32), torch.arange(32)
    turn = (torch.arange(data.num_columns) - 1).clamp(min=0) // 2
    data = replace(data, player=row % 2, episode=row // 2, group=row // 8 * 2 + row % 2)
    return replace(data, turn=turn.expand(data.mask.shape))


def loss_by_hand(seen: probes.Seen, summed: bool = False) -> torch.Tensor:
    """Returns the loss of aligned advantages; `summed`, of those of the sum of both players' rewards."""
    data, own, aligned = seen.experience, {}, torch.zeros_like(seen.experience.reward)
    assert data.group is not None
    assert data.turn is not None
    to_go: dict[tuple[int, int], torch.Tensor] = {}
    for row, mask in enumerate(data.mask):
        for turn in data.turn[row][mask].unique().tolist():
            later = mask & (data.turn[row] >= turn)
            to_go[row, turn] = (data.reward[row] * 0.9 ** (data.turn[row] - turn).double())[later].sum()
    for (row, turn), value in to_go.items():
        others = [to_go[b, r] for b, r in to_go if r == turn and b != row and data.group[b] == data.group[row]]
        own[row, turn] = value - sum(others) / max(1, len(others))
    for (row, turn), value in own.items():
        past = sum(0.9 ** (turn - k) * own[row, k] for k in range(turn))
        theirs = own.get((row + 1 - 2 * (row % 2), turn), 0.0)
        shaped = value + (theirs if summed else 0.5 * 0.9 * past * theirs)
        aligned[row, data.mask[row] & (data.turn[row] == turn)] = shaped
    aligned = aligned / (aligned[data.mask].std() + 1e-8)
    return -by_hand.mean_of_decisions(aligned * seen.logp() + 0.02 * by_hand.entropy(seen), data)


def talked(ours: Recipe) -> Experience:
    """Returns games with talk whose decisions are three words and a move a round, credited by the recipe."""
    task = TALK["prisoners-dilemma-talk"]()
    actor, starts = probes.small_policy(task), np.repeat(np.arange(2), 3)
    played = task.play(actor, starts, np.tile(np.arange(3), 2), Draw(0), split=0, greedy=False)
    scene = Scene(task)
    for part in ours.credit[:2]:
        played = part(task.judge(played, 0), scene)
    return played


def payoffs_in_units(ours: Recipe) -> float:
    """Returns how far the alignment of a game with payoffs from -3 to 0 is from the formula with payoffs in thirds, and
    how many words have another credit than the move after them.
    """
    played = talked(ours)
    own = talked(replace(ours, credit=(ours.credit[0], AlignAdvantages(beta=0.0))))
    assert played.turn is not None
    gap, rounds = 0.0, [column for column in range(played.num_columns) if bool(played.mask[0, column])]
    first, credit = own.column("advantage"), played.column("advantage")
    for row in range(len(played)):
        other, past = (row + 6) % 12, 0.0
        for turn in range(8):
            here = rounds[4 * turn : 4 * turn + 4]
            mine, theirs = float(first[row, here[0]]), float(first[other, here[0]])
            wanted = mine + 0.5 / 3.0 * 0.9 * past * theirs
            gap = probes.worst(gap, float((credit[row, here] - wanted).abs().max()))
            past = 0.9 * (past + mine)
    return gap


def bias_of_base(recipe: Callable[..., Recipe]) -> torch.Tensor:
    found = probes.expected_game_gradient(recipe(beta=0.0, discount=1.0).credit[:2], GAMES, LOGITS_SA)
    return (found - probes.exact_game_gradient(GAMES, LOGITS_SA)).norm()


def push_to_cooperate(recipe: Callable[..., Recipe], beta: float, state: int) -> torch.Tensor:
    """Returns the uniform policy's expected gradient; state 1 follows mutual cooperation, 4 mutual defection."""
    return probes.expected_game_gradient(recipe(beta=beta).credit[:2], GAMES, 0 * LOGITS_SA)[state, 0]


SMALL = recipe().set("actor.width", 32).set("rollout.num_starts", 8).set("learning_rate", 1e-3)


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's",
              lambda: probes.formula_gap(recipe(), rounds(), loss_by_hand), at_most=1e-9),
        Exact("its gradient is the formula's also where most advantages are negative",
              lambda: probes.formula_gap(recipe(), rounds(seed=5), loss_by_hand), at_most=1e-9),
        Exact("with messages every word has its round's credit, and payoffs are aligned in units of their range",
              lambda: payoffs_in_units(recipe()), at_most=1e-5),
        Exact("the rival's gradient is that of the sum of both players' rewards", lambda: probes.formula_gap(
              sum_of_rewards(), rounds(), lambda seen: loss_by_hand(seen, summed=True)), at_most=1e-9,
              of="variant sum-of-rewards"),
        refuses("a task with one player is refused", lambda: recipe(TABLE), bandit, LEVELS["prisoners-dilemma"], of=""),
        Exact("with beta 0 the gradient is each player's own, exactly", lambda: bias_of_base(recipe),
              equals=0.0, tolerance=1e-10),
        Exact("with beta 1 the uniform policy is pushed to cooperate after mutual cooperation",
              lambda: push_to_cooperate(recipe, 1.0, 1), at_least=1e-3),
        Measured("it earns a higher payoff in self-play than naive learning", "prisoners-dilemma", recipe(TABLE),
                 recipe(TABLE, beta=0.0), margin=0.3, seeds=5, minutes=1.0, steps=150, about=About.HEADLINE),
        Measured("a defector leaves it what mutual defection pays", "prisoners-dilemma-against-defectors",
                 recipe(TABLE), -2.0, expect=Expect.WITHIN, margin=0.2, seeds=5, minutes=0.5, steps=150,
                 about=About.MECHANISM),
        Measured("a defector takes less from it than from players that maximise the sum of all payoffs",
                 "prisoners-dilemma-against-defectors", recipe(TABLE), sum_of_rewards(TABLE), margin=0.3, seeds=5,
                 minutes=0.5, steps=150, about=About.MECHANISM),
        Measured("with messages of three tokens before each move it earns more in self-play than naive learning",
                 "prisoners-dilemma-talk", SMALL, SMALL.set("beta", 0.0), margin=0.3, seeds=5, minutes=8.0, steps=100,
                 warmup=0, about=About.COMPONENT),
        Measured("a transformer that reads all rounds earns more in self-play than with naive learning",
                 "prisoners-dilemma-tokens", SMALL, SMALL.set("beta", 0.0),
                 margin=0.3, seeds=5, minutes=3.0, steps=100, warmup=0, about=About.HEADLINE),
    ),
    mutants=(
        Edit("its own advantage in place of the opponent's", own_and_others, "games) - own", "games) * 0 + own"),
        Edit("the present round is past", AlignAdvantages.past, "held.append(carry)",
             "held.append(carry + own_BR[:, turn])"),
        Edit("payoffs are aligned as they are", AlignAdvantages.payoff_unit, "stated[1] - stated[0]", "1.0"),
        Edit("a game of one player is accepted", AlignAdvantages.init, "task is not None", "False"),
    ),
)
