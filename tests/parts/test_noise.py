"""A verifier that errs: what is accepted at given rates, and that the draw belongs to the sample, not to the answer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.parts.rewards.function import uniform_of
from assay.parts.rewards.noise import Noisy, drawn, noisy

NUM = 400


def paid(part: Noisy, said: str, seed: int = 0) -> Tensor:
    task, rows = probes.answered([said] * NUM, faults=[NUM - 1])
    return part(rows, Scene(task, draw=Draw(seed))).reward.sum(1)


def test_an_answer_is_accepted_if_its_number_is_below_the_probability() -> None:
    found = drawn(torch.tensor([0.0, 0.3, 0.3, 1.0]), torch.tensor([0.001, 0.29, 0.31, 0.999]))
    assert found.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("rates", "right", "wrong"),
    [((0.0, 0.0), 1.0, 0.0), ((1.0, 1.0), 0.0, 1.0), ((0.25, 0.25), 0.75, 0.25), ((0.5, 0.5), 0.5, 0.5)],
)
def test_rates_are_those_of_wrong_answers_accepted_and_of_right_ones_rejected(
    rates: tuple[float, float], right: float, wrong: float
) -> None:
    part = noisy({"": rates}, label="")
    task, rows = probes.answered(["7"] * NUM, faults=[NUM - 1])
    number = uniform_of(rows, Scene(task, draw=Draw(0)))
    there = torch.arange(NUM) < NUM - 1
    for said, chance in (("7", right), ("8", wrong)):
        assert torch.equal(paid(part, said), ((number < chance) & there).to(torch.float32))


def test_another_seed_draws_other_numbers_and_the_same_seed_the_same() -> None:
    part = noisy({"": (0.5, 0.5)}, label="")
    assert torch.equal(paid(part, "7", seed=1), paid(part, "7", seed=1))
    assert not torch.equal(paid(part, "7", seed=1), paid(part, "7", seed=2))
