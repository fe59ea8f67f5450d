"""Plain functions that a user brings, as parts: a loss of log-probabilities, an advantage of rewards. Axes: B, T.

    loss(logp, logp_old, advantage, mask)       a sum, (sum, count), or the loss of each decision [B, T]
    advantage(reward, group, mask)              [B], or [B, T] with zeros where the mask is false

Arguments are found by name; other usual names are known too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.claims.laws.bench import STANDARD, TermCase, evaluate
from assay.claims.laws.cases import Case
from assay.claims.laws.credit import CREDIT, advantage_of, episodes, no_gradient
from assay.claims.laws.laws import LOOSE, TIGHT, Contract, Finding, gap, law, shown
from assay.claims.laws.objective import POLICY, at_ratio_one, at_reference, with_outcome_credit, zero_credit
from assay.claims.laws.term import COMMON, cases_on, count, declared, last_column
from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need
from assay.core.slots import View
from assay.ops import groups

MINE = {
    "logp": ("logp", "logprob", "logprobs", "log_prob", "log_probs", "logps", "new_logp", "logp_new"),
    "logp_old": (
        "logp_old",
        "old_logp",
        "old_logprobs",
        "old_log_prob",
        "old_log_probs",
        "logp_behaviour",
        "rollout_logprobs",
    ),
    "logp_ref": ("logp_ref", "ref_logp", "ref_logprobs", "ref_log_prob", "ref_log_probs", "reference_logp"),
    "advantage": ("advantage", "advantages", "adv", "weight", "weights"),
    "entropy": ("entropy", "entropies"),
    "mask": ("mask", "loss_mask", "response_mask", "action_mask", "completion_mask"),
    "reward": ("reward", "rewards", "outcome", "outcomes", "score", "scores"),
    "group": ("group", "groups", "group_id", "group_ids", "index"),
    "value": ("value", "values", "baseline"),
    "terminal": ("terminal", "terminated", "done", "dones"),
    "truncated": ("truncated",),
}
"""Names of arguments that are understood."""


def roles(function: Callable[..., Any]) -> dict[str, str]:
    """Returns argument -> value, for the arguments that are known or have no default."""
    known = {name: role for role, names in MINE.items() for name in names}
    parameters = inspect.signature(function).parameters.values()
    asked = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    strange = [one.name for one in asked if one.name not in known and one.default is one.empty]
    if strange:
        usual = ", ".join(names[0] for names in MINE.values())
        raise AssayError(f"it takes {', '.join(strange)} without a default. Known arguments are {usual}")
    return {one.name: known[one.name] for one in asked if one.name in known}


# ---------------------------------------------------------------------------------------------------- losses
@dataclass(frozen=True, eq=False)
class LossFunction:
    """A plain loss as an objective."""

    function: Callable[..., Any]
    together: ClassVar[str | None] = None

    @property
    def needs(self) -> frozenset[Need]:
        """Returns what the arguments ask for."""
        asked = {"logp_ref": Need.REFERENCE, "entropy": Need.ENTROPY}
        return frozenset({Need.LOGP} | {asked[role] for role in roles(self.function).values() if role in asked})

    @property
    def takes_old(self) -> bool:
        """Returns whether it takes the recorded log-probabilities."""
        return "logp_old" in roles(self.function).values()

    @property
    def breaks(self) -> Mapping[str, str]:
        """Returns the function's attribute."""
        return getattr(self.function, "breaks", {})

    def count(self, batch: Experience) -> Tensor:
        """Returns the decisions, unless the function returns its own count."""
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the function's value as (sum, count)."""
        columns = {"logp_old": batch.logp, "logp_ref": batch.extra.get("logp_ref", batch.logp), "mask": batch.mask}
        columns |= {"advantage": batch.column("advantage"), "reward": batch.reward}
        columns = {name: column.detach() for name, column in columns.items()} | {"logp": view.scored.logp}
        columns |= {"group": group_of(batch)} | (
            {} if view.scored.entropy is None else {"entropy": view.scored.entropy}
        )
        given = {name: columns[role] for name, role in roles(self.function).items() if role in columns}
        return as_sum(self.function(**given), batch)


def as_sum(value: Any, batch: Experience) -> Loss:
    """Returns a sum, (sum, count), or a loss of each decision, as a Loss; AssayError for anything else."""
    counted = batch.mask.sum()
    if isinstance(value, tuple) and len(value) >= 2:
        value, counted = value[0], torch.as_tensor(value[1])
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise AssayError(f"it returned {type(value).__name__}; a loss returns a tensor: a sum, (sum, count), or [B, T]")
    if value.dim() and value.shape != batch.mask.shape:
        raise AssayError(
            f"it returned shape {tuple(value.shape)}; a loss is one number, or [B, T] = {tuple(batch.mask.shape)}"
        )
    return Loss(value.sum(), counted.detach())


@law("it is a sum: twice the rows give twice the loss")
def sums(part: LossFunction, case: TermCase) -> Iterator[str]:
    """A loss that divides by its own count gives micro-batches and ranks wrong weights."""
    twice = torch.arange(len(case.batch)).repeat(2)
    once, doubled = evaluate(part, case).sum, evaluate(part, case, case.batch.rows(twice)).sum
    if gap(doubled, 2 * once) > TIGHT:
        is_mean = gap(doubled, once) <= TIGHT
        why = "returns a mean; return (sum, count)" if is_mean else "is not a sum over rows"
        yield f"it {why}: {shown(once)} for the rows, {shown(doubled)} for the rows twice"


@law("raising the log-probability of a good decision lowers the loss, that of a bad one raises it")
def sign(part: LossFunction, case: TermCase) -> Iterator[str]:
    """At ratio one, where the policy is the reference, with the same advantage on a whole row."""
    batch = with_outcome_credit(at_reference(at_ratio_one(case.batch)))
    gradient, credit = evaluate(part, case, batch).policy["logp"], batch.column("advantage")
    if bool((gradient * credit > 0).any()):
        wrong = gradient * credit > 0
        yield f"advantage {shown(credit[wrong])} has gradient {shown(gradient[wrong])}: the sign is wrong"
    elif not bool((gradient * credit < 0).any()):
        yield "no decision gets a gradient"


LOSS_LAWS = tuple(one for one in COMMON if one not in (declared, count, last_column))
LOSS_FUNCTION = Contract("loss function", (*LOSS_LAWS, sums, sign, zero_credit, *POLICY), cases_on)


def check_loss(function: Callable[..., Any]) -> list[Finding]:
    """Checks the laws of a plain loss function; see the module's docstring for what it may take and return."""
    part = LossFunction(function)
    try:
        roles(function)
    except AssayError as error:
        return [Finding("arguments", False, str(error))]
    return LOSS_FUNCTION.check(part, cases_on(part, STANDARD[:2]))


# ---------------------------------------------------------------------------------------------------- advantages
@dataclass(frozen=True, eq=False)
class AdvantageFunction:
    """A plain advantage as a credit. With a mask it gets rewards [B, T], without one the outcome of each episode."""

    function: Callable[..., Any]
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})

    @property
    def across_groups(self) -> bool:
        """Returns whether it does not take groups: then all outcomes are compared."""
        return "group" not in roles(self.function).values()

    @property
    def centred(self) -> bool:
        """Returns the function's attribute."""
        return bool(getattr(self.function, "centred", False))

    @property
    def breaks(self) -> Mapping[str, str]:
        """Returns the function's attribute."""
        return getattr(self.function, "breaks", {})

    @torch.no_grad()
    def __call__(self, experience: Experience) -> Experience:
        """Writes `advantage`."""
        asked = roles(self.function)
        value = (
            self.of_episodes(experience, asked)
            if "mask" not in asked.values()
            else self.of_decisions(experience, asked)
        )
        if value.shape == (len(experience),):
            value = value.unsqueeze(1) * experience.mask
        return experience.add({"advantage": value})

    def of_episodes(self, experience: Experience, asked: Mapping[str, str]) -> Tensor:
        """Returns the function on one outcome for each episode (and player) with a decision, put back on its rows."""
        label = groups.episode_label(experience)
        episode = torch.arange(len(experience)) if label is None else label
        there = experience.mask.any(1).nonzero().squeeze(1)
        distinct, place = torch.unique(episode[there], return_inverse=True)
        first = torch.full((len(distinct),), len(experience)).scatter_reduce(0, place, there, "amin")
        columns = {"reward": groups.outcome(experience)[first], "group": group_of(experience)[first]}
        result = groups.outcome(experience).new_zeros(len(experience))
        value = self.called(columns, asked)
        if value.shape != (len(distinct),):
            raise AssayError(
                f"it returned shape {tuple(value.shape)} for {len(distinct)} outcomes; give one number for each"
            )
        return result.index_put((there,), value[place].to(result.dtype))

    def of_decisions(self, experience: Experience, asked: Mapping[str, str]) -> Tensor:
        """Returns the function on the rewards of each decision."""
        columns = {"reward": experience.reward, "mask": experience.mask, "group": group_of(experience)}
        columns |= {
            "value": experience.column("value"),
            "terminal": experience.terminal,
            "truncated": experience.truncated,
        }
        columns |= {"logp_old": experience.logp, "logp": experience.logp, "logp_ref": experience.column("logp_ref")}
        return self.called(columns, asked)

    def called(self, columns: Mapping[str, Tensor], asked: Mapping[str, str]) -> Tensor:
        """Returns the function's result; refuses anything but a tensor of numbers."""
        value = self.function(**{name: columns[role] for name, role in asked.items() if role in columns})
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise AssayError(f"it returned {type(value).__name__}; an advantage is a tensor [B] or [B, T]")
        return value


def group_of(experience: Experience) -> Tensor:
    """Returns the group of each row; each its own where there are none."""
    return experience.group if experience.group is not None else torch.arange(len(experience))


@law("a better outcome never lowers its own advantage")
def prefers(part: AdvantageFunction, case: Case) -> Iterator[str]:
    """The reward of each row's last decision is raised in turn."""
    batch, plain = case.batch, advantage_of(part, case.batch)
    for row in batch.mask.any(1).nonzero().squeeze(1).tolist():
        last = int(batch.mask[row].nonzero().max())
        reward = batch.reward.clone()
        reward[row, last] += 1.0
        found = advantage_of(part, replace(batch, reward=reward))[row, last]
        if float(found - plain[row, last]) < -LOOSE:
            yield f"a reward raised by 1 moves it from {shown(plain[row, last])} to {shown(found)}: the sign is wrong"


LAWS = (*(one for one in CREDIT.laws if one not in (episodes, no_gradient)), prefers)
ADVANTAGE_FUNCTION = replace(CREDIT, slot="advantage function", laws=LAWS)


def check_advantage(function: Callable[..., Any]) -> list[Finding]:
    """Checks the laws of a plain advantage function; see the module's docstring for what it may take and return."""
    try:
        roles(function)
    except AssayError as error:
        return [Finding("arguments", False, str(error))]
    return ADVANTAGE_FUNCTION.check(AdvantageFunction(function))
