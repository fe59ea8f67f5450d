"""Errors in a user's code: place and traceback, and no further runs that would fail the same way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import assay
from assay.cli.main import main
from assay.core.errors import AssayError, DataWarning
from assay.core.faults import Fault
from assay.runs.jobs import Doomed, Failure, run_jobs
from assay.runs.pools import Child, Ended, Job, Pool
from assay.runs.run import train
from assay.runs.search import Training, parsed_space
from assay.runs.user_code.consent import Code

BROKEN = '''"""mine: grpo with a mistake in line 11."""
from dataclasses import dataclass, replace

from assay.claims import Claims, Exact
from assay.method import EVERY, LANGUAGE, Method, RowStatistic, recipes


@dataclass(frozen=True)
class Mean(RowStatistic):
    def __call__(self, outcome_B, experience):
        return outcome_B.average()


def recipe(preset=LANGUAGE):
    base = recipes.grpo(preset)
    return replace(base, name="mine", credit=(replace(base.credit[0], baseline=Mean()),))


def counted():
    return [][0]


METHOD = Method(paper="", recipe=recipe, presets=EVERY, default_task="bandit", family="gradient", base=recipes.grpo)
CLAIMS = Claims(claims=(Exact("it counts", counted, equals=0.0),))
'''


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder with a method that fails in line 11."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BROKEN)
    return tmp_path


class Pretended(Pool):
    """Ends every job at once, with the fault of its arm and seed."""

    def __init__(self, faults: dict[tuple[str, int], Fault]) -> None:
        self.faults, self.begun = faults, list[tuple[str, int]]()

    @property
    def size(self) -> int:
        return 1

    def start(self, job: Job, code: Code) -> Child:
        self.begun.append((job.arm, job.seed))
        return Child(job, 0.0)

    def wait(self, children: Sequence[Child], timeout: float) -> list[Ended]:
        return [Ended(one, "it failed", fault=self.faults.get((one.job.arm, one.job.seed))) for one in children]

    def stop(self, children: Sequence[Child]) -> None:
        return None


def test_an_error_of_own_code_names_the_line_and_keeps_the_traceback(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mine.py", "--task", "bandit", "--steps", "1", "--out", "run"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("assay: mine.py, line 11: AttributeError: 'Tensor' object has no attribute 'average'. ")
    assert said.endswith("resume with: assay resume run --accept-changed-code. The traceback is in run/traceback.txt")
    kept = (broken / "run" / "traceback.txt").read_text()
    assert 'mine.py", line 11' in kept
    assert "loop.py" in kept
    (broken / "mine.py").write_text(BROKEN.replace("average", "mean"))
    assert main(["resume", "run", "--accept-changed-code"]) == 0
    assert not (broken / "run" / "traceback.txt").exists(), "the run has no error any more"


def test_from_python_the_exception_keeps_its_type_and_has_a_note(broken: Path) -> None:
    with pytest.raises(AttributeError, match="average") as caught:
        train("mine.py", "bandit", steps=1, out="run")
    assert any("run/traceback.txt" in note for note in caught.value.__notes__)


def test_the_call_that_resumes_a_run_of_a_notebooks_function_is_the_one_that_is_named(broken: Path) -> None:
    """A shell knows no function of a notebook; the command that was named could not resume the run."""
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(9) for b in range(9)]
    sizes = {"steps": 2, "warmup": 1, "prompts": 2, "max_tokens": 4, "eval_prompts": 4, "reward_timeout": 9.0}
    small = {"actor.width": 8, "actor.layers": 1, "actor.heads": 2}
    calls = list[int]()

    def late(completions: list[str]) -> list[float]:
        calls.append(1)
        return [0.5 for _ in completions] if len(calls) < 6 else [][0]

    with pytest.raises(AssayError, match="list index out of range") as caught, pytest.warns(DataWarning):
        train("grpo", rows, reward=late, settings=small, out="run", **sizes)  # type: ignore[arg-type]
    named = str(caught.value).partition("resume with: ")[2].partition("\n")[0]
    assert named == "assay.resume('run', functions=[late], accept_changed_code=True)"

    def mended(completions: list[str]) -> list[float]:
        return [0.5 for _ in completions]

    mended.__name__, mended.__qualname__ = late.__name__, late.__qualname__
    assert eval(named, {"assay": assay, "late": mended}).curves[-1]["step"] == 2


def test_claims_and_checks_name_the_line(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim", "mine.py", "--exact"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said == (
        "assay: mine.py, line 20: IndexError: list index out of range. It was raised by the exact claim 'it counts'"
    )
    from assay.claims.laws.file import check_file

    (report,) = check_file(broken / "mine.py")
    assert "(mine.py, line 11)" in report.findings[0].detail


def test_after_two_equal_failures_no_run_of_the_arm_is_started(tmp_path: Path) -> None:
    there = Fault("ValueError", "/a.py", 3)
    jobs = [
        Job(arm, "bandit", seed, tmp_path / arm / str(seed), "reinforce", {"steps": 1})
        for seed in range(4)
        for arm in ("bad", "other")
    ]
    pool = Pretended({("bad", 0): there, ("bad", 1): there, ("other", 0): Fault("ValueError", "/a.py", 4)})
    found = [one for one in run_jobs(jobs, 1, pool=pool) if isinstance(one, Failure)]
    assert len(found) == len(jobs), "every job has an outcome"
    assert [seed for arm, seed in pool.begun if arm == "bad"] == [0, 1]
    assert [seed for arm, seed in pool.begun if arm == "other"] == [0, 1, 2, 3], "its failures differ"
    assert [(one.job.arm, one.job.seed) for one in found if not one.started] == [("bad", 2), ("bad", 3)]


def test_what_shares_the_file_fails_too_unless_a_run_with_it_ended_well(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    code, there = {str(file): {"rewards.py": "0"}}, Fault("ValueError", str(file), 3)
    first, second = (Job(arm, "bandit", 0, tmp_path / arm, "grpo") for arm in ("first", "second"))
    doomed = Doomed()
    doomed.failed(first, there)
    assert doomed.fault_of(second, code) is None, "one failure may be one of its seed"
    doomed.failed(first, there)
    assert doomed.fault_of(second, code) == there
    assert doomed.fault_of(second, {}) is None, "it does not use the file"
    doomed.passed(second, code)
    assert doomed.fault_of(second, code) is None
    assert doomed.fault_of(first, code) == there


def test_a_search_ends_after_two_equal_failures_and_keeps_no_trial(tmp_path: Path) -> None:
    there = Fault("ValueError", "/a.py", 3)
    pool = Pretended({("tuned", seed): there for seed in range(9)})
    training = Training("reinforce", "bandit", 1, tmp_path, {}, workers=1, pool=pool)
    space = parsed_space(["policy.learning_rate=1e-4,1e-3"])
    settings = {name: each.at(0.1) for name, each in space.settings.items()}
    with pytest.raises(AssayError, match=r"ends after two equal failures \(it failed"):
        training.ahead([(settings, seed, 1.0) for seed in range(5)])
    assert len(pool.begun) == 2
