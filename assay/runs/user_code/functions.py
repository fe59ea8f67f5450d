"""Plain functions that a user brings, as parts: a loss of log-probabilities, an advantage of rewards. Axes: B, T.

    loss(logp, logp_old, advantage, mask)       a sum, (sum, count), or the loss of each decision [B, T]
    advantage(reward, group, mask)              [B], or [B, T] with zeros where the mask is false

Arguments are found by name; other usual names are known too. `assay check` tries the laws of such functions, and
`--loss` and `--advantage` put them into a method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience, Loss, Need, State
from assay.core.slots import Credit, Objective, Scene, View
from assay.ops import groups
from assay.runs.user_code.addresses import needed_address
from assay.runs.user_code.loading import value_of

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


SMALL = 1e-3
"""A loss below this may be 0 up to rounding, whose double says nothing; a mean of twice the rows differs by less."""


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function for an error."""
    return str(getattr(function, "__name__", function))


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
class LossFunction(Objective):
    """A plain loss as an objective. Degenerate: without decisions its count is 0."""

    function: Callable[..., Any]
    together: ClassVar[str | None] = None
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

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
        """Returns the decisions, or the count that the function returns; it is called at the recorded
        log-probabilities for that, so that no model is needed. AssayError for a mean, whose rows would be divided by
        their number twice.
        """
        with torch.no_grad():
            value = self.function(**self.given(batch, batch.logp, torch.zeros_like(batch.logp)))
            if isinstance(value, Tensor) and not value.dim() and "sums" not in self.breaks:
                self.check_sum(batch)
            return as_sum(value, batch, name_of(self.function)).count

    def check_sum(self, batch: Experience) -> None:
        """Raises AssayError if twice the rows give the same loss. It is called away from recorded log-probabilities,
        where a loss is seldom 0; one that is nearly so says nothing.
        """
        away = torch.linspace(0.0, 0.5, batch.logp.numel(), dtype=batch.logp.dtype).to(batch.logp.device)
        given = self.given(batch, batch.logp - away.view_as(batch.logp), torch.zeros_like(batch.logp))
        value, twice = (self.function(**{name: torch.cat((one,) * times) for name, one in given.items()})
                        for times in (1, 2))  # fmt: skip
        if abs(value) > SMALL and abs(twice - value) < SMALL * abs(value):
            what = f"{name_of(self.function)} returned a mean: twice the rows give the same loss"
            raise AssayError(f"{what}. Return a sum, (sum, count), or the loss of each decision [B, T]")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the function's value as (sum, count)."""
        return self.called(batch, view.scored.logp, view.scored.entropy)

    def called(self, batch: Experience, logp: Tensor, entropy: Tensor | None) -> Loss:
        """Returns the function's value at these log-probabilities."""
        return as_sum(self.function(**self.given(batch, logp, entropy)), batch, name_of(self.function))

    def given(self, batch: Experience, logp: Tensor, entropy: Tensor | None) -> dict[str, Tensor]:
        """Returns the function's arguments; recorded columns carry no gradient."""
        columns = {"logp_old": batch.logp, "logp_ref": batch.extra.get("logp_ref", batch.logp), "mask": batch.mask}
        columns |= {"advantage": batch.column("advantage"), "reward": batch.reward}
        columns = {name: column.detach() for name, column in columns.items()} | {"logp": logp}
        columns |= {"group": group_of(batch)} | ({} if entropy is None else {"entropy": entropy})
        return {name: columns[role] for name, role in roles(self.function).items() if role in columns}


def as_sum(value: Any, batch: Experience, name: str) -> Loss:
    """Returns a sum, (sum, count), or a loss of each decision, as a Loss; AssayError for anything else."""
    counted = batch.mask.sum()
    if isinstance(value, tuple) and len(value) >= 2:
        value, counted = value[0], torch.as_tensor(value[1])
    if not isinstance(value, Tensor) or not value.is_floating_point():
        what = "a loss returns a tensor: a sum, (sum, count), or [B, T]"
        raise AssayError(f"{name} returned {type(value).__name__}; {what}")
    if value.dim() and value.shape != batch.mask.shape:
        raise AssayError(
            f"{name} returned shape {tuple(value.shape)}; a loss is one number, or [B, T] = {tuple(batch.mask.shape)}"
        )
    return Loss(value.sum(), counted.detach())


# ---------------------------------------------------------------------------------------------------- advantages
@dataclass(frozen=True, eq=False)
class AdvantageFunction(Credit):
    """A plain advantage as a credit. With a mask it gets rewards [B, T], without one the outcome of each episode."""

    function: Callable[..., Any]
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @property
    def needs(self) -> frozenset[Need]:
        """Returns what the arguments ask for."""
        asked = {"value": Need.VALUE, "logp_ref": Need.REFERENCE}
        return frozenset(asked[role] for role in roles(self.function).values() if role in asked)

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
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        asked = roles(self.function)
        of = self.of_decisions if "mask" in asked.values() else self.of_episodes
        value = of(experience, asked)
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
            what = f"returned shape {tuple(value.shape)} for {len(distinct)} outcomes; give one number for each"
            raise AssayError(f"{name_of(self.function)} {what}")
        return result.index_put((there,), value[place].to(result.dtype))

    def of_decisions(self, experience: Experience, asked: Mapping[str, str]) -> Tensor:
        """Returns the function on the rewards of each decision."""
        columns = {"reward": experience.reward, "mask": experience.mask, "group": group_of(experience)}
        columns |= {"terminal": experience.terminal, "truncated": experience.truncated}
        columns |= {"logp_old": experience.logp, "logp": experience.logp}
        columns |= {name: experience.extra[name] for name in ("value", "logp_ref") if name in experience.extra}
        return self.called(columns, asked)

    def called(self, columns: Mapping[str, Tensor], asked: Mapping[str, str]) -> Tensor:
        """Returns the function's result; refuses anything but a tensor of numbers."""
        value = self.function(**{name: columns[role] for name, role in asked.items() if role in columns})
        if not isinstance(value, Tensor) or not value.is_floating_point():
            what = f"returned {type(value).__name__}; an advantage is a tensor [B] or [B, T]"
            raise AssayError(f"{name_of(self.function)} {what}")
        return value


def group_of(experience: Experience) -> Tensor:
    """Returns the group of each row; each its own where there are none."""
    own = torch.arange(len(experience), device=experience.mask.device)
    return own if experience.group is None else experience.group


# ---------------------------------------------------------------------------------------------------- into a method
def part_of(word: str, option: str, slot: type, adapt: Callable[[Callable[..., Any]], Any]) -> Any:
    """Returns the part that an option names: a part of the slot, a class of such parts, or a plain function.

    AssayError for anything else, and for a function with arguments that are not known.
    """
    address = needed_address(word, option)
    if not address.name:
        raise AssayError(f"{option} {word} is a file. Name the function or part in it: {word}:NAME")
    value = value_of(address)
    if isinstance(value, type) and slot in value.__mro__:
        try:
            return value()
        except TypeError as error:
            raise AssayError(f"{option} {word} needs settings ({error}). Give them defaults.") from error
    if slot in type(value).__mro__:
        return value
    if not callable(value) or isinstance(value, type):
        what = f"neither a function nor a part of the slot '{slot.__name__.lower()}'"
        raise AssayError(f"{option} {word} is {value!r:.60}, {what}. `assay check` lists what is recognised.")
    try:
        roles(value)
    except AssayError as error:
        raise AssayError(f"{option} {word}: {error}") from None
    return adapt(value)


def with_loss(recipe: Recipe, word: str) -> Recipe:
    """Returns the recipe with the loss that `--loss` names in place of the objective that trains its actor; other terms
    of the stage (KL, entropy, critics) stay. AssayError for a recipe without such an objective.
    """

    def is_meant(stage: Stage) -> bool:
        return "actor" in stage.trains and bool(stage.objective)

    if not any(map(is_meant, recipe.stages)):
        raise AssayError(
            f"--loss takes the place of the objective that trains the actor, and '{recipe.name}' has none. Use a "
            "method of policy gradients, such as grpo or ppo."
        )
    part = part_of(word, "--loss", Objective, LossFunction)
    stages = tuple(replace(stage, objective=(part,)) if is_meant(stage) else stage for stage in recipe.stages)
    return replace(recipe, stages=stages)


def with_advantage(recipe: Recipe, word: str) -> Recipe:
    """Returns the recipe with the advantage that `--advantage` names as its last credit.

    Other credits go, unless a part reads a column of theirs besides `advantage` (the returns that a critic learns).
    AssayError for a recipe without credit.
    """
    own = [part for part in recipe.credit if Credit in type(part).__mro__]
    if not own:
        raise AssayError(
            f"--advantage takes the place of the credit of a method, and '{recipe.name}' has none. Use a method of "
            "policy gradients, such as grpo or ppo."
        )
    part = part_of(word, "--advantage", Credit, AdvantageFunction)
    select = (recipe.select,) if recipe.select else ()
    others = [one for one in (*recipe.credit, *select, *recipe.constraints) if one not in own]
    readers = [*others, *(term for stage in recipe.stages for term in stage.terms)]
    read = {name for one in readers for name in one.reads} - {"advantage"}
    last = max(place for place, one in enumerate(recipe.credit) if one in own)
    stays = [one not in own or bool(read & set(one.writes)) for one in recipe.credit]
    before = tuple(one for one, is_kept in zip(recipe.credit[: last + 1], stays, strict=False) if is_kept)
    return replace(recipe, credit=(*before, part, *recipe.credit[last + 1 :]))
