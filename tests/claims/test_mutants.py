"""Mutants: every method's exact claims reject wrong versions of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay import recipes
from assay.claims.claim import Edit
from assay.claims.find import find_claims
from assay.claims.mutants import edits, every, find, rules, trial
from assay.claims.mutants.settings import SETTING
from assay.claims.wiring import is_record
from assay.core.difference import differences, taken
from assay.core.errors import AssayError
from assay.parts.objectives.trust import Clip
from assay.recipes.method import Method
from assay.runs import catalogue

METHODS = sorted(catalogue.methods())

MOST = max(2, 180 // len(METHODS))
"""Mutants by rules that are tried of each method, besides twice as many of its base and of those written down: as
methods become more, fewer of each, spread over its code. With --all-cases, 24.
"""
UNTRIED = {"d4rl", "d5rl", "neorl2", "ogsrl", "pasta", "policy-guided-diffusion"}
"""Methods of which only this sample was tried yet, as `assay list` shows; `assay claim KEY --mutants` tries all."""


@pytest.mark.parametrize("key", METHODS)
def test_exact_claims_reject_a_sample_of_mutants(key: str, request: pytest.FixtureRequest) -> None:
    kept = trial.read(key)
    results = trial.quick_trials(key, 24 if request.config.getoption("--all-cases") else MOST)
    assert [one.name for one in results if one.outcome == trial.SURVIVED] == []
    assert (kept is None) == (key in UNTRIED), f"run: assay claim {key} --mutants, or take it off the list"
    if kept is None:
        pytest.skip(f"only a sample of its mutants was tried: assay claim {key} --mutants")
    assert kept["survived"] == 0
    assert kept.get("written_without_effect", []) == [], "an edit by hand that changes nothing shows nothing"
    assert kept["caught"] >= 5


# ---------------------------------------------------------------------------------------------------- parts of recipes
def test_taken_puts_every_difference_back() -> None:
    for ours, base in ((recipes.dapo(), recipes.grpo()), (recipes.grpo(), recipes.reinforce())):
        changed = ours
        for change in differences(base, ours):
            changed = taken(changed, base, change.path)
        assert [one for one in differences(base, changed) if one.path[-1] != "name"] == []


def test_taken_removes_an_added_part_and_adds_a_removed_one() -> None:
    dapo, grpo = recipes.dapo(), recipes.grpo()
    assert taken(dapo, grpo, ("select",)).select is None
    assert taken(grpo, dapo, ("select",)).select == dapo.select


# ---------------------------------------------------------------------------------------------------- code
def ratio_loss(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    return -torch.minimum(ratio * advantage, advantage)


def test_a_rule_changes_the_code_inside_the_block_only() -> None:
    numbers = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 1.0])
    right = ratio_loss(*numbers)
    made = {told: tree for _, told, tree in rules.variants(edits.tree_of(ratio_loss))}
    swapped = next(tree for told, tree in made.items() if "torch.maximum" in told)
    code = edits.compiled(ratio_loss, swapped)
    assert code is not None
    with edits.installed(ratio_loss, code):
        assert torch.equal(ratio_loss(*numbers), torch.tensor([-1.0, -2.0]))
    assert torch.equal(ratio_loss(*numbers), right)


def test_code_is_restored_after_an_error() -> None:
    def fails() -> None:
        raise RuntimeError

    plain, code = edits.edited(ratio_loss, "torch.minimum", "torch.maximum")
    before = plain.__code__
    with pytest.raises(RuntimeError), edits.installed(plain, code):
        fails()
    assert plain.__code__ is before


def test_an_edit_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(AssayError, match="occurs 0 times"):
        find.written(Edit("nothing", Clip.__call__, "not in the source", "x"))


def test_a_recipe_function_returns_the_changed_recipe_inside_the_block_only() -> None:
    method = catalogue.methods()["gspo"]
    mutant = next(one for one in find.swaps(method) if one.name.startswith("the whole recipe"))
    with mutant.install():
        assert differences(recipes.grpo(), recipes.gspo()) == []
    assert differences(recipes.grpo(), recipes.gspo()) != []


def test_a_claim_that_does_not_end_is_stopped() -> None:
    def endless() -> float:
        while True:
            pass

    with pytest.raises(trial.Overtime), trial.limited(0.05):
        endless()


def test_a_sample_trains_only_where_a_mutant_passes_the_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Method] = []

    def trained(method: Method, seconds: float, is_small: bool = False) -> list[float]:
        runs.append(method)
        return [0.0]

    monkeypatch.setattr(trial, "trained", trained)
    assert {one.outcome for one in trial.quick_trials("bc", 2)} == {trial.CAUGHT}
    assert runs == []
    monkeypatch.setattr(trial, "read", lambda key: None)
    outcomes = {one.outcome for one in trial.quick_trials("bc", 1000)}
    assert outcomes == {trial.CAUGHT, trial.NOT_REACHED}, "this run calls no code of the method"
    assert len(runs) == 1


def test_code_that_a_thread_of_the_run_calls_is_reached() -> None:
    numbers = torch.ones(1), torch.ones(1)
    with trial.traced() as reached:
        thread = threading.Thread(target=ratio_loss, args=numbers)
        thread.start()
        thread.join()
    assert ratio_loss.__code__ in reached


def test_a_mutant_of_code_that_no_run_reaches_is_kept_apart() -> None:
    results = [trial.Result("sign", "f: a", trial.CAUGHT, "c"), trial.Result("sign", "g: a", trial.NOT_REACHED)]
    kept = trial.summary(results)
    assert (kept["made"], kept["not_caught"]) == (1, {"g: a": trial.NOT_REACHED})


def test_an_edit_by_hand_without_effect_is_reported() -> None:
    results = [trial.Result("written", "a", trial.NO_EFFECT), trial.Result("sign", "b", trial.NO_EFFECT)]
    assert trial.summary(results)["written_without_effect"] == ["a"]


def test_the_record_of_settings_judges_mutants_of_settings_alone_and_last() -> None:
    claims = find_claims("grpo").exact
    setting, edit = (find.Mutant(rule, "", nullcontext) for rule in (SETTING, "sign"))
    assert is_record(trial.judges_of(setting, claims, True)[-1])
    assert is_record(trial.judges_of(setting, claims, False)[0])
    assert not any(map(is_record, trial.judges_of(edit, claims, True)))


def test_pieces_of_mutants_are_tried_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = every.pieces_of("bc", ("setting",), tmp_path)
    assert [one.place for one in pieces] == list(range(len(pieces)))
    made = [f"{k}" for k in range(7)]

    def trials(key: str, chosen: Callable[[list[find.Mutant]], list[find.Mutant]]) -> Iterator[trial.Result]:
        found = chosen([find.Mutant("setting", name, nullcontext) for name in made])
        return (trial.Result("setting", one.name, trial.CAUGHT, "c") for one in found)

    monkeypatch.setattr(trial, "trials", trials)
    parts = [replace(pieces[0], place=place, of=3, file=tmp_path / f"{place}.json") for place in range(3)]
    names = [one.name for part in parts for one in every.read_piece(every.try_piece(part))]
    assert sorted(names) == made
    assert list(every.tried(parts, 1, 0.0)) == [], "finished pieces are not tried again"


def test_processes_try_every_mutant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def trials(key: str, chosen: Callable[[list[str]], list[str]] = list) -> Iterator[trial.Result]:
        return (trial.Result("rule", name, trial.CAUGHT) for name in chosen(list("abcdefg")))

    monkeypatch.setattr(trial, "trials", trials)
    parts = [trial.trials_of_part("grpo", 3, part) for part in range(3)]
    assert sorted(one.name for part in parts for one in part) == list("abcdefg")
    assert [one.name for one in trial.all_trials("grpo", 1)] == list("abcdefg")
