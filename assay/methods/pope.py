"""pope: beside each hard prompt, a group that sees the shortest beginning of its solution that ever helped.

    hard: x that the first policy solves in none of n tries;  share(x) = the least one after which it solves x once
    batch = {x} + {x + solution[:share(x)] for hard x},  each a group of its own;   loss = grpo's

Qu et al. 2026. Hard prompts give no reward; mixed with easy ones they are forgotten. After a part of the solution the
policy finds the rest by itself, and what it learns there carries over to the bare prompt, since both share weights. The
solution is context and never a target. Shares are chosen once, by the first policy; its tries count as sampled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.method import DISCARDED, LANGUAGE, RIGHT, Copy, Experience, Method, Preset, PromptedTask, Recipe, Rollout
from assay.method import Scene, State, concatenate, model_name, recipes
from assay.parts import Around, Episodes, Hint, InPrompt, group_rows, hinted_groups, unhinted

GUIDED = 1 << 32
"""Distance of the numbers of guided groups from those of bare ones: above every start."""

NOT_HARD = 0.0


@dataclass(frozen=True)
class WithGuided(Around):
    """Runs `gather` on the task's prompts, and adds a guided group of each hard one, with a number of its own.

    At the first visit of a prompt the model `policy`, a copy of the actor that never changes, has `tries` samples: the
    prompt is hard if all are wrong (score at most 1/2), and is then tried after each of the `shares` of its solution
    in turn. The first with a right sample is kept for the run; without any it is the first one. All these decisions
    count as spent. `hinted` [B] marks guided rows; the metric `hard` is the share of new prompts that are. Degenerate:
    without hard prompts it equals `gather`.
    """

    gather: Rollout = Episodes(16, 8)
    hint: Hint = InPrompt()
    shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    tries: int = 16
    group_size: int = 8
    policy: str = model_name("reference")
    reads_shares: ClassVar[bool] = True
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}
    not_a_part: ClassVar[str] = "the laws have no second model: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns no chosen shares; raises AssayError if there is nothing to show."""
        self.hint.check(scene.task, "WithGuided")
        return {"gather": super().init(scene), "share": {}}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns bare groups, then guided ones, all rewarded."""
        starts, task = np.unique(scene.starts), scene.task
        assert isinstance(task, PromptedTask)
        prompts = [str(one) for one in task.prompts(starts, scene.split)]
        first = dict(zip(prompts, starts.tolist(), strict=True))
        new = {prompt: start for prompt, start in first.items() if prompt not in state["share"]}
        chosen = self.chosen(scene, np.array([*new.values()], dtype=np.int64))
        known = dict(state["share"]) | dict(zip(new, chosen.tolist(), strict=True))
        state["share"] = known
        bare = unhinted(scene.reward(self.gather(scene, state["gather"])))
        shares = np.array([known[prompt] for prompt in prompts])
        hard = shares > NOT_HARD
        if not hard.any():
            return bare
        guided = hinted_groups(scene, self.hint, starts[hard], shares[hard], self.group_size)
        assert guided.group is not None
        return concatenate([bare, replace(guided, group=guided.group + GUIDED)])

    def chosen(self, scene: Scene, starts: np.ndarray) -> np.ndarray:
        """Returns the share of each start's solution that is shown; NOT_HARD for prompts that are solved without."""
        found, open_ = np.full(len(starts), self.shares[0]), np.arange(len(starts))
        for share in (NOT_HARD, *self.shares):
            is_solved = self.solved(scene, starts[open_], share)
            found[open_[is_solved]] = share
            open_ = open_[~is_solved]
        if len(starts):
            scene.log("hard", float((found > NOT_HARD).sum()), float(len(starts)))
        return found

    def solved(self, scene: Scene, starts: np.ndarray, share: float) -> np.ndarray:
        """Returns whether the first policy solves each start in one of its tries after a share of the solution."""
        if not len(starts):
            return np.zeros(0, dtype=bool)
        place, samples = group_rows(np.arange(len(starts)), self.tries)
        base = scene.given(actor=scene.models.model(self.policy), draw=scene.draw.at(12))
        with torch.no_grad():
            played = self.hint.play(base, starts[place], np.full(len(place), share), samples)
        scene.log(DISCARDED, float(played.mask.sum()))
        right = scene.task.judge(played, scene.split).column("score") > RIGHT
        found: np.ndarray = right.view(len(starts), self.tries).any(1).numpy()
        return found


def recipe(preset: Preset = LANGUAGE, tries: int = 16) -> Recipe:
    """Returns grpo on half as many prompts, with a guided group beside each hard one."""
    base, own = recipes.grpo(preset), preset.group_rollout
    assert isinstance(own, Episodes)
    half = replace(own, num_starts=own.num_starts // 2)
    rollout = WithGuided(half, tries=tries, group_size=own.group_size)
    return replace(base, name="pope", rollout=rollout, copies={**base.copies, "reference": Copy("actor")})


METHOD = Method(
    paper="arXiv:2601.18779",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="reading",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "a quarter, half and three quarters of the solution, 16 tries and the words of the hint are a reading of the "
        "abstract and of notes; a prompt that nothing helps keeps the first quarter",
        "prompts are chosen when they are first drawn, not in a pass over all of them before training; those that are "
        "not hard stay in the batch, without a guided twin",
        "not measured: easy prompts beside hard ones, and supervised training first, which the paper compares with",
        "the policy must read hints: a transformer from scratch does not, pretrained models and the testbed's table do",
    ),
    results=(
        "with five seeds the headline is undecided: right 0.39 more often than grpo (0.18 to 0.60, margin 0.2); it "
        "opens two or three of four locks, ghpo's ladder nearly all",
    ),
)
