"""noisy-rlvr: rewards of a verifier that errs at known rates, corrected so that the gradient is the clean one.

    backward:  reward = (accepted - f0) / (1 - f0 - f1),   advantage = reward - mean of the others' rewards
    forward:   advantage = accepted - (1 - f1),  no baseline;   f1 may be estimated from appeals

f0 = P(accepted | wrong), f1 = P(rejected | right). Cai et al. 2025. With one channel for all prompts noise changes the
gradient's length alone; where rates differ between prompts it turns the gradient towards the prompts that are verified
well, and the correction with each prompt's own rates turns it back. A group deviation would undo any correction.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Expect, Final, Measured, Method, by_hand, same_gradient
from assay.core.recipe import Recipe
from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.methods.noisy_rlvr import claims
from assay.methods.noisy_rlvr.parts import Backward, Forward, rate_of
from assay.parts.credit.outcome import Constant, LeaveOneOut, OutcomeCredit
from assay.parts.rewards.noise import Rates, noisy
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults

EVERYWHERE: Rates = {"": (0.1, 0.2)}
"""The paper's synthetic noise, the same for all prompts."""


def recipe(
    world: Defaults = LANGUAGE, rates: Rates = EVERYWHERE, label: str = "", reward: Reward = Verifier()
) -> Recipe:
    rewards, credit = (reward, Backward(rates, label)), (OutcomeCredit(LeaveOneOut()),)
    return replace(recipes.grpo(world), name="noisy-rlvr", rewards=rewards, credit=credit)


def forward(
    world: Defaults = LANGUAGE, share: float = 0.0, judge: Reward = Verifier(), reward: Reward = Verifier()
) -> Recipe:
    """The signed weights without a baseline; with a `share` above 0 the rate comes from appeals to `judge`."""
    rewards, credit = (reward, Forward(EVERYWHERE[""][1], share, judge)), (OutcomeCredit(Constant()),)
    return replace(recipes.grpo(world), name="noisy-rlvr-forward", rewards=rewards, credit=credit)


LEVELS = {"0-easy": (0.0, 0.1), "1-even": (0.0, 0.1), "2-hard": (0.3, 0.3), "3-rare": (0.3, 0.3)}
"""For the testbed: prompts that start at 94 and 50 % are verified well, those at 10 and 1 % badly."""
PER_KIND = recipe(BIGRAMS, LEVELS, "label", noisy(LEVELS)).set("rollout.group_size", 32)
ONE_RATE = replace(PER_KIND, name="noisy-rlvr-averaged", rewards=(noisy(LEVELS), Backward({"": (0.15, 0.2)})))
CONTROL = replace(PER_KIND, name="noisy-rlvr-control", rewards=(noisy(LEVELS),))

METHOD = Method(
    "arXiv:2510.00915", recipe, worlds=(LANGUAGE,), default_task="easy-and-hard", family="policy gradient",
    base=recipes.grpo,
    variants={"forward": forward},
    departures=(
        "the paper's Algorithm 3 standardises inside groups, which undoes any correction: Algorithm 4 is built",
        "advantages have no scale (the fixed scale is 1); rewards of steps are left out",
        "groups of 32 in the measured claims: with groups of 8 rates per kind gave +0.034 [0.011, 0.058] (8 seeds) in "
        "one stream of noise, +0.01 [-0.01, 0.04] (32 seeds) in another; two designs on sorting before: -0.040, -0.017",
    ),
    claims=(
        Exact("backward: (1 - f0) / (1 - f0 - f1) if accepted, -f0 / (1 - f0 - f1) if rejected, which is the true "
              "reward on average", lambda: claims.distance_from_worths(recipe(), *[(0.9 / 0.7, -0.1 / 0.7)] * 2),
              equals=0.0),
        Exact("with the rates of each prompt's kind",
              lambda: claims.distance_from_worths(recipe(rates=LEVELS, label="label"), (1 / 0.9, 0.0), (1.75, -0.75)),
              equals=0.0),
        Exact("forward: 0.2 and -0.8, on average 0 for right and -0.7 for wrong answers",
              lambda: claims.distance_from_worths(forward(), *[(0.2, -0.8)] * 2), equals=0.0),
        same_gradient("nothing rescales these rewards: the gradient is that of differences to the others'",
                      lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen, by_hand.against_others(seen.experience))),
        same_gradient("and forward that of signed weights", lambda: replace(forward(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen, by_hand.outcome(seen.experience))),
        Exact("appeals: 4 overturned at share 0.1 of 100 accepted give 40/140", lambda: rate_of(4, 100, 0.1),
              equals=40 / 140),
        Exact("the mean over steps is used and kept", lambda: claims.distance_of_appeals(forward), equals=0.0,
              tolerance=2e-5),
        Measured("rates per kind: pass rate of badly verified prompts above the control's", "levels", PER_KIND, CONTROL,
                 Final("pass_rate/2-hard"), seeds=8, minutes=5.0, steps=100),
        Measured("one averaged rate: within 0.05 of the control's", "levels", ONE_RATE, CONTROL,
                 Final("pass_rate/2-hard"), Expect.WITHIN, margin=0.05, seeds=8, minutes=5.0, steps=100),
    ),
)  # fmt: skip
