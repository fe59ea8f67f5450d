"""The sequential test against enumeration, against the decisions of the package `adastop`, and its laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.statistics.sequential import Decision, SequentialTest, Verdict, decide, is_safe
from assay.statistics.student import student_quantile

# Returns of four agents on Walker2d, the worked example of adastop (examples/walker1.csv to walker6.csv, MIT licence),
# rounded. Agents whose comparisons were over after two interims have no further scores.
WALKER = {
    "PPO": [3683.5, 1576.5, 3908.1, 1451.9, 5177.0, 3384.1, 2358.7, 1624.7, 4151.2, 1699.5],
    "DDPG": [
        420.3, 640.1, 2338.0, 879.1, 736.5, 962.3, 1771.1, 545.9, 906.0, 1553.9, 345.9, 857.6, 346.6, 1978.2, 89.1,
        705.5, 974.4, 1021.4, 936.3, 517.5, 957.1, 1254.5, 594.5, 586.5, 184.7, 2101.4, 56.5, 996.3, 1549.7, -10.1,
    ],
    "SAC": [4291.0, 4551.0, 4669.8, 4697.4, 4074.5, 5453.4, 4988.5, 4617.7, 3955.2, 4135.5],
    "TRPO": [
        446.1, 1918.9, 1015.7, 757.0, 1769.3, 1031.3, 961.7, 695.7, 1817.8, 939.6, 450.0, 1125.6, 567.0, 529.3, 1786.1,
        998.8, 1631.7, 1517.6, 1873.3, 1906.8, 1909.2, 1671.6, 897.9, 1677.2, 490.0, 1095.4, 989.4, 1369.6, 609.5,
        1333.3,
    ],
}  # fmt: skip
WALKER_VERDICTS = ["larger", "smaller", "larger", "smaller", "smaller", "larger"]  # published in its tutorial
TWO = SequentialTest(size=3, interims=2, alpha=0.3)


def verdicts(decision: Decision) -> list[str]:
    return [each.verdict.value for each in decision.comparisons]


def arms(seed: int, shifts: Sequence[float], count: int) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    return {str(arm): (generator.normal(size=count) + shift).tolist() for arm, shift in enumerate(shifts)}


# ---------------------------------------------------------------------------------------------------- the package
def test_package_example_has_the_package_verdicts() -> None:
    decision = decide(SequentialTest(5, 6, 0.05, signed_null=True), WALKER)
    assert verdicts(decision) == WALKER_VERDICTS
    assert [each.interim for each in decision.comparisons if "SAC" in (each.first, each.second)] == [2, 1, 1]
    assert decision.interims[0].reject_above == pytest.approx(2241.94, abs=0.1)  # as the package prints


def test_absolute_null_leaves_the_closest_pair_of_the_example_undistinguished() -> None:
    """With the error held at alpha, 30 seeds do not tell DDPG (884) from TRPO (1215); the other five pairs stand."""
    decision = decide(SequentialTest(5, 6, 0.05, safety=0.0), WALKER)
    assert verdicts(decision) == [*WALKER_VERDICTS[:4], "equal", WALKER_VERDICTS[5]]


# Shifts of the arms, seed, n, K, alpha, beta; below them what adastop 0.1.3 decides, and after how many interims. It
# enumerates every permutation of these, so nothing is left to chance.
REFERENCE: list[tuple[tuple[float, ...], int, int, int, float, float]] = [
    ((0.0, 0.0), 1, 3, 2, 0.2, 0.0),
    ((0.0, 2.0), 2, 3, 2, 0.2, 0.0),
    ((0.0, 3.0), 3, 4, 2, 0.1, 0.0),
    ((0.0, 0.0, 3.0), 4, 2, 4, 0.2, 0.0),
    ((0.0, 1.0, 3.0), 5, 4, 2, 0.2, 0.3),
    ((0.0, 0.0, 0.0), 6, 3, 2, 0.2, 0.5),
    ((0.0, 1.5, 1.5, 4.0), 7, 3, 2, 0.2, 0.0),
    ((0.0, 0.0, 2.0, 2.0), 8, 5, 1, 0.05, 0.0),
]
REFERENCE_VERDICTS: list[tuple[int, list[str]]] = [
    (2, ["equal"]),
    (1, ["smaller"]),
    (1, ["smaller"]),
    (4, ["equal", "smaller", "smaller"]),
    (1, ["smaller", "smaller", "smaller"]),
    (2, ["equal", "equal", "equal"]),
    (2, ["smaller", "smaller", "smaller", "equal", "smaller", "smaller"]),
    (1, ["smaller", "smaller", "smaller", "smaller", "smaller", "equal"]),
]


@pytest.mark.parametrize("case", range(len(REFERENCE)))
def test_decisions_are_those_of_the_package(case: int) -> None:
    shifts, seed, size, interims, alpha, beta = REFERENCE[case]
    decision = decide(
        SequentialTest(size, interims, alpha, beta, signed_null=True), arms(seed, shifts, size * interims)
    )
    assert (len(decision.interims), verdicts(decision)) == REFERENCE_VERDICTS[case]


def package_run(test: SequentialTest, scores: Mapping[str, Sequence[float]]) -> Any:
    """The package's comparator after it has seen everything it asks for."""
    adastop = pytest.importorskip("adastop")
    comparator = adastop.MultipleAgentsComparator(
        n=test.size, K=test.interims, B=test.permutations, alpha=test.alpha, beta=test.beta, seed=0
    )
    while not comparator.is_finished:
        seen = (comparator.k + 1) * test.size
        comparator.partial_compare({arm: np.asarray(each[:seen]) for arm, each in scores.items()}, verbose=False)
    return comparator


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", range(len(REFERENCE)))
def test_package_itself_decides_so(case: int) -> None:
    shifts, seed, size, interims, alpha, beta = REFERENCE[case]
    test = SequentialTest(size, interims, alpha, beta, signed_null=True)
    scores = arms(seed, shifts, size * interims)
    comparator, decision = package_run(test, scores), decide(test, scores)
    assert list(comparator.decisions.values()) == verdicts(decision)
    assert comparator.k == len(decision.interims)
    bounds = [bound[1] for bound in comparator.boundary]
    assert bounds == pytest.approx([look.reject_above for look in decision.interims])


@pytest.mark.filterwarnings("ignore")
def test_package_spends_twice_its_level_on_two_equal_arms() -> None:
    """Counted over all 20 ways to share six scores among two arms; why `signed_null` is not the default."""
    scores = np.asarray([0.3, 1.1, 1.9, 3.4, 4.2, 5.8])
    test = SequentialTest(3, 1, 0.2, safety=0.0)
    told = {True: 0, False: 0}
    for places in itertools.combinations(range(6), 3):
        rest = [place for place in range(6) if place not in places]
        data = {"a": scores[list(places)].tolist(), "b": scores[rest].tolist()}
        for signed in told:
            told[signed] += verdicts(decide(replace(test, signed_null=signed), data)) != ["equal"]
    assert told[False] == 4  # 0.2 of 20
    assert told[True] == 8


# ---------------------------------------------------------------------------------------------------- by hand
def test_two_arms_and_one_interim_are_the_permutation_test() -> None:
    """|mean difference| is rejected where at most alpha of all shares are larger, by enumeration."""
    for seed in range(30):
        data = arms(seed, (0.0, 1.5), 4)
        both = np.asarray(data["0"] + data["1"])
        sums = [both[list(places)].sum() for places in itertools.combinations(range(8), 4)]
        gaps = np.abs(2 * np.asarray(sums) - both.sum())
        observed = abs(sum(data["0"]) - sum(data["1"]))
        at_least = np.mean(gaps >= observed - 1e-9)
        expected = "equal" if at_least > 0.1 else "larger" if sum(data["0"]) > sum(data["1"]) else "smaller"
        assert verdicts(decide(SequentialTest(4, 1, 0.1, safety=0.0), data)) == [expected]


def test_error_over_all_interims_is_at_most_alpha_by_enumeration() -> None:
    """All 20 x 20 ways to share out six scores at each of two interims are equally likely when the arms are equal."""
    first, second = np.asarray([0.1, 0.7, 1.2, 2.9, 3.3, 4.8]), np.asarray([-1.0, 0.4, 0.5, 1.6, 2.7, 6.1])
    rejected = 0
    choices = list(itertools.combinations(range(6), 3))
    for one, two in itertools.product(choices, choices):
        data: dict[str, list[float]] = {"a": [], "b": []}
        for scores, places in ((first, one), (second, two)):
            data["a"] += scores[list(places)].tolist()
            data["b"] += scores[[place for place in range(6) if place not in places]].tolist()
        rejected += verdicts(decide(replace(TWO, safety=0.0), data)) != ["equal"]
    assert 0.2 * 400 <= rejected <= 0.3 * 400


# ------------------------------------------------------------------------------------------------ unequal spreads
def alarms_among(first: float, second: float, safety: float, repeats: int = 150) -> int:
    """How often two normal arms of mean 0 and these deviations are told apart, of 150 experiments of 5 interims."""
    test = SequentialTest(permutations=300, safety=safety)
    count = 0
    for repeat in range(repeats):
        generator = np.random.default_rng((7, repeat))
        data = {"a": first * generator.normal(size=25), "b": second * generator.normal(size=25)}
        count += verdicts(decide(replace(test, seed=repeat % 4), data)) != ["equal"]  # type: ignore[arg-type]
    return count


def test_arms_of_unequal_spread_are_told_apart_no_more_often_than_the_level() -> None:
    """Permutations alone come to twice the level there: five scores of one sign are the most extreme of 252 shares."""
    assert alarms_among(1.0, 10.0, 0.0) > 0.07 * 150
    assert alarms_among(1.0, 10.0, 2.0) <= 0.05 * 150


def test_the_bound_is_welchs_t_and_halls_by_hand() -> None:
    first, second = np.array([1.0, 2.0, 3.0, 4.0, 9.0]), np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    test = SequentialTest(size=5, interims=1, safety=1.0)
    variances = [9.7, 0.625]
    error = math.sqrt(sum(variances) / 5)
    t = (3.8 - 1.0) / error
    thirds = [((first - 3.8) ** 3).mean() / 25, 0.0]
    d = (thirds[0] - thirds[1]) / error**3
    hall = t + d * t**2 / 3 + d**2 * t**3 / 27 + d / 6
    freedom = math.floor((sum(variances) / 5) ** 2 * 4 / sum((one / 5) ** 2 for one in variances))
    samples = {"a": first, "b": second}
    for level in (0.3, 0.1, 0.05, 0.02, 0.01):
        expected = min(abs(t), abs(hall)) > student_quantile(1 - level / 2, freedom)
        assert is_safe(test, samples, ("a", "b"), 1, level) == expected
    assert is_safe(test, samples, ("a", "b"), 1, 0.3)
    assert not is_safe(test, samples, ("a", "b"), 1, 0.01)
    assert is_safe(replace(test, safety=0.0), samples, ("a", "b"), 1, 0.01)
    assert is_safe(test, {"a": np.ones(5), "b": np.zeros(5)}, ("a", "b"), 1, 0.01), "arms without spread"


def test_drawn_permutations_agree_with_all_of_them() -> None:
    agreements = 0
    for seed in range(20):
        data = arms(seed, (0.0, 1.2), 10)
        exact = decide(SequentialTest(5, 2, 0.1, permutations=70_000), data)
        drawn = decide(SequentialTest(5, 2, 0.1, permutations=20_000), data)
        bounds = [[look.reject_above for look in each.interims] for each in (exact, drawn)]
        assert bounds[0] == pytest.approx(bounds[1], rel=0.05)
        agreements += verdicts(exact) == verdicts(drawn)
    assert agreements >= 19


# ---------------------------------------------------------------------------------------------------- a runner
def test_a_runner_asks_step_by_step_and_may_be_killed() -> None:
    test = SequentialTest(size=4, interims=4, alpha=0.1)
    full = arms(0, (0.0, 0.2, 3.0), 16)
    scores: dict[str, list[float]] = {arm: [] for arm in full}
    steps = 0
    while not (decision := decide(test, scores)).finished:
        assert decision.needs
        for arm, count in decision.needs.items():
            have = len(scores[arm])
            scores[arm] += full[arm][have : have + max(1, count // 2)]  # some runs at a time, in no fixed rhythm
        steps += 1
    assert not decision.needs
    assert decision.verdict("2", "0") is Verdict.LARGER
    assert decision.verdict("0", "2") is Verdict.SMALLER
    assert len(scores["2"]) < 16  # told apart early, so it was not run to the end
    assert decide(test, full).comparisons == decision.comparisons  # more scores than were asked for change nothing
    assert steps > len(decision.interims)


def test_unequal_numbers_of_seeds_wait_for_the_slowest() -> None:
    decision = decide(TWO, {"a": [1.0, 2.0, 3.0, 4.0], "b": [1.0]})
    assert verdicts(decision) == ["undecided"]
    assert decision.needs == {"a": 0, "b": 2}
    assert not decision.finished
    assert math.isnan(decision.comparisons[0].statistic)


def test_no_scores_yet_ask_for_the_first_interim() -> None:
    assert decide(TWO, {"a": [], "b": []}).needs == {"a": 3, "b": 3}


def test_equal_scores_end_as_equal() -> None:
    decision = decide(TWO, {"a": [1.0] * 6, "b": [1.0] * 6, "c": [1.0] * 6})
    assert verdicts(decision) == ["equal"] * 3
    assert decision.finished


def test_early_accept_saves_runs_and_never_tells_more_apart() -> None:
    looks = {0.0: 0, 0.5: 0}
    for seed in range(20):
        data = arms(seed, (0.0, 0.5), 15)
        found = {beta: decide(SequentialTest(3, 5, 0.2, beta, permutations=2000), data) for beta in looks}
        for beta, decision in found.items():
            looks[beta] += len(decision.interims)
        assert verdicts(found[0.5]) in (verdicts(found[0.0]), ["equal"])
    assert looks[0.5] < looks[0.0]


def test_comparisons_choose_the_pairs() -> None:
    data = arms(0, (0.0, 4.0, 4.0), 10)
    decision = decide(SequentialTest(5, 2, 0.05, comparisons=(("0", "1"), ("2", "0"))), data)
    assert [(each.first, each.second) for each in decision.comparisons] == [("0", "1"), ("2", "0")]
    assert verdicts(decision) == ["smaller", "larger"]
    with pytest.raises(AssayError, match="'1' and '2' are not compared"):
        decision.verdict("1", "2")


# ---------------------------------------------------------------------------------------------------- laws
REALS = st.floats(-100, 100, allow_subnormal=False).map(lambda value: round(value, 3))
SCORES = st.lists(st.lists(REALS, min_size=6, max_size=6), min_size=2, max_size=3)


@given(SCORES, st.sampled_from([0.5, 2.0, 8.0]), st.integers(-64, 64))
@settings(max_examples=40, deadline=None)
def test_units_do_not_matter(scores: list[list[float]], scale: float, shift: int) -> None:
    data = {str(arm): each for arm, each in enumerate(scores)}
    other = {arm: [scale * value + shift for value in each] for arm, each in data.items()}
    assert verdicts(decide(TWO, data)) == verdicts(decide(TWO, other))


@given(SCORES)
@settings(max_examples=40, deadline=None)
def test_worse_is_better_turned_round(scores: list[list[float]]) -> None:
    data = {str(arm): each for arm, each in enumerate(scores)}
    turned = {arm: [-value for value in each] for arm, each in data.items()}
    swap = {"larger": "smaller", "smaller": "larger"}
    assert verdicts(decide(TWO, turned)) == [swap.get(word, word) for word in verdicts(decide(TWO, data))]


@given(SCORES)
@settings(max_examples=40, deadline=None)
def test_level_is_never_overspent_and_verdicts_stand(scores: list[list[float]]) -> None:
    data = {str(arm): each for arm, each in enumerate(scores)}
    half, full = decide(TWO, {arm: each[:3] for arm, each in data.items()}), decide(TWO, data)
    for number, look in enumerate(full.interims, 1):
        assert look.level_spent <= TWO.alpha * number / TWO.interims + 1e-9
    for early, late in zip(half.comparisons, full.comparisons, strict=True):
        assert early.verdict is Verdict.UNDECIDED or early == late
    assert full.finished


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"size": 0}, "size .* got 0"),
        ({"size": 2.5}, "size .* got 2.5"),
        ({"interims": -1}, "interims .* got -1"),
        ({"permutations": 1}, "permutations .* got 1"),
        ({"alpha": 0.0}, "alpha .* got 0.0"),
        ({"alpha": math.nan}, "alpha .* got nan"),
        ({"beta": 1.0}, "beta .* got 1.0"),
        ({"safety": -1.0}, "safety .* got -1.0"),
        ({"comparisons": (("a", "a"),)}, "comparisons"),
        ({"comparisons": (("a", "b"), ("b", "a"))}, "comparisons .* each once"),
    ],
)
def test_bad_plans_are_refused(settings_: dict[str, Any], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        SequentialTest(**settings_)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": [1.0]}, "at least two arms, got 1"),
        ({}, "at least two arms, got 0"),
        ({"a": [1.0, math.nan], "b": [1.0]}, "the scores of 'a' must be finite .* nan at place 1"),
        ({"a": ["x"], "b": [1.0]}, "the scores of 'a' must be numbers"),
    ],
)
def test_bad_scores_are_refused(scores: dict[str, Any], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        decide(TWO, scores)


def test_unknown_arms_are_refused() -> None:
    with pytest.raises(AssayError, match="'z', which has no scores: the arms are a, b"):
        decide(SequentialTest(comparisons=(("a", "z"),)), {"a": [1.0], "b": [1.0]})
