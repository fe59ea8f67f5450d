"""Chunked reasoning: an episode of several sequences, each with the prompt and the tail of the previous one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State, concatenate
from assay.core.slots import ResumableTask, Rollout, Scene, has_turns, most_decisions
from assay.core.spaces import Vocabulary
from assay.methods.delethink.in_chunks import InChunks, sizes
from assay.parts.rollouts.episodes import group_rows
from assay.playing import text
from assay.playing.narrowing import LOGP_MODEL

OWN = ("start", "sample", "split", LOGP_MODEL)
"""Columns of a chunk. `answer` is not one of them: the verifier reads the decisions of all chunks, each once."""


@dataclass(frozen=True)
class Chunks(Rollout):
    """Gathers groups of episodes in chunks (Delethink, arXiv:2510.06557).

    The first chunk has up to `chunk` decisions after the prompt; each later one sees prompt + the last `carry`
    tokens, and decides up to `chunk` - `carry` more. Sizes of 0 and -1 are derived from the task's limit (`sizes`), and
    there are as many chunks as an answer up to that limit needs. A row is one chunk: its mask covers its own
    decisions, `episode`
    names the episode, `segment` the chunk's position.
    Degenerate: one chunk as long as the task allows is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    chunk: int = 0
    carry: int = -1

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts, or conversations, or `carry` leaves no
        room.
        """
        task = scene.task
        if not isinstance(task, ResumableTask) or not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"Chunks needs a task of prompts; '{task.name}' is not one. Use Episodes")
        if has_turns(task):
            raise AssayError(f"Chunks cuts answers to prompts; '{task.name}' has conversations of turns. Use Episodes")
        sizes(self.chunk, self.carry, most_decisions(task))
        return {}

    @property
    def frame(self) -> InChunks:
        """Returns the wrapper for evaluation: a policy trained in chunks decodes in chunks."""
        return InChunks(self.chunk, self.carry)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers all chunks of `len(starts)` x `group_size` episodes; random numbers are those of the undivided
        episode.
        """
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, ResumableTask)
        rows, samples = group_rows(starts, self.group_size)
        begun = task.begin(rows, 0)
        episode = torch.from_numpy(rows * self.group_size + samples)
        played, (chunk, carry) = list[Experience](), sizes(self.chunk, self.carry, most_decisions(task))
        while len(episode):
            place = len(played)
            limit = chunk - (carry if place else 0)
            one = task.resume(actor, begun, samples, draw, split=0, limit=limit)
            goes_on = ~(one.terminal | one.truncated).any(1)
            own = {name: one.extra[name] for name in OWN if name in one.extra}
            segment = torch.full(one.mask.shape, place)
            played.append(replace(one, episode=episode, segment=segment, extra=own))
            begun, episode, samples = carried(one.rows(goes_on), carry), episode[goes_on], samples[goes_on.numpy()]
        return concatenate(played)


def carried(one: Experience, carry: int) -> Experience:
    """Returns the prompt and the last `carry` decided tokens of each row."""
    told, valid, tokens = one.column("answer"), one.context["valid"], one.context["tokens"]
    prompts = [row[there].tolist() for row, there in zip(tokens, valid & ~told, strict=True)]
    decided = [row[there].tolist() for row, there in zip(tokens, told, strict=True)]
    tails = [row[len(row) - min(carry, len(row)) :] for row in decided]
    begun = text.written(prompts, tails, one.column("start"), 0)
    return replace(begun, source=None).add({"answer": begun.mask, "elapsed": one.column("elapsed")})
