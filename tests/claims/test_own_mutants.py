"""The method in a user's file has mutants of its own code, as a built-in one has."""

from __future__ import annotations

from pathlib import Path

from assay.claims import progrpo as claims
from assay.claims import shipped
from assay.claims.mutants import find, trial
from assay.claims.mutants.settings import SETTING
from assay.claims.records import record_path
from assay.methods import progrpo
from assay.runs import catalogue

IMPORT = "from assay.methods.progrpo import LessWhereConfident, confidence_of, recipe\n"
GRADIENT = "        same_gradient("
BASE = "    base=recipes.grpo,\n"


def user_file(folder: Path) -> Path:
    """Writes a method and its claims as the one file of a user, with a default task that trains in a second."""
    texts = [Path(str(module.__file__)).read_text() for module in (progrpo, claims)]
    assert BASE in texts[0]
    assert IMPORT in texts[1]
    file = folder / "mine.py"
    text = "\n".join(texts).replace(IMPORT, "").replace(BASE, f'{BASE}    default_task="many-ways",\n')
    file.write_text(text)
    return file


def own_mutants(found: list[find.Mutant]) -> list[find.Mutant]:
    """Chooses the mutants of the functions that the file defines."""
    return [one for one in found if one.name.startswith(("LessWhereConfident.", "confidence_of:"))]


def test_claims_in_a_users_file_reject_the_mutants_of_its_code(tmp_path: Path) -> None:
    key = str(user_file(tmp_path))
    made = find.mutants(key, catalogue.find_method(key)[1])
    assert {one.rule for one in made} >= {"base", "written"}
    assert len(own_mutants(made)) >= 10
    results = list(trial.trials(key, own_mutants))
    assert len(results) == len(own_mutants(made))
    assert [one.name for one in results if one.outcome == trial.SURVIVED] == []
    assert sum(one.outcome == trial.CAUGHT for one in results) >= 10
    trial.write(key, results)
    assert record_path(key) == tmp_path / "mine.record.json"
    assert trial.read(key) == trial.summary(results)


def test_a_users_file_with_weak_claims_lets_mutants_survive(tmp_path: Path) -> None:
    file = user_file(tmp_path)
    lines = [line for line in file.read_text().splitlines() if not line.startswith(GRADIENT)]
    file.write_text("\n".join(lines))

    def chosen(found: list[find.Mutant]) -> list[find.Mutant]:
        return [one for one in found if one.name.startswith("LessWhereConfident.apply") or one.rule == "written"]

    outcomes = {one.name: one.outcome for one in trial.trials(str(file), chosen)}
    assert outcomes["the mean of all decisions"] == trial.CAUGHT
    assert trial.SURVIVED in outcomes.values()


def test_a_users_file_has_the_mutants_of_the_built_in_method(tmp_path: Path) -> None:
    keys = ("progrpo", str(user_file(tmp_path)))
    made = [find.mutants(key, catalogue.find_method(key)[1]) for key in keys]
    names = [[one.name for one in some if one.rule != SETTING] for some in made]
    assert names[0] == names[1]
    assert len(made[0]) > len(names[0])
    assert len(made[1]) == len(names[1]), "settings are changed once they are recorded"
    shipped.record_settings(keys[1])
    own = find.mutants(keys[1], catalogue.find_method(keys[1])[1])
    assert {one.rule for one in own[len(names[1]) :]} == {SETTING}
    results = list(trial.trials(keys[1], lambda found: [one for one in found if "group_size" in one.name], runs=False))
    assert {one.outcome for one in results} == {trial.CAUGHT}
