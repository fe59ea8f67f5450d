"""Verdicts: decision rules, stamps that see behaviour and nothing else, files that cannot be edited unseen."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import recipes
from assay.claims import find, measuring, records, stamps, verdicts
from assay.claims.claim import Average, Claims, Computed, DecisionsTo, Exact, Expect, Final, Gain, Measured
from assay.claims.find import all_claims
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.recipe import Copy
from assay.engine.machine import describe_machine
from assay.recipes.presets import TABLE
from assay.runs import catalogue
from assay.runs.method_index import methods

CURVES: list[dict[str, Any]] = [
    {"step": 0, "evaluation": 0.1},
    {"step": 1, "entropy": 2.0, "decisions_total": 10},
    {"step": 2, "entropy": 1.0, "decisions_total": 20, "evaluation": 0.5},
    {"step": 4, "entropy": 0.5, "decisions_total": 40, "evaluation": 0.4, "time": {"at": 1.0}},
]


def one_in_ten(seed: int) -> float:
    return 0.1 * (seed % 3)


CLAIM = Measured("ours is larger", "", lambda seed: 1.0 + one_in_ten(seed), one_in_ten, seeds=6)


# ---------------------------------------------------------------------------------------------------- rules
@pytest.mark.parametrize(
    ("expect", "low", "high", "margin", "verdict"),
    [
        (Expect.ABOVE, 0.1, 0.3, 0.0, "holds"),
        (Expect.ABOVE, 0.1, 0.3, 0.2, "inconclusive"),
        (Expect.ABOVE, 0.1, 0.3, 0.4, "fails"),
        (Expect.ABOVE, -0.05, 0.3, -0.1, "holds"),
        (Expect.ABOVE, 0.0, 0.0, 0.0, "inconclusive"),
        (Expect.BELOW, -0.3, -0.1, 0.0, "holds"),
        (Expect.BELOW, -0.3, -0.1, 0.2, "inconclusive"),
        (Expect.BELOW, 0.1, 0.3, 0.0, "fails"),
        (Expect.WITHIN, -0.1, 0.1, 0.1, "holds"),
        (Expect.WITHIN, -0.1, 0.2, 0.1, "inconclusive"),
        (Expect.WITHIN, 0.2, 0.3, 0.1, "fails"),
        (Expect.WITHIN, -0.3, -0.2, 0.1, "fails"),
        (Expect.ABOVE, float("-inf"), float("inf"), 0.0, "inconclusive"),
    ],
)
def test_the_interval_decides(expect: Expect, low: float, high: float, margin: float, verdict: str) -> None:
    assert expect.verdict(low, high, margin) == verdict


@pytest.mark.parametrize(
    ("expect", "value", "low", "high", "margin", "needed"),
    [
        (Expect.ABOVE, 2.0, -2.0, 3.0, 0.0, 5 * 2**2),  # the low end, 4 away, must come to 2
        (Expect.ABOVE, -1.0, -9.0, 3.0, 0.0, 5 * 4**2),  # the claim fails: the high end, 4 away, must come to 1
        (Expect.BELOW, -3.0, -9.0, 0.0, 1.0, 5 * 1.5**2),
        (Expect.WITHIN, 1.0, -3.0, 2.0, 2.0, 5 * (4 / 3) ** 2),  # both ends inside
        (Expect.WITHIN, 3.0, 1.0, 9.0, 2.0, 5 * 2**2),  # outside
        (Expect.ABOVE, 1.0, 0.0, 2.0, 1.0, math.inf),
    ],
)
def test_seeds_that_would_decide_a_claim(
    expect: Expect, value: float, low: float, high: float, margin: float, needed: float
) -> None:
    assert expect.verdict(low, high, margin) == "inconclusive"
    assert expect.seeds_to_decide(value, low, high, margin, 5) == pytest.approx(needed)


def test_metrics_of_a_run() -> None:
    assert Final()(CURVES) == 0.4
    assert Gain()(CURVES) == pytest.approx(0.3)
    assert Average("entropy")(CURVES) == pytest.approx(3.5 / 3)
    assert Average("entropy", share=0.5)(CURVES) == 0.75
    assert DecisionsTo(0.45)(CURVES) == 20.0
    assert DecisionsTo(0.9)(CURVES) == 40.0
    with pytest.raises(AssayError, match="no step has the metric 'kl'; there are decisions_total, entropy, evaluation"):
        Final("kl")(CURVES)


@pytest.mark.parametrize(
    ("changes", "message"), [({"seeds": 1}, "at least 2"), ({"expect": Expect.WITHIN, "margin": -1.0}, "0 or more")]
)
def test_claims_that_cannot_be_decided_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        replace(CLAIM, **changes)


# ---------------------------------------------------------------------------------------------------- stamps
TABLES = Measured("m", "bandit", recipes.rloo(TABLE), recipes.reinforce(TABLE), seeds=3, steps=2)


def test_a_stamp_sees_what_a_recipe_does_and_no_name() -> None:
    before = stamps.stamp(TABLES)
    assert stamps.stamp(TABLES) == before
    assert not stamps.agrees(before["ours"], before["theirs"]), "rloo and reinforce do different things"
    same = replace(recipes.rloo(TABLE), name="other", stages=(replace(recipes.rloo(TABLE).stages[0], name="other"),))
    assert stamps.stamp(replace(TABLES, ours=same, name="other words", minutes=9.0)) == before
    for changed in (recipes.rloo(TABLE).set("group_size", 4), recipes.rloo(TABLE).set("learning_rate", 0.11)):
        assert not stamps.agrees(before["ours"], stamps.stamp(replace(TABLES, ours=changed))["ours"])


@pytest.mark.parametrize("name", ["grpo", "reinforce"])
def test_an_untrained_language_model_moves_its_weights(name: str) -> None:
    """Without `Parity` it would earn nothing in three steps, and all such methods would have one stamp."""
    small = catalogue.find_method(name)[1].recipe().set("actor.width", 16).set("rollout.num_starts", 4)
    task = catalogue.find_task("sorting-5")
    loop, steps = stamps.walked(small, task, 0, 3)
    assert len(steps) == 3
    fresh = stamps.walked(small, task, 0, 0)[0]
    assert not all(map(torch.equal, stamps.weights_of(loop), stamps.weights_of(fresh)))


def test_steps_that_fill_a_replay_are_not_counted() -> None:
    recipe = catalogue.find_method("dqn")[1].recipe().set("source.updates", 1).set("actor.hidden", (8,))
    loop, steps = stamps.walked(recipe, catalogue.find_task("cartpole"), 0, 3)
    assert len(steps) == 3
    assert loop.progress.updates == 3
    assert loop.progress.step > 3


def test_a_stamp_is_taken_with_one_thread_and_leaves_the_settings_as_they_were() -> None:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    with stamps.reproducible():
        assert torch.get_num_threads() == 1
        assert not torch.backends.mkldnn.enabled
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (threads, onednn)


def test_functions_are_stamped_by_their_values_and_at_a_small_size_where_they_have_one() -> None:
    assert stamps.stamp(CLAIM) == {"ours": "1 1.1 1.2", "theirs": "0 0.1 0.2"}
    dear = replace(CLAIM, theirs=Computed(one_in_ten, small=lambda seed: 5.0 + seed), minutes=100.0)
    assert stamps.stamp(dear)["theirs"] == "5 6 7", "whatever the plan says, never a name"


def test_no_claim_of_the_package_has_a_stamp_that_takes_long_or_cannot_go_stale() -> None:
    measured = [claim for claims in all_claims().values() for claim in claims.measured]
    assert len(measured) > 150
    dear = [claim.name for claim in measured if stamps.planned_seconds(claim) > stamps.CHEAP]
    assert not dear, f"give these a small version, Computed(function, small=...): {dear}"


def test_sides_with_one_stamp_are_refused_unless_the_claim_says_that_they_are_equal() -> None:
    twin = replace(CLAIM, theirs=lambda seed: 1.0 + one_in_ten(seed))
    with pytest.raises(AssayError, match=r"the same numbers: 1 1\.1 1\.2"):
        stamps.stamp(twin)
    equal = replace(twin, expect=Expect.WITHIN, margin=0.1)
    assert stamps.stamp(equal)["ours"] == stamps.stamp(equal)["theirs"]
    with pytest.raises(AssayError, match="compares a side with itself"):
        replace(TABLES, theirs=recipes.rloo(TABLE))


def test_recipes_that_differ_later_are_stamped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    late = replace(recipes.rloo(TABLE), copies={"kept": Copy(of="actor", rate=1.0, every=10)})
    later = replace(late, copies={"kept": Copy(of="actor", rate=1.0, every=100)})
    claim = replace(TABLES, ours=late, theirs=later)
    found = stamps.stamp(claim)
    assert not stamps.agrees(found["ours"], found["theirs"])
    monkeypatch.setattr(stamps, "LATER", ())
    with pytest.raises(AssayError, match="the same weights"):
        stamps.stamp(claim)


def test_a_name_for_a_stamp_is_stale_without_running_anything() -> None:
    numbers, name = {"ours": "1 2", "theirs": "0.5"}, {"ours": "assay.claims.copg.<lambda>", "theirs": "0.5"}
    kept = {"decided_by": stamps.deciding(CLAIM), "stamps": {stamps.machine_kind(): numbers}}
    assert stamps.recorded_state(CLAIM, kept) == stamps.FITS
    for kind in (stamps.machine_kind(), "another"):
        assert stamps.recorded_state(CLAIM, kept | {"stamps": {kind: name}}) == stamps.STALE


def test_stamps_are_equal_up_to_rounding() -> None:
    assert stamps.agrees("1 2.00001", "1 2")
    assert not stamps.agrees("1 2.001", "1 2")
    assert not stamps.agrees("1 2", "1 2 3")
    assert not stamps.agrees("assay.claims.copg.<lambda>", "1"), "records of old have names"


def test_the_state_of_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"decided_by": stamps.deciding(TABLES), "stamps": {stamps.machine_kind(): stamps.stamp(TABLES)}}
    assert stamps.state(TABLES, entry) == stamps.recorded_state(TABLES, entry) == stamps.FITS
    for changed in ({"task": "chain"}, {"seeds": 4}, {"margin": 0.1}, {"metric": Gain()}, {"steps": 3}):
        assert stamps.state(replace(TABLES, **changed), entry) == stamps.STALE
        assert stamps.recorded_state(replace(TABLES, **changed), entry) == stamps.STALE
    assert stamps.state(replace(TABLES, ours=recipes.rloo(TABLE).set("group_size", 4)), entry) == stamps.STALE
    assert stamps.recorded_state(TABLES, entry | {"stale": "2026-11-16"}) == stamps.STALE
    monkeypatch.setattr(stamps, "machine_kind", lambda: "abacus")
    assert stamps.state(TABLES, entry) == stamps.recorded_state(TABLES, entry) == stamps.UNKNOWN
    assert stamps.worst([stamps.FITS, stamps.UNKNOWN, stamps.STALE]) == stamps.STALE


# ---------------------------------------------------------------------------------------------------- measuring
@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method of the catalogue whose claims are ours."""
    exact = Exact("one is one", lambda: 1.0, equals=1.0)
    state_claims(monkeypatch, rloo=Claims((exact, CLAIM)))
    return "rloo"


def state_claims(monkeypatch: pytest.MonkeyPatch, **claims: Claims) -> None:
    """Makes these the claims of these methods, and the methods the only ones that have claims."""
    monkeypatch.setattr(find, "built_in_claims", claims.__getitem__)
    monkeypatch.setattr(find, "broken_claims", dict)
    monkeypatch.setattr(catalogue, "methods", lambda: {key: methods()[key] for key in claims})


def test_functions_are_measured_and_judged(tmp_path: Path, method: str) -> None:
    found = measuring.measure(method, CLAIM, tmp_path)
    assert found is not None
    assert found["verdict"] == "holds"
    assert found["estimate"] == pytest.approx(1.0)
    assert len(found["ours"]) == len(found["theirs"]) == 6
    assert measuring.judged(CLAIM, [0.1, 0.2], [0.1, 0.2])[1] == "inconclusive"


def test_recipes_are_trained_on_paired_seeds_and_runs_are_shared(tmp_path: Path) -> None:
    claim = Measured("m", "bandit", recipes.rloo(TABLE), recipes.reinforce(TABLE), seeds=2, steps=2)
    found = measuring.measure("rloo", claim, tmp_path)
    assert found is not None
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 4
    stamps = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("metrics.jsonl"))]
    again = measuring.measure("rloo", replace(claim, metric=Gain(), name="n"), tmp_path)
    assert again is not None
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("metrics.jsonl"))] == stamps


def test_a_deadline_leaves_it_unfinished(tmp_path: Path) -> None:
    claim = Measured("m", "bandit", recipes.rloo(TABLE), 0.5, seeds=2, steps=2)
    assert measuring.measure("rloo", claim, tmp_path, deadline=0.0) is None


def test_a_run_that_breaks_is_no_verdict(tmp_path: Path) -> None:
    broken = recipes.rloo(TABLE).set("policy.weight_decay", 1e40)
    with pytest.raises(AssayError, match="guard"):
        measuring.measure("rloo", Measured("m", "bandit", broken, 0.5, seeds=2, steps=3), tmp_path)


# ---------------------------------------------------------------------------------------------------- files
@pytest.fixture
def written(tmp_path: Path, method: str) -> Path:
    """A verdict file of the method's claims."""
    entry = measuring.measure(method, CLAIM, tmp_path / "work")
    assert entry is not None
    return verdicts.write(method, [entry], tmp_path / "verdicts")


def test_a_fresh_verdict_stands(written: Path) -> None:
    assert verdicts.problems("rloo", written) == []
    verdict = verdicts.read("rloo", written)
    assert verdict["verdict"] == "holds"
    assert verdicts.states("rloo", verdict, run=True) == {"ours is larger": stamps.FITS}


def edited(path: Path, change: Any, redigest: bool) -> list[str]:
    verdict = json.loads(path.read_text())
    change(verdict)
    if redigest:
        verdict["digest"] = verdicts.digest(verdict)
    path.write_text(json.dumps(verdict))
    return verdicts.problems(path.stem, path)


EDITS: dict[str, tuple[Any, str]] = {
    "a better word": (lambda v: v["claims"][0].update(verdict="fails"), "its scores say holds"),
    "a better score": (lambda v: v["claims"][0]["ours"].__setitem__(0, 9.0), "its scores say"),
    "a dropped seed": (lambda v: [v["claims"][0][side].pop() for side in ("ours", "theirs", "seeds")], "has 5 seeds"),
    "another claim": (lambda v: v["claims"].append({"name": "new"}), "'new' cannot be computed again"),
    "another rule": (lambda v: v["claims"][0]["decided_by"].update(margin=5.0), "its scores say fails"),
    "text for scores": (lambda v: v["claims"][0].update(ours=["a"] * 6), "cannot be computed again"),
    "no scores": (lambda v: v["claims"][0].pop("ours"), "cannot be computed again"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_seen_with_and_without_a_new_digest(written: Path, name: str) -> None:
    change, message = EDITS[name]
    text = written.read_text()
    assert any("was edited" in problem for problem in edited(written, change, redigest=False))
    written.write_text(text)
    assert any(message in problem for problem in edited(written, change, redigest=True))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"claims": 3}', "[" * 100_000])
def test_a_broken_file_is_one_sentence(written: Path, text: str) -> None:
    written.write_text(text)
    (problem,) = verdicts.problems("rloo", written)
    assert "assay claim rloo" in problem


def test_the_stalest_comes_first(written: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state_claims(monkeypatch, **dict.fromkeys(("rloo", "grpo", "ppo"), find.find_claims(method)))
    (written.parent / "ppo.json").write_text("{}")
    assert verdicts.stalest_first(written.parent) == ["grpo", "ppo", "rloo"]


def with_old_stamp(verdict: dict[str, Any]) -> None:
    verdict["claims"][0]["stamps"] = {stamps.machine_kind(): {"ours": "1 2", "theirs": "3 4"}}


def test_a_changed_recipe_is_a_state_and_no_problem(written: Path) -> None:
    assert edited(written, with_old_stamp, redigest=True) == []
    verdict = verdicts.read("rloo", written)
    assert verdicts.state("rloo", verdict) == stamps.FITS, "as it was recorded"
    assert verdicts.states("rloo", verdict, run=True) == {"ours is larger": stamps.STALE}
    assert verdicts.stamp("rloo", written.parent) == {"ours is larger": stamps.STALE}
    assert verdicts.problems("rloo", written) == []
    marked = verdicts.read("rloo", written)
    assert verdicts.state("rloo", marked) == stamps.STALE, "now it is recorded"
    assert marked["claims"][0]["stamps"] == verdict["claims"][0]["stamps"], "and its stamp stays"
    assert verdicts.needs_measuring("rloo", written.parent)


def test_stamping_adds_a_machine_kind_and_nothing_else(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = verdicts.read("rloo", written)
    monkeypatch.setattr(stamps, "machine_kind", lambda: "abacus")
    assert verdicts.state("rloo", before) == stamps.UNKNOWN
    assert verdicts.stamp("rloo", written.parent) == {"ours is larger": stamps.FITS}
    after = verdicts.read("rloo", written)
    assert len(after["claims"][0]["stamps"]) == 2
    after["claims"][0]["stamps"].pop("abacus")
    assert {**after, "digest": ""} == {**before, "digest": ""}
    edited(written, EDITS["a better score"][0], redigest=False)
    with pytest.raises(AssayError, match="edited"):
        verdicts.stamp("rloo", written.parent)


def test_replaying_a_seed_stamps_a_verdict_only_if_it_gives_the_same(written: Path, tmp_path: Path) -> None:
    edited(written, with_old_stamp, redigest=True)
    assert measuring.replayed("rloo", tmp_path / "work", written.parent)
    assert verdicts.states("rloo", verdicts.read("rloo", written), run=True) == {"ours is larger": stamps.FITS}
    edited(written, with_old_stamp, redigest=True)
    edited(written, lambda v: v["claims"][0]["ours"].__setitem__(0, 9.0), redigest=True)
    assert not measuring.replayed("rloo", tmp_path / "work", written.parent)


def test_the_command_measures_writes_and_then_finds_nothing_to_do(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # in a narrower table words part
    places = ["--verdicts", str(tmp_path / "v"), "--work", str(tmp_path / "w")]
    assert cli.main(["claim", method, *places]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("ours is larger", "holds", "6 seeds", "one is one", "written to"))
    assert verdicts.problems("rloo", tmp_path / "v" / "rloo.json") == []
    assert cli.main(["claim", "--all", "--budget", "1", *places]) == 0
    assert "every verdict is up to date" in capsys.readouterr().out
    state_claims(monkeypatch, rloo=Claims((replace(CLAIM, margin=5.0),)))
    assert cli.main(["claim", "--all", *places, "--json"]) == 1, "a claim that fails is told by the exit code"
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "fails"


def test_a_replication_has_other_seeds_and_leaves_the_verdict_as_it_is(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--verdicts", str(written.parent), "--work", str(tmp_path / "again")]
    before = written.read_bytes()
    assert cli.main(["claim", "rloo", "--replicate", "--json", *places]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["recorded"]["seeds"] == list(range(6))
    assert row["other_seeds"]["seeds"] == list(range(5000, 5006))
    assert written.read_bytes() == before
    assert cli.main(["claim", "rloo", "--replicate", *places]) == 0
    assert capsys.readouterr().out.count("holds") == 2
    with monkeypatch.context() as late:
        late.setattr(measuring, "measure", lambda *args, **settings: None)
        assert cli.main(["claim", "rloo", "--replicate", "--budget", "1", *places]) == 0
        assert "unfinished" in capsys.readouterr().out, "what the budget left out is said"
    other = replace(CLAIM, ours=one_in_ten, theirs=lambda seed: 1.0 + one_in_ten(seed))
    state_claims(monkeypatch, rloo=Claims((other,)))
    assert cli.main(["claim", "rloo", "--replicate", *places]) == 1, "it is decided the other way"


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "no method is named"), (["rloo", "--budget", "0"], "--budget is 0"), (["rlooo"], "mean 'rloo'?")],
)
def test_a_claim_of_no_method_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claim", *words]) == 2
    assert message in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- committed ones
COMMITTED = verdicts.files()


def test_a_claim_that_the_verdict_lacks_is_new_and_one_that_is_no_longer_stated_is_former(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_claims(monkeypatch, rloo=Claims((replace(CLAIM, name="in other words"),)))
    assert verdicts.problems("rloo", written) == []
    found = verdicts.states("rloo", verdicts.read("rloo", written))
    assert found == {"ours is larger": stamps.FORMER, "in other words": stamps.NEW}
    assert verdicts.needs_measuring("rloo", written.parent)
    assert verdicts.stamp("rloo", written.parent) == {"in other words": stamps.NEW}


@pytest.mark.parametrize("name", sorted(COMMITTED))
def test_committed_verdicts_are_whole(name: str) -> None:
    """Edited files and impossible numbers are errors; a stale verdict is a state that `assay list` shows."""
    assert verdicts.problems(name, COMMITTED[name]) == []


def test_verdicts_are_beside_their_methods_and_can_be_written_elsewhere(tmp_path: Path) -> None:
    assert verdicts.path_of("dr-grpo") == records.FOLDER / "dr_grpo.json"
    assert verdicts.path_of("dr-grpo", tmp_path) == tmp_path / "dr-grpo.json"
    assert set(COMMITTED) <= set(catalogue.methods())


def test_check_tells_broken_verdicts_from_claims_without_one_and_from_stale_ones(
    written: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state_claims(monkeypatch, **dict.fromkeys(("rloo", "grpo"), find.find_claims(method)))
    words = ["claim", "--check", "--json", "--verdicts", str(written.parent)]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], found["problems"]) == (1, [])
    assert found["states"] == {"rloo": {"ours is larger": stamps.FITS}}
    assert "grpo" in found["not_measured"]
    edited(written, with_old_stamp, redigest=True)
    assert cli.main([*words, "rloo"]) == 0, "a state is no error"
    assert json.loads(capsys.readouterr().out)["states"] == {"rloo": {"ours is larger": stamps.STALE}}
    assert cli.main(["claim", "rloo", "--stamp", "--verdicts", str(written.parent)]) == 0
    assert "1 claims: stale" in capsys.readouterr().out
    edited(written, EDITS["a better score"][0], redigest=True)
    assert cli.main(words) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One verdict is measured again, the shorter one; two with --all-cases."""
    if "short" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--all-cases")
        metafunc.parametrize("short", ["sft", "kl-bayes"] if everything else ["sft"])


def test_short_verdicts_come_out_again(short: str, tmp_path: Path) -> None:
    """Seed 0 of both sides: bitwise on the machine kind that measured it, elsewhere within what its seeds span."""
    committed = verdicts.read(short, COMMITTED[short])
    here, there = (
        {key: facts[key] for key in ("machine", "torch", "cores")}
        for facts in (describe_machine(), committed["machine"])
    )
    old = {claim["name"]: claim for claim in committed["claims"]}
    for claim in find.find_claims(short).measured:
        found = measuring.measure(short, claim, tmp_path, seeds=[0])
        assert found is not None
        for side in stamps.SIDES:
            scores = old[claim.name][side]
            if here == there and "ATEN_CPU_CAPABILITY" not in os.environ:
                assert found[side][0] == pytest.approx(scores[0], abs=1e-9)
            else:
                spread = 3 * (max(scores) - min(scores)) + 0.1 * abs(scores[0])
                assert min(scores) - spread <= found[side][0] <= max(scores) + spread


# ---------------------------------------------------------------------------------------------------- looks
def looked_at(difference: Sequence[float], looks: int, minutes: float = 5.0) -> Measured:
    return Measured("d", "", lambda seed: difference[seed], 0.0, seeds=4, looks=looks, minutes=minutes)


def test_an_undecided_claim_gets_more_seeds_until_it_is_decided(tmp_path: Path) -> None:
    difference = [0.5, -0.5, 0.6, -0.4, *[1.0, 1.4, 0.6, 1.2] * 4]
    found = measuring.measure("rloo", looked_at(difference, looks=5), tmp_path)
    assert found is not None
    assert found["verdict"] == "holds"
    assert 4 < len(found["seeds"]) < 20
    assert verdicts.entry_problems(found) == []


def test_a_claim_stays_undecided_at_its_last_look_and_within_its_minutes(tmp_path: Path) -> None:
    noise = [(-1.0) ** seed for seed in range(12)]
    found = measuring.measure("rloo", looked_at(noise, looks=3), tmp_path)
    short = measuring.measure("rloo", looked_at(noise, looks=3, minutes=1e-9), tmp_path)
    assert found is not None
    assert short is not None
    assert (found["verdict"], len(found["seeds"])) == ("inconclusive", 12)
    assert len(short["seeds"]) == 4


def test_several_looks_widen_the_interval() -> None:
    assert looked_at([], looks=1).level == 0.95
    assert looked_at([], looks=5).level == 0.99
    assert "99 % interval" in looked_at([], looks=5).rule
