"""The distillation loss and the teacher's distributions by hand. Axes: B sequences, T decisions, A actions."""

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Engine, Exact, Measured, Placement, addition, by_hand, probes, refuses
from assay.claims import sorting
from assay.claims.taught import distances, divergence_gap, teacher_gap, with_candidates
from assay.method import Recipe, Scene, Verifier, recipes
from assay.methods.sdpo import reading, recipe, with_feedback


OUTCOMES, SIBLINGS = (1.0, 0.0, 1.0, 0.0, 1.0, 0.0), (2, 0, 0, None, None, None)
"""Two correct ones, none, a single one; and for each row the answer that its teacher saw."""


def loss_by_hand(seen: probes.Seen) -> Tensor:
    found = distances(seen)
    return found.sum() / (found != 0).sum()


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


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, with every token as a candidate",
              lambda: probes.formula_gap(recipe(), with_candidates(4), loss_by_hand), at_most=1e-9),
        Exact("its divergence is 0 between equal distributions, log 2 between disjoint ones",
              divergence_gap, at_most=1e-9),
        Exact("the teacher's numbers are those of the model after the first other correct answer",
              lambda: max(teacher_gap(recipe(), num, OUTCOMES, SIBLINGS) for num in (100, 5)), at_most=1e-4),
        Exact("with feedback the teacher of an answer that failed reads it and what the verifier says about it",
              lambda: feedback_gap(with_feedback()), at_most=1e-4, of="feedback"),
        refuses("feedback is refused on a task that gives none", with_feedback, lambda: addition(1), of="feedback"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        Measured("it scores higher than grpo at equal samples", "sorting-6", recipe(), reading(recipes.grpo()),
                 seeds=5, minutes=12.0, steps=100, about=About.HEADLINE),
    ),
)
