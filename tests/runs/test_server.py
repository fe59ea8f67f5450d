"""Servers: the same bits as without one at lag 0, every update checked, refusals before compute, real faults."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli.main import main
from assay.cli.serve import Server, make_server
from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import logp_of
from assay.core.trees import difference
from assay.decoding.sampling_parameters import Narrowing
from assay.engine.loop import Loop, Step
from assay.engine.machine import tuned
from assay.ops.decoded import Stop
from assay.parts.rollouts.narrowed import Narrowed
from assay.rollouts.completions import Ends, answers
from assay.runs.distributed import servers, serving
from assay.runs.distributed.rollout_worker import Lost
from assay.runs.distributed.servers import GENERATE, Published
from assay.runs.distributed.weights import WeightFiles
from assay.runs.distributed.worker_pool import gatherers_of
from assay.runs.options import GatherOptions, RunOptions
from assay.runs.plan import Plan, make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute, loaded_engine
from assay.tasks.adapters.agents.chat import CHAT
from tests.resume.cases import named, spoken


# ---------------------------------------------------------------------------------------------------- the server
@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model is that of `spoken`, with other weights."""
    folder = tmp_path_factory.mktemp("served") / "base"
    execute(replace(named("grpo", "addition-1", steps=1), seed=5), folder, mode=Mode.SILENT)
    return folder


@contextmanager
def serving_of(folder: Path, port: int = 0) -> Iterator[Server]:
    with make_server(str(folder), port=port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10.0)


@pytest.fixture
def server(base: Path) -> Iterator[Server]:
    with serving_of(base) as server:
        yield server


def ask(server: Server, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
    """A request as any client sends it: status and JSON."""
    link = HTTPConnection("127.0.0.1", server.server_address[1], timeout=10.0)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    link.request(method, path, sent, {"Content-Type": kind})
    answer = link.getresponse()
    return answer.status, json.loads(answer.read())


def row(*tokens: int, **how: Any) -> dict[str, Any]:
    return {"token_ids": list(tokens) or [1, 3], "sampling_params": {"max_tokens": 3, **how}}


# ---------------------------------------------------------------------------------------------------- a run
def said(**message: Any) -> dict[str, Any]:
    """A request of a conversation with one message of the user."""
    return {"messages": [{"role": "user", **message}], "max_tokens": 2}


def on(plan: Plan, *urls: str, **options: Any) -> Plan:
    return replace(plan, options=replace(plan.options, gathering=GatherOptions(server=urls, **options)))


def loop_of(plan: Plan) -> Loop:
    return Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps)


def stepped(plan: Plan, folder: Path) -> tuple[Loop, list[Step]]:
    """Three steps from weights at which answers differ, as a run takes them."""
    loop, generator = loop_of(plan), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in loop.actor.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    num = sum(flat.num_parameters for flat in loop.engine.flats.values())
    with gatherers_of(plan, loop, folder) as crew, tuned(num):
        if crew is not None:
            crew.ready()
        return loop, [loop.step() for _ in range(3)]


def state_of(loop: Loop) -> dict[str, Any]:
    return {name: value for name, value in loop.snapshot().items() if name != "gatherers"}


def saved(folder: Path) -> dict[str, Any]:
    found = store.load(folder / "checkpoints")
    assert found is not None
    return {name: value for name, value in found.tree["loop"].items() if name != "gatherers"}


def assert_same(mine: tuple[Loop, list[Step]], other: tuple[Loop, list[Step]]) -> None:
    assert not difference(state_of(mine[0]), state_of(other[0]))
    numbers = [
        [{name: value for name, value in step.metrics.items() if not name.startswith("idle/")} for step in steps]
        for steps in (mine[1], other[1])
    ]
    assert not difference(*numbers)


# ---------------------------------------------------------------------------------------------------- the same bits
@pytest.mark.parametrize("method", ["grpo", "remax"])
def test_a_server_trains_to_the_same_bits(method: str, server: Server, tmp_path: Path) -> None:
    """Sampled tokens and, with remax, the likeliest ones, whose rewards are needed while rows are gathered."""
    plan = spoken(method, steps=3)
    plain = stepped(plan, tmp_path)
    assert not torch.equal(plain[0].engine.flats["actor"].values, loop_of(plan).engine.flats["actor"].values)
    assert_same(stepped(on(plan, server.url), tmp_path), plain)
    assert not (tmp_path / ".weights").exists()


def narrowed(method: str, **how: Any) -> Plan:
    plan = spoken(method, steps=3)
    assert plan.recipe.rollout is not None
    rollout = Narrowed(plan.recipe.rollout, Narrowing(0.8, 20, 0.9, 0.01), **how)
    return replace(plan, recipe=replace(plan.recipe, rollout=rollout))


@pytest.mark.parametrize(("method", "how"), [("grpo", {}), ("grpo", {"own": True}), ("remax", {})])
def test_sampling_parameters_train_to_the_same_bits(method: str, how: Any, server: Server, tmp_path: Path) -> None:
    """Log-probabilities are those of the tokens' own distribution, and the model's beside them; greedy rows too."""
    plan = narrowed(method, **how)
    assert_same(stepped(on(plan, server.url), tmp_path), stepped(plan, tmp_path))


def test_a_foreign_server_does_not_change_the_distribution(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "OWNER", "vllm")
    said = refused(on(narrowed("grpo"), server.url), tmp_path)
    assert "which alone tells log-probabilities after temperature" in said


@pytest.mark.parametrize("narrowing", [Narrowing(), Narrowing(top_p=0.9)])
@pytest.mark.parametrize("task", ["twenty-questions", "household"])
def test_dialogues_are_those_without_a_server(task: str, narrowing: Narrowing, tmp_path: Path) -> None:
    """A turn is a call with all tokens so far; only last bits differ, since another number of rows is computed."""
    plan = named("grpo", task, steps=1)
    execute(replace(plan, seed=5), tmp_path / "base", mode=Mode.SILENT)
    loop = loop_of(plan)
    with torch.no_grad():
        for weight in loop.actor.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)), alpha=0.1)
    starts, samples = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
    play = partial(plan.task.play, starts=starts, samples=samples, draw=Draw(4), split=0, greedy=False)
    with serving_of(tmp_path / "base") as server:
        weights = WeightFiles(tmp_path / "w")
        weights.publish(0, {"actor": loop.engine.flats["actor"].snapshot()})
        server.service.policy.load({"path": str(weights.path(0)), "sha256": weights.path(0).stem[2:], "model": "actor"})
        client = servers.Server(server.url, server.service.policy.vocabulary, until=time.monotonic() + 30.0)
        found = play(narrowing.wrap(client))
    expected = play(narrowing.wrap(loop.actor))
    assert expected.turn is not None
    assert found.turn is not None
    assert int(expected.turn.max()) > 0
    assert torch.equal(found.action, expected.action)
    assert torch.equal(found.mask, expected.mask)
    assert torch.equal(found.turn, expected.turn)
    assert torch.equal(found.terminal, expected.terminal)
    assert torch.allclose(found.logp, expected.logp, atol=1e-4)
    assert set(found.extra) == set(expected.extra)


def test_a_run_with_dialogues_trains_with_a_server(tmp_path: Path) -> None:
    plan = named("grpo", "twenty-questions", steps=3)
    execute(replace(plan, steps=1, seed=5), tmp_path / "base", mode=Mode.SILENT)
    with serving_of(tmp_path / "base") as server:
        mine, other = stepped(on(plan, server.url), tmp_path), stepped(plan, tmp_path)
    weights = [loop.engine.flats["actor"].values for loop, _ in (mine, other)]
    assert torch.allclose(*weights, atol=1e-4)


def test_no_two_turns_have_the_same_seed() -> None:
    seeds, when = np.array([7, 7, 7], dtype=np.uint64), np.array([0, 3, 5])
    bodies = servers.requests([[1]] * 3, np.arange(3), seeds, when, {})
    sent = [body["sampling_params"]["seed"] for body in bodies]
    assert len(set(sent)) == 3
    assert sent[0] == 7
    assert [body["sampling_params"]["extra_args"]["seed"] for body in bodies] == [7, 7, 7]


def test_two_servers_share_a_step(server: Server, base: Path, tmp_path: Path) -> None:
    plan = spoken("grpo", steps=3)
    with serving_of(base) as second:
        both = stepped(on(plan, server.url, second.url, pieces=2), tmp_path)
        versions = [one.service.version for one in (server, second)]
    assert_same(both, stepped(on(plan, pieces=2), tmp_path))
    assert all(re.fullmatch(r"[12]-[0-9a-f]{12}", version) for version in versions)


def test_with_a_lag_rows_have_the_version_and_log_probabilities_of_their_weights(
    server: Server, tmp_path: Path
) -> None:
    plan = on(spoken("grpo", steps=4), server.url, lag=1)
    loop, models = loop_of(plan), dict[int, torch.Tensor]()
    with gatherers_of(plan, loop, tmp_path) as crew:
        assert crew is not None
        crew.ready()
        for k in range(4):
            models[k] = loop.engine.flats["actor"].values.clone()
            fresh = loop.step().fresh
            assert fresh is not None
            assert fresh.version is not None
            version = int(fresh.version[0, 0])
            assert k - 1 <= version <= k
            now, again = loop.engine.flats["actor"].values.clone(), fresh.trim()
            loop.engine.flats["actor"].values.copy_(models[version])
            logp = logp_of(loop.actor, again)
            loop.engine.flats["actor"].values.copy_(now)
            assert torch.allclose(logp[again.mask], again.logp[again.mask], atol=1e-5)


def test_rows_of_a_batch_are_sampled_together_and_stop_strings_end_them(server: Server) -> None:
    """Whatever the order in which its requests arrive."""
    policy = server.service.policy
    prompts, starts, seeds = [[1, 5], [1, 5], [1, 7, 9]], np.array([4, 4, 2]), np.array([1, 2, 3], dtype=np.uint64)
    decode = policy.tokenizer.decode
    with tuned(policy.num_parameters):
        written = answers(policy.actor, prompts, starts, seeds, Ends(12, policy.vocabulary), greedy=False)
        ends = Ends(12, policy.vocabulary, Stop(decode, (decode(written.tokens[0].tolist())[1],)))
        expected = answers(policy.actor, prompts, starts, seeds, ends, greedy=False)
    client = servers.Server(server.url, policy.vocabulary, until=time.monotonic() + 20.0)
    found = client.answers(prompts, starts, seeds, ends, greedy=False)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.logp, expected.logp)
    assert torch.equal(found.length, expected.length)
    assert torch.equal(found.has_ended, expected.has_ended)
    assert int(found.length[0]) == 2


# ---------------------------------------------------------------------------------------------------- weights
@pytest.mark.parametrize("owner", ["assay", "vllm"])
def test_a_missed_update_is_an_error(
    owner: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "OWNER", owner)
    policy, loads = server.service.policy, list[int]()
    load = policy.load

    def lazily(told: Any) -> None:
        loads.append(1)
        if len(loads) < 3:
            load(told)

    monkeypatch.setattr(policy, "load", lazily)
    plan = spoken("grpo", steps=3)
    with pytest.raises(AssayError, match=r"after the update to version 1-\w+, 64 log-prob.* missed the update"):
        stepped(on(plan, server.url), tmp_path)
    assert len(loads) == 3


def test_a_server_of_another_run_is_an_error(server: Server, base: Path, tmp_path: Path) -> None:
    """The versions in its answers say whose weights they are of."""
    engine, _ = loaded_engine(named("grpo", "addition-1", steps=1), base)
    vocabulary = server.service.policy.vocabulary
    rows = servers.as_rows(servers.probes(vocabulary), vocabulary)
    clients = []
    for name in ("mine", "theirs"):
        score = partial(engine.over, "actor", rows, logp_of)
        weights = Published(WeightFiles(tmp_path / name), "actor", lambda score=score: score()[:, 1:].detach())
        client = servers.Server(server.url, vocabulary, time.monotonic() + 20.0, is_foreign=False)
        weights.publish(len(clients), {"actor": engine.flats["actor"].snapshot()})
        client.update(weights.fetch(len(clients)))
        clients.append(client)
    with pytest.raises(AssayError, match="another run uses the same server"):
        clients[0].answers([[1]], np.array([0]), np.array([0], dtype=np.uint64), Ends(2, vocabulary), greedy=False)


# ---------------------------------------------------------------------------------------------------- refusals
def refused(plan: Plan, tmp_path: Path) -> str:
    """The error of a run that has spent nothing: not even an evaluation is written."""
    with pytest.raises(AssayError) as caught:
        execute(plan, tmp_path / "run", mode=Mode.SILENT)
    assert store.load(tmp_path / "run" / "checkpoints") is None
    assert re.search(r"\. (Serve|Start|Set) .*\.$", str(caught.value))
    return str(caught.value)


def test_a_server_that_cannot_be_reached_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REACH", 0.3)
    begin = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer: timed out" in refused(on(spoken("grpo"), url), tmp_path)
    assert "refused" in refused(on(spoken("grpo"), url), tmp_path)
    assert time.monotonic() - begin < 60.0


def test_another_model_is_refused_before_anything_is_spent(server: Server, tmp_path: Path) -> None:
    plan = make_plan("grpo", "addition-1", steps=1, settings={"actor.width": 16, "actor.layers": 1}, warmup=0)
    assert "are not those of grpo on addition-1, step 1" in refused(on(plan, server.url), tmp_path)
    assert server.service.is_open


@pytest.mark.parametrize("size", [60, 70])
def test_another_vocabulary_is_refused(
    size: int, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "wanted", lambda body, _, own=serving.wanted: own(body, size))
    known = server.service.policy.vocabulary.size
    monkeypatch.setattr(server.service, "sample", lambda batch, own=server.service.sample: own(within(batch, known)))
    said = f"another vocabulary: it {'refuses' if size < known else 'accepts'} token {known - (size < known)}"
    assert said in refused(on(spoken("grpo"), server.url), tmp_path)


def test_an_answer_with_a_token_that_the_run_does_not_have_is_another_vocabulary(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*values: Any, own: Any = server.service.told) -> Any:
        found = own(*values)
        found["choices"][0]["token_ids"] = [64]
        return found

    monkeypatch.setattr(server.service, "told", told)
    said = refused(on(spoken("grpo"), server.url), tmp_path)
    assert "has another vocabulary: it answers with token 64, this run has tokens 0 to 63" in said


def within(batch: Any, size: int) -> Any:
    """The batch with tokens that a smaller vocabulary has."""
    batch.rows = {
        place: replace(one, prompt=[min(t, size - 1) for t in one.prompt]) for place, one in batch.rows.items()
    }
    return batch


@pytest.mark.parametrize("missing", ["token_ids", "logprobs", "prompt_logprobs"])
def test_a_server_without_tokens_or_log_probabilities_is_refused(
    missing: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*values: Any, own: Any = server.service.told) -> Any:
        found = own(*values)
        found.pop(missing, None)
        found["choices"][0].pop(missing, None)
        return found

    monkeypatch.setattr(server.service, "told", told)
    assert "answers without" in refused(on(spoken("grpo"), server.url), tmp_path)


def test_a_foreign_server_needs_a_truncated_ratio(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "OWNER", "vllm")
    said = refused(on(spoken("rloo"), server.url), tmp_path)
    assert "has no truncated importance ratio. Set objective=PolicyGradient(trust=Clip())" in said
    assert stepped(on(spoken("grpo"), server.url), tmp_path)[0].progress.updates


@pytest.mark.parametrize(
    ("method", "task", "options", "said"),
    [
        ("grpo", "addition-1", {"server": ("127.0.0.1:8000",)}, "--server is '127.0.0.1:8000'. Use different"),
        ("grpo", "addition-1", {"server": ("http://a", "http://a"), "pieces": 2}, "Use different addresses"),
        ("grpo", "addition-1", {"server": ("http://a",), "gatherers": 1}, "--server samples already"),
        ("grpo", "addition-1", {"server": ("http://a", "http://b")}, "there are 2 servers, .* Add --pieces 2"),
        ("grpo", "addition-1", {"server": ("http://a",), "on_": "ray"}, "--on is ray"),
        ("rloo", "addition-1", {"server": ("http://a",), "lag": 1}, "no importance ratio"),
        ("sft", "addition-1", {"server": ("http://a",)}, "--server is http://a, but sft trains on given data"),
        ("dapo", "addition-1", {"server": ("http://a",)}, "select.max_rounds=1"),
    ],
)
def test_what_a_server_cannot_sample_is_refused(method: str, task: str, options: Any, said: str) -> None:
    with pytest.raises(AssayError, match=said):
        make_plan(method, task, steps=1, warmup=0, options=RunOptions(gathering=GatherOptions(**options)))


def test_tasks_without_prompts_are_refused(tmp_path: Path) -> None:
    plan = make_plan("reinforce", "cartpole", steps=1)
    plan = replace(plan, recipe=named("grpo", "bandit").recipe, task=named("grpo", "bandit").task)
    with pytest.raises(AssayError, match=r"--server answers prompts and dialogues; 'bandit.*' has none"):
        execute(on(plan, "http://127.0.0.1:9"), tmp_path, mode=Mode.SILENT)


def test_an_address_that_cannot_be_bound_is_refused(server: Server, base: Path) -> None:
    for port in (70000, server.server_address[1]):
        with pytest.raises(AssayError, match=f"{port}.* (Use a number from 0 to 65535|Choose another --port)"):
            make_server(str(base), port=port)


# ---------------------------------------------------------------------------------------------------- bad requests
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", GENERATE, b"{", 400, "the body is not JSON"),
        ("POST", GENERATE, b"[" * 200_000, 400, "the body is not JSON"),
        ("POST", GENERATE, row(extra_args={"start": 2**70}), 400, "64 bits"),
        ("POST", GENERATE, [1], 400, "Send a JSON object."),
        ("POST", "/v2/nothing", {}, 404, "there is no POST /v2/nothing"),
        ("GET", GENERATE, {}, 404, "there is no GET"),
        ("POST", GENERATE, {"token_ids": [1]}, 400, "'sampling_params' is None. Send dict."),
        ("POST", GENERATE, row(64), 400, "out of vocabulary. Send tokens from 0 to 63."),
        ("POST", GENERATE, {**row(), "token_ids": []}, 400, "'token_ids'"),
        ("POST", GENERATE, row(temperature=-0.7), 400, "temperature is -0.7"),
        ("POST", GENERATE, row(top_p=0.0), 400, "top_p is 0.0. Use a share above 0, 1 for all."),
        ("POST", GENERATE, row(top_k=-2), 400, "top_k is -2"),
        ("POST", GENERATE, row(extra_args={"time": -1}), 400, "64 bits"),
        ("POST", GENERATE, row(n=2), 400, "'n' is 2"),
        ("POST", GENERATE, row(max_tokens=0), 400, "'max_tokens' is 0"),
        ("POST", GENERATE, row(seed=2**64), 400, "64 bits"),
        ("POST", GENERATE, row(extra_args={"rows": 2, "place": 2, "batch": "b"}), 400, "row 2 of 2"),
        ("POST", GENERATE, row(temperature=10**400), 400, "has more than 64 bits"),
        ("POST", GENERATE, row(extra_args={"start": 2**64}), 400, "18446744073709551616 has more than 64 bits"),
        ("POST", GENERATE, b'{"token_ids": [5], "sampling_params": {"top_p": NaN}}', 400, "NaN is not a finite number"),
        ("POST", GENERATE, b'{"token_ids": [5], "sampling_params": {"min_p": 1e999}}', 400, "1e999 is not a finite"),
        ("POST", GENERATE, {**row(), "token_ids": [5] * 9000}, 400, "9000 tokens. Send at most"),
        ("POST", CHAT, said(content="half a pair: \ud800"), 400, "surrogates not allowed"),
        ("POST", CHAT, said(content=3), 400, "message 0 has a content that is no text: 3"),
        ("POST", CHAT, said(), 400, "message 0 of the role 'user' has no 'content'"),
        ("POST", CHAT, said(content="hi") | {"response_format": {"type": "json_object"}}, 400, "'response_format'"),
        ("POST", CHAT, said(content="hi") | {"model": 3}, 400, "'model' is 3. Send str."),
        ("POST", CHAT, said(content="hi") | {"user": []}, 400, "'user' is []. Send str."),
        ("POST", "/update_weights", {"update_info": {}}, 409, "Send /start_weight_update first."),
    ],
)
def test_bad_requests_get_a_sentence(method: str, path: str, body: Any, status: int, said: str, server: Server) -> None:
    found, told = ask(server, method, path, body)
    assert found == status
    assert said in told["error"]["message"]
    assert told["error"]["code"] == status


def test_pages_of_other_sites_cannot_ask(server: Server) -> None:
    assert ask(server, "POST", "/pause", {}, kind="text/plain")[0] == 415
    assert server.service.is_open


@pytest.mark.parametrize("host", ["evil.com", "evil.com:80", "127.0.0.1:1", "", "127.0.0.1", "10.0.0.7:8000"])
def test_a_name_that_was_bound_to_this_address_by_another_site_is_refused(host: str, server: Server) -> None:
    for method, path in (("POST", "/pause"), ("GET", "/v1/models")):
        link = HTTPConnection("127.0.0.1", server.server_address[1], timeout=10.0)
        link.request(method, path, b"{}", {"Content-Type": "application/json", "Host": host})
        answer = link.getresponse()
        assert answer.status == 421
        assert "Host header" in json.loads(answer.read())["error"]["message"]
    assert server.service.is_open


@pytest.mark.parametrize(
    ("length", "sent", "status"), [("60000000", b"", 400), ("40", b"{}", 400), ("9" * 5000, b"", 413)]
)
def test_a_body_that_is_cut_is_not_an_empty_one(length: str, sent: bytes, status: int, server: Server) -> None:
    """An empty body is a pause that nobody asked for."""
    port = server.server_address[1]
    with socket.create_connection(("127.0.0.1", port), 10.0) as link:
        head = f"POST /pause HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        link.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + sent)
        link.shutdown(socket.SHUT_WR)
        assert link.makefile("rb").readline().split()[1] == str(status).encode()
    assert server.service.is_open


def test_weights_that_are_torn_or_not_there_are_refused(server: Server, tmp_path: Path) -> None:
    before = server.service.policy.flat.values.clone()
    (tmp_path / "torn").write_bytes(b"12345678")
    os.mkfifo(tmp_path / "pipe")  # opening it waits for its other end, with the model held
    for name in ("torn", "missing", "pipe", "."):
        ask(server, "POST", "/start_weight_update", {})
        told = {"path": str(tmp_path / name), "sha256": "00" * 32, "model": "actor"}
        status, answer = ask(server, "POST", "/update_weights", {"update_info": told})
        assert status == 400
        assert "holds no weights of 'actor' with this digest, or cannot be read here" in answer["error"]["message"]
        assert server.service.is_open
    assert torch.equal(server.service.policy.flat.values, before)


def test_a_batch_that_stays_incomplete_has_a_deadline(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WAIT", 0.1)
    status, told = ask(server, "POST", GENERATE, row(extra_args={"batch": "b", "rows": 2, "place": 0}))
    assert status == 503
    assert "batch b has 1 of 2 rows" in told["error"]["message"]
    assert not server.service.batches


def test_rows_of_a_batch_agree_on_its_size(server: Server) -> None:
    """Row 4 of 5 is none of two rows: it was looked up among them when the batch was full."""
    service = server.service
    assert isinstance(service, serving.Service)
    service.batches["of five"] = serving.Batch(5)
    status, told = ask(server, "POST", GENERATE, row(extra_args={"rows": 2, "place": 0, "batch": "of five"}))
    assert status == 400
    assert "batch of five has 5 rows, and 'rows' is 2" in told["error"]["message"]
    del service.batches["of five"]


def test_rows_of_a_batch_end_alike(server: Server) -> None:
    found = list[tuple[int, Any]]()
    bodies = [row(max_tokens=k, extra_args={"batch": "b", "rows": 2, "place": k - 2}) for k in (2, 3)]
    threads = [
        threading.Thread(target=lambda b=body: found.append(ask(server, "POST", GENERATE, b))) for body in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert [status for status, _ in found] == [400, 400]


def test_a_pause_holds_requests_until_resume(server: Server) -> None:
    assert ask(server, "POST", "/pause?mode=keep", {}) == (200, {"status": "paused"})
    found = list[int]()
    thread = threading.Thread(target=lambda: found.append(ask(server, "POST", GENERATE, row())[0]))
    thread.start()
    thread.join(0.2)
    assert not found
    assert ask(server, "POST", "/resume", {})[0] == 200
    thread.join(10.0)
    assert found == [200]


@pytest.mark.parametrize("ends", ["closed", "late"])
def test_requests_end_with_their_run_or_at_their_deadline(ends: str, server: Server) -> None:
    """On a server that does not answer, because it is paused."""
    ask(server, "POST", "/pause?mode=keep", {})
    vocabulary, lost = server.service.policy.vocabulary, list[Exception]()
    client = servers.Server(server.url, vocabulary, until=time.monotonic() + (60.0 if ends == "closed" else 0.3))

    def wait() -> None:
        try:
            client.answers([[1]] * 2, np.arange(2), np.zeros(2, dtype=np.uint64), Ends(2, vocabulary), greedy=False)
        except Lost as error:
            lost.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    if ends == "closed":
        client.close()
    thread.join(10.0)
    assert len(lost) == 1
    ask(server, "POST", "/resume", {})


# ---------------------------------------------------------------------------------------------------- real faults
class Process:
    """`assay serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.reads, writes = os.pipe()
        # A fork, because another interpreter would import torch for seconds.
        self.process = get_context("fork").Process(target=self.run, args=(folder, writes), daemon=True)
        self.process.start()
        os.close(writes)

    def run(self, folder: Path, writes: int) -> None:
        torch.set_num_threads(1)  # threads that OpenMP had in the parent are not there
        os.dup2(writes, 1)
        sys.stdout = os.fdopen(1, "w")
        raise SystemExit(main(["serve", str(folder), "--port", "0"]))

    def url(self) -> str:
        with os.fdopen(self.reads) as lines:
            assert select.select([self.reads], [], [], 60.0)[0]
            line = lines.readline()
        what = r"serving grpo on addition-1, step 1 on cpu at (http://127.0.0.1:\d+) \(Ctrl-C to stop\)\n"
        found = re.fullmatch(what, line)
        assert found, line
        return found[1]

    def end(self, number: int) -> int | None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        self.process.join(10.0)
        return self.process.exitcode


def test_a_run_whose_server_is_killed_stops_by_name_and_resumes_to_the_same_bits(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "AWAY", 0.3)
    process = Process(base)
    plan = spoken("grpo", steps=3)
    execute(plan, tmp_path / "plain", mode=Mode.SILENT)
    url = process.url()
    killed = list[float]()

    def kill(step: int, metrics: Any, policy: Any) -> None:
        if step == 1:
            assert process.end(signal.SIGKILL) == -signal.SIGKILL
            killed.append(time.monotonic())

    gone = f"{url} does not answer: .*[Rr]efused"
    with pytest.raises(AssayError, match=f"{gone}.*Start the server again"), pytest.warns(UserWarning, match=gone):
        execute(on(plan, url), tmp_path / "run", mode=Mode.SILENT, callbacks=[kill])
    assert time.monotonic() - killed[0] < 10.0
    assert saved(tmp_path / "run")["engine"]["updates"] >= 1
    with serving_of(base) as server:
        execute(on(plan, server.url), tmp_path / "run", mode=Mode.SILENT)
    assert not difference(saved(tmp_path / "run"), saved(tmp_path / "plain"))
    execute(on(plan, url), tmp_path / "run", mode=Mode.SILENT)  # a finished run needs no server


def test_a_run_waits_for_a_server_that_is_started_again(base: Path, tmp_path: Path) -> None:
    """Three tries without a pause ended a run after 1.5 s; a server needs minutes to load its model."""
    plan = spoken("grpo", steps=3)
    execute(plan, tmp_path / "plain", mode=Mode.SILENT)
    with ExitStack() as stack:
        first = serving_of(base)
        server = first.__enter__()
        port = int(server.server_address[1])

        def restart(step: int, metrics: Any, policy: Any) -> None:
            if step == 1:
                first.__exit__(None, None, None)
                later = threading.Timer(2.5, lambda: stack.enter_context(serving_of(base, port)))
                stack.callback(later.join)
                later.start()

        with pytest.warns(UserWarning, match="does not answer.*the run waits for it, up to 300 s"):
            execute(on(plan, server.url), tmp_path / "run", mode=Mode.SILENT, callbacks=[restart])
    assert not difference(saved(tmp_path / "run"), saved(tmp_path / "plain"))


def test_the_server_ends_by_sigterm(base: Path) -> None:
    process = Process(base)
    process.url()
    assert process.end(signal.SIGTERM) == 0
