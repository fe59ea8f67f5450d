"""Each law of targets and of fits catches one that breaks it, and holds for a sound one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.claims.laws.regression import FIT, TARGET
from assay.claims.laws.term import COMMON
from assay.core.record import Experience, Regressed
from assay.core.settings import model_name
from assay.core.slots import Prediction, Regression, Target, View
from assay.parts.fits.squared import Expectile, Squared
from assay.parts.targets.one_step import NextValue
from assay.parts.targets.recorded import Column
from tests.claims.breaking import assert_caught, not_covered


@dataclass(frozen=True)
class Aim(Target):
    """A target out of a function."""

    value: Callable[[Experience, Any], Tensor]
    critic: str = model_name("value")

    def __call__(self, batch: Experience, view: View) -> Tensor:
        return self.value(batch, view)


def attached(batch: Experience, view: Any) -> Tensor:
    """Gradient flows through what follows."""
    return batch.now.reward.detach() + 0.9 * view.model("value")(batch.after.context) * ~batch.now.terminal


@torch.no_grad()
def endless(batch: Experience, view: Any) -> Tensor:
    """Bootstraps after the end of an episode."""
    value: Tensor = batch.now.reward + 0.9 * view.model("value")(batch.after.context)
    return value


@torch.no_grad()
def of_rows(batch: Experience, view: Any) -> Tensor:
    """One number for each row."""
    return batch.now.reward[:, :1]


TARGETS = {"still": Aim(attached), "ends": Aim(endless), "axes": Aim(of_rows)}


@pytest.mark.parametrize("law", TARGETS)
def test_law_catches_a_broken_target(law: str) -> None:
    assert_caught(TARGET, law, TARGETS[law])


def test_every_law_of_targets_is_shown_to_fail() -> None:
    assert not_covered(TARGET, TARGETS, COMMON) == set()


@pytest.mark.parametrize("target", [NextValue(), Column()])
def test_a_sound_target_obeys_every_law(target: Target) -> None:
    assert [one for one in TARGET.check(target) if not one.held] == []


@dataclass(frozen=True)
class Misfit(Regression):
    """A fit out of a function of prediction and target."""

    loss: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        value = of(view.model(of.model), rows)
        return Regressed(self.loss(value, target), value)


def residual(value: Tensor, target: Tensor) -> Tensor:
    """The target is computed by the prediction itself, with its gradient."""
    return 0.5 * (value - target - 0.5 * (value.roll(-1, 1))).square()


FITS = {
    "targets": Misfit(residual),
    "alone": Misfit(lambda value, target: 0.5 * (value - target + target.mean()).square()),
    "pulls": Misfit(lambda value, target: -0.5 * (value - target).square()),
}


@pytest.mark.parametrize("law", ["alone", "pulls"])
def test_law_catches_a_broken_fit(law: str) -> None:
    assert_caught(FIT, law, FITS[law])


def test_a_fit_that_pulls_from_one_side_only_is_caught() -> None:
    assert_caught(FIT, "pulls", Misfit(lambda value, target: (value - target).clamp(min=0.0).square()))


def test_every_law_of_fits_is_shown_to_fail() -> None:
    assert not_covered(FIT, FITS, COMMON) == set()


@pytest.mark.parametrize("fit", [Squared(), Expectile(0.9)])
def test_a_sound_fit_obeys_every_law(fit: Regression) -> None:
    assert [one for one in FIT.check(fit) if not one.held] == []
