"""Laws of partners with sessions: rows do not see each other, order does not matter, faults are no rewards.

    findings = check_sessions(MySessions())

`assay check FILE.py` runs them on values of a file that open sessions. A session is asked with a few fixed utterances,
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.claims.laws.laws import Broke, Finding, Law, judged, raised, runs
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts.concurrent_calls import settled
from assay.tasks.language.partners import Reply, as_reply
from assay.tasks.language.items import Item
from assay.tasks.language.sessions import Sessions

RULES = {
    "items": "`item` is a pure function of number and split",
    "replies": "a session opens, replies to any utterance, and gives a finite outcome or a fault",
    "alone": "sessions of two rows do not see each other",
    "order": "the order in which rows are asked does not matter",
    "repeatable": "a session of the same item and seed gives the same replies, where `is_repeatable` says so",
    "close": "close returns, also when it is called before any reply",
}
SAID = ("1", "", "no \u00e9\n{", "<tool_call>", "the answer is 42")
SEEDS = (3, 4)

Told = tuple[tuple[tuple[str, float], ...], str]
"""What a session says: texts and rewards of its replies, and the outcome."""


@dataclass
class Talk:
    """A session that is asked one utterance after the other."""

    sessions: Sessions
    item: Item
    seed: int
    not_a_part: ClassVar[str] = "state of a law"

    def __post_init__(self) -> None:
        self.session = settled(self.sessions.open(self.item, self.seed))
        self.told: list[tuple[str, float]] = []
        self.outcome: Outcome | None = None

    def hear(self, utterance: str) -> None:
        """Asks for a reply, unless the session is over."""
        if self.outcome is None:
            reply = as_reply(settled(self.session.reply(utterance)), f"{type(self.session).__name__}.reply")
            self.told.append((reply.text, reply.reward))
            self.outcome = reply.outcome

    def end(self) -> Told:
        """Returns what it said, after asking for its reward, and closes it."""
        if self.outcome is None:
            self.outcome = settled(self.session.reward())
        if not isinstance(self.outcome, Score | PolicyFault | InfraFault):
            raise TypeError(f"reward() returned {self.outcome!r}. Return a Score, a PolicyFault or an InfraFault")
        as_reply(Reply("", self.outcome), f"{type(self.session).__name__}.reward")
        settled(self.session.close())
        return tuple(self.told), repr(self.outcome)


def one_by_one(talks: Sequence[Talk]) -> list[Told]:
    """Returns what sessions say if each is played to its end before the next."""
    found = []
    for talk in talks:
        for words in SAID:
            talk.hear(words)
        found.append(talk.end())
    return found


def in_turn(talks: Sequence[Talk]) -> list[Told]:
    """Returns what sessions say if all are asked utterance by utterance, the last one first."""
    for words in SAID:
        for talk in reversed(talks):
            talk.hear(words)
    return [talk.end() for talk in talks]


def check_sessions(sessions: Sessions) -> list[Finding]:
    """Checks the laws of a partner with sessions; one that cannot be repeated is not compared with itself."""
    items = [sessions.item(number, 0) for number in (0, 1)]

    def opened(order: Sequence[int]) -> list[Talk]:
        return [Talk(sessions, items[place], SEEDS[place]) for place in order]

    def alone(place: int) -> Told:
        return one_by_one(opened([place]))[0]

    def same(found: Any, wanted: Any, what: str) -> str:
        return "" if found == wanted else f"{what}: {found!r:.120} and {wanted!r:.120}"

    def closed() -> str:
        for talk in opened([0]):
            settled(talk.session.close())
        return ""

    again = [sessions.item(number, 0) for number in (0, 1)]
    rules: dict[str, Callable[[], str]] = {
        "items": lambda: same(again, items, "item 0 and 1, asked twice, are"),
        "replies": lambda: "" if alone(0) else "it says nothing",
        "close": closed,
    }
    if sessions.is_repeatable:
        rules |= {
            "repeatable": lambda: same(alone(0), alone(0), "played twice, it says"),
            "alone": lambda: same(in_turn(opened([0, 1])), [alone(0), alone(1)], "beside another session it says"),
            "order": lambda: same(one_by_one(opened([1, 0])), [alone(1), alone(0)], "in another order it says"),
        }
    return [judged(Law(name, RULES[name], runs.test), broke(rule), {}) for name, rule in rules.items()]


def broke(rule: Callable[[], str]) -> Broke | None:
    """Returns how a law broke; None if it held."""
    where = f"items 0 and 1, seeds {SEEDS}, utterances {SAID}"
    try:
        text = rule()
    except (Exception, SystemExit) as error:
        return Broke(f"it {raised(error)}", where, raised=True)
    return Broke(text, where, raised=False) if text else None
