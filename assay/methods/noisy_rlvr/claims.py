"""What the corrections do to accepted and rejected answers, in expectation over the verifier's errors."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import ALONE, Scene
from assay.core.verifier import Verifier
from assay.methods.noisy_rlvr.parts import Backward, Forward, NoisyChannel
from assay.parts.rewards.text import Matches
from assay.tasks.language.mixture import easy_and_hard

TASK = easy_and_hard()
RATES = {"easy": (0.0, 0.1), "hard": (0.3, 0.3)}


def answered(is_right: Sequence[bool], starts: Sequence[int], faults: Sequence[int] = ()) -> Experience:
    """Right answers and "b" to prompts of the mixture; start 0 is easy, start 1 is hard."""
    items = TASK.items_of(torch.tensor(starts), 0)
    said = [item.answer if right else "b" for item, right in zip(items, is_right, strict=True)]
    return probes.completed(TASK, said, starts, faults=faults)


def worths(ours: Recipe, start: int) -> tuple[float, float]:
    """The reward of an accepted and of a rejected answer to a start; a row that left training must get none."""
    (part,) = ours.rewards
    if isinstance(part, NoisyChannel):
        part = part.reward
    elif isinstance(part, Backward | Forward) and isinstance(part.reward, NoisyChannel):
        part = replace(part, reward=part.reward.reward)
    total = part(answered([True, False, True], [start] * 3, faults=[2]), Scene(TASK)).reward.sum(1)
    assert float(total[2]) == 0.0, total
    return float(total[0]), float(total[1])


def mean_worth(ours: Recipe, start: int, is_right: bool, rates: tuple[float, float]) -> float:
    """E[reward | right or wrong] of an answer whose acceptance errs at (false_positive, false_negative)."""
    accepted, rejected = worths(ours, start)
    chance = 1.0 - rates[1] if is_right else rates[0]
    return chance * accepted + (1.0 - chance) * rejected


def distance_from_truth(ours: Recipe) -> float:
    found = [*worths(ours, 0), mean_worth(ours, 0, True, (0.1, 0.2)), mean_worth(ours, 0, False, (0.1, 0.2))]
    return max(abs(one - other) for one, other in zip(found, (0.9 / 0.7, -0.1 / 0.7, 1.0, 0.0), strict=True))


def distance_from_weights(ours: Recipe) -> float:
    """Of the advantages: forward has no baseline that could move them."""
    rows = answered([True, False, False, True], [0, 0, 0, 0], faults=[3])
    advantage = probes.credited(ours, ours.rewards[0](rows, Scene(TASK))).column("advantage")
    found = [*advantage.amax(1)[:1].tolist(), *advantage.amin(1)[1:3].tolist(), float(advantage[3].abs().max())]
    means = [mean_worth(ours, 0, is_right, (0.1, 0.2)) for is_right in (True, False)]
    return max(abs(one - other) for one, other in zip([*found, *means], [0.2, -0.8, -0.8, 0.0, 0.0, -0.7], strict=True))


def distance_from_gradients(ours: Recipe, expected: Sequence[float]) -> float:
    """Expected d/d logit of the right answer for policies (0.6, 0.4) on an easy and (0.3, 0.7) on a hard prompt."""
    found = []
    for start, (kind, right) in enumerate((("easy", 0.6), ("hard", 0.3))):
        good, bad = (mean_worth(ours, start, is_right, RATES[kind]) for is_right in (True, False))
        found.append(right * (1.0 - right) * (good - bad))
    return max(abs(one - other) for one, other in zip(found, expected, strict=True))


def distance_of_advantages(ours: Recipe) -> float:
    """Accepted pattern (1, 0, 0, 1, 0, 0, 0, 1): leave-one-out, and, as a no-op, with grpo's deviation."""
    rows = answered([place in (0, 3, 7) for place in range(8)], [0] * 8)
    corrected, plain = ours.rewards[0](rows, Scene(TASK)), Verifier()(rows, Scene(TASK))
    summed = [probes.credited(ours, one).column("advantage").sum(1) for one in (corrected, plain)]
    advantage, control = (one / rows.mask.sum(1) for one in summed)
    good = advantage.new_tensor([1.0, 0, 0, 1, 0, 0, 0, 1])
    apart = [advantage - (1.020408 * good - 0.612245 * (1 - good)), control - (0.714286 * good - 0.428571 * (1 - good))]
    divided = [probes.credited(recipes.grpo(), one).column("advantage") for one in (corrected, plain)]
    return max(float(one.abs().max()) for one in (*apart, divided[0] - divided[1]))


def distance_of_appeals(forward: Callable[..., Recipe]) -> float:
    """The estimate of the paper's example; then two steps with all 3 rejected answers, of which 1 was right, and 2
    accepted: 1/3, then 2 rejected, none right, and 2 accepted: 0; the mean 1/6 is the second step's rate.
    """
    (sampled,) = forward(share=0.1).rewards
    (part,) = forward(share=1.0, reward=Matches(r"^\w")).rewards  # rejects a right answer that begins with a space
    assert isinstance(sampled, Forward) and isinstance(part, Forward)  # noqa: PT018
    state, item = part.init(ALONE), TASK.items_of(torch.tensor([0]), 0)[0]
    for said in ([item.answer, item.answer, " " + item.answer, ".", "."], [item.answer, item.answer, ".", "."]):
        rows = probes.completed(TASK, [*said, "."], [0] * (len(said) + 1), faults=[len(said)])
        rewarded = part(rows, Scene(TASK), state).reward.sum(1)
    apart = [sampled.rate_of(4, 100) - 40 / 140, part.rate(state) - 1 / 6, float(rewarded[0]) - 1 / 6]
    return max(map(abs, [*apart, float(rewarded[2]) + 5 / 6]))
