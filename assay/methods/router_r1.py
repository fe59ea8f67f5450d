"""router-r1: a policy that asks priced experts, reads what they reply and answers; right and cheap pays most.

    R = -1 if malformed,   0 if wrong,   (1 - alpha) score + alpha r_c if right;   rest: ppo with 0.001 KL in the reward
    c = sum over calls of tokens(reply) price(expert),   r_c = 1 - clip((sqrt c - lo) / (hi - lo), 0, 1)

2025. lo and hi are the 5 % and 95 % quantiles of the last 1,000 sqrt c, and this one. Only right answers are paid for
being cheap: if wrong ones were, to answer at once would be best. What experts write is context.

Axes: B rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from assay.method import LANGUAGE, AssayError, DialogueTask, Experience, Method, Preset, Recipe, Reward, Scene, State
from assay.method import Verifier, recipes, with_kl_in_reward
from assay.parts import Gae, placed

QUEUE, SAME, CHECKED = 1000, 1e-8, 64
"""Costs that are remembered, the spread below which all are alike, and prompts that are looked at before training."""
LINE = '{"prompt": "...", "answer": "...", "prices": {"small": 0.18, "large": 1.8}}'


def is_price(value: Any) -> bool:
    """Returns whether a value is a price: a number of at least 0."""
    return isinstance(value, int | float) and 0 <= value < float("inf")


def calls_of(row: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """Returns the expert that each utterance but the last asks, the first name in it, and the reply; None if none."""
    names = "|".join(map(re.escape, row["prices"]))
    talk = [str(one["content"]) for one in row["messages"][1:]]
    found = [re.search(rf"(?<!\w)(?:{names})(?!\w)", said) for said in talk[:-1:2]]
    return [(None if one is None else one.group(), reply) for one, reply in zip(found, talk[1::2], strict=True)]


def cheapness(cost: float, earlier: Sequence[float]) -> float:
    """Returns r_c of a cost after these sqrt c of earlier episodes; 1/2 where all are alike."""
    root = cost**0.5
    low, high = np.quantile([*earlier, root][-QUEUE:], (0.05, 0.95))
    return 0.5 if high - low < SAME else float(1.0 - np.clip((root - low) / (high - low), 0.0, 1.0))


@dataclass(frozen=True)
class Routed(Reward):
    """R of a conversation with experts, on its last decision; prices are the field `prices` of the prompt's row.

    Malformed is a fault of the policy (no answer, too many turns) or a call that names no expert. A row's quantiles are
    those of earlier updates and its own cost. Degenerate: alpha 0 is -1, or the score. Assumes scores from 0 to 1.
    """

    alpha: float = 0.3
    reads: ClassVar[tuple[str, ...]] = ("score",)
    not_a_part: ClassVar[str] = "the tasks of the laws have no conversations with priced experts: its claims run it"

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise AssayError(f"Routed.alpha is {self.alpha}. Use 0 to 1")

    def init(self, scene: Scene) -> State:
        """Returns an empty queue; AssayError for a task without experts, or without their prices."""
        task = scene.task
        if task is not None:
            if not isinstance(task, DialogueTask):
                what = f"Routed needs conversations with experts; task '{task.name}' has none. Give them by --tool"
                raise AssayError(f"{what} FILE.py:CLASS, on rows such as {LINE}")
            for prices in (item.facts.get("prices") for item in task.items_of(np.arange(CHECKED), 0)):
                if not isinstance(prices, Mapping) or not prices or not all(map(is_price, prices.values())):
                    told = f"prices {prices}" if prices else "no field 'prices'"
                    raise AssayError(f"task '{task.name}' has {told}. Write JSON lines such as {LINE}")
        return {"roots": []}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        task, there = scene.task, experience.mask.any(1).tolist()
        assert isinstance(task, DialogueTask), "init refuses other tasks"
        score, fault = experience.column("score").tolist(), experience.column("policy_fault").tolist()
        total, costs = list[float](), list[float]()
        for row, told in enumerate(task.texts(experience, scene.split)):
            calls = calls_of(told)
            cost = sum(told["prices"][who] * len(task.tokenizer.encode(reply)) for who, reply in calls if who)
            cheap = cheapness(cost, state["roots"])
            right = (1.0 - self.alpha) * score[row] + self.alpha * cheap if score[row] > 0 else 0.0
            total.append(-1.0 if fault[row] or any(who is None for who, _ in calls) else right)
            costs += [cost] if there[row] else []
        scene.log("route_cost", sum(costs), len(costs))
        state["roots"] = [*state["roots"], *(cost**0.5 for cost in costs)][-QUEUE:]
        return placed(experience, torch.tensor(total, device=experience.mask.device))


def recipe(preset: Preset = LANGUAGE, alpha: float = 0.3) -> Recipe:
    """Returns ppo with GAE of discount and lambda 1, and rewards of answers by their costs."""
    base = with_kl_in_reward(recipes.ppo(preset), "router-r1", 0.001)
    credit = (base.credit[0], Gae(1.0, 1.0), *base.credit[2:])
    return replace(base, credit=credit, rewards=(Verifier(), Routed(alpha)))


METHOD = Method(
    paper="arXiv:2506.09033",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="experts",
    family="policy gradient",
    base=recipes.ppo,
    departures=(
        "alpha is 0.3; the released scripts have 0, which is R without costs",
        "a batch is rewarded by the costs of earlier batches, not in the order of its rows, which would make a reward "
        "depend on its neighbours; the first batch has r_c 1/2",
        "format is what the task says: a fault of the policy, or a call without an expert; tags are not checked, and "
        "the experts are tools, whose replies have a limit of their own",
        "tokens of replies are those of the policy's tokenizer, prices may have any unit",
        "entropy bonus, groups and minibatches are ppo's of the preset; four answers to a prompt, not one",
        "not measured: language models as experts, descriptors of experts that were never seen, the score as F1",
    ),
    results=(
        "where most first conversations are malformed, it learns to answer at once, which is 0 and not -1, and stays "
        "there with two or three of four questions: seen on two earlier forms of its testbed",
    ),
    pilots=("seed 100: three forms of the testbed, 60 to 150 steps; on the present one 0.80 at 60 steps, alpha 0.3",),
)
