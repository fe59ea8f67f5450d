"""An environment of verifiers behind a server of its own is trained by `--agent`. A stand-in has the library's calls;
the example was tried with verifiers 0.1.14.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.core.record import InfraFault, Score
from assay.rollouts.outcomes import recorded_outcomes
from tests.tasks.adapters.test_agents import planned, played

SERVER = Path(__file__).parents[3] / "examples" / "agents" / "verifiers_server.py"
LIBRARY = '''
import asyncio, json, os, urllib.request


class Environment:
    def get_dataset(self):
        return [{"prompt": [{"role": "user", "content": f"say {k}"}], "answer": k} for k in range(30)]

    def get_eval_dataset(self):
        return self.get_dataset()[:3]

    async def run_rollout(self, example, client, model, sampling):
        if example["answer"] % 2:
            return {"error": "the tool is broken", "reward": 0.0}
        request = urllib.request.Request(client.api_base_url + "/chat/completions", method="POST", headers={
            "Content-Type": "application/json", "Authorization": "Bearer " + os.environ[client.api_key_var]})
        body = json.dumps({"model": model, "messages": example["prompt"]}).encode()
        reply = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(request, body)))
        return {"error": None, "reward": 0.25, "metrics": {"length": len(reply["choices"][0]["message"]["content"])}}


def load_environment(name, **settings):
    assert name == "toy" and settings == {"num": 3}
    return Environment()
'''
TYPES = '''
class ClientConfig:
    def __init__(self, api_base_url, api_key_var, max_retries):
        self.api_base_url, self.api_key_var = api_base_url, api_key_var
'''


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options that the server prints, with its folder."""
    folder = tmp_path_factory.mktemp("verifiers")
    (folder / "verifiers").mkdir()
    (folder / "verifiers" / "__init__.py").write_text(LIBRARY)
    (folder / "verifiers" / "types.py").write_text(TYPES)
    words = [sys.executable, str(SERVER), "toy", "--settings", '{"num": 3}', "--port", "0"]
    environment = {"PYTHONPATH": str(folder), "PATH": ""}
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.readline().split()
        yield {"folder": str(folder), **dict(zip(printed[::2], printed[1::2], strict=True))}
        process.kill()


def test_rows_are_those_of_both_splits_and_none_twice(command: dict[str, str]) -> None:
    assert command["--task"] == "toy-train.jsonl", "the examples of evaluation are among those of training"
    lines = (Path(command["folder"]) / "toy-train.jsonl").read_text().splitlines()
    assert json.loads(lines[2]) == {"prompt": "say 2", "example": 2, "of": "train"}
    assert len(lines) == 30


def test_episodes_have_the_reward_of_the_rubric_and_faults_of_the_environment_have_none(
    command: dict[str, str],
) -> None:
    rows = str(Path(command["folder"]) / command["--task"])
    plan = planned(rows, agent=command["--agent"], reward=command["--reward"])
    task, _, record = played(plan, starts=12, samples=1)
    facts = [item.facts["example"] for item in task.items_of(record.column("start"), 0)]
    found = list(zip(facts, recorded_outcomes(record), strict=True))
    good, broken = ([one for example, one in found if example % 2 == odd] for odd in (0, 1))
    assert broken, "the rows are of both kinds"
    assert set(good) == {Score(0.25)}
    assert all(isinstance(one, InfraFault) for one in broken)
    assert int(record.mask.any(1).sum()) == len(good), "the policy's tokens are recorded"
