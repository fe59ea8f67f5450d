"""The folders of compiled kernels: set before torch compiles, and never against a user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from assay.engine import caches
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.runs import catalogue

NAMES = (caches.COMPILER, caches.TRITON)


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:  # set first, so that what the code under test sets is undone too
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv(caches.CACHE, str(tmp_path / "caches"))


def test_kernels_are_kept_in_the_folder_of_the_variable(tmp_path: Path) -> None:
    caches.keep_compiled()
    folder = tmp_path / "caches" / "compile"
    assert [os.environ[name] for name in NAMES] == [str(folder), str(folder / "triton")]
    assert folder.is_dir()


def test_a_users_own_setting_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(caches.COMPILER, str(tmp_path / "mine"))
    caches.keep_compiled()
    assert os.environ[caches.COMPILER] == str(tmp_path / "mine")
    assert os.environ[caches.TRITON] == str(tmp_path / "caches" / "compile" / "triton")


def test_the_users_cache_directory_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(caches.CACHE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert caches.cache_folder() == tmp_path / "xdg" / "assay"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert caches.cache_folder() == tmp_path / "home" / ".cache" / "assay"


def test_a_folder_that_cannot_be_made_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(caches.CACHE, str(tmp_path / "file"))
    caches.keep_compiled()
    assert not any(name in os.environ for name in NAMES)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_an_engine_that_compiles_sets_them_first(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *given, **more: seen.append(caches.COMPILER in os.environ))
    task = catalogue.find_task("sorting-3")
    Engine(catalogue.recipe_for("sft", task, {}), task.spec, 0, Placement(compiled=is_compiled))
    assert all(seen)
    assert bool(seen) == is_compiled
    assert (caches.COMPILER in os.environ) == is_compiled, "a run that does not compile touches no variable"


def test_torch_reads_the_variables_and_a_used_folder_is_warm(tmp_path: Path) -> None:
    assert caches.compiled_before() == ("", False)
    caches.keep_compiled()
    folder = tmp_path / "caches" / "compile"
    from torch._inductor.runtime import cache_dir_utils  # imports the compiler: not while tests are collected

    assert cache_dir_utils.cache_dir() == str(folder)
    assert cache_dir_utils.triton_cache_dir(0) == str(folder / "triton")
    assert caches.compiled_before() == (str(folder), False)
    (folder / "fxgraph" / "aa").mkdir(parents=True)  # what torch.compile leaves there, a folder for each graph
    assert caches.compiled_before() == (str(folder), True)
