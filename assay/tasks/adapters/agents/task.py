"""Prompts that an agent program answers: it is run once for each (start, sample) with the policy's address.

Axes: B sequences, T tokens. Calls that continue one another are one sequence, in which what was not sampled is context:
mask false. Further sequences of an episode are rows with the same `episode`; the outcome is on the last one. Held-out
episodes have that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Outcome, Score
from assay.core.spaces import Spec
from assay.core.verifier import COMPONENT
from assay.decoding.sampling_parameters import LOGP_MODEL
from assay.models.pretrained.chat_texts import Framed
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.ops import random
from assay.rollouts import text
from assay.rollouts.outcomes import recorded_outcomes, with_recorded
from assay.rollouts.text import ByteTokenizer
from assay.rollouts.turns import utterances
from assay.tasks.adapters.agents.chat import Bounds
from assay.tasks.adapters.agents.episodes import Agent, EpisodeChat, Played, play_all
from assay.tasks.adapters.agents.transcripts import Piece
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import Table, components, token_credits

EPISODE = 2**20
"""Episodes are numbered start * EPISODE + sample."""


@dataclass(frozen=True)
class AgentTask(PromptTask):
    """Prompts, each played by an agent program against the policy.

    The outcome is known when the program has ended: the scorer's, or the verifier's of what the program left as its
    result, else of the last reply. It is recorded with the rows; judging reads it there. `max_tokens` limits a reply.
    """

    agent: Agent = Agent()

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out; a sequence has at most `context` tokens."""
        return replace(super().spec, horizon=max(self.agent.context, self.max_prompt + self.max_tokens))

    @property
    def max_decisions(self) -> int:
        """The tokens of the agent's context: no episode has more."""
        return self.agent.context

    @property
    def plain(self) -> PromptTask:
        """Returns the prompts as a task without the program."""
        own = {one.name: getattr(self, one.name) for one in fields(PromptTask)}
        return PromptTask(**own)

    def in_tokens_of(self, other: Any) -> AgentTask:
        """Returns the task in the tokens of the same prompts for a pretrained model, within what that reads."""
        assert isinstance(other, PromptTask)
        own = {one.name: getattr(other, one.name) for one in fields(PromptTask)}
        reads = other.tokenizer.most_tokens if isinstance(other.tokenizer, PretrainedTokenizer) else self.agent.context
        return AgentTask(**own, agent=replace(self.agent, context=min(self.agent.context, reads)))

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals, in a model's chat template where there is one."""
        items = super().items_of(starts, split)
        if not isinstance(self.tokenizer, PretrainedTokenizer):
            return items
        return [replace(item, prompt=Framed(item.prompt, self.system)) for item in items]

    # ------------------------------------------------------------------------------------------------ playing
    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Runs the program for each (start, sample), and records what it asked and the outcome."""
        agent, items = self.agent, self.items_of(starts, split)
        bounds = Bounds(agent.context, self.max_tokens, agent.calls, agent.seconds)
        chat = EpisodeChat(self.name, self.tokenizer, bounds, greedy)
        told = [{**item.facts, "prompt": str(item.prompt), "answer": item.answer} for item in items]
        shown = [{name: value for name, value in row.items() if name != "answer"} for row in told]
        played = play_all(agent, chat, actor, shown, random.hashed(draw, starts, samples))
        check_played(agent, played)
        outcomes, table = self.outcomes(items, played)
        rows = [one.talk.rows()[-1:] if split else one.talk.rows() for one in played]
        record = laid_out(rows, starts, samples, self.tokenizer.vocabulary)
        last = torch.tensor(np.cumsum([max(1, len(own)) for own in rows]) - 1)
        by_row: list[Outcome] = [Score(0.0)] * len(record)
        for place, outcome in zip(last.tolist(), outcomes, strict=True):
            by_row[place] = outcome
        columns = {"split": torch.full_like(record.column("start"), split)}
        for name, values in table.items():
            column = torch.full((len(record),), torch.nan)
            column[last] = torch.tensor(list(values), dtype=column.dtype)
            columns[COMPONENT + name] = column
        return with_recorded(record.add(columns), by_row)

    def outcomes(self, items: Sequence[Item], played: Sequence[Played]) -> tuple[list[Outcome], Table]:
        """Returns the outcome of each episode, and the numbers that it is made of; NaN for one with a fault."""
        found: list[Outcome] = [one.fault or Score(0.0) for one in played]
        good = [place for place, one in enumerate(played) if one.fault is None]
        rows = [self.text_of(items[place], played[place]) for place in good]

        def verified() -> list[Outcome]:
            said = [row["result"] or row["completion"] for row in rows]
            return self.verify([row["prompt"] for row in rows], said, [items[place] for place in good])

        given, table = (verified(), {}) if self.scorer is None else self.scorer(rows, verified)
        for place, outcome in zip(good, given, strict=True):
            found[place] = outcome
        whole = {name: dict(zip(good, values, strict=True)) for name, values in table.items()}
        return found, {name: [own.get(k, torch.nan) for k in range(len(played))] for name, own in whole.items()}

    def text_of(self, item: Item, played: Played) -> dict[str, Any]:
        """Returns an episode as text: the last conversation (`messages`) and its last reply (`completion`), the
        program's `result` and `output`, and the number of its `calls`.
        """
        last = played.talk.calls[-1]
        return {
            **item.facts,
            "prompt": item.prompt,
            "completion": last.text,
            "answer": item.answer,
            "cut": not last.has_ended,
            "messages": [dict(one) for one in last.messages],
            "result": played.left.result,
            "output": played.left.output,
            "calls": len(played.talk.calls),
        }

    def trial(self, item: Item, said: str) -> dict[str, Any]:
        """Returns what a reward function reads beside prompt and completion, before a run begins."""
        messages = [{"role": "user", "content": str(item.prompt)}, {"role": "assistant", "content": said}]
        return {"messages": messages, "result": said, "output": "", "calls": 1}

    def judge(self, experience: Experience, split: int) -> Experience:
        """Returns the experience with its recorded outcomes; see `text.with_outcomes` for the columns."""
        if "outcome/value" not in experience.extra:  # demonstrations were judged where they were written
            return super().judge(experience, split)
        judged = text.with_outcomes(experience, recorded_outcomes(experience))
        return judged.add({"split": torch.full_like(experience.column("start"), split)})

    # ------------------------------------------------------------------------------------------------ display
    def completions(self, experience: Experience) -> list[str]:
        """Returns the last reply of each row as text."""
        return [said[-1] if said else "" for said in self.replies(experience)]

    def replies(self, experience: Experience) -> list[list[str]]:
        """Returns the replies that each row decides, as text."""
        turn = experience.action * 0 if experience.turn is None else experience.turn
        rows = zip(experience.action.tolist(), experience.mask.tolist(), turn.tolist(), strict=True)
        return [[text.readable(self.tokenizer, ids) for ids in utterances(*row)] for row in rows]

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns the whole conversation of a row, its reward and fault, each token with its credit; safe to print."""
        one = experience.rows(slice(row, row + 1))
        split = int(one.extra["split"]) if "split" in one.extra else 0
        item, said = self.items_of(one.column("start"), split)[0], self.replies(one)[0]
        faults = [name for name in ("policy_fault", "infra_fault") if name in one.extra and bool(one.extra[name])]
        return (
            {
                "prompt": text.escaped(item.prompt),
                "completion": text.escaped(" | ".join(said)),
                "answer": text.escaped(item.answer),
                "reward": float(one.reward.sum()),
                "turns": len(said),
                "cut": bool((one.truncated & one.mask).any()),
                "fault": faults[0] if faults else None,
            }
            | components(one)
            | token_credits(one, self.tokenizer, silent="/")
        )

    # ------------------------------------------------------------------------------------------------ refused
    def begin(self, starts: np.ndarray, split: int) -> NoReturn:
        """Raises AssayError: an episode has no middle to begin in."""
        raise AssayError(
            f"task '{self.name}' is played by an agent program, which is run from its start alone. Use a method that "
            "gathers whole episodes, such as grpo or rloo"
        )

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> NoReturn:
        """Raises AssayError: see `begin`."""
        self.begin(samples, split)

    def completed(
        self,
        actor: Any,
        prompts: Sequence[Sequence[int]],
        starts: np.ndarray,
        samples: np.ndarray,
        draw: Draw,
        split: int,
        greedy: bool,
    ) -> NoReturn:
        """Raises AssayError: the program writes the prompts."""
        self.begin(starts, split)


def laid_out(
    rows: Sequence[Sequence[Sequence[Piece]]], starts: np.ndarray, samples: np.ndarray, vocabulary: Any
) -> Experience:
    """Returns the sequences of all episodes as experience; of an episode without a call a row without a decision."""
    flat = [(place, row) for place, own in enumerate(rows) for row in (own or [[]])]
    tokens = [
        [token for piece in row for token in (*piece.call.read, *piece.call.tokens)] or [vocabulary.bos]
        for _, row in flat
    ]
    which = np.array([place for place, _ in flat])
    start_B, sample_B = (
        torch.from_numpy(starts[which].astype(np.int64)),
        torch.from_numpy(samples[which].astype(np.int64)),
    )
    record = text.written(tokens, [[] for _ in flat], start_B, vocabulary.pad)
    record, cut = with_calls(record, [row for _, row in flat])
    is_final = torch.from_numpy(np.append(which[1:] != which[:-1], True))
    terminal: Tensor = text.is_last_true(record.mask) & is_final.unsqueeze(1)
    calls = [piece.call for _, row in flat for piece in row]
    extra = {"start": start_B, "sample": sample_B}
    if any(call.logp_model is not None for call in calls):
        extra[LOGP_MODEL] = record.column(LOGP_MODEL)
    return replace(
        record,
        terminal=terminal,
        truncated=terminal & cut.unsqueeze(1),
        source=None,
        episode=start_B * EPISODE + sample_B,
        version=record.version if any(call.versions is not None for call in calls) else None,
        extra=extra,
    )


def with_calls(record: Experience, rows: Sequence[Sequence[Piece]]) -> tuple[Experience, Tensor]:
    """Returns the record with masks, turns, log-probabilities and versions of the calls in each row, and which rows end
    in a call that was cut, [B].
    """
    mask, turn = torch.zeros_like(record.mask), torch.zeros_like(record.action)
    numbers = {name: torch.zeros_like(record.logp) for name in ("logp", LOGP_MODEL)}
    version = torch.zeros_like(record.action)
    cut = torch.zeros(len(rows), dtype=torch.bool)
    for place, row in enumerate(rows):
        since = 0
        for number, piece in enumerate(row):
            call = piece.call
            first, end = since + len(call.read), since + len(call.read) + len(call.tokens)
            turn[place, since:end], mask[place, first:end] = number, piece.is_own
            written = {"logp": call.logp, LOGP_MODEL: call.logp_model or call.logp}
            for name, values in written.items() if piece.is_own else ():
                numbers[name][place, first:end] = torch.tensor(values, dtype=record.logp.dtype)
            version[place, first:end] = torch.tensor(call.versions or [0] * len(call.tokens))
            since, cut[place] = end, not call.has_ended
    extra = {**record.extra, LOGP_MODEL: numbers[LOGP_MODEL]}
    return replace(record, mask=mask, logp=numbers["logp"], turn=turn, version=version, extra=extra), cut


def check_played(agent: Agent, played: Sequence[Played]) -> None:
    """Raises AssayError if no episode can be scored: the program is broken, and nothing would be learned."""
    if not played or any(not isinstance(one.fault, InfraFault) for one in played):
        return
    first = next((one for one in played if one.left.failure), played[0])
    lines = [line for line in first.left.output.splitlines() if line.strip()]
    shown = f" (it printed {text.escaped(lines[-1], 200)!r})" if lines else ""
    what = f"--agent {text.escaped(agent.command, 200)}: "
    if not first.left.failure:
        what += f"it made no call in {len(played)} episodes{shown}"
        raise AssayError(f"{what}. Call the address in OPENAI_BASE_URL with the key in OPENAI_API_KEY.")
    raise AssayError(f"{what}it {first.left.failure}{shown}, and so did all {len(played)} episodes. Fix the program.")


def with_agent(task: Any, agent: Agent) -> AgentTask:
    """Returns a task of prompts as one that an agent program plays; AssayError for a task without prompts."""
    if not isinstance(task, PromptTask):
        raise AssayError(f"--agent needs prompts; task '{task.name}' has none. Use a file of prompts.")
    limits = (task.max_prompt, task.max_tokens, (), task.system, task.is_limited, task.scorer, task.answer_format)
    return AgentTask(task.name, task.items, ByteTokenizer(), *limits, agent)
