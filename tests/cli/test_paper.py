"""What a report writes for a paper: CSV, LaTeX, PDF and the methods paragraph."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.core.errors import AssayError
from assay.report import page, paper
from assay.report.figures import save_figures
from assay.report.units import held_out, parsed_ranges
from assay.runs.ranges import known_range
from tests.cli.test_page import HOSTILE, make_comparison, make_run

NASTY = 'a_b & 50% #1 $x^2$ {y} ~z \\input{/etc/passwd} <|"> --- ü λ\x00'


def rows_of(text: str) -> list[list[str]]:
    """Reads a tabular strictly: every row has as many cells as the table has columns, and nothing is left unescaped."""
    ((columns, body),) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL)
    assert body.index(r"\toprule") < body.index(r"\midrule") < body.index(r"\bottomrule")
    rows = []
    for line in filter(None, map(str.strip, body.splitlines())):
        if re.fullmatch(r"\\(top|mid|bottom)rule", line):
            continue
        assert line.endswith(r"\\"), line
        check_escapes(line.removesuffix(r"\\"))
        if wide := re.fullmatch(r"\\multicolumn\{(\d+)\}\{l\}\{.*\} \\\\", line):
            assert int(wide[1]) == len(columns)
            continue
        rows.append(re.split(r"(?<!\\) & ", line.removesuffix(r" \\")))
        assert len(rows[-1]) == len(columns), line
    return rows


def check_escapes(text: str) -> None:
    """Refuses special characters outside of the commands that the table uses, and braces that do not match."""
    known = (
        r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|symbol|multicolumn|emph|times|,)"
    )
    rest = re.sub(rf"{known}|\\[{{}}$&#_%]", "", text)
    assert not re.search(r"[\\#%~_]|[^\x20-\x7e\u00c0-\u00ff]", rest), rest
    depth = 0
    for one in rest:
        depth += (one == "{") - (one == "}")
        assert depth >= 0, text
    assert depth == 0, text
    assert rest.count("$") % 2 == 0, text


def compiled(folder: Path, table: str) -> None:
    """Compiles the table with pdflatex where it is installed."""
    if shutil.which("pdflatex") is None:
        return
    preamble = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (folder / "paper.tex").write_text(f"{preamble}\n{table}\n\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")


@pytest.fixture
def comparison(tmp_path: Path) -> dict[str, Any]:
    return page.gather([make_comparison(tmp_path / "runs")])["comparison"]


def test_latex_has_a_row_for_each_arm_and_task(comparison: dict[str, Any], tmp_path: Path) -> None:
    text = paper.latex_text(comparison, "We trained 50% of it.")
    head, *rows = rows_of(text)
    assert head == ["Arm", "Score", "Difference", "Seeds", "Steps", "Decisions", "Fail.", "Miss."]
    assert [row[0] for row in rows] == ["grpo", r"DR\_grpo"] * 2
    assert rows[0][1:4] == ["$0.61$ [$0.59$, $0.63$]", "baseline", "3"]
    assert rows[3][1:] == ["$0.50$", "$-0.1$", "1", "20", r"2\,000", "1", "1"]
    assert "% We trained 50% of it." in text
    compiled(tmp_path, text)


def test_latex_prints_any_name_as_it_is(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / "runs" / "a" / f"seed-{seed}", NASTY, HOSTILE, seed=seed, level=1e9)
    text = paper.latex_text(page.gather([tmp_path / "runs"])["comparison"], f"{HOSTILE}\n\\input{{x}}\n{NASTY}")
    _, row = rows_of(text)
    assert r"a\_b \& 50\% \#1 \$x\textasciicircum{}2\$ \{y\} \textasciitilde{}z" in row[0]
    assert r"\textbackslash{}input\{/etc/passwd\}" in row[0]
    assert r"-{}-{}- ü U+03BBU+0000" in row[0]
    assert r"\times 10^{9}" in row[1]
    below = text.split(r"\end{table}")[1].strip().splitlines()
    assert all(line.startswith("%") for line in below)
    compiled(tmp_path, text)


def test_csv_has_a_row_for_each_arm_and_task_and_no_formula(comparison: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(paper.csv_text(comparison))))
    assert [(row["arm"], row["task"]) for row in rows[:2]] == [("grpo", "sorting-5"), ("DR_grpo", "sorting-5")]
    last = rows[-1]
    assert (last["finished"], last["failed"], last["missing"], last["seeds"]) == ("1", "1", "1", "3")
    assert float(rows[0]["score"]) == pytest.approx(0.61)
    assert list(map(float, rows[0]["scores"].split())) == pytest.approx([0.6, 0.61, 0.62])
    assert paper.plain_cell("=SUM(A1)") == "'=SUM(A1)"


def test_the_methods_paragraph_says_what_reviewers_ask_for(tmp_path: Path) -> None:
    text = page.gather([make_comparison(tmp_path / "runs")])["methods_text"]
    for words in ("3 seeds each", "20 training steps", "256 prompts", "Student's t", "paired by seed", "PyTorch 2.6",
                  "2 cores", "assay 0.1.0", "group-sequential test", "Some runs failed (DR_grpo on sorting-3: 1)",
                  "Some runs are missing (DR_grpo on sorting-3: 1)", "sorting-5: 0 to 1"):  # fmt: skip
        assert words in text
    make_run(tmp_path / "one" / "a")
    assert "There is one seed, so the scores have no interval." in page.gather([tmp_path / "one"])["methods_text"]


def test_figures_are_one_pdf_with_equal_bytes_for_equal_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    make_run(tmp_path / "runs" / "a")
    results, shown = page.read_results([tmp_path / "runs"]), page.gather([tmp_path / "runs"])["comparison"]
    first, second = (save_figures(tmp_path / name, results, shown).read_bytes() for name in ("a.pdf", "b.pdf"))
    assert first == second
    assert first.startswith(b"%PDF")
    assert b"/Type3" not in first
    with pytest.raises(AssayError, match=r"--pdf a\.png is not a \.pdf file"):
        save_figures(tmp_path / "a.png", results, shown)


def test_figures_need_a_score(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = make_run(tmp_path / "runs" / "a", last=0)
    (folder / "metrics.jsonl").write_text('{"step": 0, "reward": 1}\n')
    with pytest.raises(AssayError, match="no run has a held-out score yet"):
        save_figures(
            tmp_path / "a.pdf", page.read_results([tmp_path / "runs"]), page.gather([tmp_path / "runs"])["comparison"]
        )
    assert not (tmp_path / "a.pdf").exists()


def test_report_writes_all_files_that_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    runs = make_comparison(tmp_path / "runs")
    names = {"--out": "p.html", "--csv": "deep/t.csv", "--latex": "t.tex", "--pdf": "f.pdf", "--methods-text": "m.txt"}
    words = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    assert main(["report", str(runs), *words]) == 0
    said = capsys.readouterr().out
    assert all(str(tmp_path / name) in said.replace("\n", "") for name in names.values())
    assert "failed   DR_grpo on sorting-3, seed 1: out of memory" in said
    assert "missing  DR_grpo on sorting-3, seed 2: there is no run" in said
    pages = re.findall(rb"/Type /Page\b", (tmp_path / "f.pdf").read_bytes())
    assert len(pages) == 2 + 3 + 3, "curves; profiles and aggregates of two tasks and of all"
    assert (tmp_path / "m.txt").read_text().startswith("We trained grpo and DR_grpo on sorting-5 and sorting-3")
    assert main(["report", str(runs), "--json", "--out", str(tmp_path / "p.html")]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--range", "walk"], "--range walk is not of the form TASK=LOW:HIGH"),
        (["--range", "walk=1:0"], "--range walk=1:0 is not of the form"),
        (["--range", "walk=0:1"], "--range names 'walk', which no run has. Tasks: sorting-5"),
        (["--pdf", "a.png"], "--pdf a.png is not a .pdf file"),
    ],
)
def test_bad_options_of_report_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    make_run(tmp_path / "runs" / "a")
    assert main(["report", str(tmp_path / "runs"), *words, "--out", str(tmp_path / "p.html")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "p.html").exists()


def test_ranges_and_held_out_starts_are_those_of_the_config() -> None:
    vocabulary = {"task_settings": {"part": "DialogueTask", "spec": {"action": {"part": "Vocabulary"}}}}
    cartpole = {"task_settings": {"spec": {"horizon": 500}, "dynamics": {"part": "CartPole"}}}
    assert known_range({"task_settings": {"items": {"part": "Sorting"}}}) == (0.0, 1.0)
    assert known_range({"task_settings": {"part": "EnumerableTask", "items": {"part": "Lock"}}}) == (0.0, 1.0)
    assert known_range({"task_settings": {"items": {"part": "MyOwn"}}}) is None, "a user's verifier may give anything"
    assert known_range(cartpole) == (0.0, 500.0)
    assert known_range(vocabulary) is None
    rewarded = {"items": {"part": "Files"}, "scorer": {"part": "OwnRewards"}}
    assert known_range({"task_settings": rewarded}) is None, "own rewards may give anything"
    assert known_range({"task_settings": rewarded | {"scorer": None}}) == (0.0, 1.0)
    told = [vocabulary, cartpole, cartpole | {"held_out": 1000}, vocabulary | {"held_out": 4}]
    assert [held_out(one) for one in told] == ["256 prompts", "20 episodes", "1,000 episodes", "4 prompts"]
    assert parsed_ranges(["a=b=-1:2.5"]) == {"a=b": (-1.0, 2.5)}
