"""What the judgements of a judge that is a policy earn: a function of rows for FromFunction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from assay.core.errors import AssayError
from assay.core.slots import Chat, Choice
from assay.rollouts.judgements import PAIR, Scores, filled_pair, scores_in, won


@dataclass(frozen=True)
class RightRanking(Choice):
    """+1 if the scores after the last `mark` rank the labelled best response strictly first, else `wrong`, for each
    row.

    The prompt's answer is the number of the best response, counted from 1, or the label of a single one; the fact
    `responses` holds the responses or says how many there are. arXiv:2504.02495, eq. 11, pays -1 for a wrong ranking,
    arXiv:2505.16265 pays 0. Degenerate: a tie, and a judgement that cannot be read, is wrong. Assumes that the file
    says which response is best.
    """

    wrong: float = -1.0
    mark: str = ":"
    ask: Chat | None = None

    def with_judge(self, ask: Chat) -> RightRanking:
        """Returns the same with a chat model."""
        return replace(self, ask=ask)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the numbers; AssayError for an answer that is no number, and for a prompt without responses. With a
        chat model, what it prefers is the label.
        """
        rows = rows if self.ask is None else labelled(rows, self.ask)
        wrong = next((row for row in rows if not str(row.get("answer", "")).isdigit()), None)
        if wrong is not None:
            told = f"the answer '{wrong['answer']}'" if "answer" in wrong else "the answer"
            raise AssayError(f"{told} of a prompt must be the number of its best response")
        if any("responses" not in row for row in rows):
            what = "a prompt has no field `responses`, so that there is nothing to judge"
            raise AssayError(f"{what}. Use a file of judgements, with `responses` and `best`, or --task judging")
        return [1.0 if is_right(scores_in(row["completion"], self.mark), row) else self.wrong for row in rows]


def labelled(rows: Sequence[Mapping[str, Any]], ask: Chat) -> list[dict[str, Any]]:
    """Returns the rows with the number of the response that wins most comparisons by a chat model, each pair in both
    orders, as their answer; of equal ones the first. AssayError for rows without responses, and for an answer that
    prefers none.
    """
    if any(not isinstance(row.get("responses"), list | tuple) for row in rows):
        what = "a prompt has no field `responses`, so that there is nothing to judge"
        raise AssayError(f"{what}. Use a file whose rows have a list of them")
    pairs = [(row, list(permutations(range(len(row["responses"])), 2))) for row in rows]
    asked = [question(row, *pair) for row, own in pairs for pair in own]
    different = list(dict.fromkeys(asked))
    said = dict(zip(different, map(won, ask(different)), strict=True))
    found, left = [], iter(asked)
    for row, own in pairs:
        wins = [0.0] * len(row["responses"])
        for first, second in own:
            share = said[next(left)]
            wins[first] += share
            wins[second] += 1.0 - share
        found.append({**row, "answer": str(1 + wins.index(max(wins)))})
    return found


def question(row: Mapping[str, Any], first: int, second: int) -> str:
    """Returns what a chat model is asked about two responses to a prompt."""
    return filled_pair(PAIR, str(row["prompt"]), row["responses"][first], row["responses"][second])


def is_right(scores: Scores, row: Mapping[str, Any]) -> bool:
    """Whether the best response alone has the highest score; of a single response the score must be the label.

    A tie, and a judgement that cannot be read, is wrong. AssayError for an answer that numbers no response.
    """
    responses, answer = row.get("responses", max(2, len(scores or ()))), int(row["answer"])
    num_responses = responses if isinstance(responses, int) else len(responses)
    if scores is None or len(scores) != num_responses:
        return False
    if num_responses == 1:
        return scores[0] == answer
    if not 1 <= answer <= num_responses:
        raise AssayError(f"the answer '{answer}' of a prompt is not the number of one of its {num_responses} responses")
    return all(scores[answer - 1] > score for place, score in enumerate(scores) if place != answer - 1)
