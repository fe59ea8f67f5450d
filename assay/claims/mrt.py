"""Progress of given thoughts by hand, what is probed and what that costs, and accuracy where thoughts are stopped.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Item, Measured, PromptTask, by_hand, probes, same_gradient
from assay.claims.testbeds.language.attempts import attempts
from assay.method import BIGRAMS, DISCARDED, AnswerFormat, Draw, Experience, Recipe, Scene, Verifier, recipes
from assay.methods.mrt import PaidProgress, Probed, recipe, some_progress
from assay.tasks.language.textfile import TextFile


def with_progress(data: Experience) -> Experience:
    return data.add({"progress": some_progress(data)})


def loss_by_hand(seen: probes.Seen, alpha: float = 1.0) -> torch.Tensor:
    """Returns clipped ratios with grpo's advantage and the progress, as a mean over rows of means."""
    data = seen.experience
    advantage = by_hand.standardised(data).unsqueeze(1) + alpha * data.column("progress")
    return -by_hand.mean_of_sequences(by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.2), data)


@dataclass(frozen=True)
class Forced(PromptTask):
    """A file whose policy answers "7" after the first line "a", "8" after the second time, and is right every second
    time where a line "b" is the last one.
    """

    asked: ClassVar[list[str]] = []
    numbers: ClassVar[list[tuple[int, int]]] = []

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        told = [str(row["completion"]) for row in self.texts(begun, split)]
        self.asked.extend(told)
        self.numbers.extend(zip(begun.column("start").tolist(), samples.tolist(), strict=True))
        lines = [one.removesuffix("####").splitlines() for one in told]
        number = np.arange(len(told)) % 2
        known = {"a": (True, True), "b": (True, False)}
        right = [known.get(own[-1] if own else "", (False,) * 2)[n] for own, n in zip(lines, number, strict=True)]
        whole = self.followed(begun, ["7" if one else "8" for one in right], is_over=True)
        return replace(whole, mask=whole.column("foreign"), logp=0.0 * whole.logp).add({"answer": whole.mask})


GIVEN = ("b\nc\na\nb\n####7", "c\n####7", "####7", "a\na\nc\nb\na\nb\na\nc\na", "")
"""Answers: the third has no thought, the fourth no mark, the last has left training."""
PROGRESS = {0: (0.5, -0.5, 1.0, -0.5), 1: (0.0,), 3: (1.0, 0.0, -1.0, 0.5, 0.5, -0.5, 0.5, -1.0, 1.0)}
"""What each line of the thoughts is worth, if every line is probed."""
ROWS = (Item("q", "7", "b\n####7"), Item("r", "7", "b\n####7"))


def forced() -> Forced:
    """Returns the task."""
    plain = probes.file_of(("b\n#### 7", "7"))
    items = TextFile("", "", 0.0, 0, ROWS, worked=True)
    Forced.asked.clear()
    Forced.numbers.clear()
    return Forced("file", items, plain.tokenizer, 8, 60, answer_format=AnswerFormat("####"))


def probed(most: int) -> tuple[Experience, Scene, Forced]:
    """Returns what the recipe's rollout makes of the given answers: three of one prompt, two of another."""
    task = forced()
    rows = probes.completed(task, GIVEN, [0, 0, 0, 1, 1], faults=[4])
    scene = Scene(task, starts=np.arange(2))
    scene = scene.given(reward=lambda some: Verifier()(some, scene))
    part = recipe(most=most).rollout
    assert isinstance(part, Probed)
    part = replace(part, gather=probes.Told(rows))  # type: ignore[arg-type]
    return part(scene, part.init(scene)), scene, task


def wrong_progress() -> float:
    """Returns how far the progress of every line is from PROGRESS; plus the distance of what was spent."""
    rows, scene, task = probed(most=9)
    expected = torch.zeros_like(rows.reward)
    for row, steps in PROGRESS.items():
        lines = GIVEN[row].removesuffix("####7").splitlines(keepends=True)
        each = [value for value, line in zip(steps, lines, strict=True) for _ in line]
        expected[row, rows.mask[row].nonzero().flatten()[: len(each)]] = torch.tensor(each).to(expected)
    num = 4 * (2 + sum(map(len, PROGRESS.values())))
    spent = sum(value for value, _ in scene.metrics[DISCARDED])
    wrong = float(len(task.asked) != num) + abs(spent - 2 * num)
    wrong += not set(task.asked) >= {"####", "b\n####", "b\nc\na\nb\n####", "a\na\nc\nb\na\nb\na\nc\na####"}
    return probes.worst(probes.distance(rows.column("progress"), expected), wrong)


def wrong_numbers() -> float:
    """Returns how many forced answers have not the number of their (sample, place, member), in prompts of up to 8
    tokens and answers of up to 60.
    """
    rows, _, task = probed(most=9)
    sample, expected = rows.column("sample").tolist(), []
    for row, steps in PROGRESS.items():
        lines = GIVEN[row].removesuffix("####7").splitlines(keepends=True)
        ends = [len("".join(lines[: place + 1])) for place in range(len(steps))]
        start = int(rows.column("start")[row])
        for end in ([0] if row in (0, 3) else []) + ends:
            expected += [(start, (sample[row] * 69 + end) * 4 + member) for member in range(4)]
    return float(sorted(task.numbers) != sorted(expected))


def wrong_spans() -> float:
    """Returns how many answers of digits alone are not probed after three digits and where their thoughts end."""
    task = attempts(3, 3)
    scene, part = Scene(task, starts=np.arange(2)), recipe().set("rollout.steps.length", 3).rollout
    assert isinstance(part, Probed)
    rows = probes.completed(task, ["123456001", "12345003", "12001", "1234567"], [0, 1, 1, 0])
    found = part.places(rows, scene)
    return float(sum(found.get(row) != own for row, own in enumerate([[3, 6], [3, 5], [2], [3, 6, 7]])))


def wrong_places() -> float:
    """Returns how far the sums of progress are from what the thoughts end with, and from those of three places: after
    lines 3, 6 and 9 of the fourth answer.
    """
    rows, _, task = probed(most=3)
    found = rows.column("progress")[3, rows.mask[3]][:17]
    each = [-0.0] * 6 + [0.5] * 6 + [0.5] * 5
    wrong = float(len(set(task.asked)) != 1 + 3 + 1 + 3)
    return probes.worst(probes.distance(found, each), wrong)


def gap_to_grpo() -> float:
    """Returns how many numbers of gathered rows and of credit differ from grpo's, without alpha."""
    task, differ = attempts(2, 2), 0
    (ours,), _, _ = probes.gathered(recipe(BIGRAMS, alpha=0.0), task)
    (theirs,), _, _ = probes.gathered(recipes.grpo(BIGRAMS), task)
    for name in ("action", "logp", "mask"):
        differ += not torch.equal(getattr(ours, name), getattr(theirs, name))
    data = with_progress(probes.sequences())
    one, other = (probes.credited(make, data).column("advantage") for make in (recipe(alpha=0.0), recipes.grpo()))
    return float(differ + (not torch.equal(one, other)))


def accepted() -> float:
    """Returns how many tasks without a mark, or without text, are not refused."""
    bare = (probes.BARE_FILE, probes.listed(Item("q", "7", "7")))
    return float(sum(not probes.is_refused(recipe(), task) for task in bare))


TASK = "attempts:most=4,width=4,accepted=10"
OURS: Recipe = recipe(BIGRAMS, samples=1).set("rollout.steps.length", 4)

CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipe, loss_by_hand,
                      [partial(lambda one: with_progress(one()), one) for one in probes.ANY_OUTCOME]),
        Exact("steps of the thoughts of a file are paid the rise of forced success, what follows the mark nothing; "
              "forced answers count as spent", wrong_progress, at_most=1e-6),
        Exact("where no line break can be written a step is a span of decisions", wrong_spans, equals=0.0),
        Exact("forced answers have random numbers of their own", wrong_numbers, equals=0.0),
        Exact("at most so many places are probed, spread evenly, and bonuses sum to the last success less the first",
              wrong_places, at_most=1e-6),
        Exact("without alpha it is grpo to the bit", gap_to_grpo, equals=0.0, illustrates=True),
        Exact("tasks that do not say what ends a thought are refused", accepted, equals=0.0, of="refusals"),
        Measured("where one digit in four of a thought decides, answers that are stopped at any step are right 0.05 "
                 "more often than grpo's after its first 60 steps' tokens, forced answers included", TASK, OURS,
                 recipes.grpo(BIGRAMS), AtEqual("forced", reached="decisions_total"), margin=0.05, seeds=5,
                 minutes=60.0, steps=60, looks=4, about=About.HEADLINE),
    ),
    mutants=(
        Edit("a fall is paid", PaidProgress.apply, '+ self.alpha * experience', '- self.alpha * experience'),
        Edit("success, not its rise", Probed.__call__, "found[row, end] - before", "found[row, end]"),
        Edit("always against the prompt", Probed.__call__, "before, begin = found[row, end], end", "begin = end"),
        Edit("forced answers are free", Probed.success, "float(played.mask.sum())", "0.0"),
        Edit("the answer is a part of the thought", Probed.places, "one.find(stop) if stop in one else",
             ""),
        Edit("the first places alone", Probed.places, "-(-len(ends) * k // num) - 1", "k - 1"),
        Edit("the end is not forced", Probed.success, "[self.stop_of(task)] * len(rows)", '[""] * len(rows)'),
    ),
)
