"""dr-sci: rubrics whose answer item outweighs all others, on a pool that trades mastered prompts for harder ones.

    r = clip((w_a a + sum_i w_i s_i - sum_j v_j p_j) / (w_a + sum_i w_i), 0, 1),   w_a = dominance * sum_i w_i
    a prompt right at more than 0.9 of its last visits is replaced by the easiest one that waits;   rest: grpo

2026 (Dr. SCI). Rubrics pay open answers, and also those that tell all and conclude wrong. With dominance above 1 no
wrong answer gets as much as a right one without pitfalls: at most 1 / (1 + dominance), a right one at least the rest.

Axes: B rows, P prompts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, DemonstratedTask, Experience, Method, Phase, Preset, Recipe, Reward
from assay.method import RepeatingTask, Scene, Source, State, TextTask, groups, recipes, with_pool
from assay.parts import ByPattern, PoolRule, RubricJudge, Visited, check_rows, in_passes, on_last_decision

KINDS = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": -0.5}
"""Weights of kinds of items; those of pitfalls are negative."""
LINE = (
    '{"prompt": "...", "answer": "...", "pass_rate": 0.4, "rubric": [{"item": "names the law", "kind": "essential"}, '
    '{"item": "mixes units", "kind": "pitfall"}]}'
)
HIGH = 0.8
"""The share of a rubric from which a wrong answer counts as gaming it."""


def weights_of(row: Mapping[str, Any]) -> list[float]:
    """Returns the weights of a row's items, by `weight` or by `kind`; AssayError for a malformed rubric."""
    items, name = row["rubric"], str(row["prompt"])[:40]
    if not isinstance(items, list | tuple) or not all("item" in one for one in items):
        raise AssayError(f"the field 'rubric' of '{name}' must list items. Write {LINE}")
    unknown = next((one for one in items if "weight" not in one and str(one.get("kind")).lower() not in KINDS), None)
    if unknown is not None:
        raise AssayError(f"an item of '{name}' has kind {unknown.get('kind')!r}, not one of {', '.join(KINDS)}")
    found = [float(one["weight"]) if "weight" in one else KINDS[str(one["kind"]).lower()] for one in items]
    if max(found) <= 0.0:
        raise AssayError(f"the field 'rubric' of '{name}' has pitfalls alone. Write {LINE}")
    return found


@dataclass(frozen=True)
class AnswerAndRubric(Reward):
    """reward <- the weighted share of right answer and rubric items, less pitfalls, from 0 to 1, on the last decision.

    An answer is right if its outcome so far is above 1/2. Its item weighs `dominance` times all positive ones, or
    `plain` if that is not 0. A row whose answer could not be judged leaves training. Metrics: `gamed`, the share of
    wrong answers that meet 0.8 of their rubric, and `at_zero`, the share that pitfalls pull below 0. Degenerate: of a
    rubric without positive items nothing is left to compare, and it is refused.
    """

    judge: RubricJudge = ByPattern()
    dominance: float = 1.25
    plain: float = 0.0
    reads: ClassVar[Mapping[str, str]] = {"score": "B"}
    not_a_part: ClassVar[str] = "the tasks of the laws have no rubrics: its claims run it"

    def __post_init__(self) -> None:
        if self.dominance < 0.0 or self.plain < 0.0:
            raise AssayError(f"{self}: weights of the answer must be 0 or more")

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if a prompt has no rubric."""
        for row in check_rows(scene.task, "rubric", LINE, "dr-sci pays by rubrics"):
            weights_of(row)
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        rows, right = scene.task.texts(experience, scene.split), groups.is_right(experience).tolist()
        paid, share, there = [], [], []
        for row, met, is_right in zip(rows, self.judge(rows), right, strict=True):
            weights = weights_of(row)
            top = sum(weight for weight in weights if weight > 0)
            told = [weight for weight, is_met in zip(weights, met or (), strict=False) if is_met]
            answer = self.plain or self.dominance * top
            paid.append((answer * is_right + sum(told)) / (answer + top))
            share.append(sum(weight for weight in told if weight > 0) / top)
            there.append(met is not None)
        kept = torch.tensor(there, device=experience.mask.device)
        total = torch.tensor(paid, device=kept.device).to(experience.reward.dtype)
        gamed = kept & ~groups.is_right(experience) & (torch.tensor(share, device=kept.device) >= HIGH - 1e-6)
        scene.log("gamed", float(gamed.sum()), float(kept.sum()))
        scene.log("at_zero", float((kept & (total < 0)).sum()), float(kept.sum()))
        judged = experience.with_columns(mask=experience.mask & kept.unsqueeze(1))
        return on_last_decision(judged, total.clamp(0.0, 1.0))


@dataclass(frozen=True)
class Replacing(PoolRule):
    """Prompts in reach, in shuffled passes; one that is mastered makes room for the easiest that waits.

    Difficulty is the field `pass_rate` of the row, of a reference model. Prompts at 1 are left out, those above
    `waiting` begin in the pool, at least as many as a batch, the easiest first, and the others wait. A prompt is
    mastered if the mean share of right answers of its last `window` visits is above `mastered`. Degenerate: once none
    waits, mastered prompts stay.
    """

    waiting: float = 0.625
    mastered: float = 0.9
    window: int = 2

    def __post_init__(self) -> None:
        if not 0.0 <= self.waiting <= 1.0 or not 0.0 <= self.mastered <= 1.0 or self.window < 1:
            raise AssayError(f"{self}: use shares from 0 to 1 and a window of 1 or more visits")

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns the prompts of the pool and those that wait; AssayError if a row has no pass rate."""
        rates = []
        for row in seen.facts(scene):
            if not isinstance(row.get("pass_rate"), int | float):
                raise AssayError(
                    f"dr-sci orders prompts by 'pass_rate', which '{row['prompt']!s:.40}' lacks. Write {LINE}"
                )
            rates.append(float(row["pass_rate"]))
        order = sorted(
            (place for place, rate in enumerate(rates) if rate < 1.0), key=lambda place: (-rates[place], place)
        )
        if not order:
            raise AssayError("all prompts have pass rate 1: nothing is left to learn. Add harder ones")
        num = max(sum(rates[place] > self.waiting for place in order), min(scene.num_starts, len(order)))
        return {"next": 0, "pool": order[:num], "waiting": order[num:]}

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        for number, place in enumerate(state["pool"]):
            last = seen.shares[place][-self.window :]
            if state["waiting"] and len(last) == self.window and sum(last) / self.window > self.mastered:
                state["pool"][number], *state["waiting"] = state["waiting"]
        scene.log("waiting", float(len(state["waiting"])))
        return in_passes(state["pool"], scene, state)


def covering(traces: Sequence[Sequence[int]], num: int, length: int = 4) -> list[int]:
    """Returns at most `num` traces, each of which adds the most new n-grams of `length` to those before it; of equal
    ones the first. It ends where none adds any.
    """
    grams = [{tuple(one[place : place + length]) for place in range(len(one) - length + 1)} for one in traces]
    chosen: list[int] = []
    seen: set[tuple[int, ...]] = set()
    while len(chosen) < num:
        new = [len(own - seen) for own in grams]
        best = max(range(len(new)), key=new.__getitem__, default=None)
        if best is None or not new[best]:
            break
        chosen.append(best)
        seen |= grams[best]
    return chosen


@dataclass(frozen=True)
class Covering(Source):
    """Yields `batch` of `num` demonstrations per step, round and round: those of the first `among` that together have
    the most different n-grams of four tokens, chosen greedily.

    Long ones win by their length. Source: arXiv:2602.08321. Degenerate: traces shorter than four tokens are never
    chosen, and a task that has only such is refused.
    """

    batch: int = 64
    num: int = 128
    among: int = 256

    def init(self, scene: Scene) -> State:
        """Returns the starts that are chosen; raises AssayError without demonstrations."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"task '{task.name}' has no demonstrations. Use a task or a file that has some")
        rows = task.num_training if isinstance(task, RepeatingTask) else 0
        shown = task.demonstrate(np.arange(min(self.among, rows or self.among)), 0)
        chosen = covering([row[there].tolist() for row, there in zip(shown.action, shown.mask, strict=True)], self.num)
        if not chosen:
            raise AssayError(f"no demonstration of task '{task.name}' has four tokens. Use recipe dr-sci without them")
        return {"next": 0, "chosen": chosen}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        task, chosen = scene.task, state["chosen"]
        assert isinstance(task, DemonstratedTask)
        place = np.arange(state["next"], state["next"] + self.batch) % len(chosen)
        state["next"] += self.batch
        yield task.demonstrate(np.array(chosen)[place], 0)


def recipe(preset: Preset = LANGUAGE, reward: AnswerAndRubric = AnswerAndRubric(), size: int = 0) -> Recipe:
    """Returns grpo on rubrics with the answer, on a pool of `size` prompts (0: all) that hardens."""
    base = with_pool(recipes.grpo(preset), "dr-sci", Replacing(), size)
    return replace(base, rewards=(*base.rewards, reward))


def ungated(preset: Preset = LANGUAGE) -> Recipe:
    """The rival: the answer is one item of weight 1."""
    return recipe(preset, AnswerAndRubric(plain=1.0))


def traced(preset: Preset = LANGUAGE, steps: int = 100) -> Recipe:
    """After likelihood of chosen demonstrations: the first stage of the paper."""
    phase = Phase("traces", replace(recipes.sft(preset), source=Covering()), steps)
    return replace(recipe(preset), name="dr-sci-traced", before=(phase,))


METHOD = Method(
    paper="arXiv:2602.08321",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="lab",
    family="curriculum",
    base=recipes.grpo,
    variants={"dr-sci-ungated": ungated, "dr-sci-traced": traced},
    departures=(
        "how rubric and answer are combined was not found: a weighted mean in which the answer outweighs all items; "
        "weights of the kinds are 1, 0.7, 0.3 and -0.5",
        "pass rates of a reference model are read from the rows and not refreshed, so that waiting prompts keep their "
        "order; mastery is a mean of two visits, since one group of eight is above 0.9 only if all are right",
        "supervised traces are the variant dr-sci-traced: a file of prompts often has none",
        "items are judged by a pattern, or with --judge by a chat model; no dataset of the paper is here",
        "a visit's share of right answers is that of rewards above 1/2: right ones that no pitfall pulls below",
    ),
    results=(
        "where answers alone are learnt the rubric slows that: right less often than grpo on answers alone at equal "
        "tokens, by 0.23; it pays for explanations and, among wrong answers, for the flourish",
    ),
    pilots=(
        "with one accepted digit a place both recipes stay with the flourish (0.25 and 0.06 right after 60 steps, two "
        "seeds), so that the testbed accepts two; two seeds were looked at before the claims were measured",
    ),
)
