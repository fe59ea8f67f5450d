"""Aggregates against rliable and published tables, the laws they obey, and what they say to bad input."""

from __future__ import annotations

import csv
import gzip
import json
import re
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.statistics import scores as module
from assay.statistics.aggregates import iqm, mean, median, optimality_gap, probability_of_improvement
from assay.statistics.curves import Curve, performance_profile, sample_efficiency, value_where
from assay.statistics.intervals import Estimate
from assay.statistics.scores import Resampling, bootstrap, canonical, compare, places

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "score_data"
AGGREGATES = (iqm, median, mean, optimality_gap)
TABLES = arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 6)), elements=st.floats(-1e3, 1e3, width=32))
FEW = settings(max_examples=25, deadline=None)


def pattern(runs: int, tasks: int, shift: int = 0) -> np.ndarray:
    """A table with ties, the same everywhere."""
    r, k = np.mgrid[:runs, :tasks]
    return ((7 * r * r + 13 * k + 5 * r * k + shift) % 23) / 10 - 0.4


def ends(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


# ---------------------------------------------------------------------------------------------------- rliable's numbers
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 1), (-0.4, -0.4, -0.4, 1.4)),
        ((3, 1), (0.0, 0.0, 0.0, 1.0)),
        ((5, 3), (0.4888888888888888, 0.58, 0.58, 0.5933333333333334)),
        ((3, 5), (0.27777777777777773, 0.3, 0.38, 0.6800000000000002)),
        ((7, 6), (0.6318181818181817, 0.6785714285714286, 0.6952380952380953, 0.4642857142857142)),
        ((10, 26), (0.5946153846153845, 0.655, 0.6484615384615384, 0.5)),
    ],
)
def test_aggregates_equal_rliable_1_2_0(shape: tuple[int, int], expected: tuple[float, ...]) -> None:
    """15, 42 and 1 scores are no multiples of four: floor(n / 4) are cut at both ends."""
    assert [aggregate(pattern(*shape)) for aggregate in AGGREGATES] == pytest.approx(expected, abs=1e-12)


def test_optimality_gap_at_another_target_equals_rliable() -> None:
    assert optimality_gap(pattern(10, 26), target=0.5) == pytest.approx(0.2196153846153846, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [((5, 3), (7, 3), 0.4761904761904762), ((10, 26), (10, 26), 0.4628846153846154), ((3, 1), (4, 1), 1 / 6)],
)
def test_probability_of_improvement_equals_rliable(x: tuple[int, int], y: tuple[int, int], expected: float) -> None:
    assert probability_of_improvement(pattern(*x), pattern(*y, shift=9)) == pytest.approx(expected, abs=1e-12)


def test_profiles_equal_rliable() -> None:
    thresholds = [-0.4, 0, 0.3, 0.5, 1.2, 1.8]
    of_scores, of_means = (
        performance_profile(pattern(5, 6), thresholds, of_task_means=each, resamples=10) for each in (False, True)
    )
    assert of_scores.values == pytest.approx([29 / 30, 0.8, 14 / 30, 13 / 30, 8 / 30, 1 / 30], abs=1e-12)
    assert of_means.values == pytest.approx([1, 1, 1, 1, 0, 0], abs=1e-12)


@pytest.mark.parametrize(
    ("aggregate", "low", "high"),
    [
        (iqm, 0.4853846153846154, 0.7115384615384615),
        (median, 0.535, 0.755),
        (mean, 0.5707692307692308, 0.7257692307692308),
        (optimality_gap, 0.44461538461538475, 0.5565384615384614),
    ],
)
def test_intervals_equal_rliable_within_monte_carlo_error(aggregate: Any, low: float, high: float) -> None:
    """rliable's ends are from 50 000 resamples; the median's resamples lie on a lattice of 0.005."""
    estimate = bootstrap(aggregate, pattern(10, 26), resamples=20_000)
    assert ends(estimate) == pytest.approx((low, high), abs=0.0051)
    assert estimate.value == aggregate(pattern(10, 26))


def test_improvement_interval_equals_rliable_within_monte_carlo_error() -> None:
    estimate = bootstrap(probability_of_improvement, pattern(5, 6), pattern(7, 6, 9))
    assert ends(estimate) == pytest.approx((0.29523809523809524, 0.5857142857142857), abs=0.01)


# ---------------------------------------------------------------------------------------------------- rliable itself
def drawn(array: np.ndarray, stream: int, resamples: int) -> np.ndarray:
    """The runs [resamples, runs, tasks] that the bootstrap with seed 0 draws for an array."""
    order_RK, rank_K = canonical(array.reshape(*array.shape[:2], -1))
    at = places(Draw(0, (stream,)), np.arange(resamples), *order_RK.shape)[..., rank_K]
    return np.take_along_axis(order_RK[None], at, axis=1)


@pytest.fixture
def rliable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """rliable's modules and a function that makes it draw given runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("rliable.library", reason="rliable is not installed", exc_type=ImportError)
        metrics = pytest.importorskip("rliable.metrics")

    def feed(*streams: np.ndarray) -> None:
        turns = iter([each for together in zip(*streams, strict=True) for each in together])
        monkeypatch.setattr(np.random, "choice", lambda *args, **settings: next(turns))

    return library, metrics, feed


@pytest.mark.parametrize("shape", [(3, 1), (5, 3), (10, 26), (4, 7)])
def test_intervals_equal_rliable_on_the_same_resamples(shape: tuple[int, int], rliable: Any) -> None:
    library, metrics, feed = rliable
    scores = np.random.default_rng(1).normal(size=shape)
    theirs = (
        metrics.aggregate_iqm, metrics.aggregate_median, metrics.aggregate_mean, metrics.aggregate_optimality_gap,
    )  # fmt: skip
    feed(drawn(scores, 0, 300))
    points, intervals = library.get_interval_estimates(
        {"a": scores}, lambda x: np.array([each(x) for each in theirs]), reps=300
    )
    ours = [bootstrap(aggregate, scores, resamples=300) for aggregate in AGGREGATES]
    assert [each.value for each in ours] == pytest.approx(points["a"], abs=1e-12)
    lows, highs = zip(*map(ends, ours), strict=True)
    assert (lows, highs) == (pytest.approx(intervals["a"][0], abs=1e-12), pytest.approx(intervals["a"][1], abs=1e-12))


def test_improvement_equals_rliable_on_the_same_resamples(rliable: Any) -> None:
    library, metrics, feed = rliable
    x, y = pattern(5, 6), pattern(7, 6, shift=9)
    feed(drawn(x, 0, 200), drawn(y, 1, 200))
    points, intervals = library.get_interval_estimates(
        {"a": [x, y]}, lambda a, b: np.array([metrics.probability_of_improvement(a, b)]), reps=200
    )
    ours = bootstrap(probability_of_improvement, x, y, resamples=200)
    assert ours.value == pytest.approx(points["a"][0], abs=1e-12)
    assert ends(ours) == pytest.approx(tuple(intervals["a"][:, 0]), abs=1e-12)


@pytest.mark.parametrize("of_task_means", [False, True])
def test_profile_equals_rliable_on_the_same_resamples(of_task_means: bool, rliable: Any) -> None:
    library, _, feed = rliable
    scores, thresholds = pattern(5, 6), np.linspace(-0.5, 2, 9)
    feed(drawn(scores, 0, 200))
    profiles, bands = library.create_performance_profile(
        {"a": scores}, thresholds, use_score_distribution=not of_task_means, reps=200
    )
    ours = performance_profile(scores, thresholds, of_task_means=of_task_means, resamples=200)
    assert ours.values == pytest.approx(profiles["a"], abs=1e-12)
    assert np.array(ours.band()) == pytest.approx(bands["a"], abs=1e-12)


def test_sample_efficiency_equals_rliable_on_the_same_resamples(rliable: Any) -> None:
    library, metrics, feed = rliable
    scores_RKC = np.random.default_rng(2).normal(size=(4, 5, 3)).cumsum(-1)
    feed(np.repeat(drawn(scores_RKC, 0, 150)[..., None], 3, axis=-1))
    points, bands = library.get_interval_estimates(
        {"a": scores_RKC}, lambda x: np.array([metrics.aggregate_iqm(x[..., c]) for c in range(3)]), reps=150
    )
    ours = sample_efficiency(scores_RKC, resamples=150)
    assert ours.values == pytest.approx(points["a"], abs=1e-12)
    assert np.array(ours.band()) == pytest.approx(bands["a"], abs=1e-12)


# ---------------------------------------------------------------------------------------------------- published tables
def published(name: str) -> Path:
    path = PUBLISHED / name
    if not path.exists():
        pytest.skip(f"the published table {path} is not here")
    return path


def human_normalised() -> dict[str, tuple[float, float]]:
    """Random and human score by game, as google-deepmind/dqn_zoo prints them."""
    known = json.loads(published("atari_random_human.json").read_text())
    return {game.replace("_", ""): (each["random"], each["human"]) for game, each in known.items()}


def cells(name: str) -> dict[str, list[float]]:
    """The means of an openrlbenchmark table: game -> one for each column."""
    _, *rows = csv.reader(published(name).read_text().splitlines())
    return {re.sub(r"NoFrameskip-v4$", "", game).lower(): [float(c.split(" ")[0]) for c in row] for game, *row in rows}


def test_human_normalised_median_and_mean_are_those_of_openrlbenchmark() -> None:
    """README.md of openrlbenchmark at d67da55, "Calculate human normalized scores": 57 games, all 16 digits."""
    known, table = human_normalised(), cells("openrlbenchmark_cleanrl_vs_baselines_atari.csv")
    low_K, high_K = np.array([known[game] for game in table]).T
    ppo2, cleanrl = (np.array(list(table.values())).T - low_K) / (high_K - low_K)
    assert (median(ppo2[None]), mean(ppo2[None])) == pytest.approx((0.7959851540635047, 4.54588939893709), rel=1e-14)
    assert (median(cleanrl[None]), mean(cleanrl[None])) == pytest.approx(
        (0.9783505154639175, 6.841083973256849), rel=1e-14
    )


def test_human_normalised_games_are_those_of_openrlbenchmark() -> None:
    """Both its tables print two decimals: the normalised one follows from the raw one up to those."""
    known, raw = human_normalised(), cells("openrlbenchmark_cleanrl_vs_baselines_atari.csv")
    normalised = cells("openrlbenchmark_cleanrl_vs_baselines_hns.csv")
    assert raw.keys() == normalised.keys()
    for game, row in raw.items():
        low, high = known[game]
        slack = 0.005 + 0.005 / (high - low) + 1e-9
        assert [(mean([each]) - low) / (high - low) for each in row] == pytest.approx(normalised[game], abs=slack), game


FINAL_D4RL = {  # d4rl_table.csv of takuseno/d3rlpy-benchmarks at 1771c9b: final normalised return, ten seeds each
    "awac": "15.2 41.9 42.4 16.1 11.1 40.7 34.0 42.7 4.3 65.6 22.5 7.9",
    "bcq": "2.3 40.1 39.0 60.1 10.5 52.5 16.1 111.5 4.2 47.7 15.2 43.6",
    "bear": "2.3 36.6 37.1 45.4 10.1 34.8 27.8 77.8 4.6 57.4 13.6 59.1",
    "cql": "29.7 41.7 43.6 9.0 10.8 50.1 31.1 105.1 2.0 77.8 20.5 54.7",
    "crr": "18.9 41.9 42.0 8.4 10.9 26.1 13.3 0.8 2.3 43.3 26.7 41.1",
    "iql": "14.4 41.1 40.9 55.2 11.1 31.1 38.1 112.3 5.8 59.7 14.3 92.3",
    "plas": "26.9 39.8 43.9 81.2 10.4 58.1 17.5 100.8 6.5 33.0 20.9 93.5",
    "plas_with_perturbation": "27.3 42.0 44.8 81.6 12.5 53.6 20.0 77.5 4.5 66.1 9.2 86.3",
    "sac": "30.2 30.1 38.1 -0.0 1.1 1.2 8.5 7.8 2.5 2.1 4.5 1.7",
    "td3": "32.5 28.4 34.6 -1.3 1.2 0.7 13.7 8.4 3.2 -0.0 7.2 1.7",
    "td3_plus_bc": "11.4 42.4 42.8 89.2 10.9 95.9 31.4 112.3 2.1 76.7 26.4 91.0",
}
D4RL_ENDS = {"halfcheetah": (-280.178953, 12135.0), "hopper": (-20.272305, 3234.3), "walker2d": (1.629008, 4592.3)}
D4RL_DATASETS = ("random-v0", "medium-v0", "medium-replay-v0", "medium-expert-v0")


def d4rl_finals() -> dict[tuple[str, str], list[float]]:
    """The last return of every run, by algorithm and dataset."""
    with gzip.open(published("d3rlpy_d4rl_per_seed.csv.gz"), "rt") as file:
        last = {(row["algo"], row["run"]): float(row["return"]) for row in csv.DictReader(file)}
    finals = defaultdict(list)
    for (algo, run), value in last.items():
        dataset = run.split("_")[-3]
        finals[algo, dataset].append(value)
    return finals


def test_d4rl_means_are_those_of_d3rlpy_benchmarks() -> None:
    finals = d4rl_finals()
    for algo, expected in FINAL_D4RL.items():
        columns = [
            100 * (np.array(finals[algo, f"{world}-{dataset}"]) - low) / (high - low)
            for world, (low, high) in D4RL_ENDS.items()
            for dataset in D4RL_DATASETS
        ]
        assert [column.size for column in columns] == [10] * 12
        assert " ".join(f"{mean(column):.1f}" for column in columns) == expected, algo


DOPAMINE = {  # by rliable 1.2.0: iqm, median, mean, optimality gap; then rliable's interval of the iqm, 2000 resamples
    "DQN": ((0.7542988544335353, 0.6534566870332654, 2.844804081374808, 0.4141876324616033), (0.7325, 0.7767)),
    "C51": ((1.276498103939622, 1.0923268086734468, 7.699197635181697, 0.2752946148876114), (1.2565, 1.2982)),
    "Rainbow": ((1.6926120255426014, 1.472423072883235, 9.119595581918365, 0.21786552174258245), (1.6407, 1.7491)),
    "IQN": ((1.7566141021827812, 1.2880067844544458, 8.866325607727166, 0.20737095926092064), (1.7122, 1.7988)),
    "Quantile (JAX)": (
        (1.1464062608182621, 0.889504872581327, 7.247216047841084, 0.34616902684410933),
        (1.0908, 1.2026),
    ),
    "DQN (Adam + MSE in JAX)": (
        (1.3445266659728186, 1.0064740414568452, 6.175094456628495, 0.2888025873496918),
        (1.3201, 1.3699),
    ),
}


def test_dopamine_aggregates_equal_rliable() -> None:
    """Five runs on 55 games at the last iteration of 200 million frames, human-normalised."""
    known = human_normalised()
    values: dict[str, dict[tuple[int, str], float]] = defaultdict(dict)
    with gzip.open(published("dopamine_atari.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            if row["iteration"] == "198" and row["game"] in known:
                low, high = known[row["game"]]
                values[row["agent"]][int(row["run"]), row["game"]] = (float(row["value"]) - low) / (high - low)
    for agent, (points, interval) in DOPAMINE.items():
        scores_RK = np.array([values[agent][key] for key in sorted(values[agent])]).reshape(5, 55)
        assert [aggregate(scores_RK) for aggregate in AGGREGATES] == pytest.approx(points, rel=1e-12)
        assert ends(bootstrap(iqm, scores_RK, resamples=4000)) == pytest.approx(interval, abs=0.006)


# ---------------------------------------------------------------------------------------------------- laws
@FEW
@given(TABLES, st.randoms(use_true_random=False))
def test_order_of_runs_and_tasks_does_not_matter(table: np.ndarray, order: Any) -> None:
    runs, tasks = list(range(table.shape[0])), list(range(table.shape[1]))
    order.shuffle(tasks)
    mixed = np.stack([table[order.sample(runs, len(runs)), task] for task in tasks], axis=1)
    for aggregate in AGGREGATES:
        assert aggregate(mixed) == pytest.approx(aggregate(table), rel=1e-9, abs=1e-9)
        a, b = bootstrap(aggregate, mixed, resamples=50), bootstrap(aggregate, table, resamples=50)
        assert ends(a) == pytest.approx(ends(b), rel=1e-9, abs=1e-9)


@FEW
@given(TABLES, st.floats(0.01, 100), st.floats(-100, 100))
def test_aggregates_follow_a_change_of_scale(table: np.ndarray, scale: float, shift: float) -> None:
    for aggregate in (iqm, median, mean):
        expected = scale * aggregate(table) + shift
        assert aggregate(scale * table + shift) == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)
    moved = optimality_gap(scale * table + shift, target=scale + shift)
    assert moved == pytest.approx(scale * optimality_gap(table), rel=1e-6, abs=1e-6)


@FEW
@given(TABLES)
def test_iqm_lies_between_the_quartiles(table: np.ndarray) -> None:
    ordered, cut = np.sort(table, axis=None), table.size // 4
    slack = 1e-9 * (1 + np.abs(table).max())
    assert ordered[cut] - slack <= iqm(table) <= ordered[-cut - 1] + slack


@FEW
@given(TABLES)
def test_optimality_gap_is_not_negative_and_plus_the_clipped_mean_is_the_target(table: np.ndarray) -> None:
    assert optimality_gap(table, 3.0) >= -1e-12
    assert optimality_gap(table, 3.0) + mean(np.minimum(table, 3.0)) == pytest.approx(3.0, abs=1e-9)


@FEW
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_improvement_of_both_directions_sums_to_one(x: int, y: int, tasks: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 4, (x, tasks)), draw.integers(0, 4, (y, tasks))
    forth, back = probability_of_improvement(a, b), probability_of_improvement(b, a)
    assert 0 <= forth <= 1
    assert forth + back == pytest.approx(1, abs=1e-15)
    result = compare({"a": a, "b": b}, resamples=40)
    one, other = result.improvement("a", "b"), result.improvement("b", "a")
    mirrored = (1 - other.value, 1 - other.high, 1 - other.low)
    assert (one.value, *ends(one)) == pytest.approx(mirrored, abs=1e-15)


@FEW
@given(TABLES, st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9, unique=True))
def test_profiles_fall_from_one_to_zero(table: np.ndarray, thresholds: list[float]) -> None:
    curve = performance_profile(table, [-2e3, *sorted(thresholds), 2e3], resamples=30)
    for line in (curve.values, *curve.band()):
        assert (np.diff(line) <= 1e-12).all()
        assert (line >= 0).all()
        assert (line <= 1).all()
    assert (curve.values[0], curve.values[-1]) == (1, 0)


@FEW
@given(TABLES)
def test_own_functions_are_resampled_as_the_built_in_ones(table: np.ndarray) -> None:
    """A lambda hides the aggregate from the vectorised path; both paths see the same resamples."""
    for aggregate in AGGREGATES:
        slow = bootstrap(lambda scores, of=aggregate: of(scores), table, resamples=20)
        fast = bootstrap(aggregate, table, resamples=20)
        assert (slow.value, *ends(slow)) == pytest.approx((fast.value, *ends(fast)), rel=1e-12, abs=1e-12)


def test_partial_statistics_keep_their_settings() -> None:
    gap = partial(optimality_gap, target=0.3)
    fast, slow = (bootstrap(each, pattern(5, 6), resamples=200) for each in (gap, lambda s: optimality_gap(s, 0.3)))
    assert (fast.value, *ends(fast)) == pytest.approx((slow.value, *ends(slow)), abs=1e-12)


def test_more_resamples_begin_with_the_fewer_ones() -> None:
    few, many = (Resampling(count).replicates(module.iqm_of, [pattern(10, 26)]) for count in (100, 9000))
    assert (few == many[:100]).all()


def test_seeds_differ_and_repeat() -> None:
    one, again, other = (bootstrap(iqm, pattern(5, 7), resamples=500, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_places_are_uniform() -> None:
    at = places(Draw(3), np.arange(20_000), 5, 2)
    assert at.shape == (20_000, 5, 2)
    assert np.bincount(at.ravel()) / at.size == pytest.approx(np.full(5, 0.2), abs=0.005)


def test_expanded_intervals_hold_percentile_ones() -> None:
    narrow, wide = (bootstrap(mean, pattern(3, 8), method=method) for method in ("percentile", "expanded"))
    assert wide.low < narrow.low < narrow.high < wide.high


# ---------------------------------------------------------------------------------------------------- comparison
def arms() -> dict[str, np.ndarray]:
    return {"new": pattern(6, 8, 3), "old": pattern(6, 8), "short": pattern(4, 8, 11)}


def test_comparison_does_not_depend_on_the_order_of_arms() -> None:
    there, back = compare(arms(), "old", resamples=300), compare(dict(reversed(arms().items())), "old", resamples=300)
    assert set(there.rows) == set(back.rows)
    assert set(there.improvements) == set(back.improvements)
    assert (there.arms, back.arms) == (("new", "old", "short"), ("short", "old", "new"))


def test_comparison_is_made_of_bootstraps() -> None:
    result = compare(arms(), "old", resamples=300, target=0.7)
    assert result.row("new", "iqm").estimate == bootstrap(iqm, arms()["new"], resamples=300)
    gap = bootstrap(partial(optimality_gap, target=0.7), arms()["new"], resamples=300)
    assert result.row("new", "optimality_gap").estimate == gap
    improvement = bootstrap(probability_of_improvement, arms()["new"], arms()["old"], resamples=300)
    assert result.improvement("new", "old") == improvement
    change = bootstrap(lambda x, y: mean(x) - mean(y), arms()["new"], arms()["old"], resamples=300)
    difference = result.row("new", "mean").difference
    assert difference is not None
    assert ends(difference) == pytest.approx(ends(change), abs=1e-12)
    assert result.row("old", "mean").difference is None
    assert "P(new > old)" in str(result)


def test_pairing_shows_a_constant_gain_that_noise_hides() -> None:
    seeds = np.random.default_rng(0).normal(size=(5, 4))
    pair = {"new": seeds + 0.1, "old": seeds}
    loose, tied = (compare(pair, "old", paired=paired).row("new", "mean").difference for paired in (False, True))
    assert loose is not None
    assert tied is not None
    assert loose.low < 0 < loose.high
    assert ends(tied) == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize("paired", [False, True])
def test_identical_arms_are_even(paired: bool) -> None:
    result = compare({"a": pattern(5, 6), "b": pattern(5, 6)}, "a", paired=paired, resamples=400)
    even = result.improvement("a", "b")
    assert even.value == 0.5
    assert even.low <= 0.5 <= even.high
    assert (even.low == even.high) is paired
    difference = result.row("b", "iqm").difference
    assert difference is not None
    assert difference.value == 0


def test_one_arm_has_rows_and_no_pairs() -> None:
    result = compare({"alone": pattern(4, 3)}, resamples=50)
    assert [row.aggregate for row in result.rows] == ["iqm", "median", "mean", "optimality_gap"]
    assert result.improvements == ()


# ---------------------------------------------------------------------------------------------------- curves
def test_sample_efficiency_is_the_aggregate_at_each_checkpoint() -> None:
    scores_RKC = np.stack([pattern(5, 6, shift) for shift in (0, 4, 9)], axis=-1)
    curve = sample_efficiency(scores_RKC, x=[1e6, 2e6, 4e6], statistic=median, resamples=100)
    assert curve.x == (1e6, 2e6, 4e6)
    assert list(curve.values) == [median(scores_RKC[..., place]) for place in range(3)]
    own = sample_efficiency(scores_RKC, x=[1e6, 2e6, 4e6], statistic=lambda s: median(s), resamples=100)
    assert own == curve


def test_one_checkpoint_is_a_bootstrap() -> None:
    curve = sample_efficiency(pattern(5, 6)[..., None], resamples=200)
    assert curve == Curve((0.0,), (bootstrap(iqm, pattern(5, 6), resamples=200),))


# --------------------------------------------------------------------------------------------------- thin and odd
def test_runs_of_one_task_may_be_a_vector() -> None:
    assert bootstrap(iqm, [1.0, 2.0, 3.0, 10.0]) == bootstrap(iqm, [[1.0], [2.0], [3.0], [10.0]])
    assert iqm([1.0, 2.0, 3.0, 10.0]) == 2.5
    assert iqm([True, False, True]) == pytest.approx(2 / 3)


def test_one_threshold_may_be_a_number() -> None:
    assert performance_profile([1.0, 2.0], 1.5, resamples=9) == performance_profile([1.0, 2.0], [1.5], resamples=9)


def test_one_run_has_no_interval() -> None:
    assert bootstrap(iqm, [[1.0, 2.0]]) == Estimate(1.5, -np.inf, np.inf, 1)
    assert bootstrap(probability_of_improvement, [[1.0]], [[0.0], [2.0]]) == Estimate(0.5, 0.0, 1.0, 1)
    assert performance_profile([[1.0, 2.0]], [1.5]).estimates == (Estimate(0.5, 0.0, 1.0, 1),)
    difference = compare({"a": [[1.0]], "b": [[3.0]]}, "a").row("b", "mean").difference
    assert difference == Estimate(2.0, -np.inf, np.inf, 1)


def test_constant_scores_have_no_width() -> None:
    for aggregate in AGGREGATES:
        estimate = bootstrap(aggregate, np.full((4, 3), 0.1), resamples=50)
        assert ends(estimate) == pytest.approx((estimate.value,) * 2, abs=1e-15)


def test_input_is_not_modified() -> None:
    scores = pattern(5, 6)
    before = scores.copy()
    compare({"a": scores, "b": scores}, "a", resamples=20)
    performance_profile(scores, [0.0, 1.0], resamples=20)
    assert (scores == before).all()


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iqm([[1.0, NAN], [0.0, 1.0]]), r"scores must be finite, got nan at run 0, task 1 \(1 of 4\): leave"),
        (lambda: mean([0.0, -INF]), "got -inf at run 1, task 0"),
        (lambda: mean([1e301, 1e301]), r"got 1e\+301 at run 0"),
        (lambda: iqm([]), r"scores are empty, shape \(0, 1\): give at least one"),
        (lambda: iqm(np.zeros((3, 0))), r"empty, shape \(3, 0\)"),
        (lambda: iqm(1.0), r"an array \[runs, tasks\], got 0 axes"),
        (lambda: iqm(np.zeros((2, 2, 2))), r"got 3 axes, shape \(2, 2, 2\): reshape"),
        (lambda: iqm(["high", "low"]), "must be numbers, got <U4"),
        (lambda: iqm([1j, 2j]), "must be numbers, got complex128"),
        (lambda: iqm([None, 1.0]), "must be numbers, got object"),
        (lambda: iqm([[1.0, 2.0], [3.0]]), "without gaps"),
        (lambda: optimality_gap([1.0], target=NAN), "target of an optimality gap must be finite, got nan"),
        (lambda: probability_of_improvement([[1.0]], [[1.0, 2.0]]), "x has 1 and y 2: keep the tasks"),
        (lambda: bootstrap(iqm), "at least one array of scores, got none"),
        (lambda: bootstrap(iqm, [1.0], [2.0]), r"iqm needs 1 array\(s\) of scores, got 2"),
        (lambda: bootstrap(iqm, [1.0, 2.0], resamples=0), "at least 1, got 0"),
        (lambda: bootstrap(iqm, [1.0, 2.0], resamples=2.5), "got 2.5"),  # type: ignore[arg-type]
        (lambda: bootstrap(iqm, [1.0, 2.0], level=95), "lies between 0 and 1, got 95"),
        (lambda: bootstrap(iqm, [1.0, 2.0], seed="a"), "must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: bootstrap(iqm, [1.0, 2.0], method="bca"), "no method 'bca': use one of percentile, expanded"),
        (
            lambda: bootstrap(lambda s: s, [1.0, 2.0]),
            r"one finite number for every resample, got an array of shape \(2, 1\)",
        ),
        (lambda: bootstrap(lambda s: NAN, [1.0, 2.0]), "one finite number for every resample, got nan"),
        (lambda: bootstrap(mean, [1.0, NAN]), "the scores of array 0 must be finite"),
        (lambda: compare({}), "needs a mapping from arm to scores"),
        (lambda: compare([[1.0]]), "needs a mapping from arm to scores"),  # type: ignore[arg-type]
        (lambda: compare({"a": [1.0]}, baseline="b"), "the baseline 'b' is not an arm: name one of a"),
        (lambda: compare({"a": [1.0, NAN], "b": [1.0]}), "the scores of a must be finite, got nan at run 1, task 0"),
        (lambda: compare({"a": [[1.0]], "b": [[1.0, 2.0]]}), "a has 1 and b 2"),
        (lambda: compare({"a": [1.0, 2.0], "b": [1.0]}, paired=True), "a has 2 and b 1: use paired=False"),
        (lambda: compare({"a": [1.0, 2.0]}, resamples=9).row("a", "max"), "has no 'max' of 'a': it has a"),
        (lambda: compare({"a": [1.0, 2.0]}, resamples=9).improvement("a", "b"), "no pair 'a' and 'b'"),
        (lambda: performance_profile([1.0, 2.0], [1.0, 0.5]), "must increase, got 0.5 after 1.0 at place 1: sort"),
        (lambda: performance_profile([1.0, 2.0], [1.0, 1.0]), "must increase"),
        (lambda: performance_profile([1.0, 2.0], []), "thresholds are empty"),
        (lambda: performance_profile([1.0, 2.0], [NAN]), "thresholds must be finite, got nan at point 0"),
        (lambda: performance_profile([1.0], [[1.0, 2.0]]), r"thresholds must be an array \[points\], got 2 axes"),
        (lambda: performance_profile([1.0], [[1.0, 2.0], [3.0]]), r"thresholds must be an array"),
        (lambda: iqm(torch.ones(3, requires_grad=True)), "requires grad"),
        (lambda: sample_efficiency(np.zeros((2, 2))), r"\[runs, tasks, checkpoints\], got 2 axes"),
        (lambda: sample_efficiency(np.full((2, 2, 2), NAN)), "nan at run 0, task 0, checkpoint 0"),
        (lambda: sample_efficiency(np.zeros((2, 2, 2)), x=[1.0]), "got 1 for 2 checkpoints"),
        (
            lambda: sample_efficiency(np.zeros((2, 2, 2)), statistic=probability_of_improvement),
            r"probability_of_improvement needs 2 array\(s\) of scores, got 1",
        ),
    ],
)
def test_bad_input_is_one_sentence(call: Any, words: str) -> None:
    with pytest.raises(AssayError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_value_is_read_where_another_quantity_first_reaches_a_level() -> None:
    path, values = [0.0, 10.0, 10.0, 30.0], [1.0, 2.0, 5.0, 9.0]
    assert [value_where(path, values, level) for level in (-1.0, 0.0, 5.0, 10.0, 20.0, 30.0, 99.0)] == [
        1.0, 1.0, 1.5, 2.0, 7.0, 9.0, 9.0,
    ]  # fmt: skip
