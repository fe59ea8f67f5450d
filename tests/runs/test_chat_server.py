"""`assay serve` as clients of OpenAI's see it: shapes, limits, sessions as they were sampled, tokens for strangers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.cli.main import main
from assay.cli.serve import Server, make_server
from assay.core.errors import AssayError
from assay.core.slots import logp_of
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.rollouts import text
from assay.runs.distributed.serving import Service
from assay.runs.progress import Mode
from assay.runs.run import execute
from assay.tasks.adapters.agents.answers import message_of
from tests.models.test_conversations import TEMPLATES, save_chat_model
from tests.resume.cases import named

HELLO = [{"role": "user", "content": "1+1="}]


@contextmanager
def serving(address: str, token: str = "") -> Iterator[Server]:
    with make_server(address, port=0, token=token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("chat") / "base"
    execute(named("grpo", "calculator-1", steps=1), folder, mode=Mode.SILENT)
    with serving(str(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(save_chat_model(tmp_path_factory.mktemp("model"), TEMPLATES["chatml"])) as server:
        yield server


def sent(server: Server, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    link = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20.0)
    told = None if body is None else json.dumps(body)
    link.request("GET" if body is None else "POST", path, told, {"Content-Type": "application/json"} | headers)
    answer = link.getresponse()
    return answer.status, answer.read()


def chat(server: Server, messages: Any = HELLO, key: str = "", path: str = "/v1/chat/completions", **body: Any) -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    told = {"max_tokens": 4, **({"messages": messages} if messages else {}), **body}
    status, found = sent(server, path, told, **headers)
    assert status == 200, found
    return json.loads(found)


def session(server: Server, key: str) -> Any:
    status, found = sent(server, f"/v1/sessions/{key}")
    assert status == 200, found
    return json.loads(found)


# ---------------------------------------------------------------------------------------------------- shapes
def test_an_answer_has_the_shape_of_openai(server: Server) -> None:
    found = chat(server, n=2, seed=4, logprobs=True, top_logprobs=3)
    assert found["object"] == "chat.completion"
    assert [one["index"] for one in found["choices"]] == [0, 1]
    for one in found["choices"]:
        assert one["message"]["role"] == "assistant"
        assert one["finish_reason"] in ("stop", "length")
        content = one["logprobs"]["content"]
        assert len(content) == len(one["token_ids"])
        for place in content:
            best = [other["logprob"] for other in place["top_logprobs"]]
            assert best == sorted(best, reverse=True)
            assert place["logprob"] <= best[0] + 1e-5
    written = sum(len(one["token_ids"]) for one in found["choices"])
    assert found["usage"]["completion_tokens"] == written
    assert found["usage"]["prompt_tokens"] == 1 + len("1+1=")


def test_a_seed_repeats_and_temperature_0_is_the_likeliest(server: Server) -> None:
    ids = [chat(server, seed=seed, max_tokens=8)["choices"][0]["token_ids"] for seed in (5, 5, 6)]
    assert ids[0] == ids[1] != ids[2]
    found = chat(server, temperature=0, logprobs=True, top_logprobs=1)["choices"][0]["logprobs"]["content"]
    assert all(abs(one["logprob"] - one["top_logprobs"][0]["logprob"]) < 1e-5 for one in found)


def test_a_stream_is_the_answer_in_pieces(server: Server) -> None:
    whole = chat(server, seed=7, max_tokens=40)["choices"][0]
    body = {"messages": HELLO, "seed": 7, "max_tokens": 40, "stream": True, "stream_options": {"include_usage": True}}
    status, found = sent(server, "/v1/chat/completions", body)
    assert status == 200
    events = [line.removeprefix("data: ") for line in found.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    told = [json.loads(one) for one in events[:-1]]
    deltas = [one["choices"][0]["delta"] for one in told if one["choices"]]
    assert "".join(one.get("content", "") for one in deltas) == whole["message"]["content"]
    assert [one["choices"][0]["finish_reason"] for one in told if one["choices"]][-1] == whole["finish_reason"]
    assert told[-1]["usage"]["completion_tokens"] == len(whole["token_ids"])


def test_plain_completions_and_stop_strings(server: Server) -> None:
    whole = chat(server, None, path="/v1/completions", prompt="1+1=", seed=3, max_tokens=12, logprobs=2)["choices"][0]
    assert len(whole["logprobs"]["token_logprobs"]) == len(whole["token_ids"]) > 3
    stop = whole["text"][2]
    cut = chat(server, None, path="/v1/completions", prompt="1+1=", seed=3, max_tokens=12, stop=stop)["choices"][0]
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["finish_reason"] == "stop"
    assert cut["token_ids"] == whole["token_ids"][: len(cut["token_ids"])]


def test_requests_that_arrive_together_are_as_alone(server: Server) -> None:
    """Different limits, seeds and parameters in one batch: each row has its own."""
    asked = [{"seed": seed, "max_tokens": 1 + seed, "top_p": 0.9 if seed % 2 else 1.0} for seed in range(12)]
    alone = [chat(server, **one)["choices"][0]["token_ids"] for one in asked]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda one: chat(server, **one)["choices"][0]["token_ids"], asked))
    assert together == alone
    assert all(len(ids) <= 1 + seed for seed, ids in enumerate(alone))


# ---------------------------------------------------------------------------------------------------- sessions
@pytest.mark.parametrize("kind", ["server", "chat_model"])
def test_a_session_holds_what_was_sampled(kind: str, request: pytest.FixtureRequest) -> None:
    """Three calls that continue each other are one sequence with the sampled ids; another conversation is a second one;
    a turn that is tried again branches off, and no token is trained twice. Log-probabilities are the policy's.
    """
    server, key = request.getfixturevalue(kind), f"talk-{kind}"
    talk, ids, firsts = list(HELLO), [], []
    for words in ("2+2=", "3+3=", ""):
        found = chat(server, talk, key, seed=len(talk))["choices"][0]
        ids.append(found["token_ids"])
        firsts.append(len(talk))
        talk += [found["message"], {"role": "user", "content": words}]
    chat(server, [*talk[:2], {"role": "user", "content": "7+7="}], key, seed=1)
    chat(server, [{"role": "user", "content": "9+9="}], key)
    told = session(server, key)
    assert [one["continues"] for one in told["calls"]] == [None, 0, 1, 0, None]
    assert [one["token_ids"] for one in told["calls"][:3]] == ids
    rows = told["sequences"]
    assert len(rows) == 3
    sampled = [[t for t, own in zip(row["token_ids"], row["is_sampled"], strict=True) if own] for row in rows]
    assert sampled[0] == [token for some in ids for token in some]
    assert sum(map(len, sampled)) == sum(len(one["token_ids"]) for one in told["calls"])
    service = server.service
    assert isinstance(service, Service)
    for one in told["calls"]:
        read = text.written([one["prompt_token_ids"]], [one["token_ids"]], torch.zeros(1, dtype=torch.long), 0)
        with torch.no_grad():
            again = logp_of(service.policy.actor, read)[read.mask]
        assert torch.allclose(again, torch.tensor(one["logprobs"]), atol=1e-5)


def test_a_chat_model_reads_its_template(chat_model: Server) -> None:
    """The prompt of each call is that of the template around all messages, with the sampled ids where replies are."""
    service = chat_model.service
    assert isinstance(service, Service)
    tokenizer = service.policy.tokenizer
    assert isinstance(tokenizer, PretrainedTokenizer)
    talk = [{"role": "system", "content": "brief"}, {"role": "user", "content": "<|im_end|> is text"}]
    reply = chat(chat_model, talk, "templated", max_tokens=3, temperature=0)["choices"][0]["message"]
    chat(chat_model, [*talk, reply, {"role": "tool", "content": "4", "tool_call_id": "x"}], "templated", max_tokens=2)
    first, second = session(chat_model, "templated")["calls"]
    begun = tokenizer.raw("<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\n")
    assert first["prompt_token_ids"][: len(begun)] == begun
    assert first["prompt_token_ids"].count(tokenizer.vocabulary.eos) == 2  # the text that spells one has none
    gap = tokenizer.raw("<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n")
    gap = gap[1:] if first["token_ids"][-1] == tokenizer.vocabulary.eos else gap
    assert second["prompt_token_ids"] == first["prompt_token_ids"] + first["token_ids"] + gap


def test_tool_calls_are_read_where_tools_are_offered() -> None:
    said = 'I look.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    found = message_of(said, '[{"function": {"name": "f"}}]', 3)
    assert found["content"] == "I look."
    assert found["tool_calls"] == [{"id": "call_3_0", "name": "f", "arguments": '{"x": 1}'}]
    assert "tool_calls" not in message_of(said, "", 3)
    assert "tool_calls" not in message_of("<tool_call>{oops</tool_call>", "[]", 3)


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "'messages' has 0 entries"),
        ({"messages": "hi"}, "'messages' is 'hi'"),
        ({"messages": [{"role": "king", "content": "x"}]}, "role 'king'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "no text"),
        ({"messages": HELLO, "n": 0}, "'n' is 0"),
        ({"messages": HELLO, "n": 10**9}, "'n' is 1000000000"),
        ({"messages": HELLO, "temperature": -1}, "temperature"),
        ({"messages": HELLO, "temperature": True}, "'temperature' is True"),
        ({"messages": HELLO, "top_p": 0}, "top_p"),
        ({"messages": HELLO, "max_tokens": 0}, "'max_tokens' is 0"),
        ({"messages": HELLO, "stop": [""]}, "'stop'"),
        ({"messages": HELLO, "top_logprobs": 3}, "needs 'logprobs'"),
        ({"messages": HELLO, "tools": [{"x": 1}]}, "'tools' has"),
        ({"messages": HELLO, "tool_choice": "required"}, "'tool_choice'"),
        ({"messages": [{"role": "user", "content": "x" * 10**5}]}, "the prompt has 100001 tokens"),
        ({"messages": HELLO, "logit_bias": {"1": 5}}, "not supported"),
    ],
)
def test_a_bad_request_is_one_sentence(body: Any, says: str, server: Server) -> None:
    status, found = sent(server, "/v1/chat/completions", body)
    assert status == 400
    assert says in json.loads(found)["error"]["message"]


def test_a_token_guards_every_route(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    service = server.service
    with Server(service, "127.0.0.1", 0, "secret") as guarded:
        guarded.service = service
        threading.Thread(target=guarded.serve_forever, args=(0.02,), daemon=True).start()
        for path, body in (("/v1/chat/completions", {"messages": HELLO}), ("/pause", {}), ("/v1/models", None)):
            assert sent(guarded, path, body)[0] == 401
            assert sent(guarded, path, body, Authorization="Bearer secre")[0] == 401
        key = {"Authorization": "Bearer secret", "X-Assay-Session": "mine"}
        assert sent(guarded, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}, **key)[0] == 200
        assert sent(guarded, "/v1/sessions/mine", **key)[0] == 200
        assert sent(guarded, "/v1/sessions/secret", **key)[0] == 404  # the token is no session
        guarded.shutdown()
        guarded.service = Quiet()
    with pytest.raises(AssayError, match="ASSAY_SERVE_TOKEN"):
        make_server("unused", host="0.0.0.0")
    assert main(["serve", "unused", "--host", "0.0.0.0"]) == 2
    assert "--token" in capsys.readouterr().err


class Quiet:
    """A service that the fixture still needs after this server is closed."""

    def answer(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass
