"""Episodes of agent programs: many at a time against one policy, which samples for all of them in one thread."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from assay.core.http import Refused, Server
from assay.core.record import InfraFault, Outcome, PolicyFault
from assay.ops import random
from assay.rollouts.text import Tokenizer
from assay.tasks.adapters.agents.chat import Bounds, Chat
from assay.tasks.adapters.agents.programs import Episode, Left, play_episode
from assay.tasks.adapters.agents.requests import Asked
from assay.tasks.adapters.agents.sampling import Row, sampled
from assay.tasks.adapters.agents.transcripts import Transcript

ATTEMPTS = 2
"""How often an episode is begun whose program failed; its random numbers are the same each time."""
POLL = 0.05


@dataclass(frozen=True)
class Agent:
    """A program, or an address, that is the agent: `calls` of it in an episode at most, `context` tokens of one
    conversation; `seconds` for an episode, and `workers` episodes at the same time.
    """

    command: str = ""
    calls: int = 64
    context: int = 4096
    seconds: float = field(default=300.0, repr=False)
    workers: int = field(default=8, repr=False)
    not_a_part: ClassVar[str] = "how a task is played"


@dataclass(frozen=True)
class Played:
    """One episode: what the program left, and what it asked."""

    left: Left
    talk: Transcript

    @property
    def fault(self) -> Outcome | None:
        """The fault of the episode, None if it can be scored.

        A program that fails is the infrastructure's fault, unless the policy has used up the calls or the length of
        the episode: those are limits of the task.
        """
        if self.left.failure and self.talk.notes and self.talk.calls:
            return PolicyFault(self.talk.notes[-1])
        if self.left.failure:
            return InfraFault(f"the agent {self.left.failure}")
        return None if self.talk.calls else InfraFault("the agent made no call")


class EpisodeChat(Chat):
    """The endpoint of episodes: a key for each, and the policy's own distribution.

    A program's temperature, top-p and seed are not used: rows are trained as samples of the policy. The random numbers
    of a reply are a function of (episode, prompt, how often it was asked, choice, time).
    """

    def __init__(self, name: str, tokenizer: Tokenizer, bounds: Bounds, greedy: bool) -> None:
        super().__init__(name, tokenizer, bounds)
        self.greedy = greedy
        self.open: dict[str, tuple[Transcript, int]] = {}

    def transcript(self, session: str) -> Transcript:
        if session not in self.open:
            raise Refused(401, "this key is of no episode that is played now. Use OPENAI_API_KEY of the environment.")
        return self.open[session][0]

    def row(self, session: str, asked: Asked, prompt: tuple[int, ...], place: tuple[int, int, int], most: int) -> Row:
        word = random.hashed_after(np.asarray(self.open[session][1], dtype=np.uint64), *place)
        return Row(prompt, int(word), most, self.greedy, stops=asked.stops, alternatives=asked.alternatives or 0)

    @contextmanager
    def session(self, word: int) -> Iterator[tuple[str, Transcript]]:
        """Opens a session inside the block: its key and its transcript; `word` begins its random numbers."""
        key, talk = f"assay-{secrets.token_hex(16)}", Transcript(self.tokenizer)
        with self.lock:
            self.open[key] = talk, word
        try:
            yield key, talk
        finally:
            with self.lock:
                del self.open[key]


class Crew:
    """Threads that run the programs of episodes, each one episode at a time."""

    def __init__(
        self, agent: Agent, chat: EpisodeChat, url: str, items: Sequence[Mapping[str, Any]], words: np.ndarray
    ):
        self.agent, self.chat, self.url, self.items, self.words = agent, chat, url, items, words
        self.stopping, self.lock = threading.Event(), threading.Lock()
        self.found: dict[int, Played] = {}
        self.error: BaseException | None = None
        self.next = self.num_running = 0
        many = min(agent.workers, len(items))
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(many)]

    def work(self) -> None:
        """Plays episodes until none is left."""
        try:
            while (place := self.taken()) is not None:
                played = self.play(place)
                with self.lock:
                    self.found[place] = played
                    self.num_running -= 1
        except BaseException as error:
            self.error = error

    def taken(self) -> int | None:
        """Returns the number of the next episode; None if all have been taken, or the run stops."""
        with self.lock:
            if self.next == len(self.items) or self.stopping.is_set():
                return None
            self.next += 1
            self.num_running += 1
            return self.next - 1

    def play(self, place: int) -> Played:
        """Plays one episode; a second time if its program failed in time and not by the policy's fault."""
        word = int(self.words[place])
        for attempt in range(ATTEMPTS):
            with self.chat.session(word) as (key, talk):
                told = Episode(self.url, key, self.items[place], word >> 1, self.agent.seconds)
                played = Played(play_episode(self.agent.command, told, self.stopping), talk)
            failed = isinstance(played.fault, InfraFault) and bool(played.left.failure) and not played.left.is_late
            if not failed or self.stopping.is_set() or attempt + 1 == ATTEMPTS:
                break
        return played

    @property
    def is_done(self) -> bool:
        """Whether all episodes have ended; raises the error of a thread."""
        if self.error is not None:
            raise self.error
        return len(self.found) == len(self.items)


def play_all(
    agent: Agent, chat: EpisodeChat, actor: Any, items: Sequence[Mapping[str, Any]], words: np.ndarray
) -> list[Played]:
    """Plays an episode for each item against the actor, which samples in this thread. Programs are killed when this
    ends, for whatever reason.
    """
    with Server(chat, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
        crew = Crew(agent, chat, server.url, items, words)
        for thread in crew.threads:
            thread.start()
        try:
            while not crew.is_done:
                if some := chat.queue.taken(POLL, lambda: crew.num_running):
                    chat.queue.answer(some, lambda rows: sampled(actor, rows, chat.tokenizer))
        finally:
            crew.stopping.set()
            chat.queue.close()
            server.shutdown()
            for thread in crew.threads:
                thread.join(1.0)
        return [crew.found[place] for place in range(len(items))]
