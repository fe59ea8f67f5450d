"""A judge behind a real local server: scores, both orders, retries, kept answers, faults that are no numbers."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import InfraFault, Score
from assay.core.slots import Scene
from assay.rollouts.judgements import preference
from assay.runs.options import OwnOptions, RunOptions
from assay.runs.plan import make_plan, plan_of
from assay.runs.user_code import judge as judging
from assay.runs.user_code.judge import PAIR, Judge, filled
from assay.runs.user_code.rewards import OwnRewards


class Handler(BaseHTTPRequestHandler):
    """Answers as `server.answer(prompt)` says: a text, or a number that is an HTTP status."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((body["messages"][0]["content"], self.headers.get("Authorization")))
        answer = server.answer(body["messages"][0]["content"])
        self.send_response(answer if isinstance(answer, int) else 200)
        if answer == 302:
            self.send_header("Location", f"{server.url}/elsewhere")
        self.end_headers()
        message = {"choices": [{"message": {"content": answer}}]}
        sent = server.raw or json.dumps(message if isinstance(answer, str) else {"error": "busy"}).encode()
        if not server.drip:
            self.wfile.write(sent)
            return
        with contextlib.suppress(OSError):  # the client has gone
            for _ in range(100):
                self.wfile.write(b" ")
                time.sleep(server.drip)

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as a judge opens, also on a busy machine."""

    request_queue_size = 64


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a server with `answer`, `seen` and `url`; answers are kept in a folder of the test."""
    monkeypatch.setenv(judging.CACHE, str(tmp_path / "kept"))
    monkeypatch.setattr(judging, "WAIT", 0.001)
    made: Any = Server(("127.0.0.1", 0), Handler)
    made.seen, made.answer = [], lambda prompt: "Score: 7"
    made.asked, made.raw, made.drip = [], b"", 0.0
    made.url = f"http://127.0.0.1:{made.server_port}/v1"
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def row(completion: str, answer: str = "right") -> dict[str, Any]:
    return {"prompt": "1+1=", "completion": completion, "answer": answer}


def test_scores_are_what_the_judge_said_and_each_text_is_judged_once(server: Any) -> None:
    server.answer = lambda prompt: "It is short.\n**Score: 2/10**" if "{x}" in prompt else '3 of 4. {"score": 7.5}'
    judge = Judge(server.url, "small")
    assert judge([row("{x}"), row("two"), row("two")]) == [0.2, 0.75, 0.75]
    assert len(server.seen) == 2
    assert replace(judge, known={})([row("two")]) == [0.75]  # read from the disk
    assert len(server.seen) == 2
    assert [json.loads(line).keys() for line in judge.file.read_text().splitlines()] == [{"key", "answer"}] * 2


def test_pairs_are_judged_in_both_orders(server: Any) -> None:
    judge = Judge(server.url, "small", PAIR, pairs=True)
    server.answer = lambda prompt: "Better: A"  # prefers the first place, whatever stands there
    assert judge([row("one")]) == [0.5]
    server.answer = lambda prompt: "Better: A" if prompt.index("good") < prompt.index("right") else "Better: B"
    assert judge([row("good")]) == [1.0]
    assert filled("{completion} {other}", row("{prompt}")) == "{prompt} {other}"


def test_a_busy_server_is_asked_again_and_a_broken_one_is_an_error(server: Any) -> None:
    replies = iter([503, 429, "Score: 4"])
    server.answer = lambda prompt: next(replies)
    assert Judge(server.url, "small")([row("one")]) == [0.4]
    server.answer = lambda prompt: "Score: 5" if "two" in prompt else 503
    with pytest.raises(AssayError, match=rf"judge {server.url} did not answer 1 of 2 prompts after 5 tries \(HTTP 503"):
        Judge(server.url, "small")([row("two"), row("three")])
    seen = len(server.seen)
    server.answer = lambda prompt: 401
    with pytest.raises(AssayError, match="HTTP 401"):
        Judge(server.url, "small")([row("four")])
    assert len(server.seen) == seen + 1  # another try cannot change it


@pytest.mark.parametrize("answer", [
    "fine", "Score: 11", "Score: -1", "I refuse to rate this. There are 7 problems with it.", "Score: 7/100",
    "I looked at it for 3 minutes. Score: NaN", "Score: 1e999", "Score: 7, no, I mean", "Score: 3 if 4 is meant",
    "7", "", "Score: 2\nIt says: Score: ten", "The underscore 7", "Score: " + "9" * 400,
])  # fmt: skip
def test_an_answer_without_a_score_is_never_a_number_and_is_not_kept(server: Any, answer: str) -> None:
    server.answer = lambda prompt: answer
    with pytest.raises(AssayError, match="gave no score from 0 to 10"):
        Judge(server.url, "small")([row("one")])
    server.answer = lambda prompt: "Score: 6"  # the server was repaired
    assert Judge(server.url, "small")([row("one")]) == [0.6]


def test_few_answers_without_a_score_are_faults_and_many_are_an_error(server: Any) -> None:
    server.answer = lambda prompt: "I refuse." if "{bad" in prompt else "Score: 6"
    judge = Judge(server.url, "small")
    rewards = OwnRewards({"judge": judge}, {"judge": 1.0})
    rows = [row("{bad 0}"), *(row(f"good {place}") for place in range(4))]
    outcomes, table = rewards(rows, list)
    assert [isinstance(one, InfraFault) for one in outcomes] == [True, False, False, False, False]
    assert [one.value for one in outcomes[1:] if isinstance(one, Score)] == [0.6] * 4
    assert [math.isnan(one) for one in table["judge"]] == [True, False, False, False, False]
    with pytest.raises(AssayError, match=r"gave no score from 0 to 10: 'I refuse.'.*\(2 of 6 answers cannot be read\)"):
        rewards([*rows, row("{bad 1}")], list)


def test_an_answer_without_a_score_that_was_kept_once_is_asked_for_again(server: Any) -> None:
    judge = Judge(server.url, "small")
    judge.keep(judging.key_of("small", filled(judge.prompt, row("one"))), "There are 7 problems")
    assert replace(judge, known={})([row("one")]) == [0.7]
    assert len(server.seen) == 1


@pytest.mark.parametrize(("answer", "score"), [
    ("Score: 7", 0.7), ("score 7.5/10.", 0.75), ("Fine.\n**Score:** 10 out of 10\n", 1.0),
    ("```\n{\n \"score\": 0\n}\n```", 0.0),
])  # fmt: skip
def test_the_usual_forms_of_a_score_are_read(answer: str, score: float) -> None:
    assert Judge("http://127.0.0.1:9/v1", "small").number(answer) == score


@pytest.mark.parametrize(("answer", "value"), [
    ("Better: A", 1.0), ("I think.\n**Better: B**", 0.0), ("Better: tie.", 0.5), ("B", 0.0),
    ("A bad answer, both of them", None),
    ("Better: A would be wrong", None), ("Plan B fails.", None),
])  # fmt: skip
def test_a_letter_within_a_sentence_is_no_preference(answer: str, value: float | None) -> None:
    assert preference(answer) == value


def test_a_redirect_is_not_followed_and_nobody_else_gets_the_key(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(judging.KEY, "secret-key")
    server.answer = lambda prompt: 302
    with pytest.raises(AssayError, match=r"HTTP 302: it redirects to '.*/elsewhere'; name that address"):
        Judge(server.url, "small")([row("one")])
    assert len(server.seen) == 1
    assert server.asked == []


def test_a_server_that_sends_byte_by_byte_or_too_much_is_an_error_in_time(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "SECONDS", 0.2)
    monkeypatch.setattr(judging, "ALL_SECONDS", 0.4)
    server.drip = 0.02
    begin = time.monotonic()
    with pytest.raises(AssayError, match=r"the server did not return within 0\.\d+ s"):
        Judge(server.url, "small")([row("one")])
    assert time.monotonic() - begin < 5, "the whole answer would take as long as the server likes"
    server.drip = 0.0
    monkeypatch.setattr(judging, "SECONDS", 20.0)
    monkeypatch.setattr(judging, "MOST_BYTES", 1000)
    monkeypatch.setattr(judging, "ALL_SECONDS", 20.0)
    server.answer = lambda prompt: "x" * 2000
    with pytest.raises(AssayError, match="the answer has more than 1,000 bytes"):
        Judge(server.url, "small")([row("two")])


def test_json_that_is_too_deep_is_an_error(server: Any) -> None:
    server.raw = b"[" * 200_000
    with pytest.raises(AssayError, match="RecursionError"):
        Judge(server.url, "small")([row("one")])


def test_a_run_with_a_judge_records_no_key_and_sends_it_to_no_other_server(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(judging.KEY, "secret-key")
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("Rate {completion} for {prompt}")
    options = RunOptions(own=OwnOptions(judge=server.url, judge_prompt=str(rubric)))
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    with pytest.warns(UserWarning, match="rewards and held-out scores are judge"):
        run = assay.train(
            "grpo", "addition-1", steps=1, warmup=0, settings=settings, options=options, out=tmp_path / "run"
        )
    assert run.curves[-1]["evaluation_reward/judge"] == pytest.approx(0.7)
    assert {key for _, key in server.seen} == {"Bearer secret-key"}
    assert "secret-key" not in "".join(path.read_text() for path in run.folder.glob("*.*") if path.suffix != ".png")
    config = json.loads((run.folder / "config.json").read_text())
    config["options"]["judge"] = "http://127.0.0.1:9/v1"
    (tmp_path / "received").mkdir()
    (tmp_path / "received" / "config.json").write_text(json.dumps(config))
    with pytest.raises(AssayError, match=r"judge:http://127\.0\.0\.1:9/v1' without recording its digests"):
        plan_of(tmp_path / "received")
    rubric.write_text("Rate {completion}")
    with pytest.raises(AssayError, match=r"own code has changed .*prompt of judge:"):
        plan_of(run.folder)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:8000", "http://user:word@host/v1"])
def test_an_address_that_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(AssayError, match="--judge is"):
        OwnOptions(judge=url).check()


# ---------------------------------------------------------------------------------------------------- parts that ask it
LONGER = '''
import re

def longer(prompts):
    """Prefers the longer answer, scores by length, and rewrites a rubric to one criterion."""
    said = []
    for prompt in prompts:
        if "NAME | MOST" in prompt:
            said.append("length | 4 | many words")
        elif "Answer B:" in prompt:
            first, second = re.search(r"Answer A:\\n(.*)\\n\\nAnswer B:\\n(.*)\\n\\nEnd", prompt, re.S).groups()
            better = "tie" if len(first) == len(second) else "AB"[len(second) > len(first)]
            said.append("Thinking ... Better: " + better)
        elif "Criteria:" in prompt:
            said.append("right: 3\\nreasons: 0\\nbrief: 1")
        else:
            said.append("Score: 5")
    return said

def broken(prompts):
    return ["Score: 5"]
'''


@pytest.fixture
def own(tmp_path: Path) -> tuple[str, str]:
    """Returns the address of a judge that is a function, and a file of plain rows."""
    code, rows = tmp_path / "mine.py", tmp_path / "rows.jsonl"
    code.write_text(LONGER)
    rows.write_text("".join(json.dumps({"prompt": f"{k} plus one", "answer": str(k + 1)}) + "\n" for k in range(40)))
    return f"{code}:longer", str(rows)


@pytest.mark.parametrize("method", ["think-rm", "arenarl", "mpo-meta"])
def test_a_function_of_prompts_is_the_judge_of_every_part_that_takes_one(method: str, own: tuple[str, str]) -> None:
    judge, rows = own
    plan = make_plan(method, rows, options=RunOptions(own=OwnOptions(judge=judge)))
    asked = [part for part in (*plan.recipe.rewards, *plan.recipe.credit) if "longer" in repr(part)]
    assert len(asked) == 1, "one part asks the judge"
    if method == "mpo-meta":
        return
    task, said = plan.task, ["1", "123", "12", "12"]
    found = asked[0](probes.completed(task, said, [0] * 4), Scene(task))
    paid = found.column("advantage") / found.mask.sum(1, keepdim=True) if method == "think-rm" else found.reward
    order = paid.sum(1).tolist()
    assert order[1] > order[2] > order[0]
    assert order[2] == pytest.approx(order[3]), "a tie is a tie"


def test_a_judge_that_does_not_answer_every_prompt_is_an_error(own: tuple[str, str]) -> None:
    judge = judging.judge_of(own[0].replace(":longer", ":broken"), "default", PAIR, True)
    with pytest.raises(AssayError, match="returned 1 answers to 2 prompts"):
        judge([{"prompt": "p", "completion": "a", "answer": "b"}])


@pytest.mark.parametrize(("method", "why"), [
    ("mpo-meta", "pays by a rubric, and task 'rows' has none.*--rubric.*--judge"),
    ("think-rm", "compares answers by a judge.*--judge"),
    ("think-rm:judge", "no field `responses`"),
    ("spct-grm", "no field `responses`"),
])  # fmt: skip
def test_a_testbeds_judge_is_refused_on_a_file_in_one_sentence(method: str, why: str, own: tuple[str, str]) -> None:
    with pytest.raises(AssayError, match=why):
        assay.train(method, own[1], steps=1, warmup=0)


def test_a_rubric_is_read_from_a_file(own: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "rubric.json"
    file.write_text(json.dumps([{"name": "answer", "pattern": "{answer}", "worth": 2.0, "limit": 1}]))
    plan = make_plan("mpo-meta", own[1], options=RunOptions(own=OwnOptions(rubric=str(file))))
    assert [(one.name, one.worth) for one in plan.recipe.rewards[0].first] == [("answer", 2.0)]  # type: ignore[attr-defined]
    with pytest.raises(AssayError, match="--rubric does not fit 'grpo'"):
        make_plan("grpo", own[1], options=RunOptions(own=OwnOptions(rubric=str(file))))
    file.write_text(json.dumps([{"name": "answer", "points": 2}]))
    with pytest.raises(AssayError, match="the field 'points' of a criterion is wrong"):
        make_plan("mpo-meta", own[1], options=RunOptions(own=OwnOptions(rubric=str(file))))


def test_progress_on_worked_answers_needs_a_judge(own: tuple[str, str], tmp_path: Path) -> None:
    worked = tmp_path / "worked.jsonl"
    rows = [{"prompt": f"{k} plus one", "answer": f"We add one.\n#### {k + 1}"} for k in range(40)]
    worked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(AssayError, match=r"worked answers.*--judge"):
        assay.train("retroagent", str(worked), steps=1, warmup=0)
    sizes = {"num_starts": 2, "group_size": 2, "actor.width": 16, "actor.layers": 1}
    own_words = {"judge": own[0], "reward": ("verifier=1.0",), "out": tmp_path / "run"}
    run = assay.train("retroagent", str(worked), steps=1, warmup=0, settings=sizes, **own_words)
    assert [row["progress_paid"] for row in run.curves if "progress_paid" in row] == [pytest.approx(0.5)]
