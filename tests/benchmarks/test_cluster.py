"""The simulated cluster: faults at every site break no law, and the schedule keeps its promises at a small size."""

from __future__ import annotations

import pytest

from benchmarks import cluster


def test_no_seed_of_faults_wedges_a_run_or_breaks_a_law(request: pytest.FixtureRequest) -> None:
    found = cluster.sweep(range(10_000 if request.config.getoption("--all-cases") else 1_000))
    assert not found["broken"], f"python -m benchmarks.cluster --seed {next(iter(found['broken']))}"
    assert found["never"] == [], "every site fails in some seed"
    assert found["sites"] >= 40
    assert found["stopped"] < found["seeds"] / 4, "most runs are trained to the end"


def test_a_run_with_lag_is_faster_than_a_synchronous_one_and_prefers_no_length() -> None:
    together, apart = (cluster.thousand(lag, gpus=24, steps=8) for lag in (0, 4))
    assert together["virtual_seconds"] > 1.8 * apart["virtual_seconds"]
    assert set(together["staleness"]) == {0}
    assert max(apart["staleness"]) <= 4
    assert apart["mean_length"] == pytest.approx(together["mean_length"], rel=1e-9), "the plan's sequences, all of them"
    assert apart["first_three"] == pytest.approx(together["first_three"], rel=1e-9)


def test_what_breaks_a_law_is_printed_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cluster.Simulation, "watch", lambda simulation, life: None)  # the dead are not looked for
        assert cluster.main(["--seeds", "40"]) == 1
    assert "wedged" in capsys.readouterr().out
    assert cluster.main(["--seed", "3"]) == 0
    assert "version 1" in capsys.readouterr().out
