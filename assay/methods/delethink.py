"""delethink: reasoning in chunks that see the prompt and a short tail of the previous one; one reward.

    chunk l: pi(y_l | prompt, last m tokens before it);   loss = -mean_i 1/|y_i| sum_l sum_t min(rho A_i, clip(rho) A_i)

Aghajohari et al. 2025 (The Markovian Thinker). The state has constant size, so cost is linear in the length; training
with resets makes the policy write down what it needs before a cut. The credit is grpo's over whole episodes, the mean
is over all tokens of all chunks of an episode, and each chunk is scored in the context it was sampled in.

Axes: B rows, T decisions, N rows being decoded, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, LOGP_MODEL, AssayError, Decodes, Experience, Method, Preset, Recipe, ResumableTask
from assay.method import Rollout, Scene, Stage, State, Vocabulary, Wrapper, concatenate, has_turns, most_decisions
from assay.method import recipes, text
from assay.parts import DualClip, PolicyGradient, SequenceMean, group_rows

SMALLEST = 4


def sizes(chunk: int, carry: int, limit: int) -> tuple[int, int]:
    """Returns (chunk, carry) for answers of at most `limit` tokens: for a chunk of 0 a quarter of the limit, at
    least SMALLEST, and for a negative carry half of the chunk. AssayError if the carry leaves no room in a chunk.
    """
    chunk = chunk or max(SMALLEST, limit // 4)
    carry = chunk // 2 if carry < 0 else carry
    if carry >= chunk:
        raise AssayError(f"carry {carry} leaves no room in a chunk of {chunk}. Use less than {chunk}")
    return chunk, carry


@dataclass(frozen=True)
class InChunks(Wrapper):
    """Decodes completions as the rollout `Chunks` does: `chunk` tokens after the prompt, then repeatedly `chunk` -
    `carry` tokens after the prompt and the last `carry` tokens; 0 and -1 derive them from the limit of the answer.

    A policy trained with resets has never seen a longer context or later positions: on undivided answers it is
    another policy. A chunk as long as the answers changes nothing. The number of chunks is not limited as in
    training: an answer ends by itself, or at the task's limit.
    """

    chunk: int = 0
    carry: int = -1
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor",)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the actor that is evaluated and exported."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"InChunks needs an actor of tokens; this is {type(models['actor']).__name__}. Drop it")
        return ChunkedActor(models["actor"], self)


class ChunkedActor:
    """A token actor that wraps another and decodes in chunks with its cache; rows advance in step, and their context
    is rebuilt after every chunk.
    """

    def __init__(self, actor: Any, size: InChunks) -> None:
        self.actor, self.size = actor, size

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> ChunkedDecoder:
        """Returns a decoder of rows that decode together, `repeats` of each prompt."""
        return ChunkedDecoder(self.actor, prompts, repeats, *sizes(self.size.chunk, self.size.carry, num_new))


class ChunkedDecoder:
    """Has the decoder's interface; at the end of a chunk it reads the prompts and tails again."""

    def __init__(
        self, actor: Any, prompts: Sequence[Sequence[int]], repeats: Sequence[int], chunk: int, carry: int
    ) -> None:
        self.actor, self.chunk, self.carry, self.left = actor, chunk, carry, chunk
        self.prompts = [list(prompt) for prompt, many in zip(prompts, repeats, strict=True) for _ in range(many)]
        self.tails: list[list[int]] = [[] for _ in self.prompts]
        self.decoder = actor.decoder(prompts, repeats, chunk)

    def logits(self) -> Tensor:
        """Returns the logits of the next token, [N, V]."""
        logits: Tensor = self.decoder.logits()
        return logits

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        for tail, token in zip(self.tails, tokens.tolist(), strict=True):
            tail.append(token)
            del tail[: max(0, len(tail) - self.carry)]
        self.left -= 1
        if self.left:
            self.decoder.push(tokens)
            return
        self.left = self.chunk - self.carry
        seen = [prompt + tail for prompt, tail in zip(self.prompts, self.tails, strict=True)]
        self.decoder = self.actor.decoder(seen, [1] * len(seen), self.left)

    def keep(self, rows: Tensor) -> None:
        """Keeps only these rows."""
        self.prompts = [self.prompts[row] for row in rows.tolist()]
        self.tails = [list(self.tails[row]) for row in rows.tolist()]
        self.decoder.keep(rows)


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


def recipe(preset: Preset = LANGUAGE, chunk: int = 0, carry: int = -1) -> Recipe:
    """Returns GRPO on chunked episodes; 0 and -1 derive the sizes from the task's limit."""
    base = recipes.grpo(preset)
    assert base.rollout is not None
    objective = PolicyGradient(trust=DualClip(0.2, 0.26, 3.0), aggregate=SequenceMean())
    stage = Stage("policy", ("actor",), (objective,), optimizer=preset.optimizer)
    rollout = Chunks(base.rollout.num_starts, chunk=chunk, carry=carry)
    return replace(base, name="delethink", rollout=rollout, stages=(stage,))


METHOD = Method(
    paper="arXiv:2510.06557",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="counting",
    family="long context",
    base=recipes.grpo,
    departures=(
        "the verifier reads all chunks of an episode, not only the last window; answers are short here",
        "the carry is the tail alone: the public code also keeps the first 100 tokens of the trace",
        "a chunk is a quarter of the task's limit, half of it carried; in the paper a third of 24k tokens",
        "not measured: lengths beyond those of training, and cost at equal length",
    ),
    pilots=(
        "counting, 300 warm-up steps, 18 steps: right in chunks 0.98 (seed 100, 1 token carried) and 0.74 (seed 101, "
        "half a chunk), with no answer in ticks left; trained with the whole context 0.11 in chunks and 0.99 undivided "
        "(seed 101), seven of eight in ticks; a warm-up of 100 steps with six prompts was too short for either",
    ),
    results=(
        "sorting reads its state off the prompt, which every chunk sees: resets can only cost there, and did "
        "(-0.043 [-0.057, -0.029]); undecided because the loss lies at the margin: 20 seeds have 0.61 in chunks and "
        "0.66 with the whole context, less in 19 of them; 0.03 to 0.06 is lost, and the claim allows 0.05",
    ),
)
