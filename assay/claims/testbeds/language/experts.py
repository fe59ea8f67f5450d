"""experts: a question of several hops, each answered by one of eight priced experts, of whom most know a topic best.

A prompt is a letter, an utterance a digit: 0 to 7 asks an expert about the next hop, 9 answers, and so does all that is
said after the last hop, except 8, which is malformed. (If most conversations of the start were malformed, a policy
would learn first to answer at once, and stay there.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from assay.claims.testbeds.language.elicitation import TableDialogue
from assay.claims.testbeds.language.enumerable import SIGNS, TOKENS
from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.rollouts import text
from assay.tasks.language.dialogue import Reply
from assay.tasks.language.items import Item, check_split

ANSWER, EXPERTS, TOPICS, PARTS = "9", "01234567", 3, 1000
"""What an expert knows best is its number modulo 4: a topic, or 0, all of them a little."""
GENERAL, OWN, OTHER = 0.6, 0.95, 0.2
"""How often an expert for all topics is right, and each other one on its own topic and on others."""
PRICES = {one: 8.0 if int(one) % (TOPICS + 1) else 1.0 for one in EXPERTS}


@dataclass(frozen=True)
class Experts:
    """`hops` questions on topics 1 to 3, neighbours on different ones. Right if all were asked and answered right;
    what an expert says of a question is a function of it.
    """

    hops: int = 2
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.hops <= 4 or not 1 <= self.prompts <= len(SIGNS):
            raise AssayError(f"{self}: hops must be 1 to 4 and prompts 1 to {len(SIGNS)}")

    def topics(self, prompt: str) -> list[int]:
        """Returns the topic of each hop."""
        words = text.hashed_words(f"experts {prompt}", self.hops)
        found = [words[0] % TOPICS]
        for word in words[1:]:
            found.append((found[-1] + 1 + word % (TOPICS - 1)) % TOPICS)
        return [1 + one for one in found]

    def item(self, ordinal: int, split: int) -> Item:
        """Returns question `ordinal`, of the prompt with that number modulo theirs; the demonstration asks the best."""
        check_split(split)
        prompt = SIGNS[ordinal % self.prompts]
        shown = "\n".join([*map(str, self.topics(prompt)), ANSWER])
        return Item(prompt, ANSWER, shown, {"prices": PRICES, "question": f"{split} {ordinal}"})

    def chance(self, prompt: str, hop: int, expert: str) -> float:
        """Returns how often an expert's answer to a hop is right."""
        knows = int(expert) % (TOPICS + 1)
        return GENERAL if not knows else OWN if knows == self.topics(prompt)[hop] else OTHER

    def chances(self, prompt: str) -> Mapping[str, float]:
        """Returns how often each conversation is right that asks about every hop."""
        return {
            "".join([*asked, last]): prod(self.chance(prompt, hop, one) for hop, one in enumerate(asked))
            for *asked, last in product(*[EXPERTS] * self.hops, [*EXPERTS, ANSWER])
        }

    def is_right(self, item: Item, hop: int, expert: str) -> bool:
        """Returns whether an expert's answer to a hop is right: the same whenever the question is asked."""
        word = text.hashed_words(f"experts {item.facts.get('question')} {hop} {expert}", 1)[0]
        return word % PARTS < PARTS * self.chance(item.prompt, hop, expert)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns what an expert says, which does not tell whether it is right; or the end."""
        if said[-1] != ANSWER and said[-1] not in EXPERTS:
            return Reply("", PolicyFault("no such expert"))
        if len(said) <= self.hops and said[-1] != ANSWER:
            return Reply("0")
        is_right = (self.is_right(item, hop, one) for hop, one in enumerate(said[: self.hops]))
        return Reply("", Score(float(len(said) > self.hops and all(is_right))))


def best_alone(hops: int) -> float:
    """Returns how often the best expert is right if it is asked about all hops: none knows two neighbours."""
    own = (hops + 1) // 2
    return max(GENERAL**hops, OWN**own * OTHER ** (hops - own))


def experts(hops: int = 2, prompts: int = 4) -> TableDialogue:
    """Returns the task; `hops` is how many experts a question needs."""
    return TableDialogue(f"experts-{hops}", Experts(hops, prompts), TOKENS, 2, hops + 1, max_tokens=1, max_reply=1)
