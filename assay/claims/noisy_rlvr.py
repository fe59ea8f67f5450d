"""What the corrections make of accepted and rejected answers."""

from collections.abc import Callable
from dataclasses import replace

from assay.claims import About, Claims, Exact, Expect, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, Recipe
from assay.methods.noisy_rlvr import Backward, forward, recipe
from assay.parts import Matches, noisy

TASK = probes.labelled("0-easy", "2-hard")


def distance_from_worths(ours: Recipe, *worths: tuple[float, float]) -> float:
    """Compares what an accepted and a rejected answer get, of an easy and of a hard prompt; a row that left training
    gets nothing.
    """
    rows = probes.completed(TASK, ["7", "8", "7"] * 2, [0] * 3 + [1] * 3, faults=[2, 5])
    return probes.distance(probes.rewarded(ours, TASK, rows), [one for pair in worths for one in (*pair, 0.0)])


def distance_of_appeals(forward: Callable[..., Recipe]) -> float:
    """Two steps in which all rejected answers are checked again: of 3 one was right, and 2 were accepted, 1/3; then of
    2 none, and 2 were accepted, 0, so that the mean is 1/6. The last row of each step has left training.
    """
    ours = forward(share=1.0, reward=Matches(r"^\w"))  # rejects a right answer that begins with a space
    steps = [
        probes.completed(TASK, [*said, "."], [0] * (len(said) + 1), faults=[len(said)])
        for said in (["7", "7", " 7", ".", "."], ["7", "7", ".", "."])
    ]
    first, second = probes.rewarded_in_turn(ours, TASK, steps)
    expected = [*[1 / 3] * 2, *[-2 / 3] * 3, 0.0], [*[1 / 6] * 2, *[-5 / 6] * 2, 0.0]
    return max(probes.distance(first, expected[0]), probes.distance(second, expected[1]))


LEVELS = {"0-easy": (0.0, 0.1), "1-even": (0.0, 0.1), "2-hard": (0.3, 0.3), "3-rare": (0.3, 0.3)}
"""For the testbed: prompts that start at 94 and 50 % are verified well, those at 10 and 1 % badly."""


PER_KIND = recipe(BIGRAMS, LEVELS, "label", noisy(LEVELS)).set("rollout.group_size", 32)


ONE_RATE = replace(PER_KIND, name="noisy-rlvr-averaged", rewards=(noisy(LEVELS), Backward({"": (0.15, 0.2)})))


CONTROL = replace(PER_KIND, name="noisy-rlvr-control", rewards=(noisy(LEVELS),))


CLAIMS = Claims(
    claims=(
        Exact("backward pays (1 - f0) / (1 - f0 - f1) if accepted, -f0 / (1 - f0 - f1) if rejected, which is the true "
              "reward on average", lambda: distance_from_worths(recipe(), *[(0.9 / 0.7, -0.1 / 0.7)] * 2),
              equals=0.0),
        Exact("backward pays by the rates of each prompt's kind",
              lambda: distance_from_worths(recipe(rates=LEVELS, label="label"), (1 / 0.9, 0.0), (1.75, -0.75)),
              equals=0.0),
        Exact("forward pays 0.2 and -0.8, on average 0 for right and -0.7 for wrong answers",
              lambda: distance_from_worths(forward(), *[(0.2, -0.8)] * 2), equals=0.0, of="forward"),
        same_gradient("nothing rescales the paid rewards: the gradient is that of differences to the others'",
                      lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen, by_hand.against_others(seen.experience))),
        same_gradient("the gradient of forward is that of signed weights", lambda: replace(forward(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen, by_hand.outcome(seen.experience)), of="forward"),
        Exact("forward uses and keeps the mean over steps of the rate that appeals find",
              lambda: distance_of_appeals(forward), equals=0.0, tolerance=2e-5),
        Measured("with rates per kind the pass rate of badly verified prompts is above the control's",
                 "levels", PER_KIND, CONTROL, Final("pass_rate/2-hard"), seeds=16, minutes=8.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("with one averaged rate the pass rate of badly verified prompts is within 0.05 of the control's",
                 "levels", ONE_RATE, CONTROL,
                 Final("pass_rate/2-hard"), Expect.WITHIN, margin=0.05, seeds=8, minutes=5.0, steps=100,
                 about=About.COMPONENT),
    ),
)
