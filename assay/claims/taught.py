"""Rows with a teacher, and the teacher's numbers token by token, for claims of methods whose policy teaches itself.

Axes: B sequences, T decisions, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Experience, Score
from assay.core.slots import ALONE
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.ops.divergences import jensen_shannon
from assay.parts import SolvedTeacher
from assay.rollouts.text import with_outcomes, written
from assay.tasks.language.addition import addition

ROWS = ((1, "2+3=", "5"), (1, "2+3=", "12"), (1, "2+3=", "05"), (4, "9+9=", "7"), (6, "8+8=", "16"), (4, "9+9=", "88"))
"""Answers of three groups."""


def with_candidates(num: int, data: Experience | None = None) -> Experience:
    """Returns off-policy sequences with `num` of four actions as candidates; every third row has no teacher."""
    data = probes.sequences(spread=4.0) if data is None else data
    draw = torch.Generator().manual_seed(1)
    order = torch.rand(*data.mask.shape, 4, generator=draw, dtype=torch.float64).argsort(-1)[..., :num]
    logq = torch.randn(*data.mask.shape, 4, generator=draw, dtype=torch.float64).log_softmax(-1).gather(-1, order)
    column = torch.stack((order.double(), logq), -1)
    column[torch.arange(len(data)) % 3 == 0] = 0.0
    return data.add({"candidates": column})


def distances(seen: probes.Seen) -> Tensor:
    """Returns min(rho, 2) times the Jensen-Shannon divergence from the teacher at each decision that has one, 0 at
    others, [B, T].
    """
    data = seen.experience
    logp, logp_BTA = seen.logp(), seen.models["actor"].body.table[data.context["state"]].log_softmax(-1)
    found = torch.zeros_like(logp)
    for row, column in data.mask.nonzero().tolist():
        token, logq = data.column("candidates")[row, column].unbind(-1)
        if not logq.any():
            continue
        p, q = logp_BTA[row, column][token.long()].exp(), logq.exp()
        if len(p) < 4:
            p, q = (torch.cat((one, 1 - one.sum().unsqueeze(0))) for one in (p, q))
        middle = (p + q) / 2
        distance = 0.5 * (p * (p / middle).log()).sum() + 0.5 * (q * (q / middle).log()).sum()
        weight = (logp[row, column] - data.logp[row, column]).detach().exp().clamp(max=2.0)
        found = found.index_put((torch.tensor(row), torch.tensor(column)), weight * distance)
    return found


def divergence_gap() -> float:
    """Returns how far the Jensen-Shannon divergence is from 0 between equal distributions, log 2 between disjoint."""
    same, one, other = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).clamp(min=1e-300).log()
    return float(jensen_shannon(same, same).abs() + (jensen_shannon(one, other) - math.log(2.0)).abs())


def answers(outcomes: Sequence[float]) -> Experience:
    """Returns the rows as an experience of addition with these outcomes."""
    tokenizer, (starts, prompts, said) = addition(1).tokenizer, zip(*ROWS, strict=True)
    ids = [[tokenizer.vocabulary.bos, *tokenizer.encode(prompt)] for prompt in prompts]
    told = [[*tokenizer.encode(answer), tokenizer.vocabulary.eos] for answer in said]
    record = written(ids, told, torch.tensor(starts), tokenizer.vocabulary.pad)
    return with_outcomes(replace(record, source=None), [Score(value) for value in outcomes])


class Asked:
    """A task of addition whose prompts are those of the rows."""

    def __init__(self) -> None:
        self.task = addition(1)
        for name in set(dir(self.task)) - {"prompts"}:
            if not name.startswith("_"):
                setattr(self, name, getattr(self.task, name))

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the prompt of each start among the rows; that of others is empty."""
        known = {start: prompt for start, prompt, _ in ROWS}
        return [known.get(start, "") for start in starts.tolist()]


def teacher_gap(
    recipe: Recipe, num: int, outcomes: Sequence[float], siblings: Sequence[int | None], beta: float | None = None
) -> float:
    """Returns the largest distance of the teacher's column from one token after the other, row by row: ids, log q, and
    zeros where a row has no sibling to show. With `beta` also that of `teacher_weight` from exp(-beta H) over its mean.
    """
    small = recipe.set("actor.width", 16).set("actor.layers", 1).set("actor.heads", 2)
    task, record = Asked(), answers(outcomes)
    engine = Engine(small, task.task.spec, 0, Placement())
    for model in engine.models.values():
        for tensor in model.parameters():
            tensor.data.add_(0.3 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(tensor))))
    actor, teacher = engine.model("actor"), engine.model("teacher")
    teacher.output.weight.data.mul_(-1.5)
    part = replace(next(one for one in recipe.credit if isinstance(one, SolvedTeacher)), num=num)
    written_by = part(record, ALONE.given(task=task, models=engine))
    column, weights = written_by.column("candidates"), torch.zeros(record.mask.shape)
    gaps = [float(column[~record.mask].abs().max())]
    for row, sibling in enumerate(siblings):
        _, prompt, said = ROWS[row]
        if sibling is None:
            gaps.append(float(column[row].abs().max()))
            continue
        encode, special = task.task.tokenizer.encode, task.task.tokenizer.vocabulary
        answer = [*encode(said), special.eos]
        bare = [special.bos, *encode(prompt)]
        told = [special.bos, *encode(f"{prompt}{ROWS[sibling][2]}\n{prompt}")]
        for place, at in enumerate(record.mask[row].nonzero().flatten().tolist()):
            with torch.no_grad():
                mine, theirs = (
                    model.logits(model.trunk(torch.tensor([before + answer[:place]]))[0, -1]).log_softmax(-1)
                    for model, before in ((actor, bare), (teacher, told))
                )
            ids = mine.argsort(descending=True)[:num]
            gaps.append(float(set(ids.tolist()) != set(column[row, at, :, 0].long().tolist())))
            gaps.append(float((theirs[column[row, at, :, 0].long()] - column[row, at, :, 1]).abs().clamp(max=9).max()))
            weights[row, at] = ((beta or 0.0) * (theirs.exp() * theirs).sum()).exp()
    if beta is not None:
        gaps.append(probes.distance(written_by.column("teacher_weight"), weights / weights[weights > 0].mean()))
    return probes.worst(*gaps)
