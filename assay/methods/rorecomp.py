"""rorecomp: grpo that trains the shortest right and the longest wrong answers at once, and the others later.

    now:     of each group the ceil(n+ / 2) shortest right and the ceil(n- / 2) longest wrong answers
    later:   all others, oldest first, once a whole batch of them waits;   advantages are those of the full group

Li et al. 2025. Reward and loss stay; what changes is which rows make an update. The first of a group's answers to push
are short where right and long where wrong, so that lengths fall without a term for length. The others keep what was
right: without them the gradient is biased to the shortest answer.

Axes: B rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch
from torch import Tensor

from assay.method import COLUMNS, LANGUAGE, AssayError, Experience, Method, Preset, Recipe, Scene, Source, State
from assay.method import concatenate, groups, recipes, with_token_clip
from assay.parts import need_fresh


def comes_first(rows: Experience, share: float) -> Tensor:
    """Marks the rows that train at once, bool [B]: of each group's right answers the shortest `share`, of its wrong
    ones the longest, rounded up; of equal lengths those with the lower sample number. Rows without a decision are too.
    """
    right, length = groups.is_right(rows), groups.over_episode(rows.mask.sum(1), rows)
    first = ~rows.mask.any(1)
    for members in groups.members(rows):
        for is_so in (True, False):
            own = sorted((one for one in members if bool(right[one]) is is_so),
                         key=lambda one: int(length[one]) * (1 if is_so else -1))  # fmt: skip
            first[own[: ceil(share * len(own))]] = True
    return first


@dataclass(frozen=True)
class Recomposed(Source):
    """Yields the rows that come first (`comes_first`), and the oldest `batch` of the others whenever as many wait.

    Waiting rows keep their recorded log-probabilities and advantages. With `drops` they are never trained. Degenerate:
    share 1 yields the fresh rows as they are, and none waits.
    """

    share: float = 0.5
    batch: int = 128
    drops: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0 or self.batch < 1:
            raise AssayError(f"{self}: use a share above 0 and up to 1, and a batch of 1 or more rows")

    def init(self, scene: Scene) -> State:
        """Returns no waiting rows."""
        return {"waiting": {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh = need_fresh(scene.fresh)
        first = comes_first(fresh, self.share)
        yield fresh if bool(first.all()) else fresh.rows(first)
        waiting = [Experience(**state["waiting"])] if state["waiting"] else []
        if not bool(first.all()) and not self.drops:
            waiting.append(fresh.rows(~first))
        rows = concatenate(waiting) if waiting else None
        while rows is not None and len(rows) >= self.batch:
            yield rows.rows(torch.arange(self.batch))
            rows = rows.rows(torch.arange(self.batch, len(rows)))
        state["waiting"] = tree_of(rows) if rows is not None and len(rows) else {}
        scene.log("waiting_rows", float(len(rows)) if rows is not None else 0.0)


def tree_of(rows: Experience) -> dict[str, Any]:
    """Returns the columns that the rows have, by name: a state that a run can save."""
    found = {name: getattr(rows, name) for name in COLUMNS if getattr(rows, name) is not None}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items()}


def plain(preset: Preset = LANGUAGE) -> Recipe:
    """Its base: grpo with a mean over tokens and one update a batch."""
    base = with_token_clip(recipes.grpo(preset), "grpo-tokens")
    return replace(base, source=preset.on_policy_source)


def recipe(preset: Preset = LANGUAGE, source: Recomposed = Recomposed()) -> Recipe:
    """Returns grpo with a mean over tokens, on batches that are composed again by length."""
    return replace(plain(preset), name="rorecomp", source=source)


def without_others(preset: Preset = LANGUAGE) -> Recipe:
    """A control: the others are never trained."""
    return recipe(preset, Recomposed(drops=True))


METHOD = Method(
    paper="arXiv:2509.25958",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="free",
    family="policy gradient",
    base=recipes.grpo,
    variants={"rorecomp-tokens": plain, "rorecomp-drops": without_others},
    departures=(
        "read from the abstract and from reviews, which miss the share and its scope: half of a group",
        "waiting rows are trained as soon as 128 wait, always; the paper has a probability for it that may fall",
        "a mean over tokens, since one over sequences favours short right answers; no limit on lengths and "
        "no penalty of cut answers",
        "not measured: a length penalty tuned to the same length, and numbers of tool calls",
    ),
    pilots=(
        "three designs were tried on 1 or 2 pilot seeds; from a uniform start answers are no shorter than grpo's at an "
        "equal pass rate, from a start that is mostly right 4.0 tokens against 4.6 after 60 steps",
    ),
)
