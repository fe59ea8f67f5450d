"""Failures and their recoveries by hand: what is asked again, in which groups, and what is refused."""

from dataclasses import replace

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Item, Measured, by_hand, probes
from assay.claims.refining import Scripted
from assay.claims.testbeds.language.places import calls
from assay.method import READING, Draw, Origin, Recipe, Scene, Verifier, recipes
from assay.methods.fission_grpo import Alternating, Fission, recipe
from assay.parts import Episodes
from assay.tasks.language.queries import queries

TOLD = {"feedback": "not so"}
TASK = probes.listed(Item("q", "7", "7", TOLD), Item("p", "8", "8", TOLD), Item("r", "9", "9"))
WRONG, RIGHT = ("1", "2", "3", "6", "no", "no", "no", "no"), ("8", "a8", "b8", "c8", "d8", "e8", "f8", "8")
AGAIN = {"no": ("7", "1", "1", "so 7"), "6": ("1", "1", "1", "1")}
NEWEST = (("no", 7), ("6", 3))
"""The newest two failures that differ, with their samples."""


def said(text: str) -> list[str]:
    """Returns the answers to a text: to a prompt, or to one with an attempt and what is said of it."""
    script = {"q": list(WRONG), "p": list(RIGHT), "r": list(WRONG)}
    return script.get(text) or next((list(AGAIN[one]) for one in AGAIN if text == f"q\n\n{one}\n\nnot so\n"), ["?"] * 4)


def scene_of(starts: tuple[int, ...]) -> Scene:
    """Returns a scene of these prompts with the policy that answers by the script."""
    scene = Scene(TASK, actor=Scripted(TASK, said), starts=np.array(starts))
    return scene.given(reward=lambda rows: Verifier()(rows, scene))


def misplaced(ours: Recipe) -> float:
    """Returns how many rows of a right and of a wrong group, whose newest two failures are tried four times each, are
    not: prompt and answer, decisions, group, mark, origin, and the advantage within their own group.
    """
    assert isinstance(ours.rollout, Fission)
    scene = scene_of((4, 0))  # 4 is also the number of a visit
    rows = probes.gathered_in(replace(ours, rollout=replace(ours.rollout, group_size=4, most=2)), scene)
    expected = [("p", one, "p", -1) for one in RIGHT] + [("q", one, "q", -1) for one in WRONG]
    for failure, sample in reversed(NEWEST):
        expected += [(f"q\n\n{failure}\n\nnot so\n", one, failure, sample) for one in AGAIN[failure]]
    if len(rows) != len(expected) or rows.source is None or rows.group is None:
        return 99.0
    encode, vocabulary, labels = TASK.tokenizer.encode, TASK.tokenizer.vocabulary, rows.group.tolist()
    wrong = float([labels.index(one) for one in labels] != [0] * 8 + [8] * 8 + [16] * 4 + [20] * 4)
    for row, (prompt, answer, _, sample) in enumerate(expected):
        before, after = [vocabulary.bos, *encode(prompt)], [*encode(answer), vocabulary.eos]
        wrong += rows.context["tokens"][row, : len(before) + len(after)].tolist() != [*before, *after]
        wrong += rows.mask[row].nonzero().flatten().tolist() != list(range(len(before), len(before) + len(after)))
        wrong += bool(rows.column("hinted")[row]) != (sample >= 0)
        wrong += int(rows.source[row]) != int(Origin.HINTED if sample >= 0 else Origin.POLICY)
        wrong += int(rows.column("sample")[row]) // 2**20 != sample + 1
    for part in ours.credit:
        rows = part(rows, scene)
    gap = (rows.column("advantage").sum(1) - by_hand.standardised(rows) * rows.mask.sum(1)).abs().max()
    logged = [scene.metrics[name][0] for name in ("fissions", "recovered")]
    return wrong + (float(gap) > 1e-5) + (logged != [(2.0, 16.0), (2.0, 8.0)])


def gap_where_nothing_failed(ours: Recipe) -> float:
    """Returns how many columns of a group without a failure are not those of grpo's rollout, bit for bit; and how many
    rows follow answers that could not be verified, or of which nothing is said; of the latter, four without `tells`.
    """
    assert isinstance(ours.rollout, Fission)
    found, plain = probes.gathered_in(ours, scene_of((1,))), Episodes()(scene_of((1,)), {})
    faulty = scene_of((0,)).given(reward=lambda rows: TASK.judge(rows, 0).with_columns(mask=rows.mask & False))
    silent = replace(ours, rollout=replace(ours.rollout, group_size=4, tells=False))
    same = [torch.equal(getattr(found, name), getattr(plain, name)) for name in ("action", "logp", "mask", "group")]
    sizes = [(ours, faulty, 8), (ours, scene_of((2,)), 8), (silent, scene_of((2,)), 12)]
    return same.count(False) + sum(float(len(probes.gathered_in(one, scene)) != size) for one, scene, size in sizes)


def wrong_updates(ours: Recipe) -> float:
    """Returns how many of its batches are not those of grpo, on the rows that saw the task's own prompts and then on
    the others; without others, on all rows.
    """
    assert ours.source is not None
    plain, data, wrong = recipes.grpo().source, probes.ANY_OUTCOME[0](), 0.0
    assert plain is not None
    for hinted in (torch.arange(len(data)) % 3 == 0, torch.zeros(len(data), dtype=torch.bool)):
        scene = Scene(TASK, draw=Draw(3, ()), fresh=data.add({"hinted": hinted}))
        kinds = [data.rows(rows) for rows in (~hinted, hinted) if rows.any()]
        expected = [batch for kind in kinds for batch in plain(scene.given(fresh=kind), {})]
        found = list(ours.source(scene, ours.source.init(scene)))
        wrong += abs(len(found) - len(expected))
        wrong += sum(not torch.equal(one.action, other.action) for one, other in zip(found, expected, strict=False))
    return wrong


def wrong_talks(ours: Recipe) -> float:
    """Returns how many recoveries in a conversation do not begin with all that was said in a failed one."""
    task = queries(3)
    (rows,), _, _ = probes.gathered(ours, task, starts=4)
    told, again = task.texts(rows, 0), rows.column("hinted").tolist()
    failed = {" ".join(" ".join(one["content"] for one in talk["messages"]).split())
              for talk, is_new in zip(told, again, strict=True) if not is_new}
    wrong = 0
    for row in [row for row, is_new in enumerate(again) if is_new]:
        before = rows.action[row, : int(rows.mask[row].nonzero()[0])]
        wrong += task.tokenizer.decode(before.tolist()) not in failed
    return wrong + float(sum(again) != 4 * 8)


def refusals(ours: Recipe) -> float:
    """Returns how many of three are not refused: a file without `feedback`, a form that cannot be written, a task
    without prompts; and how many of two are that should not be.
    """
    bare, odd = probes.listed(Item("q", "7", "7")), replace(ours, rollout=Fission(form="\N{SNOWMAN}"))
    refused = (probes.is_refused(ours, bare), probes.is_refused(odd, calls()))
    return float(refused.count(False)) + probes.is_refused(ours, TASK) + probes.is_refused(recipe(tells=False), bare)


CLAIMS = Claims(
    claims=(
        Exact("its gradient is grpo's, group by group",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("the newest failures that differ are tried again after the error, in groups of their own, with failed "
              "answer and error as context", lambda: misplaced(recipe()), equals=0.0),
        Exact("a group without a failure is grpo's to the bit; what could not be verified has not failed",
              lambda: gap_where_nothing_failed(recipe()), equals=0.0),
        Exact("each step updates first on the task's own prompts, then on the recoveries; without these it is grpo's, "
              "to the bit", lambda: wrong_updates(recipe()), equals=0.0),
        Exact("in a conversation the replies are the error", lambda: wrong_talks(recipe()), equals=0.0),
        Exact("a task that says nothing of failures is refused", lambda: refusals(recipe()), equals=0.0, of="refusals"),
        Measured("where the start is right once in 10,000 and errors show three of four fields it is right more often "
                 "than grpo at equally many generated tokens", "calls:fields=4,shown=3", recipe(READING),
                 recipes.grpo(READING), AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5,
                 minutes=8.0, steps=120, looks=2, about=About.HEADLINE),
        Measured("it is right more often than grpo at equally many generated tokens where errors show two of three "
                 "fields", "calls:fields=3,shown=2", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5, minutes=4.0, steps=40, looks=2),
        Measured("told what was wrong it is right more often than where its failure alone is shown",
                 "calls:fields=3,shown=2", recipe(READING), recipe(READING, tells=False),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5, minutes=4.0, steps=40, looks=2,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("recoveries share the group of their prompt", Fission.recoveries,
             "new.group + torch.from_numpy(visit) * FAR", "new.group"),
        Edit("all recoveries of a prompt are one group", Fission.recoveries, "torch.from_numpy(visit) * FAR", "FAR"),
        Edit("recoveries first", Alternating.__call__, "(~hinted, hinted)", "(hinted, ~hinted)"),
        Edit("equal failures are tried twice", Fission.failures, "said not in own and", ""),
        Edit("the oldest failures", Fission.failures, "-int(rows", "int(rows"),
        Edit("right answers too", Fission.failures, "(groups.outcome(rows) <= self.threshold) &", ""),
        Edit("nothing is said", Fission.failures, "notes[row] if self.tells else \"\"", "\"\""),
    ),
)
