"""A tokenizer of whole words, for small closed vocabularies and short sentences. Special ids: pad 0, bos 1, eos 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from assay.core.spaces import Vocabulary
from assay.rollouts.text import NUM_SPECIALS, SPOILED


@dataclass(frozen=True)
class WordTokenizer:
    """One token for each word of a fixed list, in its order, after the special tokens; white space separates words.

    decode(encode(text)) = text if single spaces separate its words. An id beyond the list becomes U+FFFD.
    """

    words: tuple[str, ...]

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Word to id."""
        return {word: index for index, word in enumerate(self.words, NUM_SPECIALS)}

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""
        return Vocabulary(NUM_SPECIALS + len(self.words), pad=0, bos=1, eos=2)

    def encode(self, text: str) -> list[int]:
        """Returns ids of the words; the ValueError names a word that the list lacks."""
        try:
            return [self.ids[word] for word in text.split()]
        except KeyError as unknown:
            raise ValueError(f"the list of words lacks {unknown.args[0]!a}") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words without special tokens, single spaces between them."""
        places = [index - NUM_SPECIALS for index in ids if index >= NUM_SPECIALS]
        return " ".join(self.words[place] if place < len(self.words) else SPOILED for place in places)
