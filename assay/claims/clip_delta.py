"""Step rewards by hand: returns of transformed scores, and ppo with them.

Axes: B sequences, T decisions, S steps of an answer.
"""

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Expect, Final, Measured, by_hand, marked, probes
from assay.claims.marked import SCORED, steps_by_hand
from assay.method import BIGRAMS, Experience, Recipe, recipes
from assay.methods.clip_delta import recipe
from assay.parts import Capped, StepRewards, Telescoping

RAW = recipe(BIGRAMS, clip=False, delta=False)


def with_step_rewards(data: Experience, clip: bool, delta: bool) -> Experience:
    """Returns the experience with the rewards of the formula, one step after the other."""
    reward = data.reward.clone()
    for row in range(len(data)):
        steps = steps_by_hand(data, row)
        score = [float(data.column("step_score")[row, step[0]]) for step in steps]
        score = [min(one - 0.5, 0.0) if clip else one for one in score]
        for place, step in enumerate(steps):
            after = score[place + 1] if place + 2 < len(steps) else 0.0
            own = score[place] if place + 1 < len(steps) else 0.0
            reward[row, step[-1]] += own - after if delta else score[place]
    return replace(data, reward=reward)


def gap(ours: Recipe, clip: bool = True, delta: bool = True) -> float:
    """Returns the gap to ppo's losses with these rewards."""

    def losses(seen: probes.Seen) -> dict[str, Tensor]:
        return by_hand.ppo_of_tokens(replace(seen, experience=with_step_rewards(seen.experience, clip, delta)))

    return probes.formula_gap(ours, SCORED, losses)


def paid(ours: Recipe, *scores: float) -> Tensor:
    """Returns what the recipe pays for the steps of an answer with outcome 0, each of two tokens."""
    (part,) = (part for part in ours.credit if isinstance(part, StepRewards))
    row = probes.one_sequence(*[0.0] * (2 * len(scores)))
    place = torch.arange(row.num_columns).unsqueeze(0) // 2
    score = torch.tensor([*scores, 0.0, 0.0]).double()[place]
    after = part(replace(row, segment=place).add({"step_score": score})).reward
    return after[0, 1 : 2 * len(scores) : 2]


def largest_sum(ours: Recipe, length: int) -> float:
    """Returns the largest sum of step rewards over all answers of up to `length` steps with scores 0, 1/2 and 1."""
    answers = (scores for num in range(1, length + 1) for scores in product((0.0, 0.5, 1.0), repeat=num))
    return max(float(paid(ours, *scores).sum()) for scores in answers)


SCORES = (0.9, 0.8, 0.4, 0.95)


CLAIMS = Claims(
    claims=(
        Exact("its gradients are those of the formulas", lambda: gap(recipe()), at_most=1e-9),
        Exact("with raw scores its gradients are those of the formulas",
              lambda: gap(recipe(clip=False, delta=False), False, False), at_most=1e-9, of="clip-delta-raw"),
        *marked.judge_claims(recipe),
        Exact("scores 0.9, 0.8, 0.4 and 0.95 are paid 0, 0.1, -0.1 and 0", lambda: probes.distance(
            paid(recipe(), *SCORES), [0.0, 0.1, -0.1, 0.0]), at_most=1e-6, illustrates=True),
        Exact("no answer of up to four steps is paid above 0 for its steps", lambda: largest_sum(recipe(), 4),
              at_most=1e-9, illustrates=True),
        Measured("where steps may be repeated it is right more often than ppo with raw step scores",
                 "repeatable", recipe(BIGRAMS), RAW, Final("pass_rate"), margin=0.1, seeds=5, minutes=8.0, steps=100,
                 about=About.HEADLINE),
        Measured("at equally many generated tokens it is right at most 0.05 less often than ppo on success alone",
                 "repeatable", recipe(BIGRAMS), recipes.ppo(BIGRAMS), AtEqual("pass_rate", reached="decisions_total"),
                 margin=-0.05, expect=Expect.ABOVE, seeds=5, minutes=8.0, steps=100, looks=2, about=About.MECHANISM),
    ),
    mutants=(
        Edit("differences are capped", StepRewards.apply, "in self.transforms:", "in self.transforms[::-1]:"),
        Edit("the last score counts", Telescoping.__call__, "score_S[:-1], score_S.new_zeros(1)",
             "score_S[:-1], score_S[-1:]"),
        Edit("a bonus for good steps", Capped.__call__, "clamp(max=0.0)", "clamp(min=0.0)"),
    ),
)
