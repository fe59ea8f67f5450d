"""mel: what distinguishes a right from a wrong answer of a group becomes a text, whose likelihood is added to grpo.

    y+, y-: a right and a wrong answer of one group,   M: what both begin with, and the right answer's next step
    M is kept if one answer to the prompt x with M in it is right
    loss = grpo's - mean over kept M of 1/|M| sum_t log pi(M_t | x, y-, y+, M_<t)

Huang et al. 2026. A reward says that an answer is wrong, not where. Both answers together do, and what is said about it
is learned as text, token by token, where grpo pays all tokens alike. The prompt itself is not in the new term: whatever
it changes there, shared weights do.

Axes: B rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, zip_longest
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import DISCARDED, LANGUAGE, AssayError, CheckedTask, Experience, Method, Origin, Preset, PromptedTask
from assay.method import Recipe, Rollout, Scene, State, Task, concatenate, groups, recipes, with_last_message
from assay.parts import FIRST_AGAIN, Among, Around, Episodes, LogLikelihood, PolicyGradient, SequenceMean, check_written
from assay.parts import states, with_origin
from assay.parts.rollouts.hints import HINT

CONTEXT = "{prompt}\n\nwrong: {wrong}\nright: {right}\nlesson:\n"
"""What a lesson is learned after."""
FAR = 1 << 44
"""Distance of the group labels of lessons from those of answers."""


def steps_in(task: CheckedTask, start: int, text: str, split: int) -> list[str]:
    """Returns the steps of a text, each with what ends it."""
    found = []
    while text:
        found.append(task.first_step(start, text, split))
        text = text[len(found[-1]) :]
    return found


def lesson_of(right: Sequence[str], wrong: Sequence[str]) -> str:
    """Returns the steps that both begin with, and the right one's next; "" if it has none, or none differs."""
    for place, (ours, theirs) in enumerate(zip_longest(right, wrong)):
        if ours != theirs:
            return "".join(right[: place + 1]) if ours is not None else ""
    return ""


@dataclass(frozen=True)
class Contrasted(Around):
    """Gathers and rewards, then adds lessons: of each group with right and wrong answers, what a right and a wrong one
    begin with and the right one's next step, after both of them in the form `context`.

    The first `pairs` wrong answers are paired with the right ones in turn. A lesson that states the answer is dropped,
    and so is one after which, in the form `replay`, an answer of the policy is wrong; that answer counts as spent and
    is not trained. `lesson` [B] marks the added rows, which end open. Degenerate: without a mixed group it is `gather`.
    Source: arXiv:2602.10224. Assumes that answers are written in steps.
    """

    gather: Rollout = Episodes()
    pairs: int = 2
    context: str = CONTEXT
    replay: str = HINT
    writes: ClassVar[Mapping[str, str]] = {
        "lesson": "B: the row says where a right and a wrong answer part",
        "foreign": "BT: another than the policy decided",
    }

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the inner rollout's state; raises AssayError if the task has no prompts, or cannot write these."""
        task: Task = scene.task
        if not isinstance(task, PromptedTask) or not isinstance(task, CheckedTask):
            what = f"Contrasted compares the steps of single answers, and task '{task.name}' has none"
            raise AssayError(f"{what}. Use a language task, or JSON lines with the fields 'prompt' and 'answer'")
        check_written(task, "context", self.context, lambda: [self.context.format(prompt="", right="", wrong="")])
        check_written(task, "replay", self.replay, lambda: [self.replay.format(prompt="", hint="")])
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns all groups, rewarded, and the lessons."""
        rows = with_origin(scene.reward(self.gather(scene, state)), Origin.POLICY)
        rows = rows.add({"lesson": torch.zeros(len(rows), dtype=torch.bool), "foreign": torch.zeros_like(rows.mask)})
        made, helps = self.lessons(rows, scene)
        scene.log("lessons", float(helps.sum()), float(len(rows)))
        if not helps.any():
            return rows
        made = scene.reward(made.rows(helps.nonzero().squeeze(1)))
        return concatenate([rows, made.add({"lesson": torch.ones(len(made), dtype=torch.bool)})])

    def lessons(self, rows: Experience, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns the lessons after their contexts, and whether each helped, [B]."""
        task = scene.task
        assert isinstance(task, PromptedTask)
        assert isinstance(task, CheckedTask)
        told, starts = task.texts(rows, scene.split), rows.column("start").tolist()
        said, found = [str(one["completion"]) for one in told], dict[tuple[int, int], str]()
        for right, wrong in pairs_in(rows, self.pairs):
            steps = (steps_in(task, starts[one], said[one], scene.split) for one in (right, wrong))
            lesson = lesson_of(*steps)
            if lesson and not states(str(told[right]["answer"]), lesson):
                found[right, wrong] = lesson
        if not found:
            return rows.rows(slice(0, 0)), torch.zeros(0, dtype=torch.bool)
        of = rows.rows(torch.tensor([wrong for _, wrong in found]))
        own = task.prompts(of.column("start").numpy(), scene.split)
        contexts, asked = [], []
        for prompt, ((right, wrong), lesson) in zip(own, found.items(), strict=True):
            both = {"right": said[right], "wrong": said[wrong]}
            contexts.append(with_last_message(prompt, partial(filled, self.context, both)))
            asked.append(with_last_message(prompt, partial(filled, self.replay, {"hint": lesson})))
        begun = task.onto(of.with_columns(mask=torch.zeros_like(of.mask)), contexts)
        made = task.followed(begun, list(found.values()), is_over=False)
        label = of.column("start") if of.group is None else of.group
        made = replace(made, group=label + FAR, source=torch.full((len(made),), int(Origin.DATASET)))
        samples = of.column("sample").numpy() + FIRST_AGAIN
        again = task.play_prompts(
            scene.actor, asked, of.column("start").numpy(), samples, scene.draw, split=scene.split
        )
        scene.log(DISCARDED, float(again.mask.sum()))
        return made, groups.is_right(scene.reward(again))


def filled(form: str, places: Mapping[str, str], prompt: str) -> str:
    """Returns the form with the prompt and these texts in their places."""
    return form.format(prompt=prompt, **places)


def pairs_in(rows: Experience, num: int) -> list[tuple[int, int]]:
    """Returns a right row for each of the first `num` wrong rows of every group, the right ones in turn."""
    right, there, sides = groups.is_right(rows).tolist(), rows.mask.any(1).tolist(), dict[int, tuple[list[int], ...]]()
    for row, label in enumerate(groups.row_groups(rows).index.tolist()):
        if there[row]:
            sides.setdefault(label, ([], []))[int(right[row])].append(row)
    return [(good, bad) for bads, goods in sides.values() for bad, good in zip(bads[:num], cycle(goods))]


def recipe(preset: Preset = LANGUAGE, pairs: int = 2) -> Recipe:
    """Returns grpo on answers and, in the same step, the likelihood of lessons, each with weight 1."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    stage, rows = base.stages[0], SequenceMean()
    (policy,) = stage.objective
    assert isinstance(policy, PolicyGradient)
    objective = (replace(policy, aggregate=Among(rows, "lesson", holds=False)), LogLikelihood(Among(rows, "lesson")))
    return replace(base, name="mel", rollout=Contrasted(own, pairs), stages=(replace(stage, objective=objective),))


METHOD = Method(
    paper="arXiv:2602.10224",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading:digits=3",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "a program writes what is learned, from the two answers: the steps until they part and the right one's next; "
        "in the paper the policy writes where they part, why, and a rule, which a small model cannot",
        "a lesson that states the answer is dropped: to replay it would be to copy",
        "the first two wrong answers of a group are paired; the paper does not say how many pairs",
        "lessons have no end token, so that the policy goes on after them, and the right answer is the one read last",
    ),
    results=(
        "the headline is undecided with five seeds and near no difference: where the policy can copy the right answer, "
        "a lesson is likely already, and hardly moves it (-2 to 2 points at equal tokens)",
    ),
    pilots=(
        "with the wrong answer read last, which the policy copies, lessons are unlikely and their gradient outweighs "
        "grpo's: 0.51 and 0.39 where grpo had 0.75 and 0.73 at equal tokens (two seeds)",
    ),
)
