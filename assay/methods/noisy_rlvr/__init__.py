"""noisy-rlvr: rewards of a verifier that errs at known rates, corrected so that the gradient is the clean one.

    backward:  reward = (accepted - f0) / (1 - f0 - f1),   advantage = reward - mean of the others' rewards
    forward:   advantage = accepted - (1 - f1),  no baseline;   appeals: the same, f1 estimated by a second verifier

f0 = P(accepted | wrong), f1 = P(rejected | right). Cai et al. 2025. With one channel for all prompts noise changes the
gradient's length alone; where rates differ between prompts it turns the gradient towards the prompts that are verified
well, and the correction with each prompt's own rates turns it back. A group deviation would undo any correction.
"""

from collections.abc import Mapping
from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Expect, Final, Measured, Method, by_hand, same_gradient
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.methods.noisy_rlvr import claims
from assay.methods.noisy_rlvr.parts import Appeals, rate_of
from assay.parts.credit.outcome import Constant, LeaveOneOut, OutcomeCredit
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.noise import Noisy
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults

Rates = Mapping[str, tuple[float, float]]
"""f0 and f1 of each label; the empty label is every prompt's if no label is named."""
EVERYWHERE: Rates = {"": (0.1, 0.2)}
"""The paper's synthetic noise, the same for all prompts."""


def recipe(
    world: Defaults = LANGUAGE, rates: Rates = EVERYWHERE, label: str = "", reward: Reward = Verifier()
) -> Recipe:
    if any(min(pair) < 0.0 or sum(pair) >= 1.0 for pair in rates.values()):
        raise AssayError(f"noisy-rlvr: rates are {dict(rates)}; give numbers from 0 that add up to less than 1")
    worth = {
        kind: {"right": (1.0 - f0) / (1.0 - f0 - f1), "wrong": -f0 / (1.0 - f0 - f1)}
        for kind, (f0, f1) in rates.items()
    }
    rewards, credit = (ByLabel(worth, {"right": reward}, label=label),), (OutcomeCredit(LeaveOneOut()),)
    return replace(recipes.grpo(world), name="noisy-rlvr", rewards=rewards, credit=credit)


def forward(world: Defaults = LANGUAGE, f1: float = EVERYWHERE[""][1], reward: Reward = Verifier()) -> Recipe:
    worth = ByLabel({"": {"right": f1, "wrong": f1 - 1.0}}, {"right": reward}, label="")
    return replace(recipe(world), name="noisy-rlvr-forward", rewards=(worth,), credit=(OutcomeCredit(Constant()),))


def appeals(world: Defaults = LANGUAGE, reward: Reward = Verifier(), appeal: Reward = Appeals()) -> Recipe:
    return replace(forward(world), name="noisy-rlvr-appeals", rewards=(reward, appeal))


LEVELS = {"0-easy": (0.0, 0.1), "1-even": (0.0, 0.1), "2-hard": (0.3, 0.3), "3-rare": (0.3, 0.3)}
"""For the testbed: prompts that start at 94 and 50 % are verified well, those at 10 and 1 % badly."""
ERRING = Noisy(ByLabel({kind: {"right": 1.0 - f1, "wrong": f0} for kind, (f0, f1) in LEVELS.items()}))
PER_KIND = recipe(BIGRAMS, LEVELS, "label", ERRING)
ONE_RATE = replace(recipe(BIGRAMS, {"": (0.15, 0.2)}, "", ERRING), name="noisy-rlvr-averaged")
CONTROL = replace(PER_KIND, name="noisy-rlvr-control", rewards=(ERRING,))

METHOD = Method(
    "arXiv:2510.00915", recipe, worlds=(LANGUAGE,), default_task="easy-and-hard", family="policy gradient",
    base=recipes.grpo,
    variants={"forward": forward, "appeals": appeals},
    departures=(
        "the paper's Algorithm 3 standardises inside groups, which undoes any correction: Algorithm 4 is built",
        "advantages have no scale (the fixed scale is 1); rewards of steps are left out",
        "refuted if the interval lies below 0; a first testbed, sorting by a transformer, was -0.040 (-0.082 to 0.002) "
        "and, with more prompts and a longer warm-up, -0.017 (-0.075 to 0.040); a pilot of this one +0.006 (3 seeds)",
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
        Exact("the mean over steps is used and kept", lambda: claims.distance_of_appeals(appeals), equals=0.0,
              tolerance=2e-5),
        Measured("rates per kind: pass rate of badly verified prompts above the control's", "levels", PER_KIND, CONTROL,
                 Final("pass_rate/2-hard"), seeds=8, minutes=5.0, steps=100),
        Measured("one averaged rate: within 0.05 of the control's", "levels", ONE_RATE, CONTROL,
                 Final("pass_rate/2-hard"), Expect.WITHIN, margin=0.05, seeds=8, minutes=5.0, steps=100),
    ),
)  # fmt: skip
