"""What a newcomer sees first: the curve is what the command draws, ten methods to start with, commands that fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from assay.report import overview
from assay.runs.given import DEFAULT_METHOD, DEMONSTRATION
from assay.runs.plot import curve, learning_curve
from tests.docs.blocks import ROOT

RECORDS = [json.loads(line) for line in (ROOT / "docs" / "learning_curve.jsonl").read_text().splitlines()]
"""The held-out scores of the run that is shown."""


def test_the_curve_shown_is_the_one_that_the_command_draws(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    title = f"{DEFAULT_METHOD} on {DEMONSTRATION['task']}"
    assert RECORDS[0]["step"] == 0
    assert RECORDS[-1]["step"] == DEMONSTRATION["steps"]
    series = [curve(DEFAULT_METHOD, "evaluation", [RECORDS])]
    drawn = image.imread(learning_curve(tmp_path / "curve.png", series, title=title, subtitle="held-out score"))
    shown = image.imread(ROOT / "docs" / "learning_curve.png")
    assert drawn.shape == shown.shape
    assert float(np.abs(drawn - shown).mean()) < 0.01, "fonts may differ, the line may not"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_words_below_the_curve_have_its_numbers_and_lead_to_own_code(page: str) -> None:
    text = (ROOT / page).read_text()
    steps, first, last = re.findall(r"then (\d+) steps of GRPO against a\s+verifier: from ([\d.]+) to ([\d.]+)", text)[
        0
    ]
    assert int(steps) == DEMONSTRATION["steps"]
    assert [first, last] == [f"{RECORDS[place]['evaluation']:.2f}" for place in (0, -1)]
    assert re.search(r"\[bring your own\]\((docs/)?own\.md\)", text, flags=re.I)


def test_the_page_on_a_first_run_has_the_methods_that_the_list_starts_with() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", (ROOT / "docs" / "first_run.md").read_text(), flags=re.M)
    wanted = {(entry.key, entry.start_for) for entry in overview.starts()}  # the list's order follows what is derived
    table = [row for row in rows if row in wanted]
    assert (set(table), len(table)) == (wanted, 10)


def test_commands_of_the_readme_fit_a_narrow_page() -> None:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 90] == []
