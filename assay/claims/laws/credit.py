"""Laws of parts that process fresh experience once: credit, shaping, statistics inside credit, selection. Axes: B, T.

`episodes` and `absent` are the record's own promises: an episode may be several rows, and a row without a decision (an
infrastructure fault) has left training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.bench import columns_read
from assay.claims.laws.trials import columns_of, leaf
from assay.claims.laws.cases import FRAGMENTS, TORQUES, Case, Layout, build, experiences, extreme, with_dtype
from assay.claims.laws.invariance import Measured, apart, invariances, keeps_inputs
from assay.claims.laws.laws import LOOSE, TIGHT, Contract, Finding, declares, gap, is_finite, law, settled, shown
from assay.claims.laws.term import littered
from assay.core.record import Experience
from assay.ops import groups
from assay.parts.aggregations import decisions_per_episode
from assay.parts.credit.outcome import Constant, NoScale, OutcomeCredit

SPOKEN = ("logp", "reward", "extra.advantage", "extra.return")
"""Columns of decisions: zero where the mask is false."""


def written(part: Any, batch: Experience) -> dict[str, Tensor]:
    """Returns the columns that a part added or changed."""
    batch = batch.map(torch.clone)
    after = part(batch)
    if not isinstance(after, Experience):
        raise TypeError(f"it returned {type(after).__name__}, not an Experience")
    before = dict(columns_of(batch)) | rows_columns(batch)
    now = dict(columns_of(after)) | rows_columns(after)
    return {name: value for name, value in now.items() if name not in before or value is not before[name]}


def rows_columns(batch: Experience) -> dict[str, Tensor]:
    """Returns the record's own columns of rows."""
    return {name: value for name in ("group", "episode") if (value := getattr(batch, name)) is not None}


def advantage_of(part: Any, batch: Experience) -> Tensor:
    """Returns the advantage that a credit wrote."""
    result: Tensor = part(batch.map(torch.clone)).column("advantage")
    return result


# ---------------------------------------------------------------------------------------------------- every part
@law("what it writes carries no gradient")
def no_gradient(part: Any, case: Case) -> Iterator[str]:
    """Even where the record does."""
    columns = {name: leaf(value) if value.is_floating_point() else value for name, value in case.batch.extra.items()}
    batch = replace(case.batch, reward=leaf(case.batch.reward), logp=leaf(case.batch.logp), extra=columns)
    yield from (
        f"column {name} requires gradient" for name, value in written(part, batch).items() if value.requires_grad
    )


@law("finite for a group of one, for equal rewards, and for large numbers")
def finite(part: Any, case: Case) -> Iterator[str]:
    """In float32; rewards up to 1e6."""
    inputs = {"": case.batch, "with rewards of 1e6 ": extreme(case.batch)}
    for name, batch in inputs.items():
        for column, value in written(part, with_dtype(batch, torch.float32)).items():
            if value.is_floating_point() and not is_finite(value):
                yield f"{name}column {column} is {shown(value[~torch.isfinite(value)])}"


@law("what stands where the mask is false changes nothing, and stays out of the result")
def masked(part: Any, case: Case) -> Iterator[str]:
    """Other numbers in masked columns; written columns are zero there."""
    plain, other = written(part, case.batch), written(part, littered(case.batch))
    hole = ~case.batch.mask
    for name, value in plain.items():
        if name in SPOKEN and bool((value[hole] != 0).any()):
            yield f"column {name} is {shown(value[hole & (value != 0)])} where the mask is false"
        if value.dim() >= 2 and name in other:
            plain[name], other[name] = value[~hole], other[name][~hole]
    yield from apart(other, plain)


@law("a row without a decision changes nothing for the others")
def absent(part: Any, case: Case) -> Iterator[str]:
    """An infrastructure fault is excluded from training: it is not an outcome of 0."""
    there = case.batch.mask.any(1)
    if not bool(there.all()):
        yield from apart(
            written(part, case.batch.rows(there)),
            {name: value[there] for name, value in written(part, case.batch).items()},
        )


def of_groups(part: Any) -> bool:
    """Returns whether groups are compared by no design; a plain function without the argument `group` sees none."""
    return not getattr(part, "across_groups", False)


def groups_of(batch: Experience) -> Iterator[Tensor]:
    """Yields the rows of each group, with the groups of other players in its games; none without groups."""
    index = groups.linked_groups(batch).index if batch.group is not None else torch.empty(0)
    yield from ((index == one).nonzero().squeeze(1) for one in index.unique())


@law("what a group gets does not depend on the other groups", of_groups)
def groups_apart(part: Any, case: Case) -> Iterator[str]:
    """Each group alone."""
    plain = written(part, case.batch)
    for rows in groups_of(case.batch):
        yield from apart(written(part, case.batch.rows(rows)), {name: value[rows] for name, value in plain.items()})


EVERY = (
    *invariances(lambda part, case, batch: Measured(written(part, batch))),
    keeps_inputs(lambda part, case, batch: part(batch)),
    no_gradient,
    finite,
    masked,
    absent,
)


# ---------------------------------------------------------------------------------------------------- credit
@law("it writes `advantage` [B, T] and leaves the record as it is")
def advantage(part: Any, case: Case) -> Iterator[str]:
    """It adds a column; rewards, decisions and ends stay unchanged."""
    after = part(case.batch.map(torch.clone))
    if "advantage" not in after.extra:
        yield "there is no column `advantage`"
    elif after.column("advantage").shape != case.batch.mask.shape:
        yield f"its shape is {tuple(after.column('advantage').shape)} for a batch of {tuple(case.batch.mask.shape)}"
    yield from (f"it rewrites {name}" for name in written(part, case.batch) if not name.startswith("extra."))


@law("advantages sum to zero in each group", declares("centred"))
def centred(part: Any, case: Case) -> Iterator[str]:
    """One number per episode: the mean over its decisions."""
    share_of_mean = advantage_of(part, case.batch).sum(1) / decisions_per_episode(case.batch)
    total = groups.total(share_of_mean, groups.row_groups(case.batch))
    if not float(total.abs().max()) <= LOOSE:
        yield f"sums are {shown(total)}"


@law("a group with equal rewards gets no advantage, whatever number they are", declares("centred"))
def tied(part: Any, case: Case) -> Iterator[str]:
    """In float32, in which the mean of equal numbers may differ from them, and a deviation divide that difference."""
    mask = case.batch.mask
    last = mask & (mask.long().cumsum(1) == mask.sum(1, keepdim=True))
    for value in TIES if case.batch.episode is None else ():
        batch = replace(with_dtype(case.batch, torch.float32), reward=torch.where(last, value, 0.0))
        found = advantage_of(part, batch)
        if float(found.abs().max()) > BY_ROUNDING:
            yield f"with rewards of {value:g} it is {shown(found[found.abs() > BY_ROUNDING])}"


TIES, BY_ROUNDING = (0.7, 100.1, 1000.1), 1e-3
"""Rewards that no float32 holds exactly, and a difference that rounding alone explains."""


@law("an episode in two rows has the credit of the episode in one", lambda part: not looks_forward(part))
def episodes(part: Any, case: Case) -> Iterator[str]:
    """For credit from outcomes; credit along time ends with its row. The longest row is cut in two."""
    batch = replace(case.batch, episode=torch.arange(len(case.batch)))
    row = int(batch.mask.sum(1).argmax())
    first_half = batch.mask[row] & (batch.mask[row].long().cumsum(0) <= batch.mask[row].sum() // 2)
    order = torch.cat([torch.arange(len(batch)), torch.tensor([row])])
    mask = batch.mask[order].clone()
    mask[row], mask[-1] = first_half, batch.mask[row] & ~first_half
    split = batch.rows(order)
    split = replace(split, mask=mask, reward=split.reward * mask)
    found, plain = advantage_of(part, split), advantage_of(part, batch)
    joined = found[: len(batch)].clone()
    joined[row] = torch.where(first_half, found[row], found[-1])
    if gap(joined * batch.mask, plain * batch.mask) > TIGHT:
        rows = ((joined - plain) * batch.mask).abs().amax(1) > TIGHT
        yield f"advantages of rows {rows.nonzero().squeeze(1).tolist()} change: {shown(joined[rows][:, -1])} and so on"


def looks_forward(part: Any) -> bool:
    """Returns whether rewards reach only the decisions before them: credit along time."""
    batch = build(TORQUES, FRAGMENTS)
    more = batch.reward.clone()
    more[:, 0] += 1.0
    found, plain = advantage_of(part, replace(batch, reward=more)), advantage_of(part, batch)
    return gap(found[:, 1:], plain[:, 1:]) <= TIGHT and gap(found[:, 0], plain[:, 0]) > TIGHT


@law("terminal steps do not bootstrap and end the trace, truncated ones bootstrap and end it", once=True)
def ends(part: Any, case: Case) -> Iterator[str]:
    """Decisions 0 and 1, an end at 1, the final context in column 2, then the next episode, unfinished."""
    forward = looks_forward(part)

    def reach(ending: str, value_at: int | None, reward_at: int | None) -> bool:
        """Returns whether the advantages of the first two decisions depend on a later value or reward."""
        batch = build(TORQUES, Layout("two episodes in a row", (f"d{ending}fddf",), outcome_only=False))
        value, reward = batch.column("value").clone(), batch.reward.clone()
        if value_at is not None:
            value[:, value_at] += 1.0
        if reward_at is not None:
            reward[:, reward_at] += 1.0
        changed = replace(batch, reward=reward).add({"value": value})
        return gap(advantage_of(part, changed)[:, :2], advantage_of(part, batch)[:, :2]) > TIGHT

    for letter, name in (("E", "terminal"), ("B", "terminal and truncated")):
        if any(reach(letter, column, None) for column in (2, 3, 4, 5)):
            yield f"credit before a {name} step depends on the value after it"
    if forward and any(reach(letter, None, 3) for letter in "ECB"):
        yield "credit before an end depends on the next episode's rewards"
    if bootstraps(part) and not reach("C", 2, None):
        yield "credit before a truncated step does not depend on the value after it"


def bootstraps(part: Any) -> bool:
    """Returns whether the credit of an unfinished row depends on the value after its last step."""
    batch = build(TORQUES, Layout("unfinished", ("dddf",), outcome_only=False))
    value = batch.column("value").clone()
    value[:, 3] += 1.0
    return gap(advantage_of(part, batch.add({"value": value})), advantage_of(part, batch)) > TIGHT


class Filled:
    """A part with the columns that it `reads`, which another part or a model writes in a run (see `term_cases`)."""

    def __init__(self, part: Any, fills: Mapping[str, Callable[[Experience], Tensor]]) -> None:
        self.part, self.fills = part, fills

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)

    def __call__(self, experience: Experience) -> Any:
        """Returns the part on the filled experience."""
        with torch.no_grad():
            missing = {name: fill(experience) for name, fill in self.fills.items() if name not in experience.extra}
        return self.part(experience.add(missing))


def some_rows(experience: Experience) -> Tensor:
    """Returns one number for each row, whatever their order, [B]."""
    return torch.full_like(experience.reward[:, 0], 0.3)


def filled(part: Any) -> Any:
    """Returns the part as the laws call it: columns of rows are filled if it does not say how."""
    fills = {name: some_rows for name, axes in columns_read(part).items() if axes == "B"} | getattr(part, "fills", {})
    return Filled(settled(part), fills) if fills else part


CREDIT = Contract(
    "credit", (advantage, *EVERY, groups_apart, centred, tied, episodes, ends), lambda part: experiences(), filled
)
PREPARE = Contract("prepare", (*EVERY, groups_apart), lambda part: experiences(), filled)


def as_credit(part: Any) -> Any:
    """Returns a credit with the statistic: as its scale if it is always positive, else as its baseline."""
    batch = experiences()[0].batch
    values = part(-1.0 - torch.arange(len(batch)).double(), batch)
    return OutcomeCredit(Constant(), part) if bool((values > 0).all()) else OutcomeCredit(part, NoScale())


STATISTIC = replace(CREDIT, slot="statistic", holder=as_credit)


def check_credit(part: Any) -> list[Finding]:
    """Checks the laws of a credit; of shaping where the part does not declare `centred`, since it then writes no
    advantage.
    """
    return (CREDIT if is_credit(part) else PREPARE).check(part)


def is_credit(part: Any) -> bool:
    """Returns whether a part that works on experience is a credit: those say whether they are `centred`."""
    return getattr(part, "centred", None) is not None


# ---------------------------------------------------------------------------------------------------- selection
def kept(part: Any, batch: Experience) -> dict[str, Tensor]:
    """Returns the rows that a selection keeps."""
    numbered = batch.map(torch.clone).add({"row": torch.arange(len(batch))})
    some = part(numbered)
    if not isinstance(some, Experience):
        raise TypeError(f"it returned {type(some).__name__}; a selection returns the experience with the rows it keeps")
    rows = torch.zeros(len(batch), dtype=torch.bool)
    rows[some.column("row")] = True
    return {"kept": rows}


@law("a row without a decision changes nothing for the others")
def absent_rows(part: Any, case: Case) -> Iterator[str]:
    """An infrastructure fault is not a difference between outcomes."""
    there = case.batch.mask.any(1)
    if not bool(there.all()):
        yield from apart(kept(part, case.batch.rows(there)), {"kept": kept(part, case.batch)["kept"][there]})


@law("the rows of an episode, those of all players, are kept or dropped together")
def whole_episodes(part: Any, case: Case) -> Iterator[str]:
    """Also where one player has nothing to tell its episodes apart."""
    batch, games = case.batch, groups.game_groups(case.batch)
    alike = batch if batch.player is None else batch.with_columns(reward=batch.reward * (batch.player > 0).unsqueeze(1))
    for one in (batch, alike):
        rows = kept(part, one)["kept"]
        if not torch.equal(groups.any_of(rows, games), rows):
            yield f"of {games.size.tolist()} rows it keeps {groups.total(rows.long(), games).tolist()}"


@law("whether a group is kept does not depend on the other groups", of_groups)
def groups_kept_apart(part: Any, case: Case) -> Iterator[str]:
    """Each group alone."""
    plain = kept(part, case.batch)["kept"]
    for rows in groups_of(case.batch):
        yield from apart(kept(part, case.batch.rows(rows)), {"kept": plain[rows]})


SAME = invariances(lambda part, case, batch: Measured(kept(part, batch)))
SELECT = Contract("select", (*SAME, absent_rows, whole_episodes, groups_kept_apart), lambda part: experiences())
check_select = SELECT.check
"""Checks the laws of a selection."""
