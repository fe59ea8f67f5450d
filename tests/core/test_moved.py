"""Names and paths of version 0.2 warn and give what has taken their place."""

from __future__ import annotations

import importlib
import sys

import pytest

import assay
from assay.core import moved
from assay.recipes import grpo, presets


@pytest.mark.parametrize("old", moved.MODULES)
def test_an_old_path_warns_and_is_the_module_at_its_new_place(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = f"assay.{moved.MODULES[old]}"
    for known in [name for name in sys.modules if moved.moved_to(name) is not None and name.startswith("assay.")]:
        monkeypatch.delitem(sys.modules, known)
    with pytest.warns(DeprecationWarning, match="has moved to") as warned:  # of the folder that it was in, too
        module = importlib.import_module(f"assay.{old}")
    assert str(warned[-1].message) == f"assay.{old} has moved to {new}; the old path goes with version 0.4"
    assert module is importlib.import_module(new)
    assert module.__spec__ is not None
    assert module.__spec__.name == new


def test_a_module_inside_an_old_folder_is_not_loaded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in [name for name in sys.modules if name.startswith(("assay.evidence", "assay.proof"))]:
        monkeypatch.delitem(sys.modules, known)
    with pytest.warns(DeprecationWarning, match="has moved to"):
        old = importlib.import_module("assay.evidence.sequential")
    assert old is importlib.import_module("assay.statistics.sequential")
    with pytest.warns(DeprecationWarning, match="has moved to"):
        assert importlib.import_module("assay.proof.laws.credit") is importlib.import_module("assay.claims.laws.credit")


@pytest.mark.parametrize("old", ["Defaults", "defaults_of", "defaults_for", "preset_of"])
def test_an_old_name_of_presets_warns(old: str) -> None:
    assert old not in vars(presets)
    with pytest.warns(DeprecationWarning, match=f"{old} is now "):
        assert getattr(presets, old) is presets.RENAMED[old]


def test_a_method_with_claims_inside_warns_and_keeps_its_kinds_of_task() -> None:
    claim = assay.claims.Exact("one is one", lambda: 1.0, equals=1.0)
    with pytest.warns(DeprecationWarning, match="CLAIMS = Claims"):
        method = assay.claims.Method("", grpo, worlds=(presets.TABLE,), claims=(claim,))
    assert method.presets == (presets.TABLE,)
    assert method.claims == (claim,)
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        assert assay.claims.Method("", grpo, (presets.CONTROL,)).presets == (presets.CONTROL,)
