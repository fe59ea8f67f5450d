"""The key of ranks that torchrun has started: shared on one machine without a word, demanded on several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.engine.gloo import RANKS_KEY, RankLost
from assay.engine.torchrun import check_key, of_torchrun, read_key, shared_key


class Store(dict[str, bytes]):
    """What torch.distributed's stores do with a text."""

    def set(self, name: str, value: str) -> None:
        self[name] = value.encode()


@pytest.fixture(autouse=True)
def ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANKS_KEY, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")


def test_ranks_of_one_machine_share_a_key_that_nobody_else_reads() -> None:
    store = Store()
    check_key()
    with shared_key(store, 0) as ours:
        folder = Path(store["assay/key"].decode())
        assert folder.stat().st_mode & 0o777 == 0o700
        with shared_key(store, 1) as theirs:
            assert ours == theirs
    assert len(ours) == 32
    assert ours not in store.values()
    assert not folder.exists()
    with shared_key(Store(), 0) as next_run:
        assert next_run != ours


def test_the_variable_is_the_key_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANKS_KEY, "of my own")
    monkeypatch.setenv("WORLD_SIZE", "8")
    check_key()
    store = Store()
    for rank in (0, 5):
        with shared_key(store, rank) as key:
            assert key == b"of my own"
    assert not store


@pytest.mark.parametrize("local", ["1", None])
def test_several_machines_without_a_key_are_refused(local: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if local is None:
        monkeypatch.delenv("LOCAL_WORLD_SIZE")
    else:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    with pytest.raises(AssayError, match=r"ASSAY_RANKS_KEY is not set: .* export ASSAY_RANKS_KEY="):
        check_key()


def test_a_folder_that_another_program_names_is_no_key(tmp_path: Path) -> None:
    """Whoever reaches the store can write any path into it."""
    open_to_all, wrong_name, empty = tmp_path / "assay-ranks-a", tmp_path / "mine", tmp_path / "assay-ranks-b"
    for folder, mode in ((open_to_all, 0o755), (wrong_name, 0o700), (empty, 0o700)):
        folder.mkdir(mode=mode)
        os.chmod(folder, mode)
        (folder / "key").write_bytes(b"" if folder == empty else b"k" * 32)
    (tmp_path / "assay-ranks-c").symlink_to(wrong_name)
    (tmp_path / "assay-ranks-d").mkdir(mode=0o700)
    for folder in (*sorted(tmp_path.glob("assay-ranks-*")), wrong_name):
        with pytest.raises(RankLost, match="Set ASSAY_RANKS_KEY"):
            read_key(folder)


def test_variables_that_are_no_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_torchrun() is None
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert of_torchrun() == (1, 2)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(AssayError, match="the environment variable WORLD_SIZE is 'two'"):
        of_torchrun()
