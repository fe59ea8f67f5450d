"""The checkpoint store keeps every bit, refuses every damaged byte, and never needs a person after a kill."""

import errno
import json
import math
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core import locks, store
from tests.crash import power_cut
from tests.crash.kill_points import changes
from tests.crash.scenarios import CHUNK, SCENARIOS

CHECKOUT = Path(__file__).resolve().parents[2]
TORCH_DTYPES = [getattr(torch, name) for name in store.DTYPES]
NUMPY_DTYPES = [np.dtype(name) for name in store.DTYPES if "bfloat" not in name and "float8" not in name]


def saved(folder: Path, step: int, tree: Any, **rest: Any) -> Path:
    return store.save(folder, step, tree, facts={}, **rest)


def loaded(folder: Path) -> store.Checkpoint:
    checkpoint = store.load(folder)
    assert checkpoint is not None
    return checkpoint


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def resign(path: Path) -> None:
    """Make the manifest match the files again, as someone who wants to be believed would."""
    manifest = json.loads((path / store.MANIFEST).read_bytes())
    for name in (store.TENSORS, store.STATE):
        content = (path / name).read_bytes()
        manifest["files"][name] = {"size": len(content), "sha256": store.hashlib.sha256(content).hexdigest()}
    del manifest["sha256"]
    manifest["sha256"] = store._digest(manifest)
    (path / store.MANIFEST).write_text(json.dumps(manifest))


# Round trips


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any bits of any dtype in any shape, as a whole, a transposed view, a strided view, or repeated by expand."""
    dtype = draw(st.sampled_from(TORCH_DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape)
    raw = torch.tensor(list(draw(st.binary(min_size=count * 8, max_size=count * 8))), dtype=torch.uint8)
    if dtype == torch.bool:
        return (raw[:count] % 2).bool().reshape(shape)
    tensor = raw[: count * dtype.itemsize].view(dtype).reshape(shape)
    views = [lambda t: t, lambda t: t.T if t.ndim == 2 else t, lambda t: t[..., ::2] if t.ndim else t]
    views.append(lambda t: t.unsqueeze(0).expand(2, *t.shape))
    return draw(st.sampled_from(views))(tensor)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(NUMPY_DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape)
    raw = np.frombuffer(draw(st.binary(min_size=count * 8, max_size=count * 8)), np.uint8)
    array = (raw[:count] % 2).astype(bool) if dtype.kind == "b" else raw[: count * dtype.itemsize].view(dtype)
    array = array.reshape(shape)
    return draw(st.sampled_from([array, array.T, array[..., ::-1] if shape else array[()]]))


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), tensors(), arrays(), st.just("$")
)  # fmt: skip
keys = st.text(alphabet="$.#ab\x00é", max_size=3)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


def raw(leaf: Any) -> Any:
    """A leaf as something that is equal only if every bit is, nan payloads too."""
    if isinstance(leaf, torch.Tensor):
        flat = leaf.flatten().clone(memory_format=torch.contiguous_format)
        return "tensor", leaf.dtype, leaf.shape, flat.view(torch.uint8).tolist()
    if isinstance(leaf, np.ndarray | np.generic):
        return type(leaf), leaf.dtype, leaf.shape, leaf.tobytes()
    if isinstance(leaf, list):
        return [raw(child) for child in leaf]
    if isinstance(leaf, dict):
        return [(key, raw(child)) for key, child in leaf.items()]
    return type(leaf), repr(leaf)


@given(trees)
def test_every_bit_of_a_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    folder = tmp_path_factory.mktemp("round")
    path = saved(folder, 0, tree)
    again = loaded(folder)
    assert raw(again.tree) == raw(tree)
    assert store.difference(tree, again.tree) == []
    shutil.rmtree(path)


def test_single_elements_with_the_stride_of_a_larger_array_come_back(tmp_path: Path) -> None:
    matrix, array = torch.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(3, 2)
    tree = {"one": matrix[:1, 0], "none": matrix[:0, 1], "back": array[:1, ::-1][:, :1], "row": array[:1][::-1]}
    saved(tmp_path, 0, tree)
    assert raw(loaded(tmp_path).tree) == raw(tree)


def test_what_is_not_stored_is_normalised(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    tree = {"pair": (1, (2.0,)), "weights": OrderedDict(w=parameter), "conj": torch.tensor([1 + 2j]).conj()}
    saved(tmp_path, 0, tree)
    again = loaded(tmp_path).tree
    assert again["pair"] == [1, [2.0]]
    assert type(again["weights"]) is dict
    assert type(again["weights"]["w"]) is torch.Tensor
    assert not again["weights"]["w"].requires_grad
    assert again["conj"].tolist() == [1 - 2j]
    assert store.difference(tree, again) == []


def test_the_same_memory_is_stored_once_and_views_of_it_whole(tmp_path: Path) -> None:
    weight = torch.randn(100, 100)
    path = saved(tmp_path, 0, {"tied": [weight, weight], "row": weight[3], "turned": weight.T})
    again = loaded(tmp_path).tree
    assert again["tied"][0] is again["tied"][1]
    assert torch.equal(again["row"], weight[3])
    assert torch.equal(again["turned"], weight.T)
    assert (path / store.TENSORS).stat().st_size < 2 * weight.nbytes + 2000


def test_loaded_tensors_outlive_their_file(tmp_path: Path) -> None:
    tree = {"w": torch.arange(100_000.0)}
    path = saved(tmp_path, 0, tree)
    again = loaded(tmp_path).tree
    os.truncate(path / store.TENSORS, 0)
    again["w"][0] = 5.0
    assert again["w"].sum() == tree["w"].sum() + 5.0


def test_other_readers_can_open_the_files(tmp_path: Path) -> None:
    path = saved(tmp_path, 0, {"actor": {"0.weight": torch.ones(3), "nan": torch.tensor([math.nan])}, "lr": math.inf})
    assert safetensors.torch.load_file(path / store.TENSORS)["actor.0.weight"].tolist() == [1, 1, 1]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads((path / store.STATE).read_text(), parse_constant=refuse)
    assert math.isnan(loaded(tmp_path).tree["actor"]["nan"].item())


def test_names_that_clash_or_look_like_paths_are_only_names(tmp_path: Path) -> None:
    ones, twos = torch.ones(1), torch.full((1,), 2.0)
    tree = {"a": {"b": ones}, "a.b": twos, "__metadata__": ones + 2, "../../x": twos + 2, "/etc/passwd": twos + 3}
    saved(tmp_path / "run", 0, tree)
    assert store.difference(tree, loaded(tmp_path / "run").tree) == []
    assert names(tmp_path) == ["run"]


def test_facts_come_back_in_the_manifest(tmp_path: Path) -> None:
    store.save(tmp_path, 3, {}, facts={"config": {"clip": math.inf}, "versions": ["2.6"]})
    manifest = loaded(tmp_path).manifest
    assert manifest["facts"] == {"config": {"clip": math.inf}, "versions": ["2.6"]}
    assert manifest["step"] == 3
    assert set(manifest["files"]) == {store.TENSORS, store.STATE}


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"a": {1: 2}}, "a"),
        ({"a": [0, {1, 2}]}, "a.1"),
        ({"a": "\ud800"}, "a"),
        ({"a": np.array(["x"])}, "a"),
        ({"a": np.array([None])}, "a"),
        ({"a": np.ma.array([1], mask=[True])}, "a"),
        ({"a": np.arange(3, dtype=">f4")}, "a"),
        ({"a": torch.eye(2).to_sparse()}, "a"),
        ({"a": torch.empty(1, device="meta")}, "a"),
        ({"a": torch.zeros(1, dtype=torch.complex128)}, "a"),
        (lambda: 0, "its root"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name_before_the_disk_is_touched(
    tmp_path: Path, tree: Any, place: str
) -> None:
    with pytest.raises(TypeError, match=f"tree at {place} "):
        saved(tmp_path / "run", 0, tree)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (True, 2), (1.0, 2), (1, 0)])
def test_a_senseless_step_or_keep_is_refused(tmp_path: Path, step: Any, keep: int) -> None:
    with pytest.raises(ValueError, match="step"):
        saved(tmp_path, step, {}, keep=keep)


# Comparing


@pytest.mark.parametrize(
    ("a", "b", "paths"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": 0.0}, {"a": -0.0}, ["a"]),
        ({"a": math.nan}, {"a": math.nan}, []),
        ({"a": [1, 2]}, {"a": [1]}, ["a.1"]),
        ({"a": {}}, {"a": []}, ["a"]),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, ["a.b", "a.c"]),
        (torch.zeros(2), torch.zeros(2, 1), ["root"]),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), ["root"]),
        (torch.zeros(2), np.zeros(2, np.float32), ["root"]),
        (torch.zeros(2), -torch.zeros(2), ["root"]),
        (torch.tensor([math.nan, 1]), torch.tensor([-math.nan, 1]), []),
        (torch.tensor([math.nan, 1]), torch.tensor([math.nan, 2]), ["root"]),
        (torch.tensor([complex(math.nan, 1)]), torch.tensor([complex(math.nan, 2)]), ["root"]),
        (np.float32(1), np.float64(1), ["root"]),
        (np.float32(1), np.float32(1), []),
        (torch.zeros(0, 3), torch.zeros(0, 3), []),
    ],
)
def test_difference_names_what_differs(a: Any, b: Any, paths: list[str]) -> None:
    assert store.difference(a, b) == paths


def test_difference_sees_one_flipped_bit_anywhere() -> None:
    tree = {"w": torch.randn(50), "n": np.arange(50, dtype=np.uint16)}
    other = {"w": tree["w"].clone(), "n": tree["n"].copy()}
    other["w"].view(torch.int32)[17] ^= 1
    other["n"][3] ^= 1
    assert store.difference(tree, other) == ["w", "n"]


def test_fingerprint_depends_on_the_value_alone() -> None:
    assert store.fingerprint({"a": 1, "b": [math.inf]}) == store.fingerprint({"b": (math.inf,), "a": 1})
    assert store.fingerprint({}) == "44136fa355b3678a"
    assert len({store.fingerprint(value) for value in (1, 1.0, True, "1", None, [1], math.nan, -0.0, 0.0)}) == 9


# Damage


def two_checkpoints(folder: Path) -> tuple[Path, Path]:
    tree = {"w": torch.randn(40), "lr": 0.1}
    return saved(folder, 1, tree), saved(folder, 2, {**tree, "lr": 0.2})


def alter(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@given(name=st.sampled_from([store.TENSORS, store.STATE, store.MANIFEST]), place=st.floats(0, 1), bit=st.integers(0, 7))
def test_no_flipped_bit_is_ever_loaded(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    _, newest = two_checkpoints(folder)
    whole = loaded(folder)
    content = bytearray((newest / name).read_bytes())
    content[min(int(place * len(content)), len(content) - 1)] ^= 1 << bit
    (newest / name).write_bytes(content)
    again = loaded(folder)
    if again.step == 2:  # white space of the manifest
        assert name == store.MANIFEST
        assert (raw(again.tree), again.manifest) == (raw(whole.tree), whole.manifest)
    else:
        assert again.step == 1
        assert len(again.skipped) == 1
        assert str(newest) in again.skipped[0]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: os.truncate(path / store.TENSORS, 100), r"tensors\.safetensors has 100 bytes, .* says \d+"),
        (lambda path: os.truncate(path / store.STATE, 3), r"state\.json has 3 bytes, its manifest says \d+"),
        (lambda path: (path / store.MANIFEST).unlink(), r"manifest\.json is missing"),
        (lambda path: (path / store.TENSORS).unlink(), r"tensors\.safetensors is missing"),
        (lambda path: (path / store.STATE).unlink(), r"state\.json is missing"),
        (lambda path: alter(path / store.MANIFEST, '"facts": {}', '"facts": {"a": 1}'), r"not match its own sha256"),
        (lambda path: (path / store.MANIFEST).write_text(""), r"step-00000002 cannot be read"),
        (lambda path: (path / store.MANIFEST).write_text("[]"), r"step-00000002 cannot be read"),
        (lambda path: (path / store.MANIFEST).write_text('{"format": 99}'), r"format 99, this version reads 1"),
        (lambda path: (path / store.MANIFEST).write_text("[" * 10**5), r"step-00000002 cannot be read"),
        (lambda path: [shutil.rmtree(path), path.write_text("")], r"manifest\.json is missing"),
        (lambda path: [(path / store.STATE).unlink(), os.mkfifo(path / store.STATE)], r"state\.json is missing"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_the_reason_and_kept(tmp_path: Path, damage: Any, reason: str) -> None:
    _, newest = two_checkpoints(tmp_path)
    damage(newest)
    again = loaded(tmp_path)
    assert again.step == 1
    assert again.tree["lr"] == 0.1
    with pytest.raises(store.CheckpointError, match=reason):
        store.load_path(newest)
    assert len(again.skipped) == 1
    assert newest.exists()


def test_a_folder_that_was_renamed_by_hand_is_refused(tmp_path: Path) -> None:
    older, newest = two_checkpoints(tmp_path)
    shutil.copytree(older, tmp_path / "step-00000007")
    assert loaded(tmp_path).path == newest
    assert "is of step 1, but its folder is named step-00000007" in loaded(tmp_path).skipped[0]
    shutil.copytree(older, tmp_path / "best")
    assert store.load_path(tmp_path / "best").step == 1


def test_none_where_nothing_was_saved_and_an_error_where_nothing_is_valid(tmp_path: Path) -> None:
    assert store.load(tmp_path / "never") is None
    assert store.load(tmp_path) is None
    for path in two_checkpoints(tmp_path):
        (path / store.MANIFEST).unlink()
    with pytest.raises(store.CheckpointError, match=r"none of the 2 checkpoints in .* is valid: .*; .*"):
        store.load(tmp_path)


def test_a_reader_follows_a_run_that_replaces_checkpoints_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1, {"lr": 0.1})
    load_path, calls = store.load_path, []

    def slow(path: Path) -> store.Checkpoint:
        if not calls:
            saved(tmp_path, 2, {"lr": 0.2}, keep=1)
        calls.append(path.name)
        return load_path(path)

    monkeypatch.setattr(store, "load_path", slow)
    assert loaded(tmp_path).tree == {"lr": 0.2}
    assert calls == ["step-00000001", "step-00000002"]


# Files from others


class Marker:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_in_the_folder_is_never_opened(tmp_path: Path) -> None:
    folder, marker = tmp_path / "run", tmp_path / "marker"
    older, newest = two_checkpoints(folder)
    evil = pickle.dumps(Marker(marker))
    for place in (folder, older, newest):
        for name in ("weights.pt", "state.pkl", ".metadata", "pytorch_model.bin"):
            (place / name).write_bytes(evil)
    assert loaded(folder).step == 2
    for name in (store.TENSORS, store.STATE):
        (newest / name).write_bytes(evil)
        resign(newest)
        assert loaded(folder).step == 1
    (newest / store.MANIFEST).write_bytes(evil)
    saved(folder, 3, {})
    assert not marker.exists()
    pickle.loads(evil)
    assert marker.exists()


def header(**entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(start: int, end: int, *shape: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little") + b"{}",
        (200_000_000).to_bytes(8, "little") + b"{}" + b" " * 1000,
        header(w=entry(0, 8, 2))[:-3],
        header(w=entry(0, 8, 2)),
        header(w=entry(0, 8, 2), v=entry(4, 12, 2)) + bytes(12),
        header(w=entry(0, 8, 1 << 62)) + bytes(8),
        header(w=entry(0, 8, 1 << 40, 1 << 40)) + bytes(8),
        header(w=entry(8, 0, 2)) + bytes(8),
        header(w=entry(0, 8, 2)) + bytes(9),
        header(w=entry(0, 8, 2, dtype="OBJ")) + bytes(8),
        header(w=[]) + bytes(8),
        header(other=entry(0, 8, 2)) + bytes(8),
    ],
)
def test_a_hostile_tensor_file_with_a_valid_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    saved(tmp_path, 1, {"w": torch.zeros(2)})
    newest = saved(tmp_path, 2, {"w": torch.ones(2)})
    (newest / store.TENSORS).write_bytes(header(w=entry(0, 8, 2)) + bytes(8))
    resign(newest)
    assert loaded(tmp_path).step == 2
    (newest / store.TENSORS).write_bytes(content)
    resign(newest)
    assert loaded(tmp_path).step == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "nul", "[" * 10**5, '{"$": 1}', '{"$": ["tensor", "absent"]}', '{"$": ["tensor", {}]}',
        '{"$": ["eval", "w"]}', '{"$": ["float", "x"]}', '{"$": ["dict", 3]}', '{"$": ["tensor", "../../w"]}',
        '{"$": {}}', "\xff",
    ],
)  # fmt: skip
def test_a_hostile_state_file_with_a_valid_manifest_is_refused(tmp_path: Path, text: str) -> None:
    saved(tmp_path, 1, {"w": torch.zeros(2)})
    newest = saved(tmp_path, 2, {"w": torch.ones(2)})
    (newest / store.STATE).write_bytes(text.encode("latin1"))
    resign(newest)
    again = loaded(tmp_path)
    assert again.step == 1
    assert "cannot be read" in again.skipped[0]


# Replacing and pruning


def test_a_step_saved_again_replaces_the_first_under_the_same_name(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        assert saved(tmp_path, 7, {"lr": lr}).name == "step-00000007"
        assert names(tmp_path) == ["step-00000007"]
        assert loaded(tmp_path).tree == {"lr": lr}


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (5, 50, 99_999_999, 100_000_000, 123_456_789_012):
        saved(tmp_path, step, {}, keep=keep)
    kept = ["step-99999999", "step-100000000", "step-123456789012"][-keep:]
    assert names(tmp_path) == sorted(kept)
    assert loaded(tmp_path).step == 123_456_789_012


def test_a_broken_checkpoint_does_not_count_as_kept(tmp_path: Path) -> None:
    for step in (1, 2):
        saved(tmp_path, step, {})
    (tmp_path / "step-00000002" / store.MANIFEST).unlink()
    saved(tmp_path, 3, {})
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]
    saved(tmp_path, 4, {})
    assert names(tmp_path) == ["step-00000003", "step-00000004"]


def test_what_loads_is_what_was_saved_last_also_after_going_back(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        saved(tmp_path, step, {"line": "first"}, keep=3)
    saved(tmp_path, 15, {"line": "second"})
    assert loaded(tmp_path).tree == {"line": "second"}
    assert names(tmp_path)[2:] == ["step-00000010", "step-00000015"]
    assert [name[:23] for name in names(tmp_path)[:2]] == ["abandoned-step-00000020", "abandoned-step-00000030"]
    assert store.load_path(tmp_path / names(tmp_path)[1]).tree == {"line": "first"}


def test_leftovers_of_the_dead_are_cleared_and_files_of_others_are_not(tmp_path: Path) -> None:
    dead, alive, me = 2**22 + 1, os.getppid(), os.getpid()
    here = store._owner().split(".")[0]
    elsewhere = f".tmp-{'0' * 8}.{dead}-0a-step-00000001"  # of another machine, whose processes cannot be seen
    ours = (f".tmp-{dead}-0a-step-00000001", f".dead-{me}-0a-step-00000001", f".tmp-{here}.{dead}-0b-step-00000001")
    for name in (*ours, f".tmp-{alive}-0a-step-00000001", elsewhere):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("")
    for name in ("notes.txt", ".tmp-mine", f".tmp-{dead}-0a-config.json", "step-1", "step-00000001x"):
        (tmp_path / name).write_text("")
    assert store.load(tmp_path) is None
    saved(tmp_path, 1, {})
    store.write_json(tmp_path / "config.json", {})
    assert set(names(tmp_path)) == {
        f".tmp-{alive}-0a-step-00000001", "notes.txt", ".tmp-mine", "step-1", "step-00000001x", "config.json",
        "step-00000001", elsewhere,
    }  # fmt: skip


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "run" / "config.json"
    store.write_json(path, {"lr": 0.1, "clip": math.inf})
    assert json.loads(path.read_text()) == {"lr": 0.1, "clip": {"$": ["float", "inf"]}}
    store.write_text(path, "é\n")
    assert path.read_text(encoding="utf8") == "é\n"
    assert names(path.parent) == ["config.json"]
    with pytest.raises(TypeError, match="tree at a"):
        store.write_json(path, {"a": object()})  # type: ignore[dict-item]


def sliced(folder: Path, numbers: torch.Tensor) -> store.Slice:
    """A slice as another process that is alive has written it."""
    found = store.save_slice(folder, 4, {"of": {"x": [numbers]}})
    name = found.path.name.replace(f".{os.getpid()}-", f".{os.getppid()}-")
    return store.Slice(found.path.rename(folder / name), found.entry)


def test_slices_of_ranks_are_joined_and_verified(tmp_path: Path) -> None:
    numbers = torch.arange(7.0)
    slices = [sliced(tmp_path, numbers[cut]) for cut in (slice(3, 6), slice(6, 7))]
    assert store.load(tmp_path) is None
    store.save(tmp_path, 4, {"of": {"x": [numbers[:3]], "n": 1}}, facts={}, slices=slices)
    assert names(tmp_path) == ["step-00000004"]
    assert store.difference(loaded(tmp_path).tree, {"of": {"x": [numbers], "n": 1}}) == []
    file = tmp_path / "step-00000004" / "slice-002.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(store.CheckpointError, match=r"slice-002\.safetensors has sha256"):
        store.load(tmp_path)
    file.unlink()
    with pytest.raises(store.CheckpointError, match=r"slice-002\.safetensors is missing"):
        store.load(tmp_path)


# The lock


def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.hold_lock", str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
    assert holder.stdout is not None
    worker = int(holder.stdout.readline())
    try:
        with pytest.raises(store.RunLocked, match=rf"process {holder.pid} on .* since 20.*\. Wait for it, stop it"):
            store.lock(tmp_path).__enter__()
        holder.kill()
        holder.wait()
        os.kill(worker, 0)
        with store.lock(tmp_path):
            assert str(os.getpid()) in (tmp_path / store.LOCK).read_text()
    finally:
        holder.kill()
        os.kill(worker, signal.SIGKILL)
        holder.stdout.close()


def test_a_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    for _ in range(2):
        with store.lock(tmp_path / "run"), pytest.raises(store.RunLocked), store.lock(tmp_path / "run"):
            pass
    with pytest.raises(BlockingIOError, match="mine"), store.lock(tmp_path / "run"):
        raise BlockingIOError("mine")
    assert not locks._held
    assert (tmp_path / "run" / store.LOCK).read_text() == ""


ELSEWHERE = "process {pid} on {host} since 2026-01-01 00:00:00 (boot 0b5c)"


@pytest.mark.parametrize("host", ["elsewhere", os.uname().nodename])
def test_a_lock_of_another_machine_or_boot_is_judged_by_its_heartbeat(host: str, tmp_path: Path) -> None:
    file = tmp_path / store.LOCK
    for pid in (os.getpid(), 2**22 + 1):  # alive and dead on this machine, which says nothing
        file.write_text(ELSEWHERE.format(pid=pid, host=host))
        assert store.is_locked(tmp_path)
        wanted = rf"in use by process {pid} on {host} .* the folder is free 60 s after its end"
        with pytest.raises(store.RunLocked, match=wanted), store.lock(tmp_path):
            pass
        os.utime(file, (0, time.time() - locks.SILENCE - 1))
        assert not store.is_locked(tmp_path)
        with store.lock(tmp_path):
            assert f"process {os.getpid()} on" in file.read_text()
        assert names(tmp_path) == [store.LOCK]


def test_a_lock_has_a_heartbeat_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.01)
    file = tmp_path / store.LOCK
    with store.lock(tmp_path):
        os.utime(file, (0, 0))
        until = time.monotonic() + 10
        while file.stat().st_mtime < 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert file.stat().st_mtime > time.time() - 60


# Failing disks


def check_full_disk(folder: Path, reason: str) -> None:
    """A save too large for the disk says so and changes nothing; a smaller one works."""
    saved(folder, 1, {"w": torch.ones(10)})
    with pytest.raises(store.CheckpointError, match=reason) as caught:
        saved(folder, 2, {"w": torch.ones(1 << 20)})
    assert str(folder) in str(caught.value)
    assert names(folder) == ["step-00000001"]
    assert loaded(folder).step == 1
    saved(folder, 2, {"w": torch.ones(20)})
    assert loaded(folder).step == 2


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        check_full_disk(tmp_path / "run", os.strerror(errno.ENOSPC))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_file_size_limit_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)  # Python ignores SIGXFSZ, so that write fails with EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        check_full_disk(tmp_path, os.strerror(errno.EFBIG))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writes_cut_short_by_the_kernel_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[: len(content) // 3 + 1]))
    tree = {"w": torch.randn(1000)}
    saved(tmp_path, 1, tree)
    assert store.difference(loaded(tmp_path).tree, tree) == []


# Kills and power cuts


def test_every_kill_and_every_fault_of_a_save_recovers_alone(record_property: Any) -> None:
    command = [sys.executable, "-m", "tests.crash.kill_points"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    failed, total = result["failures"], result["total"]
    record_property("crash_points", f"{total['kills'] + total['faults'] - len(failed)} of {sum(total.values())}")
    print(f"kill points recovered: {total['kills']}, faults: {total['faults']}, not recovered: {len(failed)}", result)
    assert failed == []
    assert set(result["scenarios"]) == set(SCENARIOS)
    assert total["kills"] >= 200
    assert total["faults"] >= 150


def tags_after_cuts(base: Path, name: str, forget: int | None = None) -> tuple[set[Any], set[Any], int]:
    """Which tags load after a cut during the save and after it, leaving out one fsync if asked to."""
    scenario, root, folder = SCENARIOS[name], base / "disk", base / "disk" / "run"
    root.mkdir()
    scenario.prepare(folder)
    start = power_cut.modelled(root)
    trace = changes(scenario, folder)
    if forget is not None:
        syncs = [index for index, mutation in enumerate(trace) if mutation.name == "fsync"]
        del trace[syncs[forget]]
    during, after, count = set(), set(), 0
    for done, image in power_cut.after_cuts(power_cut.Disk(root, start), trace, str(folder)):
        place = base / "image"
        power_cut.put_down(image, place)
        try:
            tag: Any = scenario.found(place / "run")
        except store.CheckpointError:
            tag = "none valid"
        (after if done == len(trace) else during).add(tag)
        count += 1
        shutil.rmtree(place)
    return during, after, count


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_cut_loses_at_most_the_save_it_interrupts(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CHUNK", CHUNK)
    during, after, count = tags_after_cuts(tmp_path, name)
    assert during == {SCENARIOS[name].previous, SCENARIOS[name].tag}
    assert after == {SCENARIOS[name].tag}
    assert count > 10


@pytest.mark.parametrize("forget", range(6))
def test_each_fsync_of_a_first_save_is_needed(tmp_path: Path, forget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CHUNK", CHUNK)
    _, after, _ = tags_after_cuts(tmp_path, "first save", forget)
    assert after > {SCENARIOS["first save"].tag}
