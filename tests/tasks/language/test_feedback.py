"""What tasks say about answers that fail."""

import json
from pathlib import Path

from assay.claims import probes
from assay.tasks.language.addition import addition
from assay.tasks.language.feedback import feedback_of, gives_feedback
from assay.tasks.language.files import task_of_files
from assay.tasks.language.sorting import sorting


def test_sorting_names_the_first_wrong_place() -> None:
    task = sorting(3)
    right = task.items.item(0, 0).answer
    rows = probes.completed(task, [right, right[:2], right + "a", "=" + right[1:]], [0] * 4)
    assert gives_feedback(task)
    assert feedback_of(task, rows, 0) == ["", "wrong at 3", "wrong at 4", "wrong at 1"]


def test_a_files_rows_have_a_field_for_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"q{k}", "answer": "yes", "feedback": f"test {k} failed"} for k in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = task_of_files(str(file))
    (said,) = feedback_of(task, probes.completed(task, ["no"], [0]), 0)  # type: ignore[arg-type]
    assert gives_feedback(task)
    assert said.startswith("test ")
    assert said.endswith(" failed")


def test_a_task_without_either_gives_none() -> None:
    assert not gives_feedback(addition(1))
