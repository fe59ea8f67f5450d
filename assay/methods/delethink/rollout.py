"""Chunked reasoning: an episode of several sequences, each with the prompt and the tail of the previous one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State, concatenate
from assay.core.slots import ResumableTask, Rollout, Scene
from assay.core.spaces import Vocabulary
from assay.methods.delethink.in_chunks import InChunks
from assay.parts.rollouts.episodes import group_rows
from assay.playing import text
from assay.playing.narrowing import LOGP_MODEL

OWN = ("start", "sample", "split", LOGP_MODEL)
"""Columns of a chunk. `answer` is not one of them: the verifier reads the decisions of all chunks, each once."""


@dataclass(frozen=True)
class Chunks(Rollout):
    """Gathers groups of episodes in at most `chunks` chunks each (Delethink, arXiv:2510.06557).

    The first chunk has up to `chunk` decisions after the prompt; each later one sees prompt + the last `carry`
    tokens, and decides up to `chunk` - `carry` more. A row is one chunk: its mask covers its own decisions, `episode`
    names the episode, `segment` the chunk's position. An episode that runs out of chunks is terminal and truncated.
    Degenerate: one chunk as long as the task allows is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    chunk: int = 4
    carry: int = 2
    chunks: int = 8

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts or `carry` leaves no room."""
        task = scene.task
        if not isinstance(task, ResumableTask) or not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"Chunks needs a task of prompts; '{task.name}' is not one. Use Episodes")
        if not 0 <= self.carry < self.chunk:
            raise AssayError(
                f"carry {self.carry} leaves no room in a chunk of {self.chunk}. Use less than {self.chunk}"
            )
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
        played = []
        for place in range(self.chunks):
            limit = self.chunk - (self.carry if place else 0)
            one = task.resume(actor, begun, samples, draw, split=0, limit=limit)
            goes_on = ~(one.terminal | one.truncated).any(1)
            is_cut = text.is_last_true(one.mask) & goes_on.unsqueeze(1) & (place + 1 == self.chunks)
            own = {name: one.extra[name] for name in OWN if name in one.extra}
            one = replace(one, terminal=one.terminal | is_cut, truncated=one.truncated | is_cut, episode=episode)
            played.append(replace(one, segment=torch.full(one.mask.shape, place), extra=own))
            if not bool(goes_on.any()):
                break
            begun, episode, samples = self.carried(one.rows(goes_on)), episode[goes_on], samples[goes_on.numpy()]
        return concatenate(played)

    def carried(self, one: Experience) -> Experience:
        """Returns the prompt and the last `carry` decided tokens of each row."""
        told, valid, tokens = one.column("answer"), one.context["valid"], one.context["tokens"]
        prompts = [row[there].tolist() for row, there in zip(tokens, valid & ~told, strict=True)]
        decided = [row[there].tolist() for row, there in zip(tokens, told, strict=True)]
        tails = [row[len(row) - min(self.carry, len(row)) :] for row in decided]
        begun = text.written(prompts, tails, one.column("start"), 0)
        return replace(begun, source=None).add({"answer": begun.mask, "elapsed": one.column("elapsed")})
