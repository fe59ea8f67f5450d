"""Laws of wrappers find wrappers that decide what their actor does not, and corrections that are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay.claims.laws import check_wrapper
from assay.claims.laws.laws import Finding
from assay.core.errors import AssayError
from assay.core.slots import Correcting, Wrapper
from assay.core.spaces import Context
from assay.decoding.sampling_parameters import Decodes


class Acting:
    """An actor whose action another function changes."""

    def __init__(self, actor: Any, change: Any) -> None:
        self.actor, self.change, self.num_draws = actor, change, actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        action, logp = self.actor.act(context, uniform)
        return self.change(context, action), logp


@dataclass(frozen=True)
class Constant(Wrapper):
    """Always answers the same number, whatever its actor decides."""

    value: float = 0.123
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor",)

    def around(self, models: Mapping[str, Any]) -> Any:
        return Acting(models["actor"], lambda context, action: torch.full_like(action, self.value))


class Repeating:
    """A token actor that writes one token."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def decoder(self, prompts: Any, repeats: Any, num_new: int) -> Any:
        decoder = self.actor.decoder(prompts, repeats, num_new)
        logits = decoder.logits
        decoder.logits = lambda: torch.full_like(logits(), -1e9).index_fill(1, torch.tensor([5]), 0.0)
        return decoder


@dataclass(frozen=True)
class OneToken(Constant):
    """Always writes the same token."""

    def around(self, models: Mapping[str, Any]) -> Any:
        if not isinstance(models["actor"], Decodes):
            raise AssayError("OneToken needs an actor of tokens. Drop it")
        return Repeating(models["actor"])


@dataclass(frozen=True)
class Pulled(Correcting):
    """Moves actions towards the middle of their range, by the critic's size."""

    strength: float = 0.5
    at_zero: float = 0.0
    attached: bool = False
    plain_units: bool = False
    reach: float = 1.0
    writes: bool = False
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor", "q")

    def around(self, models: Mapping[str, Any]) -> Any:
        actor, critic = models["actor"], models["q"]
        if not hasattr(actor, "centre"):
            raise AssayError("Pulled needs bounded actions. Drop it")

        def change(context: Context, action: Tensor) -> Tensor:
            if self.writes:
                next(critic.parameters()).data += 1.0
            size = critic(context, action).abs().mean(0).clamp(max=self.reach).unsqueeze(-1)
            middle = torch.zeros_like(actor.centre) if self.plain_units else actor.centre
            moved = action + (self.strength + self.at_zero) * size * (middle - action)
            return moved if self.attached else moved.detach()

        return Acting(actor, change)


def broken(findings: list[Finding]) -> set[str]:
    """The laws that broke."""
    return {finding.law for finding in findings if not finding.held}


def test_a_wrapper_that_ignores_its_actor_breaks_the_law() -> None:
    assert broken(check_wrapper(Constant())) == {"of_actor"}
    assert broken(check_wrapper(OneToken())) == {"of_actor"}


def test_a_correction_may_decide_what_its_actor_does_not() -> None:
    assert broken(check_wrapper(Pulled())) == set()


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"at_zero": 1e-4}, "uncorrected"),
        ({"reach": 0.0}, "uncorrected"),
        ({"attached": True}, "detached"),
        ({"plain_units": True}, "rescaled"),
        ({"strength": 30.0, "reach": 100.0}, "inside"),
        ({"writes": True}, "unchanged"),
    ],
)
def test_a_wrong_correction_breaks_its_law(change: dict[str, Any], law: str) -> None:
    assert law in broken(check_wrapper(replace(Pulled(), **change)))
