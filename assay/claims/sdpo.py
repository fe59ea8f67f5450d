"""The distillation loss and the teacher's distributions by hand. Axes: B sequences, T decisions, A actions."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Exact, Measured, by_hand, probes
from assay.core.slots.scene import ALONE
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.method import Experience, Recipe, Scene, Score, Verifier, jensen_shannon, recipes
from assay.methods.sdpo import SelfTeacher, reading, recipe, with_feedback
from assay.rollouts.text import with_outcomes, written
from assay.tasks.language.addition import addition
from assay.tasks.language.sorting import sorting


ROWS = ((1, "2+3=", "5"), (1, "2+3=", "12"), (1, "2+3=", "05"), (4, "9+9=", "7"), (6, "8+8=", "16"), (4, "9+9=", "88"))


OUTCOMES, SIBLINGS = (1.0, 0.0, 1.0, 0.0, 1.0, 0.0), (2, 0, 0, None, None, None)
"""Answers of three groups: two correct ones, none, a single one; and for each row the answer that its teacher saw."""


def with_candidates(num: int) -> Experience:
    """Returns off-policy sequences with `num` of four actions as candidates; every third row has no teacher."""
    data, draw = probes.sequences(spread=4.0), torch.Generator().manual_seed(1)
    order = torch.rand(*data.mask.shape, 4, generator=draw, dtype=torch.float64).argsort(-1)[..., :num]
    logq = torch.randn(*data.mask.shape, 4, generator=draw, dtype=torch.float64).log_softmax(-1).gather(-1, order)
    column = torch.stack((order.double(), logq), -1)
    column[torch.arange(len(data)) % 3 == 0] = 0.0
    return data.add({"candidates": column})


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, found = seen.experience, []
    logp, logp_BTA = seen.logp(), seen.models["actor"].body.table[seen.experience.context["state"]].log_softmax(-1)
    for row, column in data.mask.nonzero().tolist():
        token, logq = data.column("candidates")[row, column].unbind(-1)
        if not logq.any():
            continue
        p, q = logp_BTA[row, column][token.long()].exp(), logq.exp()
        if len(p) < 4:
            p, q = (torch.cat((one, 1 - one.sum().unsqueeze(0))) for one in (p, q))
        middle = (p + q) / 2
        distance = 0.5 * (p * (p / middle).log()).sum() + 0.5 * (q * (q / middle).log()).sum()
        found.append((logp[row, column] - data.logp[row, column]).detach().exp().clamp(max=2.0) * distance)
    return torch.stack(found).mean()


def answers() -> Experience:
    """Returns the rows as an experience of addition."""
    tokenizer, (starts, prompts, said) = addition(1).tokenizer, zip(*ROWS, strict=True)
    ids = [[tokenizer.vocabulary.bos, *tokenizer.encode(prompt)] for prompt in prompts]
    told = [[*tokenizer.encode(answer), tokenizer.vocabulary.eos] for answer in said]
    record = written(ids, told, torch.tensor(starts), tokenizer.vocabulary.pad)
    return with_outcomes(replace(record, source=None), [Score(value) for value in OUTCOMES])


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


def teacher_gap(recipe: Recipe, num: int) -> float:
    """Returns the largest distance of the teacher's column from one token after the other, row by row: ids, log q, and
    zeros where a row has no teacher.
    """
    small = recipe.set("actor.width", 16).set("actor.layers", 1).set("actor.heads", 2)
    task, record = Asked(), answers()
    engine = Engine(small, task.task.spec, 0, Placement())
    for model in engine.models.values():
        for tensor in model.parameters():
            tensor.data.add_(0.3 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(tensor))))
    actor, teacher = engine.model("actor"), engine.model("teacher")
    teacher.output.weight.data.mul_(-1.5)
    part = replace(next(one for one in recipe.credit if isinstance(one, SelfTeacher)), num=num)
    column = part(record, ALONE.given(task=task, models=engine)).column("candidates")
    gaps = [float(column[~record.mask].abs().max())]
    for row, sibling in enumerate(SIBLINGS):
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
    return probes.worst(*gaps)


def feedback_gap(ours: Recipe) -> float:
    """Returns how far log q of failed answers without a correct sibling is from the teacher's, token by token, after
    the answer and what the task says about it; a right answer beside none has no teacher.
    """
    task = sorting(3)
    small = ours.set("actor.width", 16).set("actor.layers", 1).set("actor.heads", 2)
    engine, part = Engine(small, task.spec, 0, Placement()), ours.credit[0]
    (prompt,), right = task.prompts(np.arange(1), 0), task.items.item(0, 0).answer
    wrong = {right[:1] + "=": "wrong at 2", "=": "wrong at 1", right + right: "wrong at 4"}
    said = [*wrong, task.items.item(1, 0).answer]
    rows = Verifier()(probes.completed(task, said, [0, 0, 0, 1]), Scene(task))
    column = part(rows, ALONE.given(task=task, models=engine)).column("candidates")
    gaps, teacher, encode = [float(column[3].abs().max())], engine.model("teacher"), task.tokenizer.encode
    for row, (answer, told) in enumerate(wrong.items()):
        ids = [*encode(answer), task.tokenizer.vocabulary.eos]
        before = [task.tokenizer.vocabulary.bos, *encode(f"{prompt}{answer}\n{told}\n{prompt}")]
        theirs = probes.decoded_logp(teacher, before, ids)
        found = column[row][rows.mask[row]]
        mine = [pair[pair[:, 0] == token][0, 1] for pair, token in zip(found, ids, strict=False)]
        gaps.append(probes.distance(torch.stack(mine), theirs[: len(mine)]))
    return probes.worst(*gaps)


def divergence_gap() -> float:
    """Returns how far the recipe's divergence is from 0 between equal distributions and log 2 between disjoint ones."""
    same, one, other = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).clamp(min=1e-300).log()
    return float(jensen_shannon(same, same).abs() + (jensen_shannon(one, other) - math.log(2.0)).abs())


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, with every token as a candidate",
              lambda: probes.formula_gap(recipe(), with_candidates(4), loss_by_hand), at_most=1e-9),
        Exact("its divergence is 0 between equal distributions, log 2 between disjoint ones",
              divergence_gap, at_most=1e-9),
        Exact("the teacher's numbers are those of the model after the first other correct answer",
              lambda: max(teacher_gap(recipe(), num) for num in (100, 5)), at_most=1e-4),
        Exact("with feedback the teacher of an answer that failed reads it and what the verifier says about it",
              lambda: feedback_gap(with_feedback()), at_most=1e-4, of="feedback"),
        Exact("feedback is refused on a task that gives none", lambda: probes.is_refused(with_feedback(), addition(1)),
              equals=1.0, of="feedback"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        Measured("it scores higher than grpo at equal samples", "sorting-6", recipe(), reading(recipes.grpo()),
                 seeds=5, minutes=12.0, steps=100, about=About.HEADLINE),
    ),
)
