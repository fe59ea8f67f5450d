"""Each law of annotations, optimizers, task changes and choices catches a part that breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay.claims.laws.annotation import ANNOTATION, check_annotation
from assay.claims.laws.choice import CHOICE, Inside, calls, check_choice
from assay.claims.laws.optimizer import CASES, OPTIMIZER, check_optimizer
from assay.claims.laws.task_change import TASK_CHANGE, check_task_change
from assay.core.errors import AssayError
from assay.core.optimizers import Adam, Averaging, Descent, ObGD, Traced
from assay.core.record import Experience, Need, State, Sums
from assay.core.slots import Annotation, Choice, Optimizer, Over, Scene, Task, TaskChange
from assay.methods.dual_rl import ChiSquare
from assay.methods.iwocs import AnyRegime
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.stepping import SteppedTask
from tests.claims.breaking import assert_caught, finding, not_covered


# --------------------------------------------------------------------------------------------------------- annotations
@dataclass(frozen=True)
class Logp(Annotation):
    """The actor's log-probability, with one mistake."""

    mistake: str = ""

    @property
    def column(self) -> str:
        return "mask" if self.mistake == "declared" else "logp_now"

    @property
    def model(self) -> str:
        return "actor"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        if self.mistake == "runs":
            raise AssayError("it suits nothing")

        def score(actor: Any, rows: Experience) -> Tensor:
            logp: Tensor = actor.score(rows, frozenset({Need.LOGP})).logp
            return logp - logp.mean(0) if self.mistake == "rows" else logp

        column = over(experience, score) * experience.mask
        if self.mistake == "unmodified":
            experience.reward.zero_()
        wrong = {
            "shape": lambda: column.sum(1),
            "repeats": lambda: column * torch.rand(()),
            "no_gradient": lambda: column * experience.logp,
            "masked": lambda: column + 1.0,
            "padding": lambda: column / experience.num_columns,
        }
        return wrong[self.mistake]() if self.mistake in wrong else column


ANNOTATIONS = ("runs", "declared", "shape", "repeats", "unmodified", "no_gradient", "masked", "padding", "rows")


@pytest.mark.parametrize("law", ANNOTATIONS)
def test_law_catches_a_broken_annotation(law: str) -> None:
    assert_caught(ANNOTATION, law, Logp(law))


def test_every_law_of_annotations_is_shown_to_fail() -> None:
    assert not_covered(ANNOTATION, ANNOTATIONS) == set()
    assert [one for one in check_annotation(Logp()) if not one.held] == []


def test_a_column_of_contexts_need_not_be_zero_where_masked() -> None:
    @dataclass(frozen=True)
    class OfContexts(Logp):
        of_decisions: ClassVar[bool] = False

    assert "masked" not in {one.law for one in check_annotation(OfContexts("masked"))}


# ---------------------------------------------------------------------------------------------------------- optimizers
@dataclass(frozen=True)
class Momentum(Optimizer):
    """Descent along a moving average of gradients, with one mistake."""

    mistake: str = ""
    learning_rate: float = 0.1
    clip_norm: float = 0.0

    @property
    def is_steady(self) -> bool:
        return True

    @property
    def is_elementwise(self) -> bool:
        return True

    def init(self, values: Sequence[Tensor]) -> State:
        return {"mean": [torch.zeros_like(each) for each in values]}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        if self.mistake == "runs":
            raise AssayError("it moves nothing")
        if self.mistake != "steady" and any(bool(each.isnan().any()) for each in gradients):
            return
        kept = Unsaved.means if self.mistake == "resumes" else state["mean"]
        if self.mistake == "resumes" and len(kept) != len(values):
            kept[:] = [torch.zeros_like(each) for each in values]
        for value, gradient, mean in zip(values, gradients, kept, strict=True):
            mean.mul_(0.9).add_(gradient.to(mean.dtype), alpha=0.1)
            rate = 0.0 if self.mistake == "moves" else self.learning_rate
            if self.mistake == "slices":
                rate /= float(gradient.abs().sum())
            if self.mistake == "repeats":
                rate *= float(torch.rand(()))
            value.sub_((mean * rate).to(value.dtype))
            if self.mistake == "still":
                value.mul_(0.9)


class Unsaved:
    """What an optimizer must not have: memory outside its state."""

    means: ClassVar[list[Tensor]] = []


OPTIMIZERS = ("declared", "moves", "still", "repeats", "resumes", "steady", "slices")


@pytest.mark.parametrize("law", OPTIMIZERS)
def test_law_catches_a_broken_optimizer(law: str) -> None:
    Unsaved.means.clear()
    part = replace(Momentum(law), clip_norm=-1.0) if law == "declared" else Momentum(law)
    assert_caught(OPTIMIZER, law, part)


def test_every_law_of_optimizers_is_shown_to_fail() -> None:
    assert not_covered(OPTIMIZER, (*OPTIMIZERS, "runs")) == set()
    assert [one for one in check_optimizer(Momentum()) if not one.held] == []


@pytest.mark.parametrize("part", [Adam(), Descent(), ObGD(), Averaging(), Traced(Adam(), 0.9), Traced(ObGD(), 0.9)])
def test_optimizers_obey_their_laws(part: Optimizer) -> None:
    assert [one for one in check_optimizer(part) if not one.held] == []


def test_a_bounded_step_without_an_error_moves_nothing() -> None:
    values = CASES[0].values()
    ObGD().step(values, CASES[0].gradients(0), {}, {})
    assert all(map(torch.equal, values, CASES[0].values()))


# -------------------------------------------------------------------------------------------------------- task changes
@dataclass(frozen=True)
class Shorter(TaskChange):
    """The same task with another horizon, with one mistake."""

    mistake: str = ""
    asked: list[int] = field(default_factory=list, compare=False)

    def __call__(self, scene: Scene) -> Task | None:
        if self.mistake == "runs":
            raise AssayError("no task suits it")
        if self.mistake == "first" and scene.actor is None:
            return None
        if not isinstance(scene.task, SteppedTask):
            raise AssayError("it takes tasks of steps")
        self.asked.append(1)
        horizon = 5 + len(self.asked) if self.mistake == "repeats" else 5
        if self.mistake == "unmodified" and scene.actor is not None:
            with torch.no_grad():
                next(iter(scene.actor.parameters())).add_(1.0)
        spec = replace(scene.task.spec, horizon=horizon)
        if self.mistake == "spaces":
            spec = replace(spec, observation=spec.action, action=spec.observation)
        return replace(scene.task, spec=spec)


CHANGES = ("runs", "first", "repeats", "unmodified", "spaces")


@pytest.mark.parametrize("law", CHANGES)
def test_law_catches_a_broken_task_change(law: str) -> None:
    assert_caught(TASK_CHANGE, law, Shorter(law))


def test_every_law_of_task_changes_is_shown_to_fail() -> None:
    assert not_covered(TASK_CHANGE, CHANGES) == set()
    assert [one for one in check_task_change(Shorter(), cartpole()) if not one.held] == []
    assert [one for one in check_task_change(AnyRegime()) if not one.held] == []


# ------------------------------------------------------------------------------------------------------------- choices
@dataclass(frozen=True)
class Scaled(Choice):
    """A number times a scale, with one mistake."""

    mistake: str = ""
    scale: Any = 2.0

    def __call__(self, number: Tensor) -> Tensor:
        if self.mistake == "unmodified":
            number.mul_(2.0)
        return self.scale * number * (torch.rand(()) if self.mistake == "repeats" else 1.0)


@dataclass
class Mutable(Choice):
    scale: float = 2.0


def test_laws_catch_broken_choices() -> None:
    broken = {
        "value": Mutable(),
        "described": Scaled(scale=torch.ones(2)),
        "repeats": Scaled("repeats"),
        "unmodified": Scaled("unmodified"),
    }
    for law, part in broken.items():
        assert_caught(CHOICE, law, part)
    assert not_covered(CHOICE, broken) == set()
    assert [one for one in check_choice(Scaled()) if not one.held] == []


def test_choices_that_crash_are_caught_and_those_that_refuse_are_left_out() -> None:
    @dataclass(frozen=True)
    class Crashes(Choice):
        error: type[Exception] = IndexError

        def __call__(self, number: Tensor) -> Tensor:
            raise self.error("row 7 is out of bounds")

    for law in ("repeats", "unmodified"):
        for error in (IndexError, LookupError, RuntimeError):
            assert "row 7 is out of bounds" in finding(CHOICE, law, Crashes(error)).detail
            assert not finding(CHOICE, law, Crashes(error)).held
        assert finding(CHOICE, law, Crashes(AssayError)).held


def test_choices_that_are_not_equal_to_their_copies_are_caught() -> None:
    @dataclass(frozen=True, eq=False)
    class Alone(Choice):
        scale: float = 1.0

    assert "not equal" in finding(CHOICE, "value", Alone()).detail


def test_methods_are_called_by_the_types_of_their_arguments() -> None:
    assert {name for name, _ in calls(ChiSquare())} == {"surrogate"}
    assert Inside(ChiSquare()).part == ChiSquare()
