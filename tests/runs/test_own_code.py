"""Own code: found without being imported, loaded without a trace, recorded with digests, loaded again only if equal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import assay
from assay.cli.main import main
from assay.core.errors import AssayError
from assay.recipes.presets import TABLE
from assay.runs import catalogue
from assay.runs.arms import parsed_arms, plain_name
from assay.runs.jobs import Result, run_jobs
from assay.runs.plan import plan_of
from assay.runs.pools import Job
from assay.runs.user_code.addresses import parsed_address
from assay.runs.user_code.files import digests
from assay.runs.user_code.known_runs import is_known, remember
from assay.runs.user_code.loading import load

METHOD = """
from dataclasses import replace
from assay import recipes
from beside import STEPS

def recipe(defaults):
    return replace(recipes.grpo(defaults), name="mine", steps=STEPS)

def fewer(defaults):
    return replace(recipe(defaults), name="fewer", steps=1)
"""


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_modules_beside_a_file_are_importable_and_leave_no_trace(tmp_path: Path) -> None:
    first = written(tmp_path / "one", mine="import beside\nVALUE = beside.VALUE", beside="VALUE = 1")
    second = written(tmp_path / "two", mine="import beside\nVALUE = beside.VALUE", beside="VALUE = 2")
    path, known = list(sys.path), set(sys.modules)
    assert [load(str(folder / "mine.py")).VALUE for folder in (first, second)] == [1, 2]
    assert sys.path == path
    assert all(name.startswith("own_mine_") for name in set(sys.modules) - known)
    (first / "beside.py").write_text("VALUE = 3  # changed")
    assert load(str(first / "mine.py")).VALUE == 3


def test_an_edit_of_equal_size_within_a_second_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own cache of compiled files compares size and time in seconds, and would run the first text."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for value in (1, 2, 3):
        texts = {"mine": f"import beside\nVALUE = {value} + beside.VALUE", "beside": f"VALUE = {value}"}
        folder = written(tmp_path, **texts)
        for name in texts:
            os.utime(folder / f"{name}.py", (1_000_000_000, 1_000_000_000))
        found = load(str(folder / "mine.py")).VALUE
        assert found == 2 * value


def test_digests_cover_what_is_imported_and_nothing_else(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        mine="import json\nfrom assay import recipes\nfrom pack.inner import value\n",
        pack__inner="from . import deep\nvalue = 1\n",
        pack__deep="import far\n",
        far="",
        unused="",
    )
    (folder / "pack" / "__init__.py").write_text("")
    files = ["far.py", "mine.py", "pack/__init__.py", "pack/deep.py", "pack/inner.py"]
    assert sorted(digests(str(folder / "mine.py"))) == files


def test_claims_are_no_part_of_the_code_that_trains_and_an_edit_of_them_is_loaded(tmp_path: Path) -> None:
    path, head = tmp_path / "mine.py", "RATE = 1.0\n"
    path.write_text(f"{head}CLAIMS = (\n    'it learns',\n)\nSTEPS = 2\n")
    before, first = digests(str(path)), load(str(path))
    path.write_text(f"{head}CLAIMS = ('it learns faster',)\nSTEPS = 2\n")
    assert digests(str(path)) == before
    assert (first.CLAIMS, load(str(path)).CLAIMS) == (("it learns",), ("it learns faster",))
    for changed in ("CLAIMS = ('it learns faster',)\nSTEPS = 3\n", "CLAIMS = (); RATE = 2.0\nSTEPS = 2\n"):
        path.write_text(f"{head}{changed}")
        assert digests(str(path)) != before


def test_a_claim_with_a_name_of_its_own_is_no_part_of_the_code_that_trains(tmp_path: Path) -> None:
    path, head = tmp_path / "mine.py", "from assay.claims import Exact\nfrom far import Rate\n"
    path.write_text(f"{head}FIRST = Exact('it counts', len, equals=0.0)\nRATE = Rate(1)\nCLAIMS = (FIRST,)\n")
    (tmp_path / "far.py").write_text("Rate = int\n")
    before = digests(str(path))
    path.write_text(f"{head}FIRST = Exact('it counts well', len,\n    equals=0.0)\nRATE = Rate(1)\nCLAIMS = (FIRST,)\n")
    assert digests(str(path)) == before
    path.write_text(f"{head}FIRST = Exact('it counts', len, equals=0.0)\nRATE = Rate(2)\nCLAIMS = (FIRST,)\n")
    assert digests(str(path)) != before, "a call of other code trains"


def test_an_import_path_is_found_without_importing_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, loud__things="raise RuntimeError('imported')")
    (tmp_path / "loud" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    address = parsed_address("loud.things:reward")
    assert address is not None
    assert sorted(digests(address.source)) == ["loud/__init__.py", "loud/things.py"]
    assert parsed_address("os:system") is parsed_address("no_such_package:x") is None
    with pytest.raises(AssayError, match=r"module 'loud\.things' cannot be loaded: it raises RuntimeError"):
        load("loud.things")


def test_a_method_in_a_file_is_found_by_its_path_and_by_name(tmp_path: Path) -> None:
    file = written(tmp_path, mine=METHOD, beside="STEPS = 2") / "mine.py"
    name, method = catalogue.find_method(str(file))
    assert name == str(file)
    assert method.recipe(method.presets[0]).steps == 2
    assert catalogue.find_method(f"{file}:fewer")[1].recipe(method.presets[0]).name == "fewer"
    with pytest.raises(AssayError, match=r"has no 'other'\. It has: STEPS, recipe, fewer"):
        catalogue.find_method(f"{file}:other")


def test_an_arm_is_named_by_its_recipe_which_reaches_another_process(tmp_path: Path) -> None:
    parts = "from assay.parts.credit.outcome import GroupMean\nclass Mine(GroupMean):\n    pass\n"
    text = METHOD.replace("from beside import STEPS", "from beside import Mine\nSTEPS = 1").replace(
        'name="mine"', 'name="mine", credit=(replace(recipes.grpo(defaults).credit[0], baseline=Mine()),)'
    )
    file = written(tmp_path, mine=text, beside=parts) / "mine.py"
    arms = parsed_arms([f"{file}:fewer", f"{file}:steps=1", "grpo"])
    assert [arm.name for arm in arms] == ["fewer", "mine:steps=1", "grpo"]
    assert plain_name(str(file)) == "mine"
    recipe = catalogue.find_method(str(file))[1].recipe(TABLE)
    (done,) = run_jobs([Job("mine", "bandit", 0, tmp_path / "run", recipe)], 1)
    assert isinstance(done, Result), done


# ---------------------------------------------------------------------------------------------------- run folders
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a run of a method in a file; the file is in `code` beside it."""
    place = tmp_path_factory.mktemp("own")
    file = written(place / "code", mine=METHOD, beside="STEPS = 2") / "mine.py"
    assay.train(str(file), "bandit", steps=2, out=place / "run")
    return place / "run"


def test_a_run_records_its_code_and_goes_on_from_any_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = json.loads((run / "config.json").read_text())
    assert list(config["code"][config["method"]]) == ["beside.py", "mine.py"]
    assert assay.resume(run).recipe.name == "mine"


def test_changed_code_is_refused_by_name_until_it_is_accepted(run: Path) -> None:
    beside = run.parent / "code" / "beside.py"
    before = beside.read_text()
    beside.write_text(f"{before}\n")
    with pytest.raises(AssayError, match=r"own code has changed since .*: beside\.py of .*--accept-changed-code"):
        assay.resume(run)
    assay.resume(run, accept_changed_code=True)
    assert json.loads((run / "config.json").read_text())["accepted_code"][0]["code"]
    assay.resume(run)  # what was accepted once is the recorded code
    beside.write_text(before)
    with pytest.raises(AssayError, match=r"beside\.py"):
        assay.resume(run)
    assay.resume(run, accept_changed_code=True)


def received(run: Path, folder: Path, **changes: object) -> Path:
    """Returns a copy of the run's config.json with other entries, as a received folder."""
    folder.mkdir()
    config = json.loads((run / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_received_folder_runs_no_code_that_it_does_not_record(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, evil_mod="open('touched', 'w').close()", evil_file="open('touched', 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = ["evil_mod:x/Env-v0", "evil_mod:Env", "evil_file.py:Env", str(tmp_path / "evil_file.py:Env")]
    for number, name in enumerate(names):
        with pytest.raises(AssayError, match="without recording its digests, so it is not loaded"):
            plan_of(received(run, tmp_path / f"task-{number}", task=name))
        options = {"reward": [name]}
        with pytest.raises(AssayError, match="without recording its digests"):
            plan_of(received(run, tmp_path / f"reward-{number}", task="addition-1", options=options))
    inside = received(run, tmp_path / "inside")
    (inside / "evil.py").write_text("open('touched', 'w').close()")
    source = str(inside / "evil.py")
    config = json.loads((inside / "config.json").read_text())
    config |= {"task": f"{source}:Env", "code": config["code"] | {source: digests(source)}, "accepted_code": []}
    (inside / "config.json").write_text(json.dumps(config))
    with pytest.raises(AssayError, match="inside the run folder"):
        plan_of(inside)
    assert not (tmp_path / "touched").exists()
    assert "evil_mod" not in sys.modules


def hostile(run: Path, folder: Path, source: str, name: str, **changes: object) -> Path:
    """Returns a received folder that names code of this machine with its right digests."""
    code = {source: digests(source)}
    return received(run, folder, method="grpo", task=f"{source}:{name}", code=code, accepted_code=[], **changes)


def test_a_received_folder_runs_no_code_although_it_knows_its_digests(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests of public packages are public. pytest's entry point runs the conftest.py of a folder in sys.argv."""
    written(tmp_path / "path", evil_mod="open('touched', 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path)
    for number, (source, name) in enumerate([("pytest", "console_main"), ("evil_mod", "x-v0"), ("evil_mod", "Env")]):
        folder = hostile(run, tmp_path / f"got-{number}", source, name)
        (folder / "conftest.py").write_text("open('touched', 'w').close()")
        monkeypatch.setattr(sys, "argv", ["assay", "evaluate", str(folder)])
        for accepts in (False, True):
            with pytest.raises(AssayError, match=f"not started by you on this machine.*{source}.*--trust-code"):
                plan_of(folder, accept_changed_code=accepts)
        with pytest.raises(AssayError, match="--trust-code"):
            assay.load(folder)
    assert not (tmp_path / "touched").exists()
    assert "evil_mod" not in sys.modules


def test_a_folder_of_ones_own_with_another_word_is_a_received_one(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    again = received(run, tmp_path / "copied")
    assert plan_of(again).method == config["method"], "a copy of a folder that was started here is known"
    assert plan_of(received(run, tmp_path / "longer", more_steps=3)).more_steps == 3
    with pytest.raises(AssayError, match="--trust-code"):
        plan_of(received(run, tmp_path / "other", method=config["method"] + ":fewer"))


def test_trust_in_a_received_folder_is_remembered_for_that_folder_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(AssayError, match="--trust-code"):
        assay.load(run)
    assert assay.load(run, trust_code=True)[2] == assay.load(run)[2] == 2
    with pytest.raises(AssayError, match="--trust-code"):
        plan_of(received(run, tmp_path / "other", seed=3))


def test_the_commands_of_a_received_folder_have_the_same_option(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, again = str(tmp_path / "policy.pt"), str(tmp_path / "again")
    for number, words in enumerate((["resume"], ["evaluate"], ["export", out], ["reproduce", "--out", again])):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state-{number}"))
        line = [words[0], str(run), *words[1:]]
        assert main([*line, "--json"]) == 2, words
        assert "--trust-code" in capsys.readouterr().err, words
        assert main([*line, "--json", "--trust-code"]) == 0, (words, capsys.readouterr().err)
        assert plan_of(run).steps == 2


def test_without_a_place_for_records_a_run_works_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="will need --trust-code.*XDG_STATE_HOME"):
        remember(tmp_path, {"code": {"a.py": {"a.py": "0"}}})
    assert not is_known({"code": {"a.py": {"a.py": "0"}}})
