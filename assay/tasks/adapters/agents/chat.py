"""/v1/chat/completions and /v1/completions: from a request to its answer, recorded under its session."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

from assay.core.http import Answer, Caller, Refused
from assay.rollouts.text import Tokenizer
from assay.tasks.adapters.agents.answers import choices_of, chunks, message_of, readable, usage
from assay.tasks.adapters.agents.requests import Asked, asked_chat, asked_text
from assay.tasks.adapters.agents.sampling import Queue, Reply, Row
from assay.tasks.adapters.agents.transcripts import ModelCall, Transcript

CHAT, TEXT, SESSIONS = "/v1/chat/completions", "/v1/completions", "/v1/sessions/"
OWNER = "assay"


@dataclass(frozen=True)
class Bounds:
    """Most tokens of a conversation with its reply and of one reply, most calls of a session, seconds for a reply."""

    context: int
    reply: int
    calls: int
    seconds: float
    not_a_part: ClassVar[str] = "limits of an endpoint"


class Chat:
    """Answers requests of sessions by one policy; how replies are drawn, and which sessions there are, is decided by
    subclasses. Any thread may call it.
    """

    has_one_model: ClassVar[bool] = True
    """Whether all calls of a session must name the same model."""

    def __init__(self, name: str, tokenizer: Tokenizer, bounds: Bounds) -> None:
        self.name, self.tokenizer, self.bounds = name, tokenizer, bounds
        self.queue, self.lock = Queue(), threading.Lock()

    def transcript(self, session: str) -> Transcript:
        """Returns the transcript of a session; Refused if it may not call."""
        raise NotImplementedError

    def recalled(self, session: str) -> Transcript:
        """Returns the transcript of a session to be read; Refused if it is not known."""
        return self.transcript(session)

    def row(self, session: str, asked: Asked, prompt: tuple[int, ...], place: tuple[int, int, int], most: int) -> Row:
        """Returns what is sampled for choice `place[2]` of a request."""
        raise NotImplementedError

    def answer(self, method: str, path: str, body: Mapping[str, Any], caller: Caller = Caller()) -> Answer:
        """Returns the answer of a route; Refused for an unknown one."""
        route = path.partition("?")[0]
        if method == "POST" and route == CHAT:
            return self.completed(body, asked_chat(body), caller)
        if method == "POST" and route == TEXT:
            return self.completed(body, asked_text(body), caller)
        if method == "GET" and route.startswith(SESSIONS):
            with self.lock:
                return self.recalled(unquote(route.removeprefix(SESSIONS))).told()
        if method == "GET" and route == "/v1/models":
            return {"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": OWNER}]}
        raise Refused(404, f"there is no {method} {path[:80]}. Use {CHAT} or {TEXT}.")

    def close(self) -> None:
        """Refuses all further requests."""
        self.queue.close()

    def completed(self, body: Mapping[str, Any], asked: Asked, caller: Caller) -> Answer:
        """Returns the answer to a request, as JSON or as a stream; the sampled tokens are recorded when it is ready."""
        with self.lock:
            talk = self.transcript(caller.session)
            if self.has_one_model:
                check_model(talk, body.get("model"))
            parent, read = talk.begun(asked)
            prompt = (*(() if parent is None else parent.sequence), *read)
            known = talk.same(prompt, asked.choices) if caller.is_retry else []
            rows, place = ([], (0, 0)) if known else self.rows(talk, caller, asked, prompt)
        tops: list[Any] = [None] * len(known)
        if not known:
            replies = self.queue.ask(rows, self.bounds.seconds)
            with self.lock:
                if not talk.keep(place, caller.has_left):
                    raise Refused(499, "the client has left.")
                known = [self.recorded(talk, asked, parent, read, reply) for reply in replies]
            tops = [reply.likeliest for reply in replies]
        choices = choices_of(self.tokenizer, asked, known, tops)
        kind = "chat.completion" if asked.prompt is None else "text_completion"
        head = {"id": f"{kind}-{known[0].number}", "created": int(time.time()), "model": self.name}
        if asked.is_streamed:
            kind = "chat.completion.chunk" if asked.prompt is None else kind
            return chunks({**head, "object": kind}, asked, choices, usage(known))
        return {**head, "object": kind, "choices": choices, "usage": usage(known)}

    def rows(
        self, talk: Transcript, caller: Caller, asked: Asked, prompt: tuple[int, ...]
    ) -> tuple[list[Row], tuple[int, int]]:
        """Returns what is sampled for a request, and its place; Refused if the session has no calls or room left."""
        room = self.bounds.context - len(prompt)
        if room < 1:
            talk.notes.append("the conversation is too long")
            what = (
                f"the prompt has {len(prompt)} tokens, and a conversation may have {self.bounds.context} with its reply"
            )
            raise Refused(400, f"{what}. Shorten it.")
        if talk.num_asked + asked.choices > self.bounds.calls:
            talk.notes.append("too many calls")
            raise Refused(429, f"this session has made its {self.bounds.calls} calls. End it.")
        talk.num_asked += asked.choices
        most = min(room, self.bounds.reply, asked.max_tokens or room)
        place = talk.place(prompt, caller.has_left)
        rows = [self.row(caller.session, asked, prompt, (*place, one), most) for one in range(asked.choices)]
        return rows, place

    def recorded(
        self, talk: Transcript, asked: Asked, parent: ModelCall | None, read: Sequence[int], reply: Reply
    ) -> ModelCall:
        """Adds a reply to the transcript."""
        number = len(talk.calls)
        shown = readable(self.tokenizer, reply, asked.stops)
        said = message_of(shown, asked.tools, number)
        messages = (*asked.messages, said) if asked.prompt is None else ()  # nothing continues a plain completion
        call = ModelCall(
            number, parent, tuple(read), reply.tokens, reply.logp, reply.logp_model, reply.versions, reply.version,
            reply.has_ended, messages, asked.tools, shown,
        )  # fmt: skip
        talk.add(call)
        return call


def check_model(talk: Transcript, model: str | None) -> None:
    """Refuses another model's name than the session named first: every call is answered by the policy, and a program
    that asks two models would have both trained.
    """
    if model is not None and talk.model is not None and model != talk.model:
        what = f"this session asked for the model {talk.model[:60]!a} before, now for {model[:60]!a}"
        raise Refused(400, f"{what}. Send calls of another model to its own address.")
    talk.model = talk.model or model
