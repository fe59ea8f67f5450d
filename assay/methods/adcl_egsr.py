"""adcl-egsr: prompts from easy to hard, each batch sorted again when it is reached; failed groups get own rewordings.

    ADCL:  difficulty = 1 - pass rate; K batches by that of the start; before batch k its prompts are sorted again
    EGSR:  where all answers are wrong, the policy answers with the solution in its prompt; a right answer replaces a
           wrong one and trains after the bare prompt, with its log-probability there as the old one;   rest: grpo

Zhang et al. 2025 (Learning Like Humans). Difficulty changes while a policy learns, so that an order of the start is
stale. An answer in the policy's own words is likelier under it than the solution, and its group has a signal again.

Axes: B rows, P prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import DISCARDED, LANGUAGE, RIGHT, AssayError, Draw, Experience, Method, Preset, PromptedTask, Recipe
from assay.method import Rollout, Scene, State, groups, logp_of, model_name, recipes, with_pool
from assay.parts import Around, Episodes, Hint, InPrompt, PoolRule, Visited
from assay.parts import failed_groups, group_rows, hinted_groups, in_order, together, unhinted

PROBED = 1 << 24
"""Distance of the sample numbers of probes from those of training."""


@dataclass(frozen=True)
class Resorted(PoolRule):
    """Prompts by the difficulty that the start finds, in `batches` consecutive parts; a part is sorted again by the
    present policy when it is reached. A prompt never changes its part.

    Difficulty is the share of wrong answers of `tries` samples, which count as spent; of equal ones the first comes
    first. After the last part the first follows. With `once` the start's order is kept. Degenerate: one part is sorted
    once in each pass.
    """

    batches: int = 4
    tries: int = 8
    once: bool = False
    model: str = model_name("actor")

    def __post_init__(self) -> None:
        if min(self.batches, self.tries) < 1:
            raise AssayError(f"{self}: use 1 or more batches and tries")

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns no order yet: the first choice samples the pool."""
        return {"next": 0, "probes": 0, "parts": []}

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        if not scene.num_starts:
            return []
        if not state["parts"]:
            order = self.sorted(list(range(len(seen.starts))), seen, scene, state)
            state["parts"] = [own.tolist() for own in np.array_split(np.array(order), self.batches) if len(own)]
        found: list[int] = []
        begins = np.cumsum([0, *map(len, state["parts"])])
        while len(found) < scene.num_starts:
            place = state["next"] % int(begins[-1])
            part = int(np.searchsorted(begins, place, side="right")) - 1
            own = state["parts"][part]
            if place == begins[part] and state["next"] and not self.once:
                own = self.sorted(own, seen, scene, state)
                state["parts"] = [own if one == part else old for one, old in enumerate(state["parts"])]
            taken = own[place - int(begins[part]) :][: scene.num_starts - len(found)]
            found, state["next"] = [*found, *taken], state["next"] + len(taken)
        return found

    def sorted(self, places: list[int], seen: Visited, scene: Scene, state: State) -> list[int]:
        """Returns the places from easy to hard for the present policy."""
        task = scene.task
        rows, samples = group_rows(seen.starts[places], self.tries)
        first = PROBED + self.tries * state["probes"]
        state["probes"] += 1
        draw = Draw(scene.draw.seed, (0,))
        played = task.play(scene.models.model(self.model), rows, samples + first, draw, split=0, greedy=False)
        right = (task.judge(played, 0).column("score") > RIGHT).double().view(len(places), self.tries).mean(1)
        scene.log(DISCARDED, float(played.mask.sum()))
        return [places[one] for one in np.argsort(-right.numpy(), kind="stable")]


@dataclass(frozen=True)
class OwnWords(Around):
    """Gathers and rewards; of a group that failed, the last `replaced` rows make room for right answers that the policy
    gave with the whole solution in its prompt, moved onto the task's own prompt.

    Their `source` is HINTED, their log-probability that of the policy after the bare prompt, so that the ratio is 1 at
    the first update. `tries` guided answers are sampled for a start; what is not trained counts as spent. Degenerate:
    without failed groups, or without a right guided answer, it equals `gather`.
    """

    gather: Rollout = Episodes()
    hint: Hint = InPrompt()
    tries: int = 8
    replaced: int = 1
    threshold: float = 0.0
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}

    def __post_init__(self) -> None:
        if not 1 <= self.replaced <= self.tries:
            raise AssayError(f"{self}: use replaced from 1 to tries")

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; AssayError if there is no solution to show."""
        self.hint.check(scene.task, "OwnWords")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns rewarded groups of the gathered sizes, in the order of the starts."""
        rows, task = unhinted(scene.reward(self.gather(scene, state))), scene.task
        assert isinstance(task, PromptedTask)
        failed = failed_groups(rows, self.threshold)
        scene.log("failed_groups", float(failed.sum()), float(len(rows)))
        starts = np.unique(rows.column("start")[failed].numpy())
        if not len(starts):
            return rows
        guided = hinted_groups(scene, self.hint, starts, np.ones(len(starts)), self.tries)
        chosen, gone, label = self.matched(rows, guided, failed)
        used = guided.rows(torch.tensor(chosen, dtype=torch.int64))
        scene.log(DISCARDED, float(guided.mask.sum() - used.mask.sum() + rows.mask[gone].sum()))
        if not chosen:
            return rows
        bare = task.onto(used, task.prompts(used.column("start").numpy(), scene.split))
        with torch.no_grad():
            bare = bare.with_columns(logp=torch.where(bare.mask, logp_of(scene.actor, bare), 0.0), group=label)
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[gone] = False
        return in_order(together(rows.rows(kept), bare), scene.starts)

    def matched(self, rows: Experience, guided: Experience, failed: Tensor) -> tuple[list[int], list[int], Tensor]:
        """Returns the guided rows that are used, the rows they replace, and the groups of these."""
        assert rows.group is not None
        score = guided.extra.get("score", groups.outcome(guided))
        right = score > self.threshold
        chosen: list[int] = []
        gone: list[int] = []
        for label in rows.group[failed].unique():
            own = (rows.group == label).nonzero().flatten().tolist()
            answers = ((guided.column("start") == rows.column("start")[own[0]]) & right).nonzero().flatten().tolist()
            taken = answers[: min(self.replaced, len(own))]
            chosen, gone = chosen + taken, gone + own[len(own) - len(taken) :]
        return chosen, gone, rows.group[gone]


def recipe(preset: Preset = LANGUAGE, rule: Resorted = Resorted()) -> Recipe:
    """Returns grpo on a pool sorted again by `rule`, with failed groups in the policy's own words."""
    base = with_pool(recipes.grpo(preset), "adcl-egsr", rule)
    assert base.rollout is not None
    return replace(base, rollout=OwnWords(base.rollout))


def curriculum_alone(preset: Preset = LANGUAGE) -> Recipe:
    """ADCL alone."""
    return with_pool(recipes.grpo(preset), "adcl", Resorted())


def static(preset: Preset = LANGUAGE) -> Recipe:
    """Its rival: the start's order from easy to hard."""
    return with_pool(recipes.grpo(preset), "easy-to-hard", Resorted(once=True))


METHOD = Method(
    paper="arXiv:2505.08364",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading",
    family="curriculum",
    base=recipes.grpo,
    variants={"adcl": curriculum_alone, "adcl-static": static},
    departures=(
        "read from the abstract; no code. Four parts, one replaced row, and the bare prompt's log-probability as the "
        "old one are the simplest reading",
        "the prompt shows the solution up to the answer, without an instruction to use own words; a policy has to be "
        "able to read it",
        "not measured: scores against the start's order and against raw demonstrations",
    ),
    pilots=("pilot seed 1000 of reading:digits=4: 0.50 after 64,576 tokens, grpo 0.11 after 61,440",),
)
