"""Verdicts: decision rules, fingerprints that see code and nothing else, files that cannot be edited unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import recipes
from assay.app import cli
from assay.claims.claim import Average, DecisionsTo, Exact, Expect, Final, Gain, Measured, Method
from assay.core.errors import AssayError
from assay.engine.machine import describe_machine
from assay.proof import fingerprints, verdicts
from assay.recipes.defaults import TABLE
from assay.runs import catalogue

CHECKOUT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((CHECKOUT / "verdicts").glob("*.json"))
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


# ---------------------------------------------------------------------------------------------------- fingerprints
CODE = 'def f(x):\n    """Doc."""\n    return x + 1  # why\n\n\nNAME = "a # b"\n"""What it is."""\n'


def test_code_without_its_words() -> None:
    plain = fingerprints.bare_code(CODE)
    assert plain == 'deff(x):returnx+1NAME="a#b"'
    other = CODE.replace("Doc.", "Other words é.").replace("why", "because").replace("x + 1", "(x\n  + 1)")
    assert fingerprints.bare_code(other).replace("(x+1)", "x+1") == plain
    assert fingerprints.bare_code(CODE.replace("+ 1", "+ 2")) != plain
    assert fingerprints.bare_code(CODE.replace("a # b", "a # c")) != plain


def test_a_fingerprint_sees_settings_task_rule_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Measured("m", "bandit", recipes.rloo(TABLE), recipes.reinforce(TABLE), seeds=3, steps=2)
    before = fingerprints.fingerprint("rloo", claim)
    assert fingerprints.fingerprint("rloo", replace(claim, name="other words", minutes=9.0)) == before
    for changed in (
        replace(claim, ours=recipes.rloo(TABLE).set("members", 4)),
        replace(claim, task="chain"),
        replace(claim, seeds=4),
        replace(claim, margin=0.1),
        replace(claim, metric=Gain()),
        replace(claim, steps=3),
    ):
        assert fingerprints.fingerprint("rloo", changed) != before
    digest = fingerprints.code_digest
    monkeypatch.setattr(fingerprints, "code_digest", lambda m: "x" if m == "assay.parts.credit.outcome" else digest(m))
    assert fingerprints.fingerprint("rloo", claim) != before
    monkeypatch.setattr(fingerprints, "code_digest", lambda m: "x" if m == "assay.parts.critics.q" else digest(m))
    assert fingerprints.fingerprint("rloo", claim) == before, "rloo has no critic"


def test_the_code_of_a_run_is_followed_through_its_imports() -> None:
    found = fingerprints.closure(fingerprints.modules_of(recipes.grpo()))
    assert {"assay.parts.objectives.policy", "assay.ops.random", "assay.models.bodies.transformer",
    "assay.core.record"} <= found
    assert not {name for name in found if name.startswith(("assay.app.report", "assay.app.cli", "assay.engine.guards"))}


# ---------------------------------------------------------------------------------------------------- measuring
@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method of the catalogue whose claims are ours."""
    known = dict(catalogue.methods())
    exact = Exact("one is one", lambda: 1.0, equals=1.0)
    known["rloo"] = Method("paper", recipes.rloo, (TABLE,), "bandit", claims=(exact, CLAIM))
    monkeypatch.setattr(catalogue, "methods", lambda: known)
    return "rloo"


def test_functions_are_measured_and_judged(tmp_path: Path, method: str) -> None:
    found = verdicts.measure(method, CLAIM, tmp_path)
    assert found is not None
    assert found["verdict"] == "holds"
    assert found["estimate"] == pytest.approx(1.0)
    assert len(found["ours"]) == len(found["theirs"]) == 6
    same = replace(CLAIM, ours=one_in_ten)
    assert verdicts.judged(same, [0.1, 0.2], [0.1, 0.2])[1] == "inconclusive"


def test_recipes_are_trained_on_paired_seeds_and_runs_are_shared(tmp_path: Path) -> None:
    claim = Measured("m", "bandit", recipes.rloo(TABLE), recipes.rloo(TABLE), seeds=2, steps=2)
    found = verdicts.measure("rloo", claim, tmp_path)
    assert found is not None
    assert found["ours"] == found["theirs"]
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 2, "equal recipes run once"
    stamps = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("metrics.jsonl"))]
    again = verdicts.measure("rloo", replace(claim, metric=Gain(), name="n"), tmp_path)
    assert again is not None
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("metrics.jsonl"))] == stamps


def test_a_deadline_leaves_it_unfinished(tmp_path: Path) -> None:
    claim = Measured("m", "bandit", recipes.rloo(TABLE), 0.5, seeds=2, steps=2)
    assert verdicts.measure("rloo", claim, tmp_path, deadline=0.0) is None


def test_a_run_that_breaks_is_no_verdict(tmp_path: Path) -> None:
    broken = recipes.rloo(TABLE).set("policy.learning_rate", 1e38)
    with pytest.raises(AssayError, match="guard"):
        verdicts.measure("rloo", Measured("m", "bandit", broken, 0.5, seeds=2, steps=3), tmp_path)


# ---------------------------------------------------------------------------------------------------- files
@pytest.fixture
def written(tmp_path: Path, method: str) -> Path:
    """A verdict file of the method's claims."""
    entry = verdicts.measure(method, CLAIM, tmp_path / "work")
    assert entry is not None
    return verdicts.write(method, [entry], tmp_path / "verdicts")


def test_a_fresh_verdict_stands(written: Path) -> None:
    assert verdicts.problems(written) == []
    assert verdicts.read(written)["verdict"] == "holds"


def edited(path: Path, change: Any, redigest: bool) -> list[str]:
    verdict = json.loads(path.read_text())
    change(verdict)
    if redigest:
        verdict["digest"] = verdicts.digest(verdict)
    path.write_text(json.dumps(verdict))
    return verdicts.problems(path)


EDITS: dict[str, tuple[Any, str]] = {
    "a better word": (lambda v: v["claims"][0].update(verdict="fails"), "its scores say holds"),
    "a better score": (lambda v: v["claims"][0]["ours"].__setitem__(0, 9.0), "its scores say"),
    "a dropped seed": (lambda v: [v["claims"][0][side].pop() for side in ("ours", "theirs", "seeds")], "has 5 seeds"),
    "a dropped claim": (lambda v: v["claims"].pop(0), "lacks the claim 'ours is larger'"),
    "a claim of nobody": (lambda v: v["claims"].append({"name": "new"}), "'new' is no claim"),
    "an old fingerprint": (lambda v: v["claims"][0].update(fingerprint="0"), "other code or settings"),
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
    (problem,) = verdicts.problems(written)
    assert "assay claim rloo" in problem


def test_the_stalest_comes_first(written: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: replace(catalogue.methods()[method]) for name in ("rloo", "grpo", "ppo")}
    monkeypatch.setattr(catalogue, "methods", lambda: known)
    (written.parent / "ppo.json").write_text("{}")
    assert verdicts.stalest_first(written.parent) == ["grpo", "ppo", "rloo"]


def test_replaying_a_seed_stamps_a_verdict_anew_only_if_it_gives_the_same(written: Path, tmp_path: Path) -> None:
    edited(written, EDITS["an old fingerprint"][0], redigest=True)
    assert verdicts.replayed("rloo", tmp_path / "work", written.parent)
    assert verdicts.problems(written) == []
    edited(written, EDITS["an old fingerprint"][0], redigest=True)
    edited(written, lambda v: v["claims"][0]["ours"].__setitem__(0, 9.0), redigest=True)
    assert not verdicts.replayed("rloo", tmp_path / "work", written.parent)


def test_the_command_measures_writes_and_then_finds_nothing_to_do(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {method: catalogue.methods()[method]}
    monkeypatch.setattr(catalogue, "methods", lambda: known)
    places = ["--verdicts", str(tmp_path / "v"), "--work", str(tmp_path / "w")]
    assert cli.main(["claim", method, *places]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("ours is larger", "holds", "6 seeds", "one is one", "written to"))
    assert verdicts.problems(tmp_path / "v" / "rloo.json") == []
    assert cli.main(["claim", "--all", "--budget", "1", *places]) == 0
    assert "every verdict stands" in capsys.readouterr().out
    known[method] = replace(known[method], claims=(replace(CLAIM, margin=5.0),))
    assert cli.main(["claim", "--all", *places, "--json"]) == 1, "a claim that fails is told by the exit code"
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "fails"


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "name a method, or give --all"), (["rloo", "--budget", "0"], "--budget is 0"), (["rlooo"], "'rloo'")],
)
def test_a_claim_of_nobody_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claim", *words]) == 2
    assert message in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- committed ones
@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_verdicts_are_whole_and_fit_todays_code(path: Path) -> None:
    assert verdicts.problems(path) == []


def test_check_tells_broken_verdicts_from_claims_that_nobody_has_measured(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["claim", "--check", "--json", "--verdicts", str(written.parent)]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], found["problems"]) == (1, [])
    assert "grpo" in found["not_measured"]
    edited(written, EDITS["a better score"][0], redigest=True)
    assert cli.main(words) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def shortest(num: int) -> list[str]:
    """The methods whose verdicts took least time a seed."""

    def cost(path: Path) -> float:
        measured = [claim for claim in verdicts.read(path)["claims"] if claim["kind"] == "measured"]
        return sum(claim["minutes"] / len(claim["seeds"]) for claim in measured)

    return [path.stem for path in sorted((p for p in COMMITTED if not verdicts.problems(p)), key=cost)[:num]]


@pytest.mark.parametrize("name", shortest(2))
def test_the_shortest_verdicts_come_out_again(name: str, tmp_path: Path) -> None:
    """Seed 0 of both sides: bitwise on the machine kind that measured it, elsewhere within what its seeds span."""
    committed = verdicts.read(CHECKOUT / "verdicts" / f"{name}.json")
    here, there = (
        {key: facts[key] for key in ("machine", "torch", "cores")}
        for facts in (describe_machine(), committed["machine"])
    )
    old = {claim["name"]: claim for claim in committed["claims"]}
    for claim in catalogue.find_method(name)[1].measured:
        found = verdicts.measure(name, claim, tmp_path, seeds=[0])
        assert found is not None
        for side in verdicts.SIDES:
            scores = old[claim.name][side]
            if here == there:
                assert found[side][0] == pytest.approx(scores[0], abs=1e-9)
            else:
                spread = 3 * (max(scores) - min(scores)) + 0.1 * abs(scores[0])
                assert min(scores) - spread <= found[side][0] <= max(scores) + spread
