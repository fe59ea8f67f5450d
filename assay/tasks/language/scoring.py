"""Scores of completions by something else than the task's verifier. Axes: B sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, InfraFault, Outcome, PolicyFault, Score
from assay.core.verifier import COMPONENT
from assay.rollouts import text
from assay.rollouts.outcomes import is_recorded, recorded_outcomes
from assay.rollouts.text import Tokenizer

Table = Mapping[str, Sequence[float]]
"""Numbers of the rows by component; NaN where a component does not apply to a row."""


class Scorer(Protocol):
    """Scores whole completions in place of the task's verifier, in training and on held-out prompts.

    Law: a row's score does not depend on the other rows, unless they share its prompt.
    """

    @property
    def scores(self) -> tuple[float, float] | None:
        """Returns the range of its scores; None if they may be any number."""

    def __call__(
        self, rows: Sequence[dict[str, Any]], verified: Callable[[], Sequence[Outcome]]
    ) -> tuple[Sequence[Outcome], Table]:
        """Returns an outcome for each row (`prompt`, `completion`, `answer`, facts), and the numbers that it is made
        of. `verified` runs the task's own verifier.
        """


def scored(
    experience: Experience,
    scorer: Scorer,
    rows: Sequence[dict[str, Any]],
    verified: Callable[[Sequence[int]], Sequence[Outcome]],
) -> Experience:
    """Returns the experience with the scorer's outcomes (see `text.with_outcomes`) and a column for each component.

    Rows in which no episode ends are not scored. `verified` takes the numbers of rows. A fault of the infrastructure
    that was recorded while a row was played stays one: no scorer sees the row.
    """
    ended = (experience.terminal | experience.truncated).any(1).tolist()
    known = recorded_outcomes(experience) if is_recorded(experience) else []
    broken = {place: one for place, one in enumerate(known) if isinstance(one, InfraFault)}
    places = [place for place, is_over in enumerate(ended) if is_over and place not in broken]
    found, table = scorer([rows[place] for place in places], lambda: verified(places))
    outcomes: list[Outcome] = [broken.get(place, Score(0.0)) for place in range(len(rows))]
    for place, outcome in zip(places, found, strict=True):
        outcomes[place] = outcome
    columns = {}
    for name, values in table.items():
        column = torch.full((len(rows),), math.nan)
        column[places] = torch.tensor(list(values), dtype=column.dtype)
        columns[COMPONENT + name] = column.to(experience.reward.device)
    return text.with_outcomes(experience, outcomes).add(columns)


def components(one: Experience) -> dict[str, float]:
    """Returns the numbers that the score of one row is made of, as `reward/NAME`; those that do not apply are left
    out.
    """
    found = {name.removeprefix(COMPONENT): float(one.extra[name]) for name in one.extra if name.startswith(COMPONENT)}
    return {f"reward/{name}": round(value, 6) for name, value in found.items() if not math.isnan(value)}


TOKENS_SHOWN = 1000
"""Tokens of a sample that are written down one by one."""


def token_credits(one: Experience, tokenizer: Tokenizer, silent: str = "") -> dict[str, Any]:
    """Returns the decided tokens with the advantage and the log-probability of each, for one row that has credit;
    `silent` stands for a token without text.
    """
    if "advantage" not in one.extra:
        return {}
    chosen = one.mask[0].nonzero().flatten()[:TOKENS_SHOWN]
    words = [tokenizer.decode([token]) or silent for token in one.action[0, chosen].tolist()]
    return {
        "tokens": [text.escaped(word) for word in words],
        "credit": one.extra["advantage"][0, chosen].double().round(decimals=4).tolist(),
        "logp": one.logp[0, chosen].double().round(decimals=4).tolist(),
    }


@runtime_checkable
class Tried(Protocol):
    """A task whose reward functions read more than prompt and completion."""

    def trial(self, item: Any, said: str) -> dict[str, Any]:
        """Returns these further entries, as they would be if `said` were the completion of an item."""


def check_scored(task: Any, num: int = 4) -> tuple[list[dict[str, Any]], list[float]]:
    """Returns rows of the first training prompts and their scores, none without a scorer: with their demonstration,
    with that of another prompt, and with nothing. The verifier counts as 1 for the first and 0 for the others. A broken
    scorer fails here, before a run begins.
    """
    scorer: Scorer | None = task.scorer
    if scorer is None:
        return [], []
    items, more = task.items_of(torch.arange(num), 0), task.trial if isinstance(task, Tried) else lambda item, said: {}
    shown = [item.demonstration for item in items]
    wrong = [next((one for one in shown if one != own), own + own) for own in shown]
    rows = [
        {**item.facts, "prompt": item.prompt, "completion": said, "answer": item.answer, "cut": False}
        | more(item, said)
        for completions in (shown, wrong, [""] * num)
        for item, said in zip(items, completions, strict=True)
    ]
    verified = [Score(1.0)] * num + [Score(0.0)] * (2 * num)
    outcomes, _ = scorer(rows, lambda: verified)
    if len(outcomes) != len(rows):
        raise AssayError(f"{type(scorer).__name__} returned {len(outcomes)} outcomes for {len(rows)} rows.")
    pairs = [(row, one.value) for row, one in zip(rows, outcomes, strict=True) if isinstance(one, Score)]
    return [row for row, _ in pairs], [value for _, value in pairs]


def checked_outcome(task: Any, item: Any, completion: str, row: int) -> Outcome:
    """Returns the verifier's outcome; AssayError if it raises, or returns something that is not a finite outcome."""
    where = f"task {task.name}, row {row}: {type(task.items).__name__}.verify"
    try:
        outcome = task.items.verify(item, completion)
    except Exception as error:
        raise AssayError(f"{where} raised {error!r}. It must return Score, PolicyFault or InfraFault") from error
    if isinstance(outcome, InfraFault):
        return outcome
    if not isinstance(outcome, Score | PolicyFault):
        raise AssayError(f"{where} returned {outcome!r}. It must return Score, PolicyFault or InfraFault")
    if not math.isfinite(outcome.value):
        raise AssayError(f"{where} returned the value {outcome.value}. It must be finite")
    return outcome
