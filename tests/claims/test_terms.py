"""Each law of objectives, regularizers and critic losses catches a term that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims.laws.benches import STANDARD, Bench, benches_of
from assay.claims.laws.critic import CRITIC_LOSS
from assay.claims.laws.objective import OBJECTIVE, check_objective
from assay.claims.laws.regularizer import REGULARIZER
from assay.claims.laws.term import COMMON
from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import ActionValue
from assay.models.model import Critic
from assay.parts.critics.td import Td
from assay.parts.objectives.pathwise import MaximizeSoftQ
from assay.parts.predictions import OfChoice
from assay.parts.targets.one_step import DoubleQ
from tests.claims.breaking import assert_caught, finding, not_covered

LOGP, REFERENCE = Need.LOGP, Need.REFERENCE


def decisions(batch: Experience) -> Tensor:
    return batch.mask.sum()


@dataclass(frozen=True)
class Toy:
    """A term out of a function that gives the loss of each decision, or a whole Loss."""

    value: Callable[[Experience, Any], Tensor | Loss]
    counted: Callable[[Experience], Tensor] = decisions
    needs: Any = frozenset({LOGP, REFERENCE})
    together: str | None = None
    reads_models: tuple[str, ...] = model_name(("value", "reference"))
    first_order: bool = False
    divergence: bool = False
    breaks: dict[str, str] = field(default_factory=dict)

    def count(self, batch: Experience) -> Tensor:
        return self.counted(batch)

    def __call__(self, batch: Experience, view: Any) -> Loss:
        value = self.value(batch, view)
        return value if isinstance(value, Loss) else Loss(value.sum(), self.count(batch))


def advantage(batch: Experience) -> Tensor:
    return batch.column("advantage").detach()


def good(batch: Experience, view: Any) -> Tensor:
    """REINFORCE."""
    return -advantage(batch) * view.scored.logp * batch.mask


def ratio(batch: Experience, view: Any) -> Tensor:
    return ((view.scored.logp - batch.logp.detach()) * batch.mask).exp()


def squeezed(batch: Experience, view: Any) -> Loss:
    """Changes the batch it was given."""
    loss = good(batch, view).sum()
    batch.extra["advantage"].mul_(0.5)
    return Loss(loss, decisions(batch))


def by_row(batch: Experience, view: Any) -> Tensor:
    return good(batch, view) * torch.arange(len(batch)).unsqueeze(1)


def without_last(batch: Experience, view: Any) -> Tensor:
    return good(batch, view)[:, :-1]


BROKEN: dict[str, Toy] = {
    "rescaled": Toy(lambda batch, view: good(batch, view) * batch.action.abs().reshape(*batch.mask.shape, -1).sum(-1)),
    "declared": Toy(good, needs={LOGP}),
    "names": Toy(lambda batch, view: good(batch, view) * view.model("value")(batch.context), reads_models=()),
    "repeats": Toy(lambda batch, view: good(batch, view) * torch.rand(())),
    "unmodified": Toy(squeezed),
    "dtype": Toy(lambda batch, view: good(batch, view).float()),
    "padding": Toy(lambda batch, view: good(batch, view) / batch.num_columns),
    "permutation": Toy(by_row),
    "micro_batches": Toy(lambda batch, view: good(batch, view) / batch.mask.sum().clamp(min=1)),
    "count": Toy(lambda batch, view: Loss(good(batch, view).sum(), decisions(batch) + 1)),
    "last_column": Toy(without_last),
    "empty": Toy(lambda batch, view: good(batch, view).sum() + 1.0),
    "masked": Toy(lambda batch, view: -advantage(batch) * view.scored.logp),
    "finite": Toy(lambda batch, view: -advantage(batch) * ratio(batch, view) ** 5),
    "zero_credit": Toy(lambda batch, view: -view.scored.logp * batch.mask),
    "recorded": Toy(lambda batch, view: -advantage(batch) * (view.scored.logp - batch.logp).exp() * batch.mask),
    "first_order": Toy(lambda batch, view: 2 * good(batch, view), first_order=True),
    "old_policy": Toy(
        lambda batch, view: Loss(
            (-advantage(batch) * (view.scored.logp - view.scored.logp.detach()).exp() * batch.mask).sum(),
            decisions(batch),
            {"ratio": (decisions(batch), decisions(batch))},
        )
    ),
    "clipped": Toy(lambda batch, view: -torch.maximum(*surrogates(batch, view)) * batch.mask),
    "way_back": Toy(lambda batch, view: -surrogates(batch, view)[1] * batch.mask),
    "faded": Toy(lambda batch, view: -advantage(batch) * bumped(ratio(batch, view)) * batch.mask),
    "reference": Toy(lambda batch, view: good(batch, view) - 0.1 * k3(batch, view)),
    "entropy": Toy(
        lambda batch, view: good(batch, view) + 0.1 * view.scored.entropy * batch.mask,
        needs=frozenset({LOGP, Need.ENTROPY}),
    ),
}
SOUND: dict[str, Toy] = {
    "PPO's clip": Toy(lambda batch, view: -torch.minimum(*surrogates(batch, view)) * batch.mask, first_order=True),
    "a clip, KL to the reference inside": Toy(
        lambda batch, view: -torch.minimum(*surrogates(batch, view)) * batch.mask + 0.1 * k3(batch, view)
    ),
    **{
        f"a smooth clip of width {width}": Toy(
            lambda batch, view, width=width: (
                -advantage(batch)  # type: ignore[misc]
                * width
                * ((ratio(batch, view) - 1) / width).tanh()
                * batch.mask
            )
        )
        for width in (0.2, 0.5)
    },
    "a ceiling on the loss of bad decisions": Toy(
        lambda batch, view: (
            torch.minimum(-torch.minimum(*surrogates(batch, view)), ceiling(advantage(batch))) * batch.mask
        )
    ),
    "a clipped weight without gradient": Toy(
        lambda batch, view: good(batch, view) * ratio(batch, view).detach().clamp(0.8, 1.2)
    ),
    "both sides masked": Toy(
        lambda batch, view: -advantage(batch) * ratio(batch, view) * batch.mask * (ratio(batch, view) - 1).abs().le(0.2)
    ),
    "an entropy bonus inside": Toy(
        lambda batch, view: good(batch, view) - 0.1 * view.scored.entropy * batch.mask,
        needs=frozenset({LOGP, Need.ENTROPY}),
    ),
}


def bumped(ratio: Tensor) -> Tensor:
    """Returns a ratio whose weight grows with its distance from 1, up to a distance beyond which it is 0."""
    away = ratio.detach().log().abs()
    return ratio * torch.where(away < 0.75, 1 + away, 0.0)


def ceiling(credit: Tensor) -> Tensor:
    """Returns the largest loss of a bad decision, three times its credit; none of a good one."""
    return torch.where(credit < 0, -3.0 * credit, torch.inf)


def k3(batch: Experience, view: Any) -> Tensor:
    away = (batch.column("logp_ref").detach() - view.scored.logp) * batch.mask
    return away.exp() - away - 1.0


def surrogates(batch: Experience, view: Any) -> tuple[Tensor, Tensor]:
    plain = ratio(batch, view)
    return plain * advantage(batch), plain.clamp(0.8, 1.2) * advantage(batch)


@pytest.mark.parametrize("name", SOUND)
def test_sound_objectives_of_other_forms_obey_every_law(name: str) -> None:
    assert [one for one in check_objective(SOUND[name]) if not one.held] == []


def broken(batch: Experience, view: Any) -> Tensor:
    raise ValueError("no loss today")


@pytest.mark.parametrize("law", BROKEN)
def test_law_catches_a_broken_objective(law: str) -> None:
    assert_caught(OBJECTIVE, law, BROKEN[law])


def test_every_law_of_objectives_is_shown_to_fail() -> None:
    assert not_covered(OBJECTIVE, BROKEN) == {"runs"}


def test_a_term_that_raises_everywhere_runs_nowhere() -> None:
    (found,) = OBJECTIVE.check(Toy(broken))
    assert (found.law, found.held) == ("runs", False)
    assert "no loss today" in found.detail


@pytest.mark.parametrize("value", [None, 3.0, torch.zeros(3), "loss"], ids=repr)
def test_a_term_must_return_a_loss(value: Any) -> None:
    class Odd(Toy):
        def __call__(self, batch: Experience, view: Any) -> Any:
            return value

    (found,) = OBJECTIVE.check(Odd(good))
    assert "a term must return Loss" in found.detail


def test_a_good_objective_obeys_every_law() -> None:
    assert [one for one in check_objective(Toy(good, first_order=True)) if not one.held] == []


def test_the_gradient_in_old_log_probabilities_is_named() -> None:
    assert "gradient in logp" in finding(OBJECTIVE, "recorded", BROKEN["recorded"]).detail


def test_first_order_sees_a_ratio_that_is_shared_wrongly() -> None:
    def product(batch: Experience, view: Any) -> Tensor:
        log_ratio = ((view.scored.logp - batch.logp.detach()) * batch.mask).sum(1, keepdim=True)
        return -advantage(batch) * log_ratio.exp() * batch.mask

    def geometric(batch: Experience, view: Any) -> Tensor:
        log_ratio = ((view.scored.logp - batch.logp.detach()) * batch.mask).sum(1, keepdim=True)
        return -advantage(batch) * (log_ratio / batch.mask.sum(1, keepdim=True).clamp(min=1)).exp() * batch.mask

    assert not finding(OBJECTIVE, "first_order", Toy(product, first_order=True)).held
    assert finding(OBJECTIVE, "first_order", Toy(geometric, first_order=True)).held


def test_first_order_sees_credit_of_the_wrong_decision() -> None:
    def shifted(batch: Experience, view: Any) -> Tensor:
        return -advantage(batch).roll(1, 1) * view.scored.logp * batch.mask

    assert not finding(OBJECTIVE, "first_order", Toy(shifted, first_order=True)).held


def test_a_need_that_is_not_declared_is_not_given() -> None:
    greedy = Toy(lambda batch, view: batch.column("logp_ref") * view.scored.logp, needs=frozenset({LOGP}))
    (found,) = OBJECTIVE.check(greedy)
    assert "no column 'logp_ref'" in found.detail


def test_a_term_that_keeps_groups_together_is_split_by_groups() -> None:
    def group_mean(batch: Experience, view: Any) -> Tensor:
        label = batch.group if batch.group is not None else torch.arange(len(batch))
        same = (label.unsqueeze(1) == label).double()
        mean = same @ (view.scored.logp * batch.mask).sum(1).detach() / same.sum(1)
        return -advantage(batch) * view.scored.logp * batch.mask * mean.unsqueeze(1)

    assert finding(OBJECTIVE, "micro_batches", Toy(group_mean, together="group")).held
    assert not finding(OBJECTIVE, "micro_batches", Toy(group_mean)).held


def test_metrics_must_add_up_too() -> None:
    def with_metric(batch: Experience, view: Any) -> Loss:
        mean = (view.scored.logp.detach() * batch.mask).sum() / batch.mask.sum().clamp(min=1)
        return Loss(good(batch, view).sum(), decisions(batch), {"logp": (mean, torch.ones(()))})

    assert "metric logp" in finding(OBJECTIVE, "micro_batches", Toy(with_metric)).detail


# ------------------------------------------------------------------------------------------------------- regularizers
def k1(batch: Experience, view: Any) -> Tensor:
    return (view.scored.logp - batch.column("logp_ref").detach()) * batch.mask


REGULARIZERS = {
    "policy_only": Toy(lambda batch, view: ((view.scored.logp - batch.column("logp_ref")) * batch.mask).square()),
    "divergence": Toy(k1, divergence=True),
    "reference": Toy(lambda batch, view: -k1(batch, view).square()),
    "entropy": Toy(lambda batch, view: view.scored.entropy * batch.mask, needs=frozenset({LOGP, Need.ENTROPY})),
}


@dataclass(frozen=True)
class Bonus(Toy):
    """A bonus of its own making."""

    bonus: bool = True


def spread(batch: Experience, view: Any) -> Tensor:
    log_prob = view.scored.logits.log_softmax(-1)
    return -(log_prob.exp() * log_prob).sum(-1) * batch.mask


@pytest.mark.parametrize(
    ("sign", "words"), [(-1.0, None), (1.0, "a bonus is subtracted"), (0.0, "no decision's entropy")]
)
def test_a_bonus_by_its_own_logits_must_raise_entropy(sign: float, words: str | None) -> None:
    part = Bonus(lambda batch, view: sign * spread(batch, view), needs=frozenset({LOGP, Need.LOGITS}))
    found = finding(REGULARIZER, "entropy", part)
    assert found.held == (words is None)
    assert words is None or words in found.detail


@pytest.mark.parametrize("law", REGULARIZERS)
def test_law_catches_a_broken_regularizer(law: str) -> None:
    assert_caught(REGULARIZER, law, REGULARIZERS[law])


def test_every_law_of_regularizers_is_shown_to_fail() -> None:
    assert not_covered(REGULARIZER, REGULARIZERS, COMMON) == set()


def test_a_divergence_that_is_not_zero_at_the_reference_is_caught() -> None:
    shifted = Toy(lambda batch, view: k1(batch, view).square() + 0.1 * batch.mask, divergence=True)
    assert "at the reference" in finding(REGULARIZER, "divergence", shifted).detail


def test_the_whole_distribution_can_be_compared_with_the_reference() -> None:
    def forward_kl(batch: Experience, view: Any) -> Tensor:
        reference = view.model("reference").score(batch, frozenset({Need.LOGITS})).logits.log_softmax(-1)
        mine = view.scored.logits.log_softmax(-1)
        return (reference.exp() * (reference - mine)).sum(-1) * batch.mask

    part = Toy(forward_kl, needs=frozenset({LOGP, Need.LOGITS}), divergence=True)
    assert [one for one in REGULARIZER.check(part) if not one.held] == []


def test_a_regularizer_that_trains_the_critic_is_caught() -> None:
    part = Toy(lambda batch, view: view.model("value")(batch.context) * view.scored.logp * batch.mask)
    assert "value." in finding(REGULARIZER, "policy_only", part).detail


# ------------------------------------------------------------------------------------------------------ critic losses
def temporal_difference(detach: bool = True, stop: str = "terminal") -> Toy:
    """(V(s) - r - V(s'))^2 on a table or a perceptron, with one mistake."""

    def value(batch: Experience, view: Any) -> Tensor:
        now, after = batch.columns(0, batch.num_columns - 1), batch.columns(1, batch.num_columns)
        later = view.model("value")(after.context)
        ends = {"terminal": now.terminal, "never": now.terminal & False, "both": now.terminal | now.truncated}[stop]
        target = now.reward.detach() + 0.9 * later * ~ends
        error = view.model("value")(now.context) - (target.detach() if detach else target)
        return (error * now.mask).square()

    return Toy(value, counted=lambda batch: batch.mask[:, :-1].sum(), needs=frozenset())


CRITICS = {"targets": temporal_difference(detach=False), "ends": temporal_difference(stop="never")}


@pytest.mark.parametrize("law", CRITICS)
def test_law_catches_a_broken_critic_loss(law: str) -> None:
    assert_caught(CRITIC_LOSS, law, CRITICS[law])


def test_every_law_of_critic_losses_is_shown_to_fail() -> None:
    assert not_covered(CRITIC_LOSS, CRITICS, COMMON) == set()


def test_a_truncated_step_that_does_not_bootstrap_is_caught() -> None:
    assert "truncated" in finding(CRITIC_LOSS, "ends", temporal_difference(stop="both")).detail


def test_a_sound_critic_loss_obeys_every_law() -> None:
    inputs = [case for case in CRITIC_LOSS.cases(temporal_difference()) if "tokens" not in case.name]
    assert [one for one in CRITIC_LOSS.check(temporal_difference(), inputs) if not one.held] == []


def test_gradient_at_the_next_state_of_a_table_is_caught() -> None:
    inputs = [case for case in CRITIC_LOSS.cases(CRITICS["targets"]) if case.name.startswith("numbered")]
    (found,) = CRITIC_LOSS.check(CRITICS["targets"], inputs, only="targets")
    assert "states after the decision" in found.detail


# ------------------------------------------------------------------------------------------------------------ benches
def test_a_recipe_gives_benches_with_its_own_models_made_small() -> None:
    bench, with_goals = benches_of(recipes.sac())
    assert "goals" in with_goals.name
    assert bench.models["q"] == Critic(Perceptron((8,)), ActionValue())
    assert bench.source_of("q_target") == "q"
    assert not [one for one in check_objective(MaximizeSoftQ(), [bench]) if one.law == "runs" and not one.held]


def test_a_term_names_the_benches_that_do_not_suit_it() -> None:
    gaussian: Bench = STANDARD[1]
    (found,) = CRITIC_LOSS.check(Td(DoubleQ(), of=OfChoice()), OBJECTIVE.cases(Toy(broken)))
    assert found.law == "runs"
    (found,) = check_objective(Td(DoubleQ(), of=OfChoice()), [gaussian])
    assert gaussian.name in found.detail
