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
import json, sys
from assay.runs import catalogue
found = []
for key in sys.argv[1:]:
    catalogue.find_method(key)
    found.append(sorted(name for name in sys.modules if name.startswith("assay.")))
print(json.dumps({"names": found}))
"""
TRAIN = """
import json, sys
from assay.cli.main import main
words = "train grpo --task addition-1 --steps 1 --warmup 1 --evaluations 0 --eval-prompts 4 --json --out"
code = main([*words.split(), sys.argv[1]])
print(json.dumps({"code": code, "names": sorted(name for name in sys.modules if name.startswith("assay."))}))
"""


BESIDE = """
import contextlib, io, json, os, sys
os.chdir(sys.argv[2])
from assay.cli.main import main
found = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps({"ended": found}))
"""


def run(code: str, *words: str, folder: Path = ROOT) -> dict[str, object]:
    """What a fresh interpreter prints in its last line."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, timeout=600, check=True
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


def test_a_method_that_is_not_built_in_leads_to_the_one_for_its_data() -> None:
    with pytest.raises(AssayError, match=r"no method 'kto'\. dpo trains on completions with labels"):
        catalogue.find_method("kto")


@pytest.mark.parametrize("name", ["judge", "fixed", "none", "tags"])
def test_the_short_name_of_a_variant_is_no_name_of_a_method(name: str) -> None:
    with pytest.raises(AssayError, match=f"'{name}' is a variant: .*:{name}"):
        catalogue.find_method(name)


def test_the_methods_name_may_be_left_out_of_a_variants() -> None:
    assert catalogue.find_method("dsdr:bonus")[0] == "dsdr:dsdr-bonus"
    with pytest.raises(AssayError, match=r"has no variant 'x'\. It has: dsdr-bonus"):
        catalogue.find_method("dsdr:x")


# ---------------------------------------------------------------------------------------------------- alone
def test_a_method_is_found_without_others_and_without_its_proof() -> None:
    keys, own = ["grpo", "fisor", "kimi-k1.5"], ["assay.methods._"]
    for key, names in zip(keys, run(COUNT, *keys)["names"], strict=True):  # type: ignore[call-overload]
        own.append(f"assay.methods.{method_index.stem_of(key)}")
        methods = [name for name in names if name.startswith("assay.methods.")]
        assert own[-1] in methods
        assert [name for name in methods if not name.startswith(tuple(own))] == []
        assert [name for name in names if name.startswith(("assay.claims", "assay.report", "assay.cli"))] == []


def test_the_file_of_one_method_is_read_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    read, entry_of = set[str](), method_index.entry_of

    def recorded(file: Path) -> method_index.Entry:
        read.add(file.name)
        return entry_of(file)

    monkeypatch.setattr(method_index, "entry_of", recorded)
    for key in ("grpo", "kimi-k1.5", "kimi-k1-5"):
        assert catalogue.find_method(key)[0] == key.replace("k1-5", "k1.5")
    assert read == {"grpo.py", "kimi_k1_5.py"}


def test_training_imports_neither_claims_nor_other_methods(tmp_path: Path) -> None:
    found = run(TRAIN, str(tmp_path / "run"))
    names = list(map(str, found["names"]))  # type: ignore[call-overload]
    assert found["code"] == 0
    assert [name for name in names if name.startswith("assay.claims")] == []
    assert {name for name in names if name.startswith("assay.methods.")} <= {"assay.methods.grpo", "assay.methods.sft"}
    assert len(names) <= 350


# ---------------------------------------------------------------------------------------------------- broken files
COMMANDS = (
    "show grpo", "diff dapo", "train grpo --task bandit --steps 1 --out run",
    "train dsdr --task addition-1 --steps 1 --warmup 1 --out of-broken-claims", "claim bc --exact",
)  # fmt: skip
LIST, REFUSED = "list --json", "train rho --steps 1"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of commands beside a method that raises, one that is not Python, and claims that
    raise, in a copy of the package.
    """
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "assay", folder / "assay")
    (folder / "assay/methods/rho.py").write_text('"""rho: raises."""\n\nraise RuntimeError("no such part")\n')
    (folder / "assay/methods/sigma.py").write_text('"""sigma: is cut off."""\n\ndef recipe(:\n')
    (folder / "assay/claims/dsdr.py").write_text("import no_such_package\n")
    commands = (REFUSED, *COMMANDS, LIST)
    found = run(BESIDE, json.dumps([one.split() for one in commands]), str(folder), folder=folder)
    return dict(zip(commands, map(tuple, found["ended"]), strict=True))  # type: ignore[call-overload]


def test_a_broken_method_is_a_row_of_the_list_that_names_file_and_error(ended: dict[str, tuple[int, str, str]]) -> None:
    code, said, errors = ended[LIST]
    assert code == 0, errors
    rows = {row["name"]: row for row in json.loads(said)}
    assert "assay/methods/rho.py, line 3: RuntimeError: no such part" in rows["rho"]["error"]
    assert "assay/methods/sigma.py, line 3: SyntaxError" in rows["sigma"]["error"]
    assert "No module named 'no_such_package'" in rows["dsdr"]["error"]
    assert rows["grpo"]["verdict"]["verdict"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_other_command_works_beside_a_broken_method(
    command: str, ended: dict[str, tuple[int, str, str]]
) -> None:
    code, _, errors = ended[command]
    assert code == 0, errors


def test_a_broken_method_is_refused_in_one_sentence(ended: dict[str, tuple[int, str, str]]) -> None:
    code, _, errors = ended[REFUSED]
    assert code == 2
    assert "method 'rho' cannot be imported: assay/methods/rho.py, line 3: RuntimeError: no such part" in errors
    assert "Traceback" not in errors
