"""Texts that a chat template is put around, marked by their type and never by what they say."""

from __future__ import annotations

from assay.core.errors import AssayError
from assay.rollouts.text import Conversation, Message


class Framed(str):
    """A prompt to be encoded inside the model's chat template: marked by this type, never by its text.

    `messages` are those of a conversation, or the text as one message of the user, after `system` if none of them is a
    system prompt.
    """

    messages: tuple[Message, ...]
    tools: str

    def __new__(cls, prompt: str, system: str = "") -> Framed:
        """Returns the prompt as a text that remembers its messages."""
        made = super().__new__(cls, prompt)
        own = prompt.messages if isinstance(prompt, Conversation | Framed) else (Message("user", prompt),)
        has_system = any(message.role in ("system", "developer") for message in own)
        made.messages = own if has_system or not system else (Message("system", system), *own)
        made.tools = prompt.tools if isinstance(prompt, Conversation | Framed) else ""
        return made


class Unwritable(AssayError, ValueError):
    """A text that a tokenizer cannot encode."""


class Answered(str):
    """A partner's reply to be encoded inside the chat template, between two utterances of the policy."""
