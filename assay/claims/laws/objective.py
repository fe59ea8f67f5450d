"""Laws of objectives, and of the small parts inside the policy-gradient family. Axes: B sequences, T decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.trials import TermCase, carried, evaluate, leaf
from assay.claims.laws.benches import STANDARD, Bench
from assay.claims.laws.cases import normal
from assay.claims.laws.invariance import apart
from assay.claims.laws.laws import TIGHT, Contract, Finding, declares, gap, law, shown
from assay.claims.laws.term import COMMON, cases_on
from assay.core.record import Experience, Need
from assay.core.settings import children
from assay.ops import groups
from assay.ops.distributions import categorical_entropy
from assay.parts.objectives.policy import PolicyGradient


def weights(part: Any, batch: Experience) -> Tensor:
    """Returns the weights of decisions: those of the objective's aggregation, else all equal."""
    aggregate = getattr(part, "aggregate", None)
    return batch.mask.to(batch.reward.dtype) if aggregate is None else aggregate.weigh(batch)


def with_outcome_credit(batch: Experience) -> Experience:
    """Returns the same advantage on every decision of an episode."""
    index = groups.episode_groups(batch).index
    return batch.add({"advantage": normal("outcomes", (len(batch),))[index].unsqueeze(1) * batch.mask})


def at_ratio_one(batch: Experience) -> Experience:
    """Returns the acting policy is the current one."""
    return replace(batch, logp=batch.column("scored.logp"))


def is_local(part: Any, case: TermCase) -> bool:
    """Returns whether a decision's gradient does not depend on the log-probabilities of the others in its row."""
    first = case.batch.mask & (case.batch.mask.long().cumsum(1) == 1)
    moved = case.batch.add({"scored.logp": case.batch.column("scored.logp") + 0.1 * first})
    plain, other = evaluate(part, case).policy["logp"], evaluate(part, case, moved).policy["logp"]
    return gap(torch.where(first, 0.0, other), torch.where(first, 0.0, plain)) <= TIGHT


def at_reference(batch: Experience) -> Experience:
    """Returns the batch with the current policy as the reference, where a KL term inside a loss has no gradient."""
    return batch.add({"logp_ref": batch.column("scored.logp")})


def without_credit(batch: Experience) -> Experience:
    """Returns the batch with advantages of 0."""
    return batch.add({"advantage": torch.zeros_like(batch.logp)})


@law("zero credit gives zero gradient, where the policy is the reference")
def zero_credit(part: Any, case: TermCase) -> Iterator[str]:
    """All advantages are 0. A bonus in the entropy has a law of its own."""
    trial = evaluate(part, case, without_credit(at_reference(case.batch)))
    slopes = {name: slope for name, slope in {**trial.policy, **trial.parameters}.items() if name != "entropy"}
    yield from (f"advantages are all 0, and {detail}" for detail in carried(slopes))


@law("no gradient reaches recorded columns, old and reference log-probabilities among them")
def recorded(part: Any, case: TermCase) -> Iterator[str]:
    """Recorded columns are made to take gradient, and take none."""
    yield from carried(evaluate(part, case, watched=True).recorded)


@law("at ratio one the gradient is REINFORCE's, -advantage * weight", declares("first_order"))
def first_order(part: Any, case: TermCase) -> Iterator[str]:
    """With the same credit on a whole row; with any credit where decisions do not share their ratio."""
    plain = at_ratio_one(case.batch)
    inputs = [("outcome credit", with_outcome_credit(plain))]
    inputs += [("credit for each decision", plain)] if is_local(part, case) else []
    for name, batch in inputs:
        found = evaluate(part, case, batch).policy["logp"]
        expected = -batch.column("advantage") * weights(part, batch)
        if gap(found, expected) > TIGHT:
            yield f"with {name} it is {shown(found[batch.mask])} instead of {shown(expected[batch.mask])}"


@law("a loss with a ratio changes with the recorded log-probabilities")
def old_policy(part: Any, case: TermCase) -> Iterator[str]:
    """For losses that take `logp_old`, have a ratio as a setting, or report the metric `ratio`."""
    plain = evaluate(part, case)
    is_still = not any(bool(gradient.any()) for gradient in plain.policy.values())
    if is_still or not (has_ratio(part) or "ratio" in plain.metrics):
        return
    moved = replace(case.batch, logp=case.batch.logp + 0.2 * normal("older", case.batch.logp.shape) * case.batch.mask)
    other = evaluate(part, case, moved)
    if gap(other.sum, plain.sum) <= TIGHT and not [*apart(other.policy, plain.policy)]:
        yield "sum and gradient stay the same when they move: the ratio is not to the policy that sampled"


def has_ratio(part: Any) -> bool:
    """Returns whether a ratio is among the settings, or a plain function takes the recorded log-probabilities."""
    declared = any(getattr(below, "slot", None) == "ratio" for _, below in children(part))
    return declared or bool(getattr(part, "takes_old", False))


def slope_at(part: Any, case: TermCase, credit: float, ratio: float) -> float:
    """Returns the largest gradient in a log-probability, with this credit and this ratio on all rows."""
    return float(evaluate(part, case, with_credit(case, credit, ratio)).policy["logp"].abs().max())


def with_credit(case: TermCase, credit: float, ratio: float) -> Experience:
    """Returns the batch with this credit and this ratio on all rows, the policy being the reference."""
    here = at_reference(at_ratio_one(case.batch))
    batch = here.add({"advantage": credit * here.mask.to(here.reward.dtype)})
    return replace(batch, logp=(batch.logp - math.log(ratio)) * batch.mask)


FAR = math.exp(2.0)
"""A ratio outside of every usual clip range; its inverse is, too."""
GOOD_AND_BAD = ((1.0, "good"), (-1.0, "bad"))


@law("a loss that clips gives no gradient where the gain is already taken")
def clipped(part: Any, case: TermCase) -> Iterator[str]:
    """With credit of one sign on all rows: where the gradient vanishes on the side that lost (good decisions made
    unlikely), it vanishes on the side that gained. A max in place of PPO's min does not. Tried at ratios of exp(2) and
    exp(-2), then at ratios as far above 1 as exp(-2) is below it: a smooth clip, such as tanh(ratio - 1), which fades
    on both sides alike, may vanish at the larger distance of the first and not yet at the smaller.
    """
    near = 2.0 - 1.0 / FAR
    for credit, words in GOOD_AND_BAD:
        limit, found = TIGHT * slope_at(part, case, credit, 1.0), 0.0
        for high in (FAR, near):
            lost, gained = (high, 1.0 / FAR)[:: 1 if credit < 0 else -1]
            found = slope_at(part, case, credit, gained)
            if not slope_at(part, case, credit, lost) <= limit < found:
                break
        else:
            yield f"{words} decisions get {found:.3g} where the gain is taken, none where it is lost: swap min and max"


def counted_at(part: Any, case: TermCase, credit: float, ratio: float) -> float:
    """Returns how much of the loss is due to this credit, with this ratio on all rows."""
    sums = [evaluate(part, case, with_credit(case, one, ratio)).sum for one in (credit, 0.0)]
    return float((sums[0] - sums[1]).abs())


@law("a clip leaves the way back open: where the policy moved against the credit, the loss has a gradient")
def way_back(part: Any, case: TermCase) -> Iterator[str]:
    """With credit of one sign on all rows: where the gradient vanishes at the ratio e (good decisions, 1/e bad ones),
    the loss may not count the credit and be flat at 1/e (e) as well. clip(ratio) * A without PPO's min is. A mask that
    leaves decisions out counts nothing there; a ceiling on the loss of bad decisions lies above e, usually at 3.
    """
    for credit, words in GOOD_AND_BAD:
        ratio, limit = math.exp(-credit), TIGHT * slope_at(part, case, credit, 1.0)
        is_flat = all(slope_at(part, case, credit, one) <= limit for one in (1.0 / ratio, ratio))
        if limit and is_flat and counted_at(part, case, credit, ratio) > limit:
            what = f"{words} decisions at ratio {ratio:.3g}, where the gain is lost, count and have no gradient"
            yield f"{what}: the clip has no min. Use -min(ratio * A, clip(ratio) * A)"


@law("a smooth clip fades: the more of a gain is taken, the less weight the next has")
def faded(part: Any, case: TermCase) -> Iterator[str]:
    """For losses whose gradient, in units of the ratio, falls below a tenth at a ratio of exp(2) (good decisions) or
    exp(-2) (bad ones): on the way there it does not rise. A hard clip has 1, then 0; a gate with a wrong sign rises.
    """
    for credit, words in GOOD_AND_BAD:
        ratios = [math.exp(credit * step) for step in (0.0, 0.25, 0.5, 1.0, 2.0)]
        found = [slope_at(part, case, credit, ratio) / ratio for ratio in ratios]
        if not found[0] or found[-1] >= found[0] / 10:
            continue
        rises = [place for place in range(1, len(found)) if found[place] > found[place - 1] + TIGHT * found[0]]
        if rises:
            place = rises[0]
            yield (
                f"{words} decisions have weight {found[place - 1]:.3g} at ratio {ratios[place - 1]:.3g} and "
                f"{found[place]:.3g} at {ratios[place]:.3g}, where more of the gain is taken"
            )


@law("a KL term pulls towards the reference")
def reference(part: Any, case: TermCase) -> Iterator[str]:
    """Without credit, at ratio one, some decision's gradient points towards the reference; k1 points both ways."""
    if Need.REFERENCE not in part.needs:
        return
    batch = without_credit(at_ratio_one(case.batch))
    away = batch.column("scored.logp") - batch.column("logp_ref")
    pull = evaluate(part, case, batch).policy["logp"] * away
    if bool((pull < 0).any()) and not bool((pull > 0).any()):
        yield f"gradients times (logp - logp_ref) are {shown(pull[batch.mask])}, all away from it: its sign is wrong"


@law("more entropy never increases the loss")
def entropy(part: Any, case: TermCase) -> Iterator[str]:
    """The gradient in the entropy of each decision; of one that declares `bonus`, through the logits too."""
    trial = evaluate(part, case)
    slope = trial.policy.get("entropy", torch.zeros(()))
    is_bonus = bool(getattr(part, "bonus", False))
    logits = trial.policy.get("logits")
    if is_bonus and logits is not None and bool(logits.any()):
        at = leaf(case.batch.column("scored.logits"))
        (rise,) = torch.autograd.grad(categorical_entropy(at).sum(), at)
        slope = slope + (logits * rise).sum(-1)
    if bool((slope > TIGHT).any()):
        yield f"the gradient in the entropy is {shown(slope[slope > TIGHT])}: a bonus is subtracted from the loss"
    elif is_bonus and not bool((slope < 0).any()):
        yield "it declares `bonus`, and no decision's entropy gets a gradient"


POLICY = (old_policy, clipped, way_back, faded, reference, entropy)
OBJECTIVE = Contract("objective", (*COMMON, zero_credit, recorded, first_order, *POLICY), cases_on)
RATIO = replace(OBJECTIVE, slot="ratio", holder=lambda part: PolicyGradient(ratio=part))
TRUST = replace(OBJECTIVE, slot="trust", holder=lambda part: PolicyGradient(trust=part))


def check_objective(part: Any, benches: Sequence[Bench] = STANDARD) -> list[Finding]:
    """Checks the laws of an objective; `benches` where it asks for models that the standard ones lack."""
    return OBJECTIVE.check(part, cases_on(part, benches))
