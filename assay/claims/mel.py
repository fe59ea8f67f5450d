"""Which lessons are written, kept and learned, by hand. Axes: B rows, T decisions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, cartpole, probes, refuses
from assay.claims.probes.formulas import TABLE_SPEC, built, prepared
from assay.claims.refining import Scripted
from assay.method import DISCARDED, READING, Experience, Origin, Recipe, Scene, Verifier, random, recipes
from assay.methods.mel import FAR, Contrasted, lesson_of, pairs_in, recipe
from assay.ops.decoded import Written
from assay.parts import Episodes
from assay.rollouts.completions import Ends

TASK = probes.file_of(*[("a is 2\nb is 3\n#### 5", "5")] * 6)
RIGHT, OTHER = "a is 2\nb is 3\n#### 5", "b is 3\na is 2\n#### 5"
LATE, EARLY, LAST, NONE = "a is 2\nb is 9\n#### 9", "a is 7\n", "a is 2\nb is 3\n#### 7", RIGHT + "\n6"
"""Wrong answers: at the second step, the first, the last, whose lesson would tell, and after all steps."""

SAID = {
    0: (RIGHT, OTHER, RIGHT, RIGHT),
    1: (LATE, LATE, EARLY, EARLY),
    2: (LATE, RIGHT, EARLY, LATE),
    3: (LAST, EARLY, OTHER, RIGHT),
    4: (OTHER, NONE, RIGHT, LATE),
}
"""Answers to each prompt: all right, all wrong, three mixed."""
PAIRS = {2: ((RIGHT, LATE), (RIGHT, EARLY)), 3: ((OTHER, LAST), (RIGHT, EARLY)), 4: ((OTHER, NONE), (RIGHT, LATE))}
"""Right and wrong answers that are paired: the first two wrong ones with the right ones in turn."""
LESSON = {(RIGHT, LATE): "a is 2\nb is 3\n", (RIGHT, EARLY): "a is 2\n", (OTHER, LAST): "b is 3\n",
          (OTHER, NONE): "b is 3\n"}  # fmt: skip
REPLAYED = {(2, RIGHT, LATE): "#### 5", (2, RIGHT, EARLY): "no", (3, OTHER, LAST): "5", (3, RIGHT, EARLY): "never",
            (4, OTHER, NONE): "#### 5", (4, RIGHT, LATE): "no"}  # fmt: skip
"""What is said after the prompt with the lesson: wrong ones are dropped."""


def hinted(prompt: int, lesson: str) -> str:
    return f"{prompt}\n\nhint: {lesson}\n"


def said(text: str) -> Sequence[str]:
    """Returns the answers to a text."""
    after = {hinted(prompt, LESSON[right, wrong]): [one] for (prompt, right, wrong), one in REPLAYED.items()}
    return after[text] if text in after else SAID[int(text)]


@dataclass(frozen=True)
class Heard(Scripted):
    """A scripted policy that notes the random number of the last answer to each text."""

    seeds: dict[str, int] = field(default_factory=dict)

    def answers(self, prompts: Sequence[Sequence[int]], starts: np.ndarray, seeds: np.ndarray, ends: Ends,
                **how: Any) -> Written:  # fmt: skip
        texts = (self.task.tokenizer.decode(one) for one in prompts)
        self.seeds.update(zip(texts, seeds.tolist(), strict=True))
        return super().answers(prompts, starts, seeds, ends, **how)


def wrong_lessons(ours: Recipe) -> float:
    """Returns how many rows are neither the given answers nor the lessons that helped, after both answers; plus how
    far what counts as spent is from all answers to lessons.
    """
    assert isinstance(ours.rollout, Contrasted)
    part = replace(ours.rollout, gather=Episodes(5, 4))
    policy = Heard(TASK, said)
    scene = Scene(TASK, actor=policy, starts=np.arange(5))
    scene = scene.given(reward=lambda rows: Verifier()(rows, scene))
    with torch.no_grad():
        rows = part(scene, part.init(scene))
    decode, expected = TASK.tokenizer.decode, []
    for prompt, pairs in PAIRS.items():
        for right, wrong in pairs:
            if "5" in REPLAYED[prompt, right, wrong]:
                told = f"{prompt}\n\nwrong: {wrong}\nright: {right}\nlesson:\n"
                expected.append((prompt, told, LESSON[right, wrong], prompt + FAR))
    assert rows.group is not None
    assert rows.source is not None
    gap, found, answers = 0.0, [], [(start, one) for start, own in SAID.items() for one in own]
    for row in range(len(rows)):
        seen = decode(rows.context["tokens"][row][rows.context["valid"][row] & ~rows.mask[row]].tolist())
        decided, start = decode(rows.action[row][rows.mask[row]].tolist()), int(rows.column("start")[row])
        is_lesson = bool(rows.column("lesson")[row])
        gap += int(rows.source[row]) != int(Origin.DATASET if is_lesson else Origin.POLICY)
        if is_lesson:
            found.append((start, seen, decided, int(rows.group[row])))
            gap += bool(rows.terminal[row].any()) + float(rows.reward[row].abs().sum())
        else:
            gap += (start, decided) != answers[row] or seen != str(start) or int(rows.group[row]) != start
    gap += float(found != expected) + abs(len(rows) - len(answers) - len(expected))
    for prompt, right, wrong in REPLAYED:
        member = np.array([SAID[prompt].index(wrong) + (1 << 20)])
        drawn = random.hashed(scene.draw, np.array([prompt]), member)
        gap += policy.seeds[hinted(prompt, LESSON[right, wrong])] != int(drawn[0])
    spent = sum(len(one) + 1 for one in REPLAYED.values())
    return gap + abs(sum(value for value, _ in scene.metrics[DISCARDED]) - spent)


def with_lessons(data: Experience) -> Experience:
    """Returns the experience with the second row of every group of at least three as a lesson, in a group of its
    own.
    """
    assert data.group is not None
    is_lesson = torch.zeros(len(data), dtype=torch.bool)
    is_lesson[[rows[1] for rows in by_hand.rows_of_groups(data) if len(rows) > 2]] = True
    group = torch.where(is_lesson, data.group + FAR, data.group)
    return replace(data, group=group).add({"lesson": is_lesson})


def loss_by_hand(seen: probes.Seen) -> Tensor:
    """Returns grpo's loss of the answers, and the mean over lessons of the mean negative log-likelihood."""
    data = seen.experience
    is_lesson = data.column("lesson").bool()
    answers = replace(seen, experience=data.rows((~is_lesson).nonzero().squeeze(1)))
    lessons = replace(seen, experience=data.rows(is_lesson.nonzero().squeeze(1)))
    return by_hand.grpo_loss(answers) - by_hand.mean_of_sequences(lessons.logp(), lessons.experience)


def differs_without(ours: Recipe) -> float:
    """Returns whether any bit of its gradient differs from grpo's where there is no lesson."""
    data, found = probes.sequences(), []
    for one in (ours, recipes.grpo()):
        engine = built(one, TABLE_SPEC)
        found.append(engine.gradient(one.stages[0], prepared(one, engine, data)))
    return float(not all(torch.equal(found[0][name], found[1][name]) for name in found[1]))


def alone() -> Recipe:
    """Returns grpo with as many tokens."""
    return replace(recipes.grpo(READING), steps=90)


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is grpo's on answers and the likelihood's on lessons, each a mean over rows",
              lambda: probes.formula_gap(recipe(), [partial(lambda make: with_lessons(make()), one)
                                                    for one in probes.ANY_OUTCOME], loss_by_hand), at_most=1e-9),
        Exact("without lessons its gradient is grpo's in every bit", lambda: differs_without(recipe()), equals=0.0,
              illustrates=True),
        Exact("two pairs of a group with right and wrong answers give lessons, after both; those that tell the answer "
              "or do not help are dropped, and trying them counts as spent", lambda: wrong_lessons(recipe()),
              equals=0.0),
        refuses("a task without prompts is refused", recipe, cartpole),
        Measured("with lessons by a program, for a policy that reads, it is right more often than grpo after as many "
                 "tokens", "reading:digits=3", replace(recipe(READING), steps=80), alone(),
                 AtEqual("pass_rate", reached="decisions_total"), seeds=5, minutes=5.0, about=About.HEADLINE),
    ),
    mutants=(
        Edit("all pairs", pairs_in, "bads[:num]", "bads"),
        Edit("every pair with the first right one", pairs_in, "cycle(goods)", "cycle(goods[:1])"),
        Edit("the wrong one's step", lesson_of, "right[: place + 1]", "wrong[: place + 1]"),
        Edit("until they part", lesson_of, "place + 1", "place"),
        Edit("answers may be told", Contrasted.lessons, "lesson and not states(", "lesson and not False and str("),
        Edit("all help", Contrasted.lessons, "groups.is_right(scene.reward(again))",
             "torch.ones(len(again), dtype=torch.bool)"),
        Edit("trying is free", Contrasted.lessons, "float(again.mask.sum())", "0.0"),
        Edit("it ends there", Contrasted.lessons, "is_over=False", "is_over=True"),
        Edit("lessons are members of the group", Contrasted.lessons, "label + FAR", "label"),
        Edit("lessons are the policy's", Contrasted.lessons, "Origin.DATASET", "Origin.POLICY"),
        Edit("answers are learned, lessons paid", recipe, "holds=False", "holds=True"),
        Edit("all rows are learned", recipe, 'LogLikelihood(Among(rows, "lesson"))', "LogLikelihood(rows)"),
    ),
)
