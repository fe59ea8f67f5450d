"""Agent programs: what they ask is recorded as it was sampled, what fails is typed, and the score rises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli.main import main
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, PolicyFault, Score
from assay.core.slots import logp_of
from assay.engine.loop import Loop
from assay.rollouts.outcomes import recorded_outcomes
from assay.runs.options import OwnOptions, RunOptions
from assay.runs.plan import Plan, make_plan
from assay.tasks.adapters.agents.task import AgentTask
from tests.resume.cases import SMALL

PROGRAM = Path(__file__).with_name("agent_program.py")
SIZES = {name: value for name, value in SMALL.items() if name.startswith(("actor", "rollout.num_starts", "rollout.g"))}
SIZES = {name: value for name, value in SIZES.items() if name != "actor.hidden"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("agents") / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"say {k}", "answer": "a", "hint": k}) + "\n" for k in range(30)))
    return str(path)


def planned(rows: str, how: str = "once", *, agent: str = "", reward: str = "", steps: int = 2, **own: Any) -> Plan:
    command = agent or f"{sys.executable} -S -E {PROGRAM} {how}"
    words = {"agent_tokens": 256, "agent_timeout": 20.0, **own}
    options = RunOptions(own=OwnOptions(agent=command, reward=(reward,) if reward else (), **words))
    return make_plan("grpo", rows, steps=steps, seed=3, settings=SIZES, warmup=0, evaluations=0, options=options)


def played(plan: Plan, starts: int = 2, samples: int = 2, *, split: int = 0) -> tuple[AgentTask, Any, Experience]:
    """Episodes of a policy whose answers differ from sample to sample."""
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps)
    task = replace(plan.task, max_tokens=5)  # type: ignore[type-var]
    assert isinstance(task, AgentTask)
    which = np.repeat(np.arange(starts), samples), np.tile(np.arange(samples), starts)
    return task, loop.actor, task.play(loop.actor, *which, Draw(5, (0,)), split=split, greedy=False)


def text_of(task: AgentTask, record: Experience, row: int) -> str:
    return task.tokenizer.decode(record.action[row][record.context["valid"][row]].tolist())


# ---------------------------------------------------------------------------------------------------- records
def test_recorded_log_probabilities_are_those_of_the_policy(rows: str) -> None:
    """One call, a conversation of three, and calls side by side: each sampled token once, as the policy scores it."""
    for how, num in (("once", 1), ("talk", 1), ("parallel", 4)):
        _, actor, record = played(planned(rows, how))
        assert len(record) == 4 * num
        again = logp_of(actor, record).detach()
        assert float((again - record.logp)[record.mask].abs().max()) < 1e-5
        assert int(record.mask.sum()) >= {"once": 4, "talk": 12, "parallel": 20}[how]
        assert bool((record.logp[~record.mask] == 0).all())
        ends = (record.terminal & record.mask).any(1)
        assert record.episode is not None
        assert ends.sum() == 4
        assert len(record.episode.unique()) == 4


def test_a_later_call_reads_what_was_sampled(rows: str) -> None:
    """The tokens of a reply are those of the record even where another encoding has the same text."""
    task, _, record = played(planned(rows, "talk"))
    assert record.turn is not None
    for row in range(len(record)):
        told = record.mask[row]
        assert record.turn[row][told].unique().tolist() == [0, 1, 2]
        assert "\n\nuser: again\n\nassistant: " in text_of(task, record, row)
        for turn in range(3):
            own = record.action[row][told & (record.turn[row] == turn)].tolist()
            assert 0 < len(own) <= 5
            assert len(own) == 5 or own[-1] == 2


def test_the_order_of_arrival_does_not_matter(rows: str) -> None:
    """Random numbers belong to the episode and its prompt: one worker or eight, the same tokens."""
    for how in ("talk", "parallel"):
        alone, many = (played(planned(rows, how, agent_workers=number))[2] for number in (1, 8))
        mine, others = ({tuple(row) for row in record.action.tolist()} for record in (alone, many))
        assert mine == others
        assert len(mine) == len(alone)  # samples differ from each other


def test_held_out_episodes_have_one_row_each(rows: str) -> None:
    _, _, record = played(planned(rows, "parallel"), split=1)
    assert len(record) == 4
    assert record.column("split").unique().tolist() == [1]


def test_a_request_sent_again_has_the_same_answer(rows: str) -> None:
    _, _, record = played(planned(rows, "retry"))
    assert len(record) == 4  # no further rows
    assert all(isinstance(one, Score) for one in recorded_outcomes(record))


# ---------------------------------------------------------------------------------------------------- outcomes
REWARD = """
def judged(rows):
    for row in rows:
        assert row["messages"][-1]["role"] == "assistant" and row["messages"][0]["content"] == row["prompt"]
        assert row["result"] == row["completion"] and "calls" in row and isinstance(row["output"], str)
    return [float(row["hint"]) for row in rows]
"""


def test_a_reward_reads_messages_result_and_fields_of_the_row(rows: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REWARD)
    task, _, record = played(planned(rows, reward=f"{tmp_path / 'mine.py'}:judged"))
    judged = task.judge(record, 0)
    hints = [float(item.facts["hint"]) for item in task.items_of(record.column("start"), 0)]  # type: ignore[arg-type]
    assert judged.column("score").tolist() == hints
    assert judged.column("component/judged").tolist() == hints
    assert (judged.reward.sum(1)).tolist() == hints


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("long", PolicyFault),
        ("many", PolicyFault),
        ("models", InfraFault),
        ("crash", InfraFault),
        ("sleep", InfraFault),
    ],
)
def test_faults_are_of_the_policy_or_of_the_infrastructure(how: str, kind: type, rows: str, tmp_path: Path) -> None:
    """Limits of an episode are the policy's fault; a program that fails is not. Of four episodes two go wrong."""
    script = tmp_path / "some.py"
    script.write_text(PROGRAM.read_text() + FAILS_SOMETIMES.replace("HOW", how).replace("FAILS", "1"))
    seconds = 2.0 if how == "sleep" else 20.0
    plan = planned(rows, agent=f"{sys.executable} -S -E {script} once", agent_timeout=seconds, agent_calls=8)
    task, _, record = played(plan)
    assert record.episode is not None
    last = torch.tensor(
        [k for k in range(len(record)) if k + 1 == len(record) or record.episode[k + 1] != record.episode[k]]
    )
    found = [recorded_outcomes(record)[row] for row in last.tolist()]
    assert [type(one) for one in found].count(kind) == 2
    judged = task.judge(record, 0)
    if kind is InfraFault:
        assert judged.column("infra_fault").sum() == 2
        gone = set(record.episode[judged.column("infra_fault")].tolist())
        assert not any(bool(judged.mask[k].any()) for k in range(len(judged)) if int(record.episode[k]) in gone)
        assert bool(judged.mask.any())  # the others are trained
    else:
        assert judged.column("policy_fault").sum() == 2
        assert float(judged.reward.sum()) == 0.0


FAILS_SOMETIMES = """
    if json.loads(os.environ["ASSAY_ITEM"])["prompt"] == "say " + str(FAILS):
        main("HOW")
"""


def test_nothing_is_left_behind_and_output_is_bounded(rows: str) -> None:
    played(planned(rows, "spawn"), 1, 2)
    time.sleep(0.2)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 4321" not in listed
    plan = planned(rows, "loud")
    _, _, record = played(plan, 1, 1)
    assert isinstance(recorded_outcomes(record)[-1], Score)


def test_a_program_that_was_killed_is_run_again_with_the_same_numbers(rows: str, tmp_path: Path) -> None:
    """Half of the programs kill themselves after their first call, once: no episode is lost, none is there twice."""
    script = tmp_path / "dies.py"
    script.write_text(PROGRAM.read_text().replace("    reply = chat(talk)\n", KILLS.format(tmp_path), 1))
    _, _, whole = played(planned(rows, "talk"), 3, 2)
    _, _, record = played(planned(rows, agent=f"{sys.executable} -S -E {script} talk"), 3, 2)
    assert len(list(tmp_path.glob("died-*"))) >= 2
    assert record.action.tolist() == whole.action.tolist()
    assert all(isinstance(one, Score) for one in recorded_outcomes(record))


KILLS = """    reply = chat(talk)
    import pathlib
    mark = pathlib.Path("{}") / ("died-" + os.environ["ASSAY_SEED"])
    if int(os.environ["ASSAY_SEED"]) % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
"""


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("no-such-program x.py", "there is no program 'no-such-program'"),
        (f"{sys.executable} no_such.py", "there is no file 'no_such.py'"),
        ("", "is empty"),
        ("python 'half", "no command"),
        ("http://", "no address"),
        ("http://me:secret@host/", "no address"),
    ],
)
def test_an_agent_that_cannot_run_is_refused_before_anything_is_spent(agent: str, says: str, rows: str) -> None:
    with pytest.raises(AssayError, match=says):
        RunOptions(own=OwnOptions(agent=agent)).check()


def test_a_task_without_prompts_and_tools_beside_an_agent_are_refused(rows: str) -> None:
    with pytest.raises(AssayError, match="needs prompts"):
        planned("cartpole")
    with pytest.raises(AssayError, match="exclude each other"):
        planned(rows, tool=("x.py:f",))


@pytest.mark.parametrize(
    ("how", "says"), [("silent", "made no call in 2 episodes .it printed 'nothing to ask'"), ("crash", "boom")]
)
def test_a_program_that_never_works_ends_the_run_with_a_sentence(how: str, says: str, rows: str) -> None:
    with pytest.raises(AssayError, match=says):
        played(planned(rows, how), 1, 2)


@contextmanager
def addressed(answer: bytes, status: int = 200) -> Iterator[str]:
    """An agent at an address, that calls the policy once and then answers this."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            own = {"OPENAI_BASE_URL": told["base_url"], "OPENAI_API_KEY": told["api_key"]}
            own |= {"ASSAY_ITEM": json.dumps(told["item"]), "ASSAY_RESULT": "/dev/null"}
            subprocess.run([sys.executable, "-S", "-E", str(PROGRAM)], env={**os.environ, **own}, check=True)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/play"
        server.shutdown()


def test_an_agent_at_an_address_is_asked_for_each_episode(rows: str) -> None:
    with addressed(b'{"result": "a"}') as url:
        task, _, record = played(planned(rows, agent=url), 1, 2)
    assert task.judge(record, 0).column("score").tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [(b"no", 200, "no JSON"), (b'{"result": NaN}', 200, "NaN"), (b"[1]", 200, "no JSON"), (b"{}", 500, "answers 500"),
     (b'{"result": "' + b"x" * 2_000_000 + b'"}', 200, "more than 1,048,576 bytes")],
)  # fmt: skip
def test_an_address_that_lies_is_a_fault_of_the_infrastructure(
    answer: bytes, status: int, says: str, rows: str
) -> None:
    with addressed(answer, status) as url, pytest.raises(AssayError, match=says):
        played(planned(rows, agent=url), 1, 1)


# ---------------------------------------------------------------------------------------------------- training
def test_a_foreign_agent_is_trained_and_its_score_rises(rows: str) -> None:
    """The policy must answer with a byte below 64; the program is the one of all tests, unchanged."""
    plan = planned(rows, "once", reward=f"{Path(__file__).with_name('agent_reward.py')}:digits", steps=12)
    task = replace(plan.task, max_tokens=1)  # type: ignore[type-var]
    recipe = replace(plan.recipe, rollout=replace(plan.recipe.rollout, num_starts=2, group_size=16))  # type: ignore[type-var]
    recipe = recipe.set("stages.policy.optimizer.learning_rate", 0.03)
    loop = Loop(recipe, task, seed=3, num_steps=plan.steps)
    scores = [loop.step().metrics["reward"] for _ in range(plan.steps)]
    assert np.mean(scores[-3:]) > np.mean(scores[:3]) + 0.3, scores


# ---------------------------------------------------------------------------------------------------- runs
def test_a_run_is_evaluated_resumed_and_its_changed_program_refused(rows: str, tmp_path: Path) -> None:
    """The command line, from another folder than the one of the program."""
    script, folder = tmp_path / "mine.py", tmp_path / "run"
    script.write_text(PROGRAM.read_text())
    words = ["train", "grpo", "--task", rows, "--agent", f"{sys.executable} -S -E {script}", "--agent-tokens", "128"]
    sizes = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]
    words += [*sizes, "--warmup", "0", "--evaluations", "0", "--max-tokens", "3", "--steps", "2", "--out", str(folder)]
    assert main([*words, "--eval-prompts", "2"]) == 0
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(one.get("step", 0) for one in metrics) == 2
    assert main(["evaluate", str(folder), "--starts", "2"]) == 0
    script.write_text(PROGRAM.read_text() + "\n# changed\n")
    assert main(["evaluate", str(folder), "--starts", "2"]) == 2


def test_connections_that_break_lose_and_double_nothing(rows: str, tmp_path: Path) -> None:
    """Every program closes connections before it has read its answer, at random, and asks again: the rows are those of
    programs whose connections hold.
    """
    script = tmp_path / "breaks.py"
    script.write_text(PROGRAM.read_text().replace("def main(how):", BREAKS, 1).replace("chat(talk)", "broken(talk)"))
    _, _, whole = played(planned(rows, "talk"), 3, 2)
    _, _, record = played(planned(rows, agent=f"{sys.executable} -S -E {script} talk"), 3, 2)
    assert record.action.tolist() == whole.action.tolist()
    assert record.mask.tolist() == whole.mask.tolist()


BREAKS = """def broken(messages):
    import random, socket
    host, port = os.environ["OPENAI_BASE_URL"].split("/")[2].split(":")
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    head = f"POST /v1/chat/completions HTTP/1.0\\r\\nHost: {host}:{port}\\r\\nContent-Type: application/json\\r\\n"
    head += f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    for _ in range(random.Random(int(os.environ["ASSAY_SEED"]) + len(messages)).randrange(4)):
        with socket.create_connection((host, int(port))) as link:
            # A request and the end of its connection arrive together: an answer in between would count as read.
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_CORK", socket.TCP_NODELAY), 1)
            link.sendall((head.encode() + body)[: random.choice([10, len(head) + 3, len(head) + len(body)])])
    return chat(messages)


def main(how):"""
