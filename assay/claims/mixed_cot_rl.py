"""Planted errors by hand, the decisions that are trained, and how often an error is corrected."""

from dataclasses import dataclass

import numpy as np
import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Measured, by_hand, probes, refuses
from assay.claims.testbeds.language.redo import Redo, redo
from assay.method import BIGRAMS, Need, Recipe, recipes
from assay.methods.mixed_cot_rl import Miscalculated, Prefilled, Skipped, is_wrong, recipe
from assay.rollouts.text import written
from assay.tasks.language.steps import Stepwise

TASK = redo(3, 0.0)
"""Running sums of three digits, of which the first is given; 0 takes a value back."""


def planted(prompt: int, skipped: bool) -> str:
    """Returns the wrong second sum: one more, at least so much that it is a value; or the third one, if it differs."""
    assert isinstance(TASK.items, Redo)
    sums = TASK.items.sums(prompt)
    more = sums[2] if skipped else next(d for k in range(1, 10) if (d := str((int(sums[1]) + k) % 10)) != "0")
    return more if more != sums[1] else ""


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows are not prompt, planted error of the start as context, then the policy's decisions with
    their log-probabilities; plus how far the shares of errors are from half of all starts and half of each kind.
    """
    part = ours.rollout
    assert isinstance(part, Prefilled)
    (rows,), actor, _ = probes.gathered(ours, TASK, starts=200)
    with torch.no_grad():
        logp = actor.score(rows, frozenset({Need.LOGP})).logp
    wrong = float(not (logp - rows.logp * rows.mask).abs().max() <= 1e-4)
    kinds = dict.fromkeys((False, True), 0)
    for start in range(200):
        prompt = start % 8
        of = rows.rows(rows.column("start") == start)
        seen = [1, *TASK.tokenizer.encode(TASK.prompts(np.array([start]), 0)[0])]
        firsts = {tuple(one[len(seen) : int(mask.nonzero()[0])].tolist())
                  for one, mask in zip(of.context["tokens"], of.mask, strict=True)}  # fmt: skip
        (first,) = firsts if len(firsts) == 1 else ((-1,),)
        begun = TASK.tokenizer.decode(list(first))
        kind = next((skipped for skipped in kinds if begun and begun == planted(prompt, skipped)), None)
        wrong += len(of) != 8 or (bool(begun) and kind is None) or bool(of.column("flawed").any()) != bool(begun)
        wrong += not bool(of.column("answer")[:, len(seen)].all())
        for skipped in kinds:
            kinds[skipped] += kind is skipped
    possible = np.mean([bool(planted(prompt, True)) for prompt in range(8)])
    gaps = (abs(kinds[False] / 200 - 0.25) - 0.1, abs(kinds[True] / 200 - 0.25 * possible) - 0.1)
    return wrong + probes.worst(0.0, gaps[0], float(gaps[1]))


def gap_without_errors() -> float:
    """Returns how far its rollout with probability 0 is from grpo's, bit for bit."""
    (ours,), _, _ = probes.gathered(recipe(flawed=0.0), TASK)
    (theirs,), _, _ = probes.gathered(recipes.grpo(), TASK)
    names = ("action", "logp", "mask")
    return float(sum(not torch.equal(getattr(ours, name), getattr(theirs, name)) for name in names))


def wrong_texts() -> float:
    """Returns how many errors of a file's solution are not its first line with one number changed, or its second line;
    none for a solution that begins with its second step.
    """
    task = probes.file_of(("so 2 and 9 make 29,\nplus 1 is 30\n#### 30", "30"), ("same\nsame\n#### 3", "3"))
    right: dict[Miscalculated | Skipped, tuple[str, str]] = {
        Miscalculated(): ("so 2 and 9 make 20,\n", ""),
        Skipped(): ("plus 1 is 30\n", ""),
    }
    return float(sum(error(task, row, 0) != text for error, texts in right.items() for row, text in enumerate(texts)))


@dataclass(frozen=True)
class RightAfterError:
    """Exact probability of a right answer after a planted wrong value, mean over prompts: it takes the value back."""

    def of(self, policy: object, task: object) -> float:
        """Returns the mean over the prompts of redo."""
        items = task.items  # type: ignore[attr-defined]
        total = 0.0
        for prompt in range(items.prompts):
            item, sums = items.item(prompt, 0), items.sums(prompt)
            error = Miscalculated()(task, prompt, 0)  # type: ignore[arg-type]
            encode = task.tokenizer.encode  # type: ignore[attr-defined]
            said = encode("0" + "".join(sums[1:]))
            rows = written([[1, *encode(item.prompt + error)]], [said], torch.tensor([prompt]), 0)
            with torch.no_grad():
                total += float(policy.score(rows, frozenset({Need.LOGP})).logp.sum().exp())  # type: ignore[attr-defined]
        return total / items.prompts


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is grpo's, on the decisions after the beginning",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("half of the groups continue one planted error, which is no decision, a quarter of each kind",
              lambda: wrong_rows(recipe()), at_most=0.0),
        Exact("without errors it gathers grpo's rows to the bit", gap_without_errors, equals=0.0,
              illustrates=True),
        Exact("an error of a file changes one number of the solution's first line, or skips it", wrong_texts,
              equals=0.0, illustrates=True),
        refuses("a file without worked solutions is refused", recipe, lambda: probes.BARE_FILE),
        Measured("after a planted error it is right 0.3 more often than grpo, trained on clean beginnings alone",
                 "redo:planted=0", recipe(BIGRAMS), recipes.grpo(BIGRAMS), RightAfterError(), margin=0.3, seeds=5,
                 minutes=3.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("on clean prompts its pass rate is within 0.05 of grpo's", "redo:planted=0", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Final("pass_rate"), expect=Expect.WITHIN, margin=0.05, seeds=5, minutes=3.0,
                 steps=100, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("any text is an error", is_wrong, "task.first_error(start, step, split) == 0", "True"),
        Edit("the beginning is trained", Prefilled.__call__, "is_over=False", "is_over=True"),
        Edit("each member by itself", Prefilled.__call__, "is_flawed[torch.from_numpy(rows)]", "is_flawed[rows * 0]"),
        Edit("one kind", Prefilled.__call__, "int(kind * len(self.errors))", "0"),
        Edit("all are flawed", Prefilled.__call__, "place < self.flawed", "place < 2"),
        Edit("the first step again", Skipped.__call__, "whole[len(step) :]", "whole"),
        Edit("a whole solution", Stepwise.first_step, "text[:1]", "text"),
    ),
)
