"""The ladder by hand, on policies that need a known share of each solution."""

import numpy as np
import torch

from assay.claims import About, AtEqual, Average, Claims, Edit, Exact, Expect, Measured, by_hand, probes, refuses
from assay.method import READING, Origin, Recipe, Scene, recipes
from assay.methods.ghpo import recipe
from assay.parts import Episodes, Hinted, InPrompt, failed_groups, hinted_groups

STARTS, TRIES = (3, 0, 4, 1, 2), (0, 1, 2, 3, 3)
"""Prompt k is right after k digits of its code: how often it is asked again, and the digits it is shown at last."""


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows are not those of the ladder: tokens, decisions, score, mark, origin and sample; plus how
    far the decisions that were thrown away are from those of all failed tries.
    """
    scene = probes.hint_scene(STARTS)
    rows = probes.gathered_in(ours, scene)
    assert rows.source is not None
    wrong = float(rows.column("start").tolist() != [start for start in STARTS for _ in range(8)])
    for row, start in enumerate(rows.column("start").tolist()):
        wrong += probes.differs(rows, row, start, TRIES[start], start)
        wrong += float(rows.column("score")[row]) != float(start < 4) or bool(rows.column("hinted")[row]) != (start > 0)
        wrong += int(rows.source[row]) != int(Origin.HINTED if start else Origin.POLICY)
        wrong += int(rows.column("sample")[row]) != row % 8 + TRIES[start] * 2**20
    return wrong + abs(sum(value for value, _ in scene.metrics["discarded_decisions"]) - 32.0 * sum(TRIES))


def gap_where_all_are_right(ours: Recipe) -> float:
    """Returns how far groups with a right answer are from those of grpo's rollout, bit for bit."""
    rows = probes.gathered_in(ours, probes.hint_scene(STARTS))
    with torch.no_grad():
        plain = Episodes()(probes.hint_scene((0,)), {})
    own, width = rows.rows(rows.column("start") == 0), plain.num_columns
    same = [torch.equal(getattr(own, name)[:, :width], getattr(plain, name)) for name in ("action", "logp", "mask")]
    return float(same.count(False)) + float(own.mask[:, width:].any())


def wrong_hints(ours: Recipe) -> float:
    """Returns how many of the longest hints are not the solution up to where it states the answer."""
    solutions = (("we add 12 and 6 and find\n#### 18", "18"), ("18", "18"), ("it is 180, no, 18", "18"))
    assert isinstance(ours.rollout, Hinted)
    part = ours.rollout.hint
    assert isinstance(part, InPrompt)
    told = part.prompts(Scene(probes.file_of(*solutions)), np.arange(3), np.ones(3))
    ends = (solutions[0][0].index("18"), 2, solutions[2][0].rindex("18"))
    right = [f"{row}\n\nhint: {text[:end]}\n" for row, ((text, _), end) in enumerate(zip(solutions, ends, strict=True))]
    return float(sum(one != other for one, other in zip(told, right, strict=True)))


def gap_of_failed(ours: Recipe) -> float:
    """Returns how far the metrics of failed groups are from 4, 3 and 2 of 5 before the three rungs; a group whose
    answers could not be verified has not failed.
    """
    scene = probes.hint_scene(STARTS)
    probes.gathered_in(ours, scene)
    found = [scene.metrics[f"failed_groups/{rung}"][0] for rung in range(3)]
    gaps = [abs(value / count - right) for (value, count), right in zip(found, (0.8, 0.6, 0.4), strict=True)]
    lost = scene.reward(probes.gathered_in(recipes.grpo(), scene))
    faulty = failed_groups(lost.with_columns(mask=torch.zeros_like(lost.mask)), 0.0)
    return probes.worst(*gaps, float(faulty.any()))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is grpo's", lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss),
              at_most=1e-9),
        Exact("a group that fails is asked again with 25, 50 and 75 % until it is right, and every try counts",
              lambda: wrong_rows(recipe()), equals=0.0),
        Exact("a group with a right answer is grpo's to the bit", lambda: gap_where_all_are_right(recipe()), equals=0.0,
              illustrates=True),
        Exact("it counts the groups that failed before each rung, and none whose answers could not be verified",
              lambda: gap_of_failed(recipe()), at_most=1e-9),
        Exact("a hint ends before the solution states the answer", lambda: wrong_hints(recipe()), equals=0.0),
        refuses("a file without worked solutions is refused", recipe, lambda: probes.BARE_FILE),
        Measured("where the start is right once in 10,000 it is right more often than grpo at equally many generated "
                 "tokens", "reading:digits=4", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.3, seeds=5, minutes=4.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("the share of groups without signal, mean over the run, is at least 0.3 below grpo's",
                 "reading:digits=4", recipe(READING), recipes.grpo(READING), Average("zero_advantage_groups"),
                 expect=Expect.BELOW, margin=0.3, seeds=5, minutes=4.0, steps=100, about=About.MECHANISM),
    ),
    mutants=(
        Edit("every group again", failed_groups, "~groups.any_of((score > threshold) & there, by_group) &", ""),
        Edit("a group without decisions has failed", failed_groups, "& groups.any_of(there, by_group)", ""),
        Edit("the same random numbers at every rung", Hinted.__call__, "rung + 1", "1"),
        Edit("kept beside the new ones", Hinted.__call__, "rows.rows(~failed)", "rows"),
        Edit("what is replaced is free", Hinted.__call__, "float(rows.mask[failed].sum())", "0.0"),
        Edit("in another order", Hinted.__call__, "in_order(rows, scene.starts)", "rows"),
        Edit("on the bare prompt", Hinted.__call__, "if self.onto_prompt:", "if not self.onto_prompt:"),
        Edit("one rung", Hinted.__call__, "enumerate(self.ladder)", "enumerate(self.ladder[:1])"),
        Edit("always the first share", Hinted.__call__, "np.full(len(starts), share)",
             "np.full(len(starts), self.ladder[0])"),
        Edit("not marked", hinted_groups, "Origin.HINTED", "Origin.POLICY"),
        Edit("the answer too", InPrompt.hint, "if self.hides_answer else", "if False else"),
        Edit("the end of the solution", InPrompt.hint, "solution[: min(", "solution[-min("),
    ),
)
