"""Methods, tasks and models that an installed package brings by its entry points."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assay.claims.find import find_claims
from assay.cli.main import main
from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.recipes.presets import TABLE
from assay.runs import catalogue
from assay.runs.given_model import installed_model
from assay.runs.plan import plan_of

METHODS = '''"""halved: grpo with half of the steps."""
from dataclasses import replace
from assay.claims import Claims, Exact
from assay.method import TABLE, Method, recipes

def recipe(preset=TABLE):
    base = recipes.grpo(preset)
    return replace(base, name="halved", steps=base.steps // 2)

def quartered(preset=TABLE):
    return replace(recipe(preset), name="quartered", steps=recipe(preset).steps // 2)

METHOD = Method("", recipe, (TABLE,), "bandit", family="policy gradient", base=recipes.grpo,
                variants={"quartered": quartered})
CLAIMS = Claims((Exact("half of the steps", lambda: recipe().steps / recipes.grpo(TABLE).steps, equals=0.5),))
'''
TASKS = """from assay.runs.catalogue import find_task

def narrow(width=2):
    return find_task(f"gridworld:size={width + 1}")
"""
MODELS = """import os
from torch import nn

class Small(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.out_features = 8
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Tanh())

    def forward(self, seen):
        return self.net(seen)

def folder():
    return os.environ["HALVES_MODEL"]

def nothing():
    return None

def fails():
    raise RuntimeError("no weights here")
"""
POINTS = """[assay.methods]
halved-steps = halves.methods
halved-recipe = halves.methods:recipe
grpo = halves.methods:recipe

[assay.tasks]
narrow-grid = halves.tasks:narrow

[assay.models]
small-net = halves.models:Small
half-llama = halves.models:folder
no-llama = halves.models:nothing
broken-llama = halves.models:fails
"""


def install(place: Path, name: str = "halves", points: str = POINTS) -> None:
    """Writes a package and what pip would leave beside it."""
    (place / name).mkdir(parents=True)
    for file, text in (("__init__", ""), ("methods", METHODS), ("tasks", TASKS), ("models", MODELS)):
        (place / name / f"{file}.py").write_text(text)
    told = place / f"{name}-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(points)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder of installed packages, in an empty working folder."""
    install(tmp_path / "site")
    for known in [name for name in sys.modules if name.partition(".")[0] == "halves"]:  # of another test's folder
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "site"


@pytest.mark.usefixtures("place")
def test_a_method_is_found_by_its_name_with_variants_and_claims() -> None:
    steps = {"halved-steps": 30, "halved-recipe": 30, "halved-steps:quartered": 15}
    for name, right in steps.items():
        assert catalogue.find_method(name)[1].recipe(TABLE).steps == right
    full, method = catalogue.find_method("halved-steps")
    assert full == "halves.methods:METHOD"
    assert catalogue.find_method(full)[1] == method
    assert [claim.run().holds for claim in find_claims("halved-steps").exact] == [True]


@pytest.mark.usefixtures("place")
def test_a_built_in_name_keeps_its_meaning() -> None:
    assert catalogue.method_address("grpo") is None
    assert catalogue.find_method("grpo")[1].recipe(TABLE).steps == 60


@pytest.mark.usefixtures("place")
def test_a_task_is_found_by_its_name_with_settings() -> None:
    plain, wide = catalogue.find_task("narrow-grid"), catalogue.find_task("narrow-grid:width=4")
    assert isinstance(plain, Task)
    assert plain.spec != wide.spec
    assert wide.spec == catalogue.find_task("gridworld:size=5").spec
    with pytest.raises(AssayError, match=r"has no setting 'height'\. It has: width=2"):
        catalogue.find_task("narrow-grid:height=4")


def test_a_run_records_the_code_of_the_package_and_resumes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "halved-steps", "--task", "narrow-grid", "--steps", "1", "--out", "run", "--json"]
    assert main(words) == 0
    capsys.readouterr()
    config = json.loads(Path("run/config.json").read_text())
    assert sorted(file for files in config["code"].values() for file in files if "__init__" not in file) == [
        "halves/methods.py", "halves/tasks.py",
    ]  # fmt: skip
    assert main(["resume", "run"]) == 0
    file = place / "halves" / "methods.py"
    file.write_text(file.read_text() + "\n")
    assert main(["resume", "run"]) == 2
    assert "own code has changed" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- models
def test_a_network_of_a_package_is_the_body_of_a_control_task(place: Path) -> None:
    words = ["train", "ppo", "--task", "cartpole", "--body", "small-net", "--steps", "1", "--out", "run", "--json"]
    assert main(words) == 0
    recorded = json.loads(Path("run/config.json").read_text())
    assert recorded["options"]["body"] == "halves.models:Small"
    assert [file for files in recorded["code"].values() for file in files] == ["halves/__init__.py", "halves/models.py"]
    assert main(["resume", "run"]) == 0
    file = place / "halves" / "models.py"
    file.write_text(file.read_text() + "\n")
    assert main(["resume", "run"]) == 2


@pytest.mark.usefixtures("place")
def test_a_pretrained_model_of_a_package_is_trained_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_transformers import save_llama

    monkeypatch.setenv("HALVES_MODEL", save_llama(Path("llama")))
    sizes = ["rollout.num_starts=2", "rollout.group_size=2"]
    words = ["train", "grpo", "--task", "addition-1", "--model", "half-llama", "--max-tokens", "4", "--steps", "1"]
    words += ["--out", "run", "--json", *(word for size in sizes for word in ("--set", size))]
    assert main(words) == 0
    monkeypatch.delenv("HALVES_MODEL")  # the run names the folder
    assert Path(str(plan_of("run").model)).resolve() == Path("llama").resolve()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("small-net", r"--model small-net: halves\.models:Small is <class .*--body takes networks"),
        ("no-llama", r"halves\.models:nothing returns None\. Return a folder"),
        ("broken-llama", r"halves\.models:fails cannot be loaded: it raises RuntimeError.*no weights here"),
        ("half-lama", r"there is no model 'half-lama'\. Did you mean 'half-llama'\?"),
    ],
)
def test_a_model_that_cannot_be_one_is_refused(name: str, told: str) -> None:
    with pytest.raises(AssayError, match=told):
        installed_model(name)


@pytest.mark.usefixtures("place")
def test_a_folder_and_a_hub_id_keep_their_meaning() -> None:
    Path("half-llama").mkdir()
    for name in ("half-llama", "owner/half-llama", "nothing-like-it"):
        assert installed_model(name) == name


@pytest.mark.usefixtures("place")
def test_a_mistyped_name_suggests_what_is_installed() -> None:
    with pytest.raises(AssayError, match="Did you mean 'halved-steps'"):
        catalogue.find_method("halved-stes")
    with pytest.raises(AssayError, match="Did you mean 'narrow-grid'"):
        catalogue.find_task("narow-grid")


def test_a_name_of_two_packages_is_refused(place: Path) -> None:
    install(place, "others", "[assay.methods]\nhalved-steps = others.methods\n")
    with pytest.raises(AssayError, match=r"'halved-steps' is declared by several packages: .*others\.methods"):
        catalogue.find_method("halved-steps")
