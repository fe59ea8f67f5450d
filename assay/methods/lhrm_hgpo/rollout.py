"""Groups whose members are made to begin in given ways. Axes: B rows, T columns, K tokens of an opening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene
from assay.parts.rollouts.episodes import group_rows
from assay.playing import text
from assay.playing.narrowing import unwrapped
from assay.tasks.language.prompts import PromptTask


@dataclass(frozen=True)
class ForcedFirst(Rollout):
    """Gathers groups in which member i begins with `openings`[i mod M] and the policy writes the rest.

    Forced tokens are decisions with the free policy's log-probability, and no random number is drawn for them; the
    column `forced` [B, T] marks them, `mode` [B] is the opening's number. The policy that is evaluated begins freely.
    Degenerate: a group smaller than M lacks the last openings.
    """

    num_starts: int = 32
    group_size: int = 8
    openings: tuple[str, ...] = ("0", "5")
    writes: ClassVar[tuple[str, ...]] = ("forced", "mode")

    def init(self, scene: Scene) -> State:
        """Returns no state; raises AssayError if the task cannot begin with the openings."""
        task = scene.task
        if not isinstance(task, PromptTask):
            raise AssayError(f"ForcedFirst needs prompts and tokens; task '{task.name}' has none. Use a language task")
        for opening in self.openings:
            try:
                num = len(task.tokenizer.encode(opening))
            except ValueError as error:
                raise AssayError(f"openings: '{opening}' is no text of task '{task.name}': {error}") from None
            if not 0 < num < task.max_tokens:
                limit = f"an answer of task '{task.name}' has at most {task.max_tokens}"
                raise AssayError(f"openings: '{opening}' has {num} tokens, {limit}. Give 1 to {task.max_tokens - 1}")
        return {}

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes."""
        task, starts = scene.task, scene.starts
        assert isinstance(task, PromptTask), "init refuses other tasks"
        asked = task.begin(starts, 0)
        prompts = [row[there].tolist() for row, there in zip(asked.action, asked.context["valid"], strict=True)]
        told = [task.tokenizer.encode(opening) for opening in self.openings]
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
