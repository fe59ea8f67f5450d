"""Prompts with a verifier: items by number, and the task that plays and judges them.

Axes: B sequences, T tokens. Decision t is token t, given the tokens before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError, TooLong
from assay.core.record import Draw, Experience, Outcome, Score
from assay.core.spaces import Spec
from assay.ops.decoded import Stop
from assay.rollouts import text
from assay.rollouts.completions import complete, continued
from assay.rollouts.text import Tokenizer
from assay.tasks.language.items import FiniteItems, Item, Items, SourcedItems
from assay.tasks.language.scoring import Scorer, checked_outcome, components, scored, token_credits
from assay.tasks.language.steps import Stepwise
from assay.tasks.language.turns import pieces_of, with_pieces
from assay.tasks.language.verifying import outcomes_of


# ---------------------------------------------------------------------------------------------------- the task
@dataclass(frozen=True)
class PromptTask(Stepwise):
    """Samples completions of prompts and verifies them: one outcome, on the last token.

    `max_prompt` counts bos, `max_tokens` counts eos. A completion cut at `max_tokens` is judged like any other text. It
    also ends, by its own decision, with the token that completes one of `stops`, which stays in the text.

    With a pretrained model, `system` is the system prompt of conversations that have none, and `max_tokens` is raised
    to the longest demonstration unless it `is_limited`. A `scorer` takes the place of the verifier.
    `answer_format` says how completions are written, for parts that read them.
    """

    name: str
    items: Items
    tokenizer: Tokenizer
    max_prompt: int
    max_tokens: int
    stops: tuple[str, ...] = ()
    system: str = ""
    is_limited: bool = False
    scorer: Scorer | None = None
    answer_format: AnswerFormat = AnswerFormat()

    @property
    def stop(self) -> Stop | None:
        """Returns the stop strings, which end a completion besides its end token."""
        return Stop(self.tokenizer.decode, self.stops) if self.stops else None

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out; the verifier of a file gives 0 to 1, a scorer what it states."""
        vocabulary, verified = self.tokenizer.vocabulary, (0.0, 1.0) if isinstance(self.items, FiniteItems) else None
        scores = verified if self.scorer is None else self.scorer.scores
        return Spec(vocabulary, vocabulary, horizon=self.max_prompt + self.max_tokens, scores=scores)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Samples a completion for each (start, sample); rewards are still 0."""
        ids = [prompt_ids(self.tokenizer, prompt, self.max_prompt) for prompt in self.prompts(starts, split)]
        return self.completed(actor, ids, starts, samples, draw, split, greedy)

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""
        return [item.prompt for item in self.items_of(starts, split)]

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Samples completions of other prompts; `max_prompt` does not apply, since a hint makes a prompt longer."""
        return self.completed(actor, self.told(prompts), starts, samples, draw, split, greedy=False)

    def say(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw
    ) -> tuple[list[str], int]:
        """Returns completions of other prompts as text, and their tokens."""
        played = self.play_prompts(actor, prompts, starts, samples, draw, split=0)
        return self.completions(played), int(played.mask.sum())

    def onto(self, experience: Experience, prompts: Sequence[str]) -> Experience:
        """Returns the same decisions after other prompts."""
        return text.after_other_prompts(experience, self.told(prompts), self.tokenizer.vocabulary.pad)

    @property
    def textless(self) -> Sequence[int]:
        """Returns the special tokens of a model, and rows of its vocabulary that stand for nothing."""
        return ()

    def bare(self, experience: Experience) -> Experience:
        """Returns the same decisions after the start token alone."""
        vocabulary = self.tokenizer.vocabulary
        return text.after_other_prompts(experience, [[vocabulary.bos]] * len(experience), vocabulary.pad)

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written."""
        return [[self.tokenizer.vocabulary.bos, *self.tokenizer.encode(prompt)] for prompt in prompts]

    def completed(
        self,
        actor: Any,
        prompts: Sequence[Sequence[int]],
        starts: np.ndarray,
        samples: np.ndarray,
        draw: Draw,
        split: int,
        greedy: bool,
    ) -> Experience:
        """Samples a completion of each prompt, given as tokens."""
        vocabulary, limit = self.tokenizer.vocabulary, self.max_tokens
        played = complete(
            actor,
            prompts,
            starts,
            samples,
            draw,
            max_tokens=limit,
            vocabulary=vocabulary,
            greedy=greedy,
            stop=self.stop,
        )
        return played.add({"split": torch.full_like(played.column("start"), split)})

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the prompts alone."""
        prompts = [prompt_ids(self.tokenizer, item.prompt, self.max_prompt) for item in self.items_of(starts, split)]
        start_B = torch.as_tensor(starts, dtype=torch.int64)
        begun = text.written(prompts, [[]] * len(prompts), start_B, self.tokenizer.vocabulary.pad)
        return replace(begun, source=None).add({"split": torch.full_like(start_B, split)})

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Continues the tokens of each row, up to `max_tokens` decisions in the whole episode."""
        most, vocabulary = self.max_tokens, self.tokenizer.vocabulary
        played = continued(
            actor, begun, samples, draw, max_tokens=most, limit=limit or most, vocabulary=vocabulary, stop=self.stop
        )
        return played.add({"split": torch.full_like(played.column("start"), split)})

    def judge(self, experience: Experience, split: int) -> Experience:
        """Verifies each row's completion against the item of its `start`; see `with_outcomes` for the columns.

        A row in which no episode ends has no outcome yet: its reward is 0 and it is not verified.
        """
        start_B = experience.column("start")
        if self.scorer is not None:
            verified = partial(self.verified, experience, split)
            found = scored(experience, self.scorer, self.texts(experience, split), verified)
            return found.add({"split": torch.full_like(start_B, split)})
        ended = (experience.terminal | experience.truncated).any(1).tolist()
        rows = [row for row, is_over in enumerate(ended) if is_over]
        outcomes: list[Outcome] = [Score(0.0)] * len(ended)
        for row, outcome in zip(rows, self.verified(experience, split, rows), strict=True):
            outcomes[row] = outcome
        return text.with_outcomes(experience, outcomes).add({"split": torch.full_like(start_B, split)})

    def verified(self, experience: Experience, split: int, rows: Sequence[int]) -> list[Outcome]:
        """Returns the verifier's outcome of some rows."""
        items, texts = self.items_of(experience.column("start")[list(rows)], split), self.completions(experience)
        return self.verify([item.prompt for item in items], [texts[row] for row in rows], items)

    def verify(self, prompts: Sequence[str], completions: Sequence[str], items: Sequence[Item]) -> list[Outcome]:
        """Returns one outcome per completion. AssayError names the row if the verifier breaks its contract."""
        return outcomes_of(self, items, completions)

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        """Returns prompt, completion, answer, facts, and whether the completion was cut, without verifying."""
        items, completions = self.items_of(experience.column("start"), split), self.completions(experience)
        cut = (experience.truncated & experience.mask).any(1).tolist()
        return [
            {**item.facts, "prompt": item.prompt, "completion": said, "answer": item.answer, "cut": is_cut}
            for item, said, is_cut in zip(items, completions, cut, strict=True)
        ]

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns prompt, completion, answer, reward, fault, and each token with its credit; safe to print."""
        one = experience.rows(slice(row, row + 1))
        split = int(one.extra["split"]) if "split" in one.extra else 0
        item, completion = self.items_of(one.column("start"), split)[0], self.completions(one)[0]
        outcome = checked_outcome(self, item, completion, row) if self.scorer is None else Score(0.0)
        return (
            {
                "prompt": text.escaped(item.prompt),
                "completion": text.escaped(completion),
                "answer": text.escaped(item.answer),
                "reward": float(one.reward.sum()),
                "cut": bool((one.truncated & one.mask).any()),
                "fault": None if isinstance(outcome, Score) else text.escaped(outcome.kind),
            }
            | components(one)
            | token_credits(one, self.tokenizer)
        )

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Returns prompt, demonstration and eos for each start, with reward 1."""
        items = self.items_of(starts, split)
        prompts = [prompt_ids(self.tokenizer, item.prompt, self.max_prompt) for item in items]
        shown = [completion_ids(self.tokenizer, item.demonstration, self.max_tokens) for item in items]
        start_B = torch.as_tensor(starts, dtype=torch.int64)
        record = text.written(prompts, shown, start_B, self.tokenizer.vocabulary.pad)
        return text.with_outcomes(record, [Score(1.0)] * len(items)).add({"split": torch.full_like(start_B, split)})

    def supervise(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the demonstrations, with every reply of a conversation as decisions that its row trains."""
        items = self.items_of(starts, split)
        rows = [pieces_of(self.tokenizer, item.prompt, item.demonstration) for item in items]
        if not any(rows):
            return self.demonstrate(starts, split)
        for row, item in zip(rows, items, strict=True):
            if not row:
                row.append((prompt_ids(self.tokenizer, item.prompt, self.max_prompt), False))
                row.append((completion_ids(self.tokenizer, item.demonstration, self.max_tokens), True))
        start_B = torch.as_tensor(starts, dtype=torch.int64)
        record = with_pieces(rows, start_B, self.tokenizer.vocabulary.pad)
        return text.with_outcomes(record, [Score(1.0)] * len(items)).add({"split": torch.full_like(start_B, split)})

    @property
    def max_decisions(self) -> int:
        """The tokens of the longest answer."""
        return self.max_tokens

    @property
    def num_training(self) -> int:
        """Returns the number of training rows of a file; 0 if prompts are generated."""
        return len(self.items.splits[0]) if isinstance(self.items, FiniteItems) else 0

    @property
    def num_testing(self) -> int:
        """Returns the number of held-out rows of a file; 0 if prompts are generated."""
        return len(self.items.splits[1]) if isinstance(self.items, FiniteItems) else 0

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the start at each place of the run's order; the ordinals if prompts are generated."""
        return self.items.order(ordinals, draw) if isinstance(self.items, FiniteItems) else ordinals

    def prompts_of(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the prompt of each start, under the name that tasks whose rows repeat have for it."""
        return self.prompts(starts, split)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Returns the names of the sources of its prompts; none if they do not say where they are from."""
        return self.items.source_names if isinstance(self.items, SourcedItems) else ()

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of prompt `place` of a source."""
        assert isinstance(self.items, SourcedItems)
        return self.items.start_in(source, place)

    def source_of(self, start: int) -> int:
        """Returns the number of a prompt's source."""
        assert isinstance(self.items, SourcedItems)
        return self.items.source_of(start)

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals."""
        return [self.items.item(ordinal, split) for ordinal in starts.tolist()]

    def completions(self, experience: Experience) -> list[str]:
        """Returns the decisions of each row's episode as text: the column `answer` if it exists, else the decisions,
        with the rows of one episode joined in the order of their segments.
        """
        told = experience.extra.get("answer", experience.mask)
        decided = experience.action[told].tolist()
        ends = np.cumsum(told.sum(1).tolist(), dtype=np.int64).tolist()
        rows = [decided[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        if experience.episode is not None and experience.segment is not None:
            rows = joined_segments(rows, experience.episode.tolist(), experience.segment.flatten(1).amax(1).tolist())
        return [text.readable(self.tokenizer, row) for row in rows]


def joined_segments(rows: Sequence[list[int]], episodes: Sequence[int], segments: Sequence[int]) -> list[list[int]]:
    """Returns for each row the tokens of all rows of its episode, in the order of their segments."""
    whole: dict[int, list[int]] = {}
    for row in sorted(range(len(rows)), key=lambda row: segments[row]):
        whole.setdefault(episodes[row], []).extend(rows[row])
    return [whole[episode] for episode in episodes]


def prompt_ids(tokenizer: Tokenizer, prompt: str, limit: int) -> list[int]:
    """Returns the prompt after bos; AssayError where they are more than `limit` tokens."""
    ids = [tokenizer.vocabulary.bos, *tokenizer.encode(prompt)]
    if len(ids) > limit:
        raise AssayError(
            f"prompt '{text.escaped(prompt, 60)}' has {len(ids)} tokens, but max_prompt is {limit}. Raise it"
        )
    return ids


def completion_ids(tokenizer: Tokenizer, completion: str, limit: int) -> list[int]:
    """Returns the completion and eos; AssayError where they are more than `limit` tokens."""
    ids = [*tokenizer.encode(completion), tokenizer.vocabulary.eos]
    if len(ids) > limit:
        raise TooLong(f"'{text.escaped(completion, 60)}' has {len(ids)} tokens, but max_tokens is {limit}. Raise it")
    return ids
