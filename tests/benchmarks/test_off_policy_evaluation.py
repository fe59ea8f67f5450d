"""The benchmark of off-policy evaluation: its ranks by hand, and a toy of it that continues where its file ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ope


def test_the_correlation_of_ranks_is_spearmans() -> None:
    first = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert ope.spearman(first, first**3) == pytest.approx(1.0)
    assert ope.spearman(first, -first) == pytest.approx(-1.0)
    swapped = np.array([10.0, 30.0, 20.0, 40.0, 50.0])
    assert ope.spearman(first, swapped) == pytest.approx(1 - 6 * 2 / (5 * 24)), "1 - 6 sum d^2 / (n (n^2 - 1))"
    assert ope.spearman(first, np.array([1.0, 1.0, 2.0, 3.0, 4.0])) == pytest.approx(0.9746794)
    assert ope.spearman(first, np.ones(5)) == 0.0


def test_policies_are_spread_by_the_rank_of_their_scores() -> None:
    scores = {0: -9.0, 1: -9.0, 2: -5.0, 3: -7.0, 4: -1.0, 5: -3.0}
    assert ope.spread_by_score(scores, 3) == [0, 2, 4]
    assert ope.spread_by_score(scores, 20) == [0, 3, 2, 5, 4]


def test_the_summary_names_what_the_choice_lacks() -> None:
    truth, estimate = np.array([0.0, 4.0, 10.0]), np.array([1.0, 9.0, 8.0])
    found = ope.summary(truth, estimate)
    assert (found["correlation"], found["regret"]) == pytest.approx((0.5, 0.6))
    assert found["error"] == pytest.approx(8 / 3)


def test_the_toy_continues_where_its_file_ends(tmp_path: Path) -> None:
    out = tmp_path / "ope.json"
    ope.main(["--toy", "--data", "mixed", "--out", str(out)])
    first = json.loads(out.read_text())
    assert set(first["table"]) == {"mixed fqe", "mixed dr", "mixed wis"}
    out.write_text(json.dumps(first | {"rows": first["rows"][:-1]}))
    ope.main(["--toy", "--data", "mixed", "--out", str(out)])
    assert json.loads(out.read_text()) == first
