"""Texts between pieces of a chat template as tokens: text is only ever text, even where it spells a control token."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from assay.core.spaces import Vocabulary
from assay.models.pretrained.chat_texts import Unwritable


class Spells(Protocol):
    """A tokenizer with control tokens."""

    @property
    def path(self) -> str:
        """Its folder or hub id."""

    @property
    def control(self) -> Mapping[int, str]:
        """Control tokens by id."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""

    def raw(self, written: str) -> list[int]:
        """Returns ids of text in which control tokens are control tokens."""


def plain_ids(tokenizer: Spells, around: Sequence[str], texts: Sequence[str]) -> list[int]:
    """Returns ids of `texts` with the pieces of a template before, between and after them. A text that spells a control
    token is split there; Unwritable if it becomes one even so.
    """
    whole, cuts = around[0], set[int]()
    spelt = "|".join(re.escape(token) for token in tokenizer.control.values()) or "$^"
    for content, after in zip(texts, around[1:], strict=True):
        cuts |= {match.start() + len(whole) + 1 for match in re.finditer(f"(?={spelt})", content)}
        whole += content + after
    places = [0, *sorted(cuts), len(whole)]
    ids = [index for start, end in itertools.pairwise(places) for index in tokenizer.raw(whole[start:end])]
    allowed = sum(len(re.findall(spelt, piece)) for piece in around)
    if sum(index in tokenizer.control for index in ids) != allowed or max(ids, default=0) >= tokenizer.vocabulary.size:
        shown = "".join(texts)[:60]
        raise Unwritable(f"the tokenizer of '{tokenizer.path}' cannot encode {shown!a} as plain text. Change the text")
    return ids
