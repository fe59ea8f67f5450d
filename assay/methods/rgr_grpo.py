"""rgr-grpo: the share of a rubric that an answer meets is its reward; the best answer is refined by what it misses.

    R_i = sum_j w_j [item j is met] / sum_j w_j;   A_i = (R_i - mean) / (deviation + epsilon) of the whole group
    own answers: clipped ratio;  a refined one, if the best misses an item: -p / (p + gamma) A on the bare prompt

Bi et al. 2025. Items of a rubric pay what is right in an answer that is wrong, and say what to do better: an answer
that was written again with the missed items in view takes the place of the last one in its group.

Axes: B rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch

from assay.method import LANGUAGE, AssayError, Experience, Method, Preset, PromptedTask, Recipe, Reward, Scene, State
from assay.method import Task, TextTask, recipes, with_policy
from assay.parts import Best, ByPattern, Clip, Feedback, Guided, Refined, RubricJudge, SequenceMean, Shaped, check_rows
from assay.parts import on_last_decision

Row = Mapping[str, Any]
LINE = '{"prompt": "...", "answer": "...", "rubric": [{"item": "names the town", "weight": 2, "pattern": "Bonn"}]}'


@dataclass(frozen=True)
class RubricShare(Reward):
    """reward = the weighted share of the items of the prompt's `rubric` that an answer meets, on the last decision.

    Weights are 1 unless given. A row whose answer could not be judged leaves training; the metric `unjudged` counts it.
    Degenerate: one item is right or wrong.
    """

    judge: RubricJudge = ByPattern()
    writes: ClassVar[Mapping[str, str]] = {
        "score": "B",
        "met": "B: bit j is set if item j of the rubric is met",
    }
    not_a_part: ClassVar[str] = "the tasks of the laws have no rubrics: its claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if a prompt has no rubric."""
        for row in check_rows(scene.task, "rubric", LINE, "rgr-grpo pays by rubrics"):
            weights_of(row)
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        rows = scene.task.texts(experience, scene.split)
        weights = [weights_of(row) for row in rows]
        found = self.judge(rows)
        there = torch.tensor([one is not None for one in found], device=experience.mask.device)
        share = [
            sum(weight for weight, is_met in zip(some, own or (), strict=False) if is_met) / sum(some)
            for some, own in zip(weights, found, strict=True)
        ]
        met = [sum(is_met << place for place, is_met in enumerate(own or ())) for own in found]
        scene.log("unjudged", float((~there).sum()), len(rows))
        kept = experience.with_columns(mask=experience.mask & there.unsqueeze(1))
        paid = on_last_decision(kept, torch.tensor(share, device=there.device).to(experience.reward.dtype))
        return paid.add({"met": torch.tensor(met, dtype=torch.int64, device=there.device)})


def weights_of(row: Row) -> list[float]:
    """Returns the weights of a row's items; AssayError for a malformed rubric."""
    items = row.get("rubric")
    if not isinstance(items, list | tuple) or not 0 < len(items) < 64 or not all("item" in one for one in items):
        raise AssayError(f"the field 'rubric' of '{str(row['prompt'])[:40]}' must list 1 to 63 items. Write {LINE}")
    found = [float(one.get("weight", 1.0)) for one in items]
    if min(found) <= 0.0:
        raise AssayError(f"a weight in the field 'rubric' of '{str(row['prompt'])[:40]}' is not above 0. Write {LINE}")
    return found


@dataclass(frozen=True)
class MissedItems(Feedback):
    """The items of the rubric that an answer misses, as `form` with {items}, one a line."""

    form: str = "missed:\n{items}\n"
    not_a_part: ClassVar[str] = "a setting of Refined"

    def check(self, task: Task, who: str) -> None:
        if not isinstance(task, PromptedTask):
            raise AssayError(f"{who} writes answers again, and task '{task.name}' has no prompts. Use a language task")
        check_rows(task, "rubric", LINE, "rgr-grpo shows missed items")

    def __call__(self, rows: Experience, scene: Scene) -> list[str]:
        assert isinstance(scene.task, TextTask), "check refuses other tasks"
        missed = [
            [str(one["item"]) for place, one in enumerate(row["rubric"]) if not bits >> place & 1]
            for row, bits in zip(scene.task.texts(rows, scene.split), rows.column("met").tolist(), strict=True)
        ]
        return [self.form.replace("{items}", "\n".join(some)) if some else "" for some in missed]


def recipe(preset: Preset = LANGUAGE, gamma: float = 0.1, refined: bool = True) -> Recipe:
    """Without `refined` it is grpo on the rubric alone."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert own is not None
    base = replace(base, rewards=(RubricShare(),))
    if not refined:
        return replace(base, name="grpo-rubric")
    rollout = Refined(own, MissedItems(), Best())
    return with_policy(replace(base, rollout=rollout), "rgr-grpo", Guided(Clip(), Shaped(gamma), SequenceMean()))


METHOD = Method(
    paper="arXiv:2511.12344",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading",
    family="guidance",
    base=recipes.grpo,
    variants={"grpo-rubric": partial(recipe, refined=False)},
    departures=(
        "items are judged by a pattern, or with --judge by a chat model; weights are those of the row, not of types",
        "the last member of a group is sampled before it is known whether a refinement takes its place, and counts",
        "the weight is p / (p + 0.1) with its gradient; readers' notes differ on its denominator, no code was found",
        "the policy must read feedback: a transformer from scratch does not, a pretrained model does",
    ),
    results=(
        "beside grpo on the rubric alone it is undecided with ten seeds: 0.01 less often right (-0.03 to 0.02); every "
        "digit is an item there, so that the rubric alone pays each digit by itself, and refinements cost tokens",
    ),
    pilots=("seed 0 was looked at before, with 60 steps",),
)
