"""Methods are found alone: one file is imported, names come from texts, a broken file stops nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.runs import catalogue, method_index

ROOT = Path(__file__).resolve().parents[2]
COUNT = """
import json, sys, time
import torch
begin = time.process_time()
from assay.runs import catalogue
catalogue.find_method(sys.argv[1])
names = sorted(name for name in sys.modules if name.startswith("assay."))
print(json.dumps({"names": names, "seconds": time.process_time() - begin}))
"""
TRAIN = """
import json, sys
from assay.cli.main import main
words = "train grpo --task addition-1 --steps 1 --warmup 1 --evaluations 0 --eval-prompts 4 --json --out"
code = main([*words.split(), sys.argv[1]])
print(json.dumps({"code": code, "names": sorted(name for name in sys.modules if name.startswith("assay."))}))
"""


def run(code: str, *words: str, folder: Path = ROOT) -> dict[str, object]:
    """What a fresh interpreter prints in its last line."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ---------------------------------------------------------------------------------------------------- the index
def test_the_texts_of_methods_say_what_the_imported_ones_say() -> None:
    for key, entry in method_index.entries().items():
        method = catalogue.methods()[key]
        assert entry.key == (method.key or key)
        assert entry.aliases == method.aliases
        assert entry.variants == tuple(method.variants)
        assert (entry.family, entry.start_for) == (method.family, method.start_for)
        assert entry.studied == bool(method.studied)
        assert entry.summary == catalogue.method_text(key).splitlines()[0].partition(": ")[2]
    assert set(method_index.entries()) == set(catalogue.methods())


def test_names_mean_one_method_each() -> None:
    names = method_index.names()
    assert {name for name in names if ":" not in name} >= set(catalogue.methods())
    for name, meant in names.items():
        assert catalogue.find_method(name)[0] == meant
        assert catalogue.find_method(name.replace("-", "_").upper())[0] == meant


@pytest.mark.parametrize("name", ["judge", "fixed", "none", "tags"])
def test_the_short_name_of_a_variant_is_no_name_of_a_method(name: str) -> None:
    with pytest.raises(AssayError, match=f"'{name}' is a variant: .*:{name}"):
        catalogue.find_method(name)


def test_the_methods_name_may_be_left_out_of_a_variants() -> None:
    assert catalogue.find_method("dsdr:bonus")[0] == "dsdr:dsdr-bonus"
    with pytest.raises(AssayError, match=r"has no variant 'x'\. It has: dsdr-bonus"):
        catalogue.find_method("dsdr:x")


# ---------------------------------------------------------------------------------------------------- alone
@pytest.mark.parametrize("key", ["grpo", "fisor", "kimi-k1.5"])
def test_a_method_is_found_without_others_and_without_its_proof(key: str) -> None:
    found = run(COUNT, key)
    names = list(map(str, found["names"]))  # type: ignore[call-overload]
    own = f"assay.methods.{method_index.stem_of(key)}"
    assert [name for name in names if name.startswith("assay.methods.") and not name.startswith(own)] == []
    assert [name for name in names if name.startswith(("assay.claims", "assay.report", "assay.cli"))] == []


def test_training_imports_neither_claims_nor_other_methods(tmp_path: Path) -> None:
    found = run(TRAIN, str(tmp_path / "run"))
    names = list(map(str, found["names"]))  # type: ignore[call-overload]
    assert found["code"] == 0
    assert [name for name in names if name.startswith("assay.claims")] == []
    assert {name for name in names if name.startswith("assay.methods.")} <= {"assay.methods.grpo", "assay.methods.sft"}
    assert len(names) <= 350


# ---------------------------------------------------------------------------------------------------- broken files
@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with a method that raises, one that is not Python, and claims that raise."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "assay", folder / "assay", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "assay/methods/rho.py").write_text('"""rho: raises."""\n\nraise RuntimeError("no such part")\n')
    (folder / "assay/methods/sigma.py").write_text('"""sigma: is cut off."""\n\ndef recipe(:\n')
    (folder / "assay/claims/dsdr.py").write_text("import no_such_package\n")
    return folder


def assay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in the copy."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "assay", *words],
        capture_output=True, text=True, env=environment, cwd=folder, timeout=240, check=False,
    )  # fmt: skip


def test_a_broken_method_is_a_row_of_the_list_that_names_file_and_error(broken: Path) -> None:
    done = assay(broken, "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert "assay/methods/rho.py, line 3: RuntimeError: no such part" in rows["rho"]["error"]
    assert "assay/methods/sigma.py, line 3: SyntaxError" in rows["sigma"]["error"]
    assert "No module named 'no_such_package'" in rows["dsdr"]["error"]
    assert rows["grpo"]["verdict"]["verdict"]


@pytest.mark.parametrize(
    "words",
    [
        ("show", "grpo"),
        ("diff", "dapo"),
        ("train", "grpo", "--task", "bandit", "--steps", "1", "--out", "run"),
        ("train", "dsdr", "--task", "addition-1", "--steps", "1", "--warmup", "1", "--out", "of-broken-claims"),
        ("claim", "bc", "--exact"),
    ],
)
def test_every_other_command_works_beside_a_broken_method(broken: Path, words: tuple[str, ...]) -> None:
    done = assay(broken, *words)
    assert done.returncode == 0, done.stderr


def test_a_broken_method_is_refused_in_one_sentence(broken: Path) -> None:
    done = assay(broken, "train", "rho", "--steps", "1")
    assert done.returncode == 2
    assert "method 'rho' cannot be imported: assay/methods/rho.py, line 3: RuntimeError: no such part" in done.stderr
    assert "Traceback" not in done.stderr
