"""lhrm-hgpo: half the group must think, half not; the better half teaches the mode token alone.

    A_t = A_intra + alpha [t is the mode token] A_inter,  A_intra = std. of [best of its half], alpha = 1
    A_inter = std. of [in the winning half],  think wins if mean R(think) > mean R(not) + 0.2;  loss = grpo's, clip 0.5

Jiang et al. 2025. A model that thinks about every prompt wastes tokens, one that is free to choose stops trying the
mode that it rarely takes. Forced halves compare both modes on every prompt. The mode token is not sampled, so its push
is no policy gradient: it has the same size whatever pi(mode) is, and ends with the clip, the KL and changing winners.

Axes: B rows, T columns, K tokens of an opening.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, AssayError, Copy, Credit, Experience, Groups, Method, Preset, PromptTask, Recipe
from assay.method import Rollout, Scene, State, groups, recipes, text, unwrapped, with_policy
from assay.parts import Clip, KlToReference, PolicyGradient, SequenceMean, group_rows

TIE = 1e-6
"""Scores that differ by less are equal: a margin is a decimal number, means are rounded."""


def standardised(value_B: Tensor, by_group: Groups) -> Tensor:
    """Returns (x - mean) / std of the group, with n - 1, and 0 where all are equal, [B]."""
    centred = value_B - groups.mean(value_B, by_group)
    return centred / groups.deviation(value_B, by_group).clamp(min=TIE)


def is_best(value_B: Tensor, by_group: Groups) -> Tensor:
    """Returns whether a row has the largest value of its group, [B]; all tied ones have it, an excluded row never."""
    there = by_group.share > 0
    value = torch.where(there, value_B, -torch.inf)
    return there & (value >= -groups.lowest(-value, by_group) - TIE)


def halves(experience: Experience, by_group: Groups) -> Groups:
    """Returns the rows of each mode of each group."""
    mode = experience.column("mode")
    own = groups.groups_of(by_group.index * (mode.max() + 1) + mode, len(mode), mode.device)
    return replace(own, share=by_group.share)


def lengths_parity(experience: Experience) -> Tensor:
    """Returns a mode for each row, from the number of decisions of its episode."""
    return groups.over_episode(experience.mask.sum(1), experience) % 2


@dataclass(frozen=True)
class HybridCredit(Credit):
    """A = A_intra + `weight` [forced] A_inter, both standardised: A_intra of [best of its mode] inside the mode,
    A_inter of [in the winning mode] inside the group (arXiv:2505.14631).

    The winner has the largest mean outcome, mode 0 with `margin` added; on a tie the lowest number. All tied best rows
    have rank 1. Degenerate: equal outcomes in a mode give A_intra 0; one mode gives A_inter 0.
    """

    margin: float = 0.2
    weight: float = 1.0
    reads: ClassVar[Mapping[str, str]] = {"forced": "BT", "mode": "B"}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "mode": lengths_parity,
        "forced": lambda rows: rows.terminal & rows.mask,
    }

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`; logs how often mode 0 wins."""
        outcome, mode, by_group = groups.outcome(experience), experience.column("mode"), groups.row_groups(experience)
        own = halves(experience, by_group)
        best = is_best(groups.mean(outcome, own) + self.margin * (mode == 0), by_group)
        winner = groups.lowest(torch.where(best, mode, mode.max()), by_group)
        inter = standardised((mode == winner).to(outcome), by_group)
        intra = standardised(is_best(outcome, own).to(outcome), own)
        scene.log("first_mode_wins", float((winner == 0).sum()), float(len(winner)))
        advantage = intra.unsqueeze(1) + self.weight * inter.unsqueeze(1) * experience.column("forced")
        return experience.add({"advantage": advantage * experience.mask})


@dataclass(frozen=True)
class ForcedFirst(Rollout):
    """Gathers groups in which member i begins with `openings`[i mod M] and the policy writes the rest; None: those that
    the task's `AnswerFormat` has for its modes.

    Forced tokens are decisions with the free policy's log-probability, and no random number is drawn for them; the
    column `forced` [B, T] marks them, `mode` [B] is the opening's number. The policy that is evaluated begins freely.
    Degenerate: a group smaller than M lacks the last openings.
    """

    num_starts: int = 32
    group_size: int = 8
    openings: tuple[str, ...] | None = None
    writes: ClassVar[Mapping[str, str]] = {
        "forced": "BT: the decision was given; `logp` is the policy's own",
        "mode": "B: number of the opening that the row was made to begin with",
    }

    def init(self, scene: Scene) -> State:
        """Returns no state; raises AssayError if the task cannot begin with the openings."""
        task = scene.task
        if not isinstance(task, PromptTask):
            raise AssayError(f"ForcedFirst needs prompts and tokens; task '{task.name}' has none. Use a language task")
        for opening in self.openings_on(task):
            try:
                num = len(task.tokenizer.encode(opening))
            except ValueError as error:
                raise AssayError(f"openings: '{opening}' is no text of task '{task.name}': {error}") from None
            if not 0 < num < task.max_tokens:
                limit = f"an answer of task '{task.name}' has at most {task.max_tokens}"
                raise AssayError(f"openings: '{opening}' has {num} tokens, {limit}. Give 1 to {task.max_tokens - 1}")
        return {}

    def openings_on(self, task: PromptTask) -> tuple[str, ...]:
        """Returns the openings on a task; raises AssayError if they are neither set nor the task's."""
        found = task.answer_format.openings if self.openings is None else self.openings
        if len(found) < 2:
            what = f"task '{task.name}' does not say with what its answers begin in two modes"
            raise AssayError(f"{what}. Use lhrm-hgpo:tags for a model that writes <think> and <no_think>")
        return found

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes."""
        task, starts = scene.task, scene.starts
        assert isinstance(task, PromptTask), "init refuses other tasks"
        asked = task.begin(starts, 0)
        prompts = [row[there].tolist() for row, there in zip(asked.action, asked.context["valid"], strict=True)]
        told = [task.tokenizer.encode(opening) for opening in self.openings_on(task)]
        logp = [opening_logp(unwrapped(scene.actor)[0], prompts, ids) for ids in told]
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        mode = samples % len(told)
        begun = text.written(
            [prompts[row] for row in rows],
            [told[one] for one in mode],
            torch.from_numpy(starts[rows]),
            task.tokenizer.vocabulary.pad,
        )
        played = task.resume(scene.actor, begun, samples, scene.draw, split=0)
        forced = played.column("answer") & ~played.mask
        known = played.logp.clone()
        known[forced] = torch.cat([logp[one][row] for row, one in zip(rows, mode, strict=True)]).to(known)
        more = {"forced": forced, "mode": torch.from_numpy(mode)}
        return replace(played, mask=played.mask | forced, logp=known).add(more)


def opening_logp(actor: Any, prompts: Sequence[Sequence[int]], opening: Sequence[int]) -> Tensor:
    """Returns log pi of each token of the opening after each prompt, [prompts, K]."""
    decoder, found = actor.decoder(prompts, [1] * len(prompts), len(opening)), []
    for place, token in enumerate(opening):
        logits = decoder.logits().float()
        found.append(logits.log_softmax(-1)[:, token].cpu())
        if place + 1 < len(opening):
            decoder.push(torch.full((len(prompts),), token, device=logits.device))
    return torch.stack(found, 1)


MODES = "formats:shares=19,right=11,hard=4,cost=0.2"
"""The start thinks nine times of ten (digits 1 to 9), for 0.2 of the score; half of the prompts can do without (0)."""


def recipe(preset: Preset = LANGUAGE, openings: tuple[str, ...] | None = None) -> Recipe:
    """Returns grpo whose groups begin half in one mode and half in the other, with credit for the better half."""
    objective = PolicyGradient(trust=Clip(0.5, 0.5), aggregate=SequenceMean())
    base = with_policy(recipes.grpo(preset), "lhrm-hgpo", objective)
    assert base.rollout is not None
    return replace(
        base,
        rollout=ForcedFirst(base.rollout.num_starts, openings=openings),
        credit=(HybridCredit(),),
        stages=(replace(base.stages[0], regularizers=(KlToReference(0.001, aggregate=SequenceMean()),)),),
        copies={"reference": Copy("actor")},
    )


def tags(preset: Preset = LANGUAGE) -> Recipe:
    """Returns the recipe that forces <no_think> and <think>, for a pretrained model whose answers begin with them."""
    return recipe(preset, ("<no_think>", "<think>"))


METHOD = Method(
    paper="arXiv:2505.14631",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task=MODES,
    family="policy gradient",
    base=recipes.grpo,
    variants={"tags": tags},
    departures=(
        "no supervised stage; on the testbed a mode is a first digit, its length a cost; other tasks say how their "
        "modes begin, or are refused; lhrm-hgpo:tags forces the paper's tags",
        "4 answers in each mode instead of 2; all tied best ones have rank 1 (the paper does not say)",
        "KL of tokens to the start, not of whole answers to a reference of each outer iteration; a mean over sequences",
        "not measured: tokens at an equal score, and always thinking as a rival; the testbed's cost of a mode is fixed",
    ),
    pilots=(
        "three designs were tried: with 16 shared features grpo is ahead, 0.74 to 0.53 (3 pilot seeds); with both "
        "modes equally likely at the start they tie, 0.98; in the claim's design its pass rate is 0.93, grpo's 0.97",
    ),
)
