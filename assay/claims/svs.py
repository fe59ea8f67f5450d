"""Posed problems by hand: what is posed, what is asked, what is paid. Axes: B rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Item, Measured, PassAt, by_hand, cartpole, probes, refuses, sorting
from assay.claims.refining import Scripted
from assay.method import LANGUAGE, Origin, Recipe, Scene, Verifier
from assay.methods.svs import FORM, SelfPosed, problem_in, recipe
from assay.parts import Passes, Pool, Revisits

TASK = probes.listed(*(Item(name, "7", "7") for name in "qprsu"))
SOLVED = {"q": 1, "p": 4, "r": 0, "s": 5, "u": 8}
"""Right answers of eight to each prompt: the first two are hard."""
PASSED = (("v0", 0), ("so ```\nv1\n``` or 7", 1), ("v3", 3), ("v5", 5), ("v6", 6), ("v8", 8), ("7 = 7", None),
          ("v4", 4))  # fmt: skip
"""What is posed after every solution, and how many of eight answers to it are right; None if it is not asked."""
PAID = (0, 1, 1, 1, 0, 0, 0, 1)


def said(text: str) -> Sequence[str]:
    """Returns the answers to a text, five groups: the right ones are 07, 17, ... and stand last."""
    right = SOLVED.get(text, int(text[1]) if text[:1] == "v" else None)
    if right is None:
        return [one for one, _ in PASSED] * 2
    return (["x"] * (8 - right) + [f"{k}7" for k in range(right)]) * 5


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows are not (prompt, answer, reward, group) as worked out by hand, in the order of the starts;
    plus repeated random numbers.
    """
    assert ours.rollout is not None
    scene = Scene(TASK, actor=Scripted(TASK, said), starts=np.array([1, 0, 2, 3, 4]))
    scene = scene.given(reward=lambda rows: Verifier()(rows, scene))
    with torch.no_grad():
        rows = ours.rollout(scene, ours.rollout.init(scene))
    found, expected = [], []
    for row in range(len(rows)):
        seen = rows.context["tokens"][row][rows.context["valid"][row] & ~rows.mask[row]].tolist()
        answer = rows.action[row][rows.mask[row]].tolist()
        decode = TASK.tokenizer.decode
        found.append((decode(seen), decode(answer), float(rows.reward[row].sum()), bool(rows.column("posed")[row])))
    for name in "pqrsu":
        own = [(name, one, float("7" in one), False) for one in said(name)[:8]]
        expected += own
        for _, solution, right, _ in own if SOLVED[name] in (1, 4) else ():
            if right:
                told = FORM.replace("{solution}", solution)
                expected += [(told, one, float(paid), True) for (one, _), paid in zip(PASSED, PAID, strict=True)]
                for number in (one for _, one in PASSED if one is not None):
                    expected += [(f"v{number}", one, float("7" in one), False) for one in said(f"v{number}")[:8]]
    assert rows.group is not None
    assert rows.source is not None
    is_own = [int(Origin.POLICY if one[0] in SOLVED else Origin.HINTED) for one in found]
    others = sum(one != two for one, two in zip(rows.source.tolist(), is_own, strict=True))
    wrong = others + sum(found.count(one) != expected.count(one) for one in {*found, *expected})
    pairs = set(zip(rows.group.tolist(), (one[0] for one in found), strict=True))
    labels, sizes = torch.unique(rows.group, return_counts=True)
    drawn = set(zip(rows.column("start").tolist(), rows.column("sample").tolist(), strict=True))
    labelled = set(zip(rows.column("start").tolist(), rows.column("sample").tolist(), rows.group.tolist(), strict=True))
    mixed = len(labelled ^ numbers())
    mixed += len(pairs) - len(labels) + int((sizes != 8).sum()) + abs(len(labels) - 5 - 5 * 8)
    return float(wrong + mixed + len(rows) - len(drawn))


def numbers() -> set[tuple[int, int, int]]:
    """Returns (start, sample, group) of all rows: no two share random numbers, no two texts a group."""
    found, again, far = set[tuple[int, int, int]](), 1 << 20, 1 << 44
    for start, name in enumerate("qprsu"):
        found |= {(start, sample, start) for sample in range(8)}
        right = SOLVED[name] if SOLVED[name] in (1, 4) else 0
        for k, sample in enumerate(range(8 - right, 8), 1):
            for m, (_, passed) in enumerate(PASSED):
                posed, j = sample + (8 * k + m + 1) * again, 9 * k + 1 + m
                asked = range(8) if passed is not None else ()
                found |= {(start, posed, start + k * far)}
                found |= {(start, posed + (8 * j + n + 1) * again, start + (k + j) * far) for n in asked}
    return found


def loss_by_hand(seen: probes.Seen) -> Tensor:
    advantage = by_hand.standardised(seen.experience)
    return by_hand.token_loss(seen, advantage, 0.2, 0.28, kept=advantage != 0)


def shown_wrongly() -> float:
    """Returns how many of 32 demonstrations are neither solutions after problems nor, the last half, the reverse."""
    task, part = sorting(4), recipe().before[0].recipe.source
    scene = Scene(task, num_starts=32)
    (rows,) = part(scene, part.init(scene))
    wrong, decode = 0, task.tokenizer.decode
    for row in range(32):
        item = task.items.item(row, 0)
        told = rows.context["tokens"][row][rows.context["valid"][row] & ~rows.mask[row]]
        learned = rows.action[row][rows.mask[row]]
        right = (item.prompt, item.answer) if row < 16 else (FORM.replace("{solution}", item.answer), item.prompt)
        wrong += (decode(told.tolist()), decode(learned.tolist())) != right
    return float(wrong)


def in_pool(ours: Recipe, starts: int) -> Recipe:
    """Returns a recipe of half the width that sees 64 problems again and again, so many of them a step."""
    gather, rollout = Revisits(num_starts=starts), ours.rollout
    rollout = replace(rollout, gather=gather) if isinstance(rollout, SelfPosed) else gather
    pooled = replace(ours, curriculum=Pool(Passes(), size=64), rollout=rollout)
    pooled = pooled.set("actor.body.width", 64).set("before.posing.recipe.actor.body.width", 64)
    return pooled.set("before.posing.steps", 300)


def without_posing() -> Recipe:
    """Returns the rival: the same start and loss, answers to the task's problems alone."""
    return replace(recipe(), name="grpo-after-posing", rollout=LANGUAGE.group_rollout)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is that of grpo's clipped mean over tokens, without groups of one mind",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, loss_by_hand), at_most=1e-9),
        Exact("each right answer to a hard problem poses eight variants, asked eight times unless they tell",
              lambda: wrong_rows(recipe()), equals=0.0),
        Exact("the phase before it shows half of the problems after their solutions", shown_wrongly, equals=0.0,
              of="phases"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        refuses("a task without prompts is refused", recipe, cartpole),
        Measured("on a pool of 64 problems pass@8 on others ends higher than grpo's, which spends at least as many "
                 "tokens on the pool's own", "sorting-5", in_pool(recipe(), 16), in_pool(without_posing(), 64),
                 PassAt(8), seeds=4, minutes=15.0, steps=40, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("every right answer poses", SelfPosed.solved, "share <= self.hard[1]", "share <= 1"),
        Edit("all solved pays too", SelfPosed.__call__, "(share <= self.band[1])", "(share <= 1)"),
        Edit("the whole text", problem_in, "found[1] if found else said", "said"),
        Edit("answers may be stated", problem_in, 'return "" if', 'return problem if'),
    ),
)
