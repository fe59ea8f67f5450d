"""Text and tokens: stable hashes, two tokenizers, records of written sequences, text escaped for display.

Axes: B sequences, T tokens. Special ids of both tokenizers: pad 0, bos 1, eos 2.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.record import Experience, InfraFault, Origin, Outcome, PolicyFault
from assay.core.spaces import Vocabulary
from assay.ops import groups

ALPHABET = "0123456789+-*/=(),: \nabcdefghijklmnopqrstuvwxyz.;?!<>[]{}_#'\""
"""The characters of all built-in tasks, so that one model fits them all: 64 tokens with the special ones."""
NUM_SPECIALS = 3
SPOILED = "\N{REPLACEMENT CHARACTER}"
TOOL_RESPONSE = "<tool_response>\n{}\n</tool_response>"


# ---------------------------------------------------------------------------------------------------- plain text
def hash_of_text(text: str, seed: int = 0) -> int:
    """Returns 64 bits of BLAKE2b over the seed and the text: the same in every process, unlike Python's own hash."""
    content = f"{seed}:{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def hashed_words(key: str, count: int) -> tuple[int, ...]:
    """Returns `count` 64-bit words of SHAKE-128 over the key: a few random numbers in microseconds."""
    return struct.unpack(f"<{count}Q", hashlib.shake_128(key.encode()).digest(8 * count))


def is_held_out(content: str, share: float, seed: int = 0) -> bool:
    """Returns whether a content is in the held-out split: hash / 2^64 < share. 0 holds nothing out, 1 everything."""
    return hash_of_text(content, seed) < share * 2.0**64


def escaped(text: str, limit: int = 2000) -> str:
    r"""The text for a terminal or a log: what does not print (ESC, NUL, newline, bidi marks) as \x1b and the like.

    At most `limit` characters, then how many were left out. HTML needs its own escaping on top.
    """
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return shown if len(text) <= limit else f"{shown}... ({len(text) - limit} more characters)"


class Message(NamedTuple):
    """One message of a conversation: its role (system, user, assistant, tool, ...) and its text.

    `more` has the other fields that a chat template reads, as a JSON object: `tool_calls`, `tool_call_id`, `name`,
    `reasoning_content`; "" without any. `mark` is what its row says about training on it, None if nothing; `trained`
    whether supervised training reads it as a decision.
    """

    role: str
    content: str
    more: str = ""
    mark: bool | None = None
    trained: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """The message as a chat template reads it."""
        more: dict[str, Any] = json.loads(self.more) if self.more else {}
        return {"role": self.role, "content": self.content, **more}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The functions that it calls, each with its name and arguments."""
        return [call["function"] for call in self.fields.get("tool_calls", [])] if "tool_calls" in self.more else []

    @property
    def shown(self) -> str:
        """The message as text: its content, then its calls as JSON between <tool_call> tags."""
        calls = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in self.calls]
        return "\n".join([*([self.content] if self.content else []), *calls])


class Said(str):
    """The last reply of a demonstrated conversation as text, which remembers its message."""

    message: Message

    def __new__(cls, message: Message, written: str = "") -> Said:
        """Returns the message as a text, as it is shown or in the words of a chat template."""
        made = super().__new__(cls, written or message.shown)
        made.message = message
        return made


class Conversation(str):
    """A prompt of several messages, with the tools that it offers as JSON ("" for none).

    As a text, for models without a chat template, it is the one message of a user, or every message after its role.
    """

    messages: tuple[Message, ...]
    tools: str

    def __new__(cls, messages: Sequence[Message], tools: str = "") -> Conversation:
        """Returns the conversation as a text that remembers its messages."""
        alone = len(messages) == 1 and messages[0].role == "user" and not tools
        shown = [f"{message.role}: {message.shown}" for message in messages]
        shown = [messages[0].content] if alone else [*([f"tools: {tools}"] if tools else []), *shown]
        made = super().__new__(cls, "\n\n".join(shown))
        made.messages, made.tools = tuple(messages), tools
        return made


@runtime_checkable
class OfMessages(Protocol):
    """A prompt that remembers its messages."""

    messages: tuple[Message, ...]
    tools: str


def with_last_message(prompt: str, change: Callable[[str], str]) -> str:
    """Returns a prompt whose last message of the user is changed; a prompt that is one text is that message.

    Degenerate: of a conversation in which the user says nothing, the last message is changed.
    """
    messages = list(prompt.messages) if isinstance(prompt, OfMessages) else [Message("user", prompt)]
    place = max((number for number, one in enumerate(messages) if one.role == "user"), default=len(messages) - 1)
    if not isinstance(prompt, OfMessages) or (str(prompt) == messages[place].content and not prompt.tools):
        return change(str(prompt))
    messages[place] = messages[place]._replace(content=change(messages[place].content))
    return Conversation(messages, prompt.tools)


class ToolResults(str):
    """The results of an utterance's tool calls, in their order. As a text, for models whose chat template writes no
    results, each stands between <tool_response> and </tool_response>.
    """

    results: tuple[str, ...]

    def __new__(cls, results: Sequence[str]) -> ToolResults:
        """Returns the results as a text that remembers them."""
        made = super().__new__(cls, "\n".join(map(TOOL_RESPONSE.format, results)))
        made.results = tuple(results)
        return made


# ---------------------------------------------------------------------------------------------------- tokenizers
class Tokenizer(Protocol):
    """Maps text to token ids and back. `encode` adds no special tokens, `decode` drops them."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""

    def encode(self, text: str) -> list[int]:
        """Returns ids of the text; raises ValueError if it cannot be encoded."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns text of the ids; never raises because of the ids."""


@dataclass(frozen=True)
class CharacterTokenizer:
    """One token for each character of a fixed alphabet, in its order, after the special tokens.

    decode(encode(text)) = text. An id beyond the alphabet becomes U+FFFD.
    """

    alphabet: str = ALPHABET

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Character to id."""
        return {character: index for index, character in enumerate(self.alphabet, NUM_SPECIALS)}

    @cached_property
    def characters(self) -> Mapping[int, str]:
        """Id to character; special tokens map to the empty string."""
        shown = {index: character for character, index in self.ids.items()}
        return shown | dict.fromkeys(range(NUM_SPECIALS), "")

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""
        return Vocabulary(NUM_SPECIALS + len(self.alphabet), pad=0, bos=1, eos=2)

    def encode(self, text: str) -> list[int]:
        """Returns ids of the text; the ValueError names a character that the alphabet lacks."""
        try:
            return [self.ids[character] for character in text]
        except KeyError as unknown:
            raise ValueError(f"the alphabet {self.alphabet!r} lacks the character {unknown.args[0]!a}") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Returns text of the ids without special tokens."""
        shown = self.characters
        return "".join([shown.get(index, SPOILED) for index in ids])


@dataclass(frozen=True)
class ByteTokenizer:
    """One token for each byte of UTF-8, after the special tokens: 259 tokens for any text.

    decode(encode(text)) = text for all text that UTF-8 can represent. Invalid UTF-8, and ids that are not bytes,
    become U+FFFD.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""
        return Vocabulary(NUM_SPECIALS + 256, pad=0, bos=1, eos=2)

    def encode(self, text: str) -> list[int]:
        """Returns ids of the text; raises ValueError for a lone surrogate, which UTF-8 cannot represent."""
        return [byte + NUM_SPECIALS for byte in text.encode("utf-8")]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns text of the ids without special tokens."""
        size = NUM_SPECIALS + 256
        kept = [index - NUM_SPECIALS if index < size else 0xFF for index in ids if index >= NUM_SPECIALS]
        return bytes(kept).decode("utf-8", "replace")


def readable(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Returns the text an actor wrote, without eos at the end; other special tokens become U+FFFD and cannot hide."""
    vocabulary = tokenizer.vocabulary
    specials = {vocabulary.pad, vocabulary.bos, vocabulary.eos}
    body = ids[:-1] if ids and ids[-1] == vocabulary.eos else ids
    if specials.isdisjoint(body):
        return tokenizer.decode(body)
    return "".join(SPOILED if index in specials else tokenizer.decode([index]) for index in body)


# ---------------------------------------------------------------------------------------------------- records
def padded_rows(rows: Sequence[Sequence[int]], filler: int) -> tuple[Tensor, Tensor]:
    """Returns rows of unequal lengths as (tokens [B, T], valid [B, T]): the filler and false after each row's end."""
    longest = max((len(row) for row in rows), default=0)
    tokens = [[*row, *[filler] * (longest - len(row))] for row in rows]
    length_B = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    valid_BT = torch.arange(longest) < length_B.unsqueeze(1)
    return torch.tensor(tokens, dtype=torch.int64).reshape(len(rows), longest), valid_BT


def is_last_true(mask_BT: Tensor) -> Tensor:
    """Returns bool [B, T], true on the last true column of each row; nowhere in a row without any."""
    return mask_BT & (mask_BT.long().flip(1).cumsum(1).flip(1) == 1)


def written(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], start_B: Tensor, filler: int
) -> Experience:
    """Returns given sequences as experience: the decisions are the completions' tokens, all with reward 0.

    `logp` and `reward` are 0, `source` is DATASET, `group` and the column `start` are `start_B`.
    """
    tokens_BT, valid_BT = padded_rows([[*p, *c] for p, c in zip(prompts, completions, strict=True)], filler)
    prompt_length_B = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int64)
    mask_BT = valid_BT & (torch.arange(tokens_BT.shape[1]) >= prompt_length_B.unsqueeze(1))
    return Experience(
        context={"tokens": tokens_BT, "valid": valid_BT},
        action=tokens_BT,
        mask=mask_BT,
        logp=torch.zeros(tokens_BT.shape),
        reward=torch.zeros(tokens_BT.shape),
        terminal=is_last_true(mask_BT),
        truncated=torch.zeros_like(mask_BT),
        group=start_B,
        source=torch.full_like(start_B, int(Origin.DATASET)),
        extra={"start": start_B, "sample": torch.zeros_like(start_B)},
    )


def after_other_prompts(experience: Experience, prompts: Sequence[Sequence[int]], filler: int) -> Experience:
    """Returns each row's decisions, all contiguous, after another prompt: columns per decision move with them.

    Log-probabilities stay as recorded, under the prompt that the policy saw. Rows without a decision keep their
    prompt alone.
    """
    there, num = experience.mask, experience.mask.sum(1)
    first = torch.where(num > 0, there.long().argmax(1), 0)
    length_B = torch.tensor([len(prompt) for prompt in prompts], device=there.device)
    column = torch.arange(int((length_B + num).max()), device=there.device)
    new = column - length_B.unsqueeze(1)
    mask = (new >= 0) & (new < num.unsqueeze(1))
    place = (first.unsqueeze(1) + new).clamp(0, experience.num_columns - 1)
    rows = torch.arange(len(experience), device=there.device).unsqueeze(1)

    def moved(values: Tensor) -> Tensor:
        if values.dim() < 2:
            return values
        found = values[rows, place]
        return torch.where(mask.view(*mask.shape, *[1] * (found.dim() - 2)), found, torch.zeros_like(found))

    told, _ = padded_rows(prompts, filler)
    told = torch.nn.functional.pad(told, (0, max(0, len(column) - told.shape[1])), value=filler)[:, : len(column)]
    record = experience.map(moved)
    tokens = torch.where(mask, record.action, told.to(record.action))
    valid = column < (length_B + num).unsqueeze(1)
    return record.with_columns(context={"tokens": tokens, "valid": valid}, action=tokens, mask=mask)


def with_outcomes(experience: Experience, outcomes: Sequence[Outcome]) -> Experience:
    """Returns the experience with each row's value on its last decision, replacing earlier rewards.

    An infrastructure fault never becomes a number: the mask is set to false in all rows of its episode. Adds `score`
    (0 in such rows), `policy_fault` and `infra_fault`, each [B].
    """
    reward, device = experience.reward, experience.reward.device
    values = [0.0 if isinstance(outcome, InfraFault) else outcome.value for outcome in outcomes]
    score_B = torch.tensor(values, dtype=reward.dtype, device=device)
    infra_B = torch.tensor([isinstance(o, InfraFault) for o in outcomes], dtype=torch.bool, device=device)
    policy_B = torch.tensor([isinstance(o, PolicyFault) for o in outcomes], dtype=torch.bool, device=device)
    whole = groups.game_groups(experience)
    mask_BT = experience.mask & (groups.total(infra_B.long(), whole) == 0)[whole.index].unsqueeze(1)
    placed_BT = torch.where(is_last_true(mask_BT), score_B.unsqueeze(1), torch.zeros_like(reward))
    columns = {"score": score_B, "policy_fault": policy_B, "infra_fault": infra_B}
    return replace(experience, mask=mask_BT, reward=placed_BT).add(columns)
