"""What a task says about how its completions are written."""

import json
from pathlib import Path

import pytest

from assay.claims import probes
from assay.core.answers import AnswerFormat, answer_format_of, found_format, marked_once, reasoned_answer
from assay.core.errors import AssayError
from assay.method import Scene
from assay.parts import CountModes, Matches
from assay.runs.language import with_mark
from assay.tasks.language.files import task_of_files
from assay.tasks.language.sorting import sorting
from assay.tasks.language.thinking import thinking


def test_a_files_mark_is_what_all_its_demonstrations_share() -> None:
    assert found_format(["2 + 2\n#### 4", "#### 12"]) == AnswerFormat("####", " ")
    assert found_format(["a</think>b", "c</think>d"]) == AnswerFormat("</think>")
    assert found_format(["2 #### 4", "12"]) == AnswerFormat()
    assert found_format(["1 #### 2 #### 3"]) == AnswerFormat()
    assert found_format(["1 ####"]) == AnswerFormat()
    assert found_format([]) == AnswerFormat()


@pytest.mark.parametrize(("answers", "mark"), [(("2 + 2\n#### 4", "#### 12"), "####"), (("4", "12"), "")])
def test_a_file_of_worked_answers_declares_its_mark(tmp_path: Path, answers: tuple[str, ...], mark: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"q{k}", "answer": one}) + "\n" for k, one in enumerate(answers)))
    assert answer_format_of(task_of_files(str(file))).mark == mark


def test_a_pattern_that_reads_the_task_is_refused_where_the_task_does_not_say() -> None:
    with pytest.raises(AssayError, match=r"task 'sorting-3': nothing says what ends the reasoning.*--mark"):
        Matches(marked_once).init(Scene(sorting(3)))
    Matches(marked_once).init(Scene(thinking()))


def test_reasoning_the_mark_once_and_an_answer() -> None:
    task = with_mark(probes.answered(["7"])[0], "####")
    said = ["1\n####7", "####7", "7", "1####", "1####2####3"]
    rows = probes.completed(task, said, [0] * len(said))
    assert Matches(reasoned_answer)(rows, Scene(task)).column("score").tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert Matches(marked_once)(rows, Scene(task)).column("score").tolist() == [1.0, 1.0, 0.0, 1.0, 0.0]


def test_a_mark_that_the_task_cannot_write_is_refused() -> None:
    with pytest.raises(AssayError, match="--mark is '§', which task 'sorting-3' cannot write"):
        with_mark(sorting(3), "§")


def test_classes_that_a_function_reads_are_checked_when_a_run_begins() -> None:
    with pytest.raises(AssayError, match="Name at least one class"):
        CountModes(lambda answers: dict(answers.modes)).init(Scene(sorting(3)))
