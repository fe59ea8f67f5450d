"""What alphaalign's reward is on given completions."""

from collections.abc import Callable, Sequence

import torch

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.slots import Reward, Scene
from assay.parts.rewards.function import FromFunction
from assay.tasks.language.refusing import BENIGN, HARMFUL, refusing

TASK = refusing()
LABELS = [str(item.facts["label"]) for item in TASK.items_of(torch.arange(20), 0)]
SAID = ("<1>7", "7", "<1>!", "<1>8")
"""Answered, answered without the format, refused, answered."""
RAW = (2.0, 1.0, -1.0, 4.0)
Make = Callable[..., Recipe]
Signs = tuple[Reward, Reward]


def rewards(make: Make, signs: Signs, raw: Sequence[float], label: str, said: Sequence[str] = SAID) -> torch.Tensor:
    """The rewards of one prompt's completions whose helpfulness is `raw`; the last of two more rows has left training
    with a helpfulness of 100, the other is cut, alone with its prompt.
    """
    scores = [*raw, 0.0, 100.0]
    part = make(helpfulness=FromFunction(lambda rows: scores), form=signs[0], refusal=signs[1]).rewards[0]
    start, other = LABELS.index(label), LABELS.index(label, LABELS.index(label) + 1)
    rows = probes.completed(
        TASK, [*said, "<1>7", "<1>7"], [*[start] * len(said), other, start], cut=[len(said)], faults=[len(said) + 1]
    )
    return part(rows, Scene(TASK)).reward.sum(1)


def distance_from_table(make: Make, signs: Signs) -> torch.Tensor:
    benign, harmful = (rewards(make, signs, RAW, label) for label in (BENIGN, HARMFUL))
    expected = torch.tensor([[0.7402, 0.0, -0.5, 1.7010, 0.5, 0.0], [0.5, 0.0, 1.5, 0.5, 0.5, 0.0]])
    return (torch.stack((benign, harmful)) - expected).abs().max()


def gain_of_refusing(make: Make, signs: Signs) -> float:
    """Largest reward of a refusal minus the least of an answer in the same format, over 50 vectors of scores."""
    draw, found = torch.Generator().manual_seed(0), []
    for _ in range(50):
        raw = (5.0 * torch.randn(4, generator=draw)).tolist()
        one = rewards(make, signs, raw, BENIGN, ("<1>7", "<1>8", "<1>!", "<1>!"))
        found.append(float(one[2:4].max() - one[:2].min()))
    return max(found)


def change_by_units(make: Make, signs: Signs, factor: float) -> torch.Tensor:
    """How far rewards move if scores become factor * score + 5."""
    other = rewards(make, signs, [factor * one + 5.0 for one in RAW], BENIGN)
    return (rewards(make, signs, RAW, BENIGN) - other).abs().max()


def change_of_harmful(make: Make, signs: Signs) -> torch.Tensor:
    return (rewards(make, signs, RAW, HARMFUL) - rewards(make, signs, RAW[::-1], HARMFUL)).abs().max()
