"""Python as the command line: options as keywords, functions as rewards and tools, rows as tasks."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import torch

import assay
from assay.core.calls import rewards_of
from assay.core.errors import AssayError
from assay.engine.placement import Placement
from assay.runs.given_rows import address_of_rows, name_of_rows
from assay.runs.keywords import Keywords, option_names, with_keywords
from assay.runs.options import LanguageOptions, OwnOptions, RunOptions
from assay.runs.plan import plan_of
from assay.runs.user_code import objects

ROWS = [{"prompt": f"{n} + {n} =", "answer": str(2 * n)} for n in range(1, 41)]
SHORT: dict[str, Any] = {"steps": 1, "warmup": 0, "prompts": 4, "group_size": 2, "max_tokens": 4, "eval_prompts": 4}


def test_keywords_are_the_options_of_the_command_line() -> None:
    assert set(get_type_hints(Keywords)) | {"evaluations"} == {
        name if name != "from" else "from_" for name in option_names()
    }


def test_a_keyword_is_the_option_of_its_name() -> None:
    def shorter(completions: list[str]) -> list[float]:
        return [0.0 for _ in completions]

    options, placement, given = with_keywords(
        RunOptions(language=LanguageOptions(kl=0.1)), None, {"max_tokens": 7, "reward": {shorter: 0.5}, "tokens": 64}
    )
    assert options.language == LanguageOptions(kl=0.1, max_tokens=7)
    assert options.own == OwnOptions(reward=("python:shorter=0.5",))
    assert placement == Placement(tokens=64)
    assert not given
    assert with_keywords(RunOptions(), None, {"env_set": "gravity=9"})[0].environment.env_set == ("gravity=9",)


@pytest.mark.parametrize(
    ("keywords", "match"),
    [
        ({"max_token": 3}, r"'max_token' is no option\. Did you mean max_tokens="),
        ({"beta": 0.1}, r"'beta' is no option\. Did you mean kl="),
        ({"dataset": [1]}, r"'dataset' is no option\. Did you mean task="),
        ({"gamma": 0.9}, r"'gamma' is no option\. Did you mean settings=\{'discount': X\}"),
        ({"policy_kwargs": {}}, r"'policy_kwargs' is no option\. Did you mean body="),
        ({"seeds": 5}, r"in Python by assay\.compare\(\[METHOD\], TASK, seeds=N\)"),
        ({"verbose": 1}, r"METHOD --json, in Python by mode=assay\.runs\.progress\.Mode\.SILENT"),
        ({"max_tokens": "many"}, "--max-tokens is 'many'. Use a whole number"),
        ({"reward": 3}, "reward"),
        ({"reward": dict}, "is not a function"),
    ],
)
def test_a_wrong_keyword_is_refused_in_a_sentence(keywords: dict[str, Any], match: str) -> None:
    with pytest.raises(AssayError, match=match):
        with_keywords(RunOptions(), None, keywords)


def test_an_argument_of_train_alone_is_suggested_by_train() -> None:
    with pytest.raises(AssayError, match="Did you mean callbacks="):
        assay.train("ppo", "cartpole", callback=print)  # type: ignore[call-arg]


class Tells:
    """Raises an error that cannot be told: its own text raises."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def __call__(self, completions: list[str]) -> list[float]:
        raise self.Odd


TRAIN: list[tuple[dict[str, Any], str]] = [
    ({"warmup": "x"}, "warmup is 'x'. Use a whole number or None"),
    ({"warmup": 1.5}, "warmup is 1.5"),
    ({"warmup": True}, "warmup is True"),
    ({"evaluations": math.nan}, "evaluations is nan"),
    ({"seed": None}, "seed is None. Use a whole number"),
    ({"steps": "3"}, "steps is '3'"),
    ({"preset": 3}, "preset is 3. Use a text or None"),
    ({"settings": [1]}, r"settings is \[1\]. Use a dict or None"),
    ({"placement": "cpu"}, "placement is 'cpu'. Use a Placement or None"),
    ({"options": {}}, r"options is {}. Use a RunOptions"),
    ({"mode": "silent"}, "mode is 'silent'. Use a Mode or None"),
    ({"callbacks": 3}, "callbacks is 3. Use a list"),
    ({"callbacks": [3]}, "callback 3 cannot be called"),
    ({"sinks": "tensorboard"}, "sinks is 'tensorboard'. Use a list"),
    ({"sinks": [3]}, "sink 3 has no write and close"),
    ({"out": 3}, "out is 3"),
    ({"out": "a\0b"}, "can be no path"),
    ({"out": "a" * 5000}, "can be no path"),
]


@pytest.mark.parametrize(("given", "match"), TRAIN, ids=str)
def test_an_argument_of_another_kind_is_refused_in_a_sentence(
    given: dict[str, Any], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssayError, match=match):
        assay.train("reinforce", "bandit", **given)
    assert not list(tmp_path.iterdir())


def test_arguments_of_comparisons_and_scores_are_held_against_their_kinds() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: assay.compare([], "bandit"), r"methods is \[\]. Give a list of methods"),
        (lambda: assay.compare({3: "ppo"}, "bandit"), "methods has the name 3"),  # type: ignore[dict-item]
        (lambda: assay.compare(["ppo"], "bandit", budget="x"), "budget is 'x'. Use a number or None"),  # type: ignore[arg-type]
        (lambda: assay.ablate("ppo", "a2c", "cartpole", jobs=1.5), "jobs is 1.5"),  # type: ignore[arg-type]
        (lambda: assay.tune("reinforce", "bandit", {"lr": 3}), "'lr' has the range 3"),  # type: ignore[dict-item]
        (lambda: assay.tune("reinforce", "bandit", {"lr": (1, "x")}), "'lr' has the range"),  # type: ignore[dict-item]
        (lambda: assay.tune("reinforce", "bandit", {3: (1, 2)}), "the setting 3"),  # type: ignore[dict-item]
        (lambda: assay.evaluate("run", passk=3.5), "passk is 3.5. Use a text or a whole number or a list"),  # type: ignore[arg-type]
        (lambda: assay.resume("run", more_steps="x"), "more_steps is 'x'"),  # type: ignore[arg-type]
    ]
    for call, match in cases:
        with pytest.raises(AssayError, match=match):
            call()


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (10**400, "returned an int of 1329 bits for row 0. It must be a finite number of at most 3.4e"),
        (1e300, "returned 1e"),
        (torch.ones((), device="meta"), "a tensor that has no number"),
    ],
    ids=["int", "float", "meta"],
)
def test_a_reward_that_no_tensor_holds_is_refused(value: Any, match: str) -> None:
    with pytest.raises(AssayError, match=match):
        rewards_of(lambda completions: [value for _ in completions], [{"completion": "a"}], "it", 9.0)


def test_an_error_without_a_text_is_told_by_its_type() -> None:
    with pytest.raises(AssayError, match="it raised Odd: its text raises ValueError"):
        rewards_of(Tells(), [{"completion": "a"}], "it", 9.0)


def test_rows_of_a_named_dataset_have_its_name() -> None:
    rows = [{"prompt": "1+1=", "answer": "2"}]
    named = SimpleNamespace(info=SimpleNamespace(dataset_name="my sums"), split="train")
    assert [name_of_rows(one) for one in (rows, named)] == ["rows", "my-sums-train"]
    assert name_of_rows(SimpleNamespace(info=SimpleNamespace(dataset_name=None), split=None)) == "rows"


def test_a_placement_and_its_keywords_are_not_both_given() -> None:
    with pytest.raises(AssayError, match="placement and micro_batch are both given"):
        with_keywords(RunOptions(), Placement(), {"micro_batch": 3})


# ---------------------------------------------------------------------------------------------------- functions, rows
@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_rows_and_a_function_train_and_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    def digits(completions: list[str]) -> list[float]:
        seen.extend(completions)
        return [sum(letter.isdigit() for letter in text) / 4 for text in completions]

    run = assay.train("grpo", ROWS, reward=digits, out="run", **SHORT)
    assert seen
    assert run.curves[-1]["reward"] == pytest.approx(run.curves[-1]["reward/digits"])
    plan = plan_of("run")
    assert plan.options.own.reward == ("python:digits",)
    assert Path(plan.config()["task"]).parent == tmp_path / "runs" / "data"
    assert re.fullmatch(r"rows-[0-9a-f]{12}", plan.task.name)
    monkeypatch.setattr(objects, "GIVEN", {})
    with pytest.raises(
        AssayError, match=r"made with the Python object 'digits'.*assay\.resume\(folder, functions=\[digits\]\)"
    ):
        assay.resume("run")
    assert assay.resume("run", functions=[digits]).curves == run.curves


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_a_changed_function_is_changed_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def paid(completions: list[str]) -> list[float]:
        return [1.0 for _ in completions]

    assay.train("grpo", ROWS, reward=paid, out="run", **SHORT)

    def other(completions: list[str]) -> list[float]:
        return [0.0 for _ in completions]

    other.__name__ = "paid"
    with pytest.raises(AssayError, match="own code has changed since run was started: paid of python:paid"):
        assay.resume("run", functions=[other])
    other.__qualname__ = paid.__qualname__
    with pytest.raises(AssayError, match=r"other settings \(different: the code of paid\). Use another --out"):
        assay.train("grpo", ROWS, reward=other, out="run", **SHORT)


def test_a_function_of_a_module_has_its_address() -> None:
    from benchmarks import gsm8k_reward

    word = objects.address_of_function(gsm8k_reward.last_number, "reward")
    assert word == "benchmarks.gsm8k_reward:last_number"
    assert objects.address_of_function(lambda completions: [0.0], "reward", 2) == "python:reward_2"


def test_a_dataset_of_hugging_face_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    run = assay.train("sft", datasets.Dataset.from_list(ROWS), out="run", steps=1, eval_prompts=4)
    assert sum(map(len, run.task.items.splits)) == len(ROWS)


def test_tables_and_pairs_of_rows_are_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    run = assay.train("sft", (pandas.DataFrame(ROWS[:30]), ROWS[30:]), out="run", steps=1, eval_prompts=4)
    train, test = run.task.items.splits
    assert (len(train), len(test)) == (30, 10)


def test_columns_are_the_rows_that_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    assert address_of_rows(columns) == address_of_rows(ROWS), "the file is named by its content"


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "no rows"),
        ([3], "row 0 of the task is a int"),
        ([{"prompt": object()}], "row 0 .* JSON"),
        (3, "task is a int"),
        ({"prompt": "1+1="}, "task is a dict"),
        ({"prompt": ["a", "b"], "answer": ["c"]}, r"columns of the task have \{'prompt': 2, 'answer': 1\} rows"),
    ],
)
def test_unusable_rows_are_refused(rows: Any, match: str) -> None:
    with pytest.raises(AssayError, match=match):
        assay.train("sft", rows)


def test_a_parquet_file_is_the_task_of_its_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
    run = assay.train("sft", tmp_path / "rows.parquet", out=tmp_path / "run", steps=1, eval_prompts=4)
    assert sum(map(len, run.task.items.splits)) == len(ROWS)


def test_every_group_has_distinct_names() -> None:
    names = [one.name for group in RunOptions() for one in fields(group)]
    assert len(set(names)) == len(names)
