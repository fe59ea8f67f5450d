"""Conversations of a user's own class: `reset(seed)` returns the prompt, `step(said)` a reply, a reward and the end.

    class Guess:
        max_turns = 5
        def reset(self, seed): ...        -> "Guess a number from 1 to 9."
        def step(self, said): ...         -> ("higher", 0.0, False)

A conversation is played again from its seed for every reply, so that it is a function of what was said: it can be
judged later, in another process and in a resumed run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.rollouts.text import ByteTokenizer
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Item

TURNS = "max_turns"
"""The attribute that makes a class with `reset` and `step` a conversation, and no environment of observations."""
LIMITS = {"max_prompt": 512, "max_tokens": 64, "max_reply": 256}
"""Further limits of a prompt, an utterance and a reply, in tokens (bytes, without a pretrained model): the defaults."""


@dataclass(frozen=True)
class TextEnvironment:
    """The partner that makes a new environment for every reply and repeats what was said to it.

    Seeds are even in training and odd in held-out conversations. A method `solution()`, if there is one, returns the
    utterances of a conversation that succeeds: what a small model is warmed up on.
    """

    make: Callable[[], Any]

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the prompt of a seed."""
        seed = 2 * ordinal + split
        environment, prompt = self.begun(seed)
        solution = getattr(environment, "solution", None)
        shown = [] if solution is None else [str(one) for one in solution()]
        return Item(f"{prompt}\n", "", "\n".join(shown), {"seed": seed})

    def begun(self, seed: int) -> tuple[Any, str]:
        """Returns an environment after its reset, and the prompt; AssayError if that is no text."""
        environment = self.make()
        prompt = environment.reset(seed)
        if not isinstance(prompt, str):
            raise AssayError(f"{type(environment).__name__}.reset returned {prompt!r:.60}. Return the prompt, a text.")
        return environment, prompt

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the reply to the last utterance; the reward of the one that ends it is the outcome."""
        seed = item.facts["seed"]
        assert isinstance(seed, int)
        environment, _ = self.begun(seed)
        for words in said:
            told, reward, is_over = checked_step(environment, environment.step(words))
        return Reply(f"{told}\n", Score(reward)) if is_over else Reply(f"{told}\n", None, reward)


def checked_step(environment: Any, result: Any) -> tuple[str, float, bool]:
    """Returns text, reward and end of a step; AssayError for anything else."""
    words = "Return (text, reward, whether it is over)"
    if not isinstance(result, tuple) or len(result) != 3 or not isinstance(result[0], str):
        raise AssayError(f"{type(environment).__name__}.step returned {result!r:.60}. {words}.")
    told, reward, is_over = result
    if isinstance(reward, bool | str) or not math.isfinite(float(reward)):
        raise AssayError(f"{type(environment).__name__}.step returned the reward {reward!r:.60}. {words}.")
    return told, float(reward), bool(is_over)


def is_conversation(make: Callable[..., Any]) -> bool:
    """Returns whether a class, possibly with settings, is one of conversations: it has `reset`, `step`, `max_turns`."""
    inner = make.func if isinstance(make, partial) else make
    return isinstance(inner, type) and all(name in dir(inner) for name in ("reset", "step", TURNS))


def conversation_task(name: str, make: Callable[[], Any]) -> DialogueTask:
    """Returns the task of a class of conversations. Tries it first: a reset must repeat itself under its seed."""
    environment, partner = make(), TextEnvironment(make)
    prompt, tokens, reply, turns = (limit_of(name, environment, limit) for limit in (*LIMITS, TURNS))
    first, again = (partner.item(0, 0) for _ in range(2))
    if first.prompt != again.prompt:
        texts = f"{first.prompt.strip()!r:.60} and then {again.prompt.strip()!r:.60}"
        raise AssayError(f"{name}.reset(0) returned {texts}. Draw everything from the seed.")
    partner.reply(first, [""])
    return DialogueTask(name, partner, ByteTokenizer(), prompt, turns, tokens, reply)


def limit_of(name: str, environment: Any, limit: str) -> int:
    """Returns a limit of a class, or its default; AssayError for anything but a positive whole number."""
    value = getattr(environment, limit, LIMITS.get(limit))
    if not isinstance(value, int) or value < 1:
        raise AssayError(f"{name}.{limit} is {value!r}. Use a whole number, at least 1.")
    return value
