"""The page of a report: what it gathers from good and bad folders, and what a real browser makes of it."""

from __future__ import annotations

import http.client
import io
import json
import math
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.core.errors import AssayError
from assay.core.store import lock
from assay.report import journal, page, watch
from assay.report.comparison import print_report
from assay.runs.arms import plain_name
from assay.statistics.intervals import mean_interval
from tests.cli.browser import Browser, binary

HOSTILE = (
    "</script><script>window.hacked = 1; alert(1)</script><img src=x onerror='alert(2)'>"
    "\x1b[31mred\x00 \u202eright to left\u202c \u2028 \ud800 {{payload}} <!-- ]]>"
)
SECTIONS = (
    "results", "curves", "profiles", "aggregates", "improvement", "time", "settings", "samples", "methods", "verdicts",
)  # fmt: skip
VERDICTS: list[dict[str, Any]] = [
    {
        "name": name,
        "verdict": verdict,
        "machine": "2 cores",
        "versions": {"assay": "0.1.0"},
        "claims": [
            {"name": f"{name} {HOSTILE}", "kind": "measured", "estimate": 0.1, "low": -0.004, "high": 0.2,
             "expect": "> 0", "verdict": verdict, "seeds": 3, "minutes": 1.5, "note": "as it came out"},
        ],
    }
    for name, verdict in (("grpo", "holds"), ("rloo", "fails"), ("ppo", "inconclusive"))
]  # fmt: skip


def make_run(
    folder: Path,
    method: str = "grpo",
    task: str = "sorting-5",
    seed: int = 0,
    *,
    steps: int = 20,
    last: int | None = None,
    level: float = 0.5,
    samples: int = 4,
    settings: dict[str, Any] | None = None,
) -> Path:
    """A run folder as a run writes it."""
    folder.mkdir(parents=True)
    recipe = {"part": "Recipe", "name": method, "optimizer": {"learning_rate": 0.001} | (settings or {})}
    machine = {"python": "3.11", "torch": "2.6", "numpy": "2.0", "platform": "Linux", "cores": 2, "gpu": None}
    config = {"method": method, "task": task, "seed": seed, "steps": steps, "recipe": recipe, "assay": "0.1.0"}
    (folder / "config.json").write_text(json.dumps(config | {"machine": machine}))
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range((steps if last is None else last) + 1):
            record: dict[str, Any] = {"step": step, "reward": level * step / steps, "decisions_total": step * 100}
            record |= {"evaluation": level * step / steps + seed / 100} if step % 5 == 0 else {}
            clock = {"at": 1.79e9 + step, "sample": 0.5, "update": 0.3}
            file.write(json.dumps(record | {"time": clock}) + "\n")
    with (folder / "samples.jsonl").open("w") as file:
        for place in range(samples):
            tokens = ["a", "b", "\n"]
            sample = {"step": 5 * (place // 4 + 1), "prompt": f"sort {place // 2}=", "completion": f"word{place}"}
            sample |= {"answer": "abc", "reward": place % 2, "cut": place % 4 == 3, "fault": None}
            file.write(json.dumps(sample | {"tokens": tokens, "credit": [0.5, -0.2, 0.0]}) + "\n")
    return folder


def make_comparison(base: Path) -> Path:
    """A comparison of two arms on two tasks: of DR_grpo on sorting-3 seed 1 has failed and seed 2 was not run."""
    items = {"part": "PromptTask", "items": {"part": "Sorting"}, "tokenizer": {}}
    for arm, method, level in (("grpo", "grpo", 0.6), ("DR_grpo", "dr-grpo", 0.5)):
        for task in ("sorting-5", "sorting-3"):
            for seed in range(1 if (arm, task) == ("DR_grpo", "sorting-3") else 3):
                folder = make_run(base / arm / task / f"seed-{seed}", method, task, seed, level=level)
                config = json.loads((folder / "config.json").read_text()) | {"task_settings": items}
                (folder / "config.json").write_text(json.dumps(config))
    place = {"arm": "DR_grpo", "task": "sorting-3"}
    facts = {
        "arms": [{"name": "grpo"}, {"name": "DR_grpo"}],
        "tasks": ["sorting-5", "sorting-3"],
        "failures": [place | {"seed": 1, "reason": "out of memory"}],
        "missing": [place | {"seed": 2}],
        "decision": [{"first": "grpo", "second": "DR_grpo", "verdict": "larger", "interim": 1}],
    }
    (base / "comparison.json").write_text(json.dumps(facts))
    return base


def make_apart(base: Path) -> None:
    """Two arms on two tasks, apart on the second alone."""
    levels = {"easy": ((0.5, 0.6, 0.4), (0.5, 0.4, 0.6)), "hard": ((0.9, 0.92, 0.88), (0.3, 0.31, 0.31))}
    for task, arms in levels.items():
        for arm, found in zip("ab", arms, strict=True):
            for seed, level in enumerate(found):
                make_run(base / arm / task / str(seed), arm, task, seed, level=level)


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


# ---------------------------------------------------------------------------------------------------- gathering
def test_runs_are_found_at_any_depth_and_grouped_into_arms_and_tasks(tmp_path: Path) -> None:
    for task in ("sorting-5", "cartpole"):
        for method in ("grpo", "ppo"):
            for seed in (0, 1, 10, 2):
                make_run(tmp_path / task / method / f"seed-{seed}", method, task, seed)
    make_run(tmp_path / "sorting-5" / "grpo" / "seed-0" / "phase-1-warmup", "warm")
    data = page.gather([tmp_path])
    assert [arm["name"] for arm in data["arms"]] == ["grpo", "ppo"]
    assert data["tasks"] == ["cartpole", "sorting-5"]
    assert [run["seed"] for run in data["runs"][:4]] == [0, 1, 2, 10]
    assert data["notes"] == []
    assert page.gather([tmp_path, tmp_path / "cartpole"])["runs"] == data["runs"]
    assert json.loads(page.encoded(data)) == json.loads(json.dumps(data))


def test_one_recipe_with_two_settings_is_two_arms_and_only_what_differs_is_told(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", settings={"learning_rate": 0.01, "epsilon": 1})
    data = page.gather([tmp_path])
    assert [arm["name"] for arm in data["arms"]] == [
        "grpo (learning_rate 0.001, epsilon null)",
        "grpo (learning_rate 0.01, epsilon 1)",
    ]
    names = [row["setting"] for row in data["differences"]]
    assert names == ["recipe.optimizer.learning_rate", "recipe.optimizer.epsilon"]
    make_run(tmp_path / "c", settings={"x": 1, "y": 1, "z": 1})
    make_run(tmp_path / "d", settings={"x": 1, "y": 1, "z": 2})
    arms = [arm["name"] for arm in page.gather([tmp_path])["arms"]]
    assert len(arms) == len(set(arms)) == 4


def test_runs_of_two_commits_are_one_arm(tmp_path: Path) -> None:
    for seed in range(2):
        folder = make_run(tmp_path / "grpo" / f"seed-{seed}", seed=seed)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"versions": {"commit": f"{seed}+changed"}}))
    assert [arm["name"] for arm in page.gather([tmp_path])["arms"]] == ["grpo"]


def test_estimates_profile_and_improvement_are_those_of_the_last_evaluations(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path / "grpo" / f"seed-{seed}", "grpo", seed=seed, level=0.5)
        make_run(tmp_path / "ppo" / f"seed-{seed}", "ppo", seed=seed, level=0.51)
    comparison = page.gather([tmp_path])["comparison"]
    first, second = comparison["rows"]
    expected = mean_interval([0.5, 0.51, 0.52])
    assert (first["estimate"], first["low"], first["high"]) == pytest.approx((0.51, expected.low, expected.high))
    assert first["improvement"] is None
    # pairs of 0.51, 0.52, 0.53 against 0.50, 0.51, 0.52: 6 larger, 2 equal, 1 smaller
    assert second["improvement"]["value"] == pytest.approx(7 / 9)
    assert second["difference"]["value"] == pytest.approx(0.01)
    assert comparison["improvement"]["matrix"][1][0] == pytest.approx(7 / 9)
    (profile,) = comparison["profiles"]
    shares = profile["arms"]["grpo"][0]
    assert shares[0] == 1
    assert shares[-1] == 0
    assert shares == sorted(shares, reverse=True)
    assert first["seconds"] == 20
    assert first["decisions"] == 2000
    assert page.gather([tmp_path])["runs"][0]["phases"] == {"sample": 10.5, "update": 6.3, "other": 3.2}


def test_an_arm_has_one_name_and_the_order_of_the_comparison(tmp_path: Path) -> None:
    data = page.gather([make_comparison(tmp_path / "runs")])
    assert [arm["name"] for arm in data["arms"]] == ["grpo", "DR_grpo"]
    assert data["tasks"] == ["sorting-5", "sorting-3"]
    assert {run["arm"] for run in data["runs"]} == {"grpo", "DR_grpo"}
    assert {one["arm"] for one in data["comparison"]["rows"]} == {"grpo", "DR_grpo"}
    make_run(tmp_path / "more" / "a", "Some_Method", seed=0)
    make_run(tmp_path / "more" / "b", "some-method", seed=1)
    assert [arm["name"] for arm in page.gather([tmp_path / "more"])["arms"]] == ["Some_Method"]


def test_failed_and_missing_runs_are_in_the_rows_and_not_in_the_scores(tmp_path: Path) -> None:
    rows = page.gather([make_comparison(tmp_path / "runs")])["comparison"]["rows"]
    (row,) = [one for one in rows if (one["arm"], one["task"]) == ("DR_grpo", "sorting-3")]
    assert (row["seeds"], row["finished"], row["missing"]) == (3, 1, [2])
    assert [(one["seed"], one["reason"]) for one in row["failed"]] == [(1, "out of memory")]
    assert row["scores"] == [0.5]
    facts = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    facts["runs"] = [{"arm": "grpo", "task": "sorting-5", "seed": seed} for seed in range(4)]
    (tmp_path / "runs" / "comparison.json").write_text(json.dumps(facts))
    row = page.gather([tmp_path / "runs"])["comparison"]["rows"][0]
    assert (row["arm"], row["seeds"], row["missing"]) == ("grpo", 4, [3]), "the folder of a finished run was removed"
    for method, seeds in (("grpo", (0, 1, 2)), ("ppo", (0, 2)), ("rloo", (7,))):
        for seed in seeds:
            make_run(tmp_path / "free" / method / f"seed-{seed}", method, seed=seed)
    rows = page.gather([tmp_path / "free"])["comparison"]["rows"]
    assert [row["missing"] for row in rows] == [[], [1], []], "a seed that another arm has besides all of ppo's"


def test_tasks_of_files_have_the_name_of_the_comparison_or_that_of_the_files(tmp_path: Path) -> None:
    """A run records whole paths; the comparison says which run is missing by the words of the command."""
    recorded, base = "/home/me/data/train.jsonl,/home/me/data/test.jsonl", tmp_path / "runs"
    facts: dict[str, Any] = {"arms": [{"name": "grpo"}], "tasks": ["data/train.jsonl,data/test.jsonl"]}
    for seed in (0, 1):
        make_run(base / "grpo" / plain_name(facts["tasks"][0]) / f"seed-{seed}", task=recorded, seed=seed)
    facts["failures"] = [{"arm": "grpo", "task": facts["tasks"][0], "seed": 1, "reason": "out of memory"}]
    (base / "comparison.json").write_text(json.dumps(facts))
    (row,) = page.gather([base])["comparison"]["rows"]
    assert (row["task"], row["seeds"], row["missing"]) == ("data/train.jsonl,data/test.jsonl", 2, [])
    make_run(base / "free" / "seed-7", task=recorded, seed=7)
    assert page.gather([base])["tasks"] == facts["tasks"], "a run of the same files beside the comparison"
    make_run(tmp_path / "free" / "a", task=recorded)
    assert page.gather([tmp_path / "free"])["tasks"] == ["train.jsonl,test.jsonl"]
    make_run(tmp_path / "free" / "b", task=recorded.replace("me", "you"))
    assert page.gather([tmp_path / "free"])["tasks"] == [recorded, recorded.replace("me", "you")]


def test_scores_are_pooled_over_tasks_only_where_every_range_is_known(tmp_path: Path) -> None:
    make_comparison(tmp_path / "runs")
    comparison = page.gather([tmp_path / "runs"])["comparison"]
    assert [one["task"] for one in comparison["profiles"]] == ["sorting-5", "sorting-3", ""]
    assert comparison["ranges"] == {"sorting-5": [0.0, 1.0], "sorting-3": [0.0, 1.0]}
    (pooled,) = [one for one in comparison["aggregates"] if (one["task"], one["arm"]) == ("", "grpo")]
    assert pooled["mean"]["value"] == pytest.approx(0.61)
    assert pooled["gap"]["value"] == pytest.approx(0.39)
    make_run(tmp_path / "runs" / "grpo" / "walk" / "seed-0", task="walk", level=-300)
    comparison = page.gather([tmp_path / "runs"])["comparison"]
    assert "" not in {one["task"] for one in comparison["profiles"] + comparison["aggregates"]}
    assert next(one for one in comparison["aggregates"] if one["task"] == "walk")["gap"] is None
    ranged = page.gather([tmp_path / "runs"], ranges={"walk": (-600.0, 0.0)})["comparison"]
    assert next(one for one in ranged["aggregates"] if one["task"] == "walk")["gap"]["value"] == pytest.approx(300)


def test_the_report_begins_with_an_answer_and_opens_on_the_clearest_task(tmp_path: Path) -> None:
    make_apart(tmp_path / "runs")
    data = page.gather([tmp_path / "runs"])
    assert data["comparison"]["opens"] == "hard"
    assert data["comparison"]["answer"].startswith("a is above b on hard by 0.59 [")
    out = io.StringIO()
    print_report(data, Console(file=out, width=120))
    assert out.getvalue().startswith("a is above b on hard by 0.59 ["), "the terminal says the same"


def test_a_profile_stays_inside_the_possible_scores(tmp_path: Path) -> None:
    make_comparison(tmp_path / "runs")
    make_run(tmp_path / "runs" / "grpo" / "sorting-5" / "seed-7", seed=7, level=0.93)
    profiles = page.gather([tmp_path / "runs"], ranges={"sorting-5": (0.0, 1.0)})["comparison"]["profiles"]
    assert max(next(one for one in profiles if one["task"] == "sorting-5")["thresholds"]) == 1.0


def test_states_of_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "finished")
    make_run(tmp_path / "stopped", seed=1, last=7)
    make_run(tmp_path / "running", seed=2, last=7)
    (tmp_path / "stopped" / "run.lock").write_text(f"process {os.getpid()} on {os.uname().nodename} since today")
    make_run(tmp_path / "alarmed", seed=3, last=7)
    append(tmp_path / "alarmed" / "metrics.jsonl", b'{"step": 8, "alarms": ["loss is not finite"]}\n')
    make_run(tmp_path / "begun", seed=4, last=0)
    (tmp_path / "begun" / "metrics.jsonl").write_text("")
    make_run(tmp_path / "ended", seed=5, last=7)
    append(tmp_path / "ended" / "metrics.jsonl", b'{"step": 8, "ended": "the held-out score 0.9 reached 0.9"}\n')
    with lock(tmp_path / "running"):
        found = page.gather([tmp_path])
    runs = {run["label"].split("/")[-1]: run for run in found["runs"]}
    states = {name: run["state"] for name, run in runs.items()}
    assert states == dict.fromkeys(("stopped", "alarmed", "begun"), "stopped") | {
        "finished": "finished",
        "ended": "finished",
        "running": "running",
    }
    assert runs["stopped"]["reason"] == "stopped at step 7 of 20, and no process holds the folder"
    assert runs["alarmed"]["reason"] == "stopped at step 8 of 20: loss is not finite"
    assert runs["begun"]["reason"] == "nothing was measured"
    assert runs["begun"]["score"] is None
    (row,) = found["comparison"]["rows"]
    assert (row["seeds"], row["finished"], row["running"], len(row["failed"])) == (6, 2, 1, 3)


def test_folders_without_runs_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"there is no run in .*\. Name a folder that holds metrics.jsonl"):
        page.gather([tmp_path])
    with pytest.raises(AssayError, match="is not a folder"):
        page.gather([tmp_path / "missing"])
    with pytest.raises(AssayError, match="there is no run in no folder"):
        page.gather([])


def test_damaged_journals_give_what_is_left_and_a_note(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a") / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    bad = [
        b"\xff\xfe\x00binary\n",
        b"[1, 2]\n",
        b'{"step": "x"}\n',
        b"[" * 5000 + b"\n",
        b'{"step": ' + b"9" * 5000 + b"}\n",
    ]
    path.write_bytes(b"".join(lines[:3] + bad + lines[3:]) + b'{"step": 21, "rew')
    append(tmp_path / "a" / "samples.jsonl", b"no json\n", b'{"step": 1, "completion": "\xff\xfe ok"}\n', b'{"torn')
    data = page.gather([tmp_path])
    assert "metrics.jsonl: 5 damaged lines left out, the first is line 4" in data["notes"][0]
    assert "samples.jsonl: 1 damaged line left out" in data["notes"][1]
    assert data["runs"][0]["state"] == "finished"
    assert data["runs"][0]["step"] == 20
    assert data["samples"][-1]["completion"] == "\ufffd\ufffd ok"
    assert data["sample_count"] == {"shown": 5, "total": 6}


def test_binary_metrics_config_and_samples(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "grpo" / "seed-3")
    noise = bytes(range(256)) * 20
    for name in ("metrics.jsonl", "config.json", "samples.jsonl"):
        (folder / name).write_bytes(noise)
    data = page.gather([tmp_path])
    (run,) = data["runs"]
    assert (run["arm"], run["seed"], run["task"], run["state"]) == ("grpo", 3, "unknown task", "stopped")
    assert len(data["notes"]) == 3
    assert "config.json is not a JSON object" in data["notes"][0]
    page.write(data, tmp_path / "page.html")


@pytest.mark.parametrize(("more", "last", "state"), [(5, 25, "finished"), (5, 22, "stopped"), (-3, 17, "finished")])
def test_steps_that_were_added_are_planned_steps(more: int, last: int, state: str, tmp_path: Path) -> None:
    """Fewer than were planned at first, if a run that had ended early was trained further."""
    path = make_run(tmp_path / "a", last=last) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"more_steps": more}))
    (run,) = page.gather([tmp_path])["runs"]
    assert (run["step"], run["steps"], run["state"]) == (last, 20 + more, state)


def test_numbers_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a") / "metrics.jsonl"
    append(path, b'{"step": 21, "kl": NaN, "reward": Infinity}\n', b'{"step": 22, "kl": null, "not_finite": ["kl"]}\n')
    data = page.gather([tmp_path])
    assert data["notes"] == [
        f"{tmp_path.name}/a: kl was NaN or infinite at 2 steps, first at step 21",
        f"{tmp_path.name}/a: reward was NaN or infinite at 1 step, first at step 21",
    ]
    assert None not in data["runs"][0]["curves"]["values"]["reward"][:20]


def test_unequal_lengths_a_single_seed_and_no_evaluation(tmp_path: Path) -> None:
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1, last=12)
    make_run(tmp_path / "c", "ppo", "other")
    text = (tmp_path / "c" / "metrics.jsonl").read_text()
    (tmp_path / "c" / "metrics.jsonl").write_text(text.replace("evaluation", "something"))
    rows = page.gather([tmp_path])["comparison"]["rows"]
    assert [row["estimate"] for row in rows] == [0.5, None], "only finished runs count where there is one"
    (row,) = page.gather([tmp_path / "b"])["comparison"]["rows"]
    assert row["estimate"] == pytest.approx(0.26), "where none is finished, the scores so far count"
    assert row["so_far"]
    assert row["low"] is None


def test_long_runs_are_thinned_to_what_can_be_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", steps=5000)
    curves = page.gather([tmp_path])["runs"][0]["curves"]
    assert curves["step"][0] == 0
    assert curves["step"][-1] == 5000
    counts = {name: sum(value is not None for value in values) for name, values in curves["values"].items()}
    assert max(counts.values()) <= journal.POINTS
    assert len(curves["step"]) < 3 * journal.POINTS
    assert page.gather([tmp_path])["comparison"]["rows"][0]["estimate"] == 0.5
    assert folder.is_dir()


def test_samples_beyond_the_limits_are_left_out_evenly_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "a", seed=0, samples=1000)
    make_run(tmp_path / "b", seed=1, samples=10)
    monkeypatch.setattr(page, "MOST_SAMPLES", 100)
    data = page.gather([tmp_path])
    assert data["sample_count"]["total"] == 1010
    assert 80 <= data["sample_count"]["shown"] == len(data["samples"]) <= 100
    assert sum(sample["run"] == 1 for sample in data["samples"]) == 10
    assert data["samples"][0]["completion"] == "word0"
    assert data["samples"][-11]["completion"] == "word999"
    monkeypatch.setattr(page, "MOST_BYTES", 2000)
    assert 0 < len(page.encoded({"samples": page.gather([tmp_path])["samples"]})) < 3000


def test_pauses_between_a_stop_and_a_resume_are_no_time(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a") / "metrics.jsonl"
    append(path, b'{"step": 21, "time": {"at": 1800000000}}\n', b'{"step": 22, "time": {"at": 1800000001}}\n')
    assert page.gather([tmp_path])["runs"][0]["seconds"] == 21


def test_a_seed_that_comes_twice_is_told(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    assert page.gather([tmp_path])["notes"] == ["grpo on sorting-5 has seed 0 2 times: these runs are not independent"]


def test_nothing_in_the_data_can_end_the_script_or_leave_utf_8(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", method=HOSTILE)
    append(folder / "samples.jsonl", json.dumps({"step": 1, "completion": HOSTILE, HOSTILE: HOSTILE}).encode() + b"\n")
    path = page.write(page.gather([tmp_path], VERDICTS), tmp_path / "deep" / "page.html")
    text = path.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    payload = re.search(r'id="payload">(.*?)</script>', text, re.DOTALL)
    assert payload
    assert not re.search("[<>&\u2028\u2029]", payload[1])
    assert json.loads(payload[1])["samples"][-1]["completion"] == HOSTILE
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


# ---------------------------------------------------------------------------------------------------- watch
@pytest.fixture
def served(tmp_path: Path) -> Iterator[watch.Server]:
    make_run(tmp_path / "runs" / "seed-0", last=10)
    server = watch.make_server(tmp_path / "runs", port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server: watch.Server, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_watch_serves_two_addresses_with_closed_headers(served: watch.Server) -> None:
    status, headers, body = ask(served, "GET", "/")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    status, headers, body = ask(served, "GET", "/data.json")
    assert status == 200
    assert json.loads(body)["live"]
    assert ask(served, "GET", "/data.json", If_None_Match=headers["ETag"])[::2] == (304, b"")
    assert ask(served, "HEAD", "/")[::2] == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
def test_watch_only_reads(served: watch.Server, method: str) -> None:
    status, headers, _ = ask(served, method, "/")
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/seed-0/config.json", "/data.json/", "/?x"],
)
def test_watch_knows_no_other_path(served: watch.Server, path: str) -> None:
    assert ask(served, "GET", path)[0] == 404


def test_watch_answers_to_its_own_name_only(served: watch.Server) -> None:
    assert ask(served, "GET", "/", Host=f"localhost:{served.port}")[0] == 200
    for host in (
        f"evil.example:{served.port}",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{served.port}",
        "",
        f"10.0.0.1:{served.port}",
    ):
        assert ask(served, "GET", "/data.json", Host=host)[0] == 421


def test_watch_reads_again_only_after_a_change(served: watch.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    gather = page.gather
    monkeypatch.setattr(page, "gather", lambda folders, known: calls.append(1) or gather(folders, known=known))
    tags = [ask(served, "GET", "/data.json")[1]["ETag"] for _ in range(3)]
    assert len(set(tags)) == 1
    assert len(calls) == 1
    served.source.cost = 0.0
    append(served.source.folder / "seed-0" / "metrics.jsonl", b'{"step": 11, "evaluation": 9}\n')
    data = json.loads(ask(served, "GET", "/data.json")[2])
    assert data["runs"][0]["score"] == 9
    assert len(calls) == 2


def test_watch_of_an_empty_folder_says_so_and_waits(tmp_path: Path) -> None:
    with watch.make_server(tmp_path, port=0) as server:
        data, _, _ = server.source.current()
        assert "there is no run" in data["notes"][0]
        assert data["live"]


def test_watch_refuses_what_it_cannot_serve_in_one_sentence(tmp_path: Path, served: watch.Server) -> None:
    with pytest.raises(AssayError, match=rf"cannot serve at 127.0.0.1:{served.port} \(.*in use\)\. Choose another"):
        watch.make_server(tmp_path, port=served.port)
    with pytest.raises(AssayError, match="is not a folder"):
        watch.make_server(tmp_path / "missing")
    with pytest.raises(AssayError, match="from 0 to 65535"):
        watch.make_server(tmp_path, port=70000)


def test_watch_beyond_this_machine_warns_and_takes_numbers_only(tmp_path: Path) -> None:
    with watch.make_server(tmp_path, host="0.0.0.0", port=0) as server:
        assert watch.is_own_name(["10.0.0.7:8000"], server.names, server.host)
        assert not watch.is_own_name(["evil.example:8000"], server.names, server.host)
    said: list[str] = []

    class Enough(Exception):
        pass

    def announce(line: str) -> None:
        said.append(line)
        if "watching" in line:
            raise Enough

    with pytest.raises(Enough):
        watch.serve(tmp_path, host="0.0.0.0", port=0, announce=announce)
    assert said[0].startswith("warning: 0.0.0.0 can be reached from other machines")


# ---------------------------------------------------------------------------------------------------- in a browser
needs_browser = pytest.mark.skipif(binary() is None, reason="no Chromium or Chrome on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two tasks, three arms, a stopped run, control samples and hostile text."""
    base = tmp_path_factory.mktemp("page")
    for method, level in (("grpo", 0.6), ("ppo", 0.5), (f"evil {HOSTILE}", 0.4)):
        for seed in range(3):
            make_run(base / "runs" / method[:4] / f"seed-{seed}", method, seed=seed, level=level, samples=8)
    make_run(base / "runs" / "grpo" / "seed-3", seed=3, last=9)
    control = make_run(base / "runs" / "control", "ppo", "cartpole", samples=0)
    actions = [[math.sin(step / 9), math.cos(step / 9)] for step in range(50)]
    sample = {"step": 1, "return": 50.0, "length": 50, "ending": [], "actions": actions, "rewards": [1.0] * 50}
    append(
        control / "samples.jsonl",
        json.dumps(sample).encode() + b"\n",
        b'{"step": 2, "return": 3, "first_actions": [1, 0, 1]}\n',
    )
    bad = {
        "step": 20,
        "prompt": HOSTILE,
        "completion": HOSTILE,
        "answer": HOSTILE,
        "reward": 7,
        "fault": HOSTILE,
        "odd": [HOSTILE],
    }
    long = {"step": 20, "prompt": "long", "completion": "x" * 1_000_000, "reward": 8, "cut": True}
    token = {
        "step": 20,
        "prompt": "t",
        "completion": HOSTILE,
        "tokens": [HOSTILE, " ", "b"],
        "credit": [1, -1, None],
        "reward": 9,
    }
    lines = [json.dumps(each).encode() + b"\n" for each in (bad, long, token)]
    append(base / "runs" / "grpo" / "seed-0" / "samples.jsonl", *lines)
    return page.write(page.gather([base / "runs"], VERDICTS), base / "page.html").as_uri()


def filtered(browser: Browser, name: str, value: str) -> int:
    """Sets one filter of the sample browser and gives the number of samples that pass."""
    event = "change" if browser.run(f"document.querySelector('[data-filter={name}]').tagName") == "SELECT" else "input"
    browser.run(
        f"(() => {{ const node = document.querySelector('[data-filter={name}]'); node.value = {json.dumps(value)};"
        f" node.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )
    browser.settle(0.3)
    return count(browser)


def count(browser: Browser) -> int:
    words = browser.run("document.getElementById('sample-count').textContent")
    return int(re.search(r"Showing ([\d,]+) of", words)[1].replace(",", ""))  # type: ignore[index]


@needs_browser
def test_page_loads_whole_without_errors_or_requests(browser: Browser, shown: str) -> None:
    browser.open(shown)
    assert browser.complaints() == []
    assert browser.requests() == [shown]
    assert tuple(browser.run("[...document.querySelectorAll('main section')].map((one) => one.id)")) == SECTIONS
    assert browser.run("document.querySelectorAll('figure svg').length") == 5
    assert browser.run("[...document.querySelectorAll('#toc a')].every((one) => document.querySelector(one.hash))")
    assert "stopped at step 9 of 20" in browser.run("document.getElementById('results').innerText")
    names = browser.run("[...document.querySelectorAll('#curves select option')].map((one) => one.value)")
    assert {"evaluation", "reward", "step", "decisions", "seconds"} <= set(names)


@needs_browser
def test_hostile_text_is_text(browser: Browser, shown: str) -> None:
    browser.open(shown)
    for value in ("7", "8", "9"):
        filtered(browser, "low", value)
        filtered(browser, "high", value)
        browser.run("document.querySelector('#sample-detail button')?.click()")
        browser.settle(0.2)
        if value == "7":
            words = browser.run("document.getElementById('sample-detail').innerText")
            assert "</script><script>window.hacked = 1; alert(1)</script><img src=x" in words
            assert "ESC[31mredNUL" in words
            assert "U+202E" in words
            assert "U+D800" in words
            assert "\u202e" not in words
        if value == "8":
            assert (
                browser.run("document.querySelector('#sample-detail .chunk').parentNode.textContent.length")
                == 1_000_000
            )
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.run("document.querySelectorAll('img, iframe, object').length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [shown]


@needs_browser
def test_the_policy_stops_a_script_that_got_in(browser: Browser, shown: str) -> None:
    browser.open(shown)
    browser.run("(() => { const one = document.createElement('script'); one.textContent = 'window.hacked = 2';"
                " document.body.append(one); })()")  # fmt: skip
    assert browser.run("window.hacked") is None


@needs_browser
def test_filters_change_the_count(browser: Browser, shown: str) -> None:
    browser.open(shown)
    every = count(browser)
    assert every == 3 * 3 * 8 + 4 + 2 + 3
    assert filtered(browser, "arm", "grpo") == 3 * 8 + 4 + 3
    assert filtered(browser, "seed", "1") == 8
    assert filtered(browser, "step", "10") == 4
    assert filtered(browser, "low", "1") == 2
    assert filtered(browser, "text", "WORD5") == 1
    assert filtered(browser, "text", "nowhere") == 0
    assert "No sample passes" in browser.run("document.getElementById('sample-detail').innerText")
    for name in ("arm", "seed", "step", "low", "text"):
        filtered(browser, name, "")
    browser.run("document.querySelector('[data-filter=cut]').click()")
    browser.settle(0.2)
    assert count(browser) == 3 * 3 * 2 + 1 + 1
    browser.run(
        "document.querySelector('[data-filter=cut]').click(); document.querySelector('[data-filter=fault]').click()"
    )
    assert count(browser) == 1
    assert "3 of 3 claims" in browser.run("document.getElementById('claim-count').textContent")
    browser.run("(() => { const one = document.querySelector('#verdicts select'); one.value = 'fails';"
                " one.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert "1 of 3 claims" in browser.run("document.getElementById('claim-count').textContent")


@needs_browser
def test_keyboard_reaches_everything(browser: Browser, shown: str) -> None:
    browser.open(shown)
    place = "document.querySelector('#sample-detail .detail-head .num').textContent"
    assert browser.run(place).startswith("1 of")
    for key in ("j", "j", "k", "j"):
        browser.key(key)
    assert browser.run(place).startswith("3 of")
    browser.run("document.getElementById('sample-list').focus()")
    browser.key("End")
    assert browser.run(place) == f"{count(browser)} of {count(browser)}"
    assert (
        browser.run("document.getElementById('sample-list').getAttribute('aria-activedescendant')")
        == f"sample-{count(browser) - 1}"
    )
    browser.key("ArrowUp")
    assert browser.run(place).startswith(f"{count(browser) - 1} of")
    browser.key("/")
    assert browser.run("document.activeElement.dataset.filter") == "text"
    browser.key("j")
    assert browser.run("document.activeElement.value") == "j"
    browser.key("Escape")
    assert browser.run("document.activeElement.id") == "sample-list"
    browser.key("?")
    assert browser.run("document.getElementById('help').open")
    browser.key("Escape")
    browser.until("!document.getElementById('help').open")
    browser.run("document.querySelector('#curves svg').focus()")
    browser.key("ArrowLeft")
    assert not browser.run("document.getElementById('tip').hidden")
    nameless = (
        "[...document.querySelectorAll('button, input, select')]"
        ".filter((one) => !(one.textContent.trim() || one.ariaLabel || one.closest('label'))).length"
    )
    assert browser.run(nameless) == 0
    assert browser.complaints() == []


@needs_browser
def test_colours_follow_the_system_and_the_button(browser: Browser, shown: str) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    browser.open(shown)
    browser.run("localStorage.removeItem('assay-theme')")
    browser.open(shown)
    assert browser.run(paper) == "rgb(255, 255, 255)"
    browser.key("t")
    assert browser.run(paper) == "rgb(20, 23, 27)"
    browser.run("localStorage.removeItem('assay-theme')")
    browser.open(shown, dark=True)
    assert browser.run(paper) == "rgb(20, 23, 27)"
    browser.run("document.getElementById('theme').click()")
    assert browser.run(paper) == "rgb(255, 255, 255)"
    browser.run("localStorage.removeItem('assay-theme')")


@needs_browser
def test_charts_answer_to_their_controls_and_save_as_svg(browser: Browser, shown: str) -> None:
    browser.open(shown)
    browser.run("window.saved = []; URL.createObjectURL = (blob) => { window.saved.push(blob); return 'blob:none'; };"
                " HTMLAnchorElement.prototype.click = () => {}; 0")  # fmt: skip
    browser.run("document.querySelectorAll('.save').forEach((one) => one.click())")
    texts = browser.run("Promise.all(window.saved.map((one) => one.text()))")
    assert len(texts) == 5
    assert all(text.startswith("<svg") and "var(" not in text for text in texts)
    lines = "document.querySelectorAll('#curves svg path.line').length"
    browser.run("document.querySelector('#scope select').value = 'sorting-5';"
                " document.querySelector('#scope select').dispatchEvent(new Event('change'))")  # fmt: skip
    assert browser.run(lines) == 3
    browser.run("document.querySelector('#scope [data-arm=grpo]').click()")
    assert browser.run(lines) == 2
    browser.run("document.querySelector('#curves input[type=checkbox]').click()")
    assert browser.run("document.querySelectorAll('#curves svg path.seed').length") == 6
    assert browser.complaints() == []


@needs_browser
def test_a_phone_shows_it_without_sideways_scrolling(browser: Browser, shown: str) -> None:
    browser.open(shown, width=390, height=844)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for value in ("7", "9", "50"):
        filtered(browser, "high", "")
        filtered(browser, "low", value)
        filtered(browser, "high", value)
        assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.complaints() == []


@needs_browser
def test_ten_thousand_samples_load_and_scroll(browser: Browser, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", samples=0)
    text = "The quick brown fox jumps over the lazy dog. " * 30
    lines = [
        json.dumps({"step": place // 50, "prompt": f"p{place}", "completion": text, "reward": place % 3})
        for place in range(12_000)
    ]
    append(tmp_path / "runs" / "a" / "samples.jsonl", "\n".join(lines).encode() + b"\n")
    data = page.gather([tmp_path / "runs"])
    assert len(data["samples"]) > 9000
    seconds = browser.open(page.write(data, tmp_path / "page.html").as_uri())
    assert seconds < 10, f"{seconds:.1f} s until the page could be used"
    words = browser.run("document.getElementById('sample-count').textContent")
    assert f"{len(data['samples']):,} of 12,000 samples" in words
    assert browser.run("document.querySelectorAll('#sample-list .row').length") < 60
    slowest = browser.run("""(async () => {
        const list = document.getElementById('sample-list'), frame = () => new Promise(requestAnimationFrame);
        list.scrollIntoView();
        let worst = 0;
        for (let i = 0; i < 30; i += 1) {
            const begun = performance.now();
            list.scrollTop += 20000;
            await frame(); await frame();
            worst = Math.max(worst, performance.now() - begun);
        }
        return worst;
    })()""")
    assert slowest < 1000, f"a scroll step took {slowest:.0f} ms"
    assert filtered(browser, "text", "p4000") >= 0
    assert browser.complaints() == []


@needs_browser
def test_watch_updates_in_place(browser: Browser, served: watch.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_MS", 100)
    browser.open(served.url)
    browser.until("document.getElementById('live').textContent.startsWith('live')")
    filtered(browser, "low", "1")
    browser.key("j")
    place = "document.querySelector('#sample-detail').dataset.key"
    before = browser.run(place)
    browser.run("window.mine = 1; window.scrollTo(0, 700)")
    folder = served.source.folder / "seed-0"
    append(folder / "metrics.jsonl", b'{"step": 15, "evaluation": 0.987, "brand_new": 1, "time": {"at": 1790000015}}\n')
    append(folder / "samples.jsonl", b'{"step": 15, "prompt": "p", "completion": "c", "reward": 1}\n')
    browser.until("document.querySelector('#results .strong span').textContent === '0.987'", within=30)
    assert browser.run("window.mine") == 1, "the page was loaded again"
    assert browser.run("window.scrollY") == 700
    assert browser.run("document.querySelector('[data-filter=low]').value") == "1"
    assert count(browser) == 3
    assert browser.run(place) == before
    assert browser.run("[...document.querySelectorAll('#curves option')].some((one) => one.value === 'brand_new')")
    assert browser.complaints() == []
    assert {url.split("/")[2] for url in browser.requests()} == {f"127.0.0.1:{served.port}"}


@needs_browser
def test_failed_and_missing_runs_are_said(browser: Browser, tmp_path: Path) -> None:
    make_comparison(tmp_path / "runs")
    browser.open(page.write(page.gather([tmp_path / "runs"]), tmp_path / "page.html").as_uri())
    words = browser.run("document.getElementById('results').innerText")
    assert "Failed and missing runs" in words
    assert "DR_grpo on sorting-3, seed 1: out of memory" in words
    assert "DR_grpo on sorting-3, seed 2: there is no run" in words
    assert "scores higher than" in words
    assert browser.run("document.querySelectorAll('#scope .chip').length") == 2
    assert "held-out score (share, 0 to 1)" in browser.run("document.getElementById('curves').innerHTML")
    assert browser.complaints() == []


@needs_browser
def test_the_answer_is_on_top_and_a_column_has_even_decimals(browser: Browser, tmp_path: Path) -> None:
    make_apart(tmp_path / "runs")
    path = page.write(page.gather([tmp_path / "runs"]), tmp_path / "page.html").as_uri()
    for dark, width in ((False, 1280), (True, 390)):
        browser.open(path, dark=dark, width=width)
        assert browser.run("document.getElementById('answer').innerText").startswith("a is above b on hard by 0.59 [")
        assert browser.run("document.querySelector('#scope select').value") == "hard"
        tables = "[...document.querySelectorAll('#results .wide > table:not(.plain) tbody')]"
        cells = "[...t.querySelectorAll('td:nth-child(2) span')].map((cell) => cell.innerText)"
        shown = browser.run(f"{tables}.map((t) => {cells})")
        assert [len(column) for column in shown] == [2, 2]
        assert all(len({len(one.partition(".")[2]) for one in column}) == 1 for column in shown), shown
        assert browser.complaints() == []


@needs_browser
def test_identical_curves_are_told_apart(browser: Browser, tmp_path: Path) -> None:
    for method in ("grpo", "rloo"):
        make_run(tmp_path / "runs" / method, method)
    browser.open(page.write(page.gather([tmp_path / "runs"]), tmp_path / "page.html").as_uri())
    dashes = (
        "[...document.querySelectorAll('#curves svg path.line')].map((one) => one.getAttribute('stroke-dasharray'))"
    )
    assert len(set(browser.run(dashes))) == 2
    assert "Identical at every point, one line on the other: grpo, rloo" in browser.run(
        "document.querySelector('#figure-learning-curves figcaption').textContent"
    )


@needs_browser
def test_verdict_words_are_explained_beside_them(browser: Browser, shown: str) -> None:
    browser.open(shown)
    words = browser.run("document.querySelector('#verdicts .meanings').innerText")
    for word in ("holds", "fails", "inconclusive", "stale"):
        assert word in words
    assert "with 1 to 4 seeds each" in browser.run("document.getElementById('methods-text').textContent")


@needs_browser
def test_every_bad_folder_has_a_page(browser: Browser, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a" / "x", last=0, samples=0)
    (folder / "metrics.jsonl").write_bytes(bytes(range(256)))
    make_run(tmp_path / "b" / "x", samples=0)
    (tmp_path / "c" / "x").mkdir(parents=True)
    (tmp_path / "c" / "x" / "metrics.jsonl").write_text(
        '{"step": 0}\n{"step": 1, "a": 1e300, "b": true, "alarms": 3, "time": 5}\n'
    )
    for name in "abc":
        browser.open(page.write(page.gather([tmp_path / name]), tmp_path / f"{name}.html").as_uri())
        assert browser.complaints() == []
        assert browser.run("document.getElementById('samples').innerText.includes('No samples were written')")
    for data in (page.nothing("nothing is here"), page.gather([], VERDICTS)):
        browser.open(page.write(data, tmp_path / "d.html").as_uri())
        assert browser.complaints() == []
