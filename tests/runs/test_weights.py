"""Weights between processes: fetched as published, torn files refused and read again, old versions removed."""

from __future__ import annotations

import errno
import json
import multiprocessing
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core import digests
from assay.core.errors import AssayError
from assay.core.trees import difference
from assay.engine.placement import Placement
from assay.ops.recording import record_graph
from assay.runs.distributed.checks import check_gathering
from assay.runs.distributed.gpu_memory import CudaMemory, Memory, SharedWeights, as_json, from_json
from assay.runs.distributed.weights import (
    SameMemory,
    WeightFiles,
    Weights,
    WeightsMissing,
    copied,
    decode_state,
    tensors_of,
)
from assay.runs.options import GatherOptions, RunOptions
from assay.runs.plan import make_plan


def tree(number: float) -> dict[str, object]:
    weights = torch.full((3, 2), number)
    return {"actor": {"weight": weights, "half": weights.bfloat16(), "growth": [weights.double(), 7, "text"]}}


@dataclass(frozen=True)
class Fake(Memory):
    """Buffers of this process, whose handles have the form of CUDA's."""

    there: list[Tensor] = field(default_factory=list)

    def new(self, size: int) -> Tensor:
        self.there.append(torch.zeros(size, dtype=torch.uint8))
        return self.there[-1]

    def handle(self, memory: Tensor) -> list[bytes | int]:
        return [0, bytes([255, len(self.there) - 1]), memory.numel(), 0, b"/torch_1", 0, b"\x00" * 64, True]

    def opened(self, handle: Sequence[Any]) -> Tensor:
        return self.there[handle[1][1]]

    def wait(self) -> None:
        pass


@pytest.mark.parametrize("kind", ["memory", "files", "shared"])
def test_what_is_fetched_is_what_was_published(kind: str, tmp_path: Path) -> None:
    all_kinds = {"files": WeightFiles(tmp_path / "w", patience=0.2), "shared": SharedWeights(Fake())}
    weights: Weights = all_kinds.get(kind, SameMemory())
    for _ in range(2):
        weights.publish(4, tree(0.1))
        assert not difference(weights.fetch(4), tree(0.1))
    weights.publish(5, tree(0.2))
    assert not difference(weights.fetch(5), tree(0.2))
    with pytest.raises(WeightsMissing, match="version 4 of the weights"):
        weights.fetch(4)


def test_files_do_not_change_with_the_learner_and_old_ones_are_removed(tmp_path: Path) -> None:
    weights, live = WeightFiles(tmp_path, keep=2, patience=0.1), tree(0.1)
    for version in range(9, 12):
        live["actor"]["weight"].fill_(version)  # type: ignore[index]
        weights.publish(version, live)
    found = [weights.fetch(version)["actor"]["weight"][0, 0].item() for version in (10, 11)]
    assert found == [10.0, 11.0]
    with pytest.raises(WeightsMissing, match="version 9 of the weights is not there"):
        weights.fetch(9)


@pytest.mark.parametrize("cut", [0, 8, 100, -1])
@pytest.mark.parametrize("part", [64, 1 << 26])
def test_a_torn_file_is_refused_and_read_again(
    tmp_path: Path, cut: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "PART", part)
    files = WeightFiles(tmp_path, patience=0.1)
    files.publish(3, tree(0.3))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(WeightsMissing, match="does not have the digest"):
        files.fetch(3)
    threading.Timer(0.2, path.write_bytes, [whole]).start()
    assert not difference(WeightFiles(tmp_path, patience=20.0).fetch(3), tree(0.3))


@pytest.mark.parametrize("part", [64, 1 << 26])
def test_a_file_is_copied_by_parts_with_its_digest(tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a GPU, here from memory to memory."""
    monkeypatch.setattr(digests, "PART", part)
    odd = {**tree(0.3), "flags": torch.tensor([True, False, True]), "none": torch.ones(0, 2), "one": torch.tensor(3)}
    WeightFiles(tmp_path).publish(0, odd)
    (path,) = tmp_path.iterdir()
    content, digest = copied(path, "cpu")
    assert f"0-{digest}" == path.stem
    assert not difference(decode_state(tensors_of(content)), odd)
    path.write_bytes(b"")
    assert copied(path, "cpu")[1] == digests.digest_of(path)


def test_one_wrong_bit_is_refused(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path, patience=0.1)
    files.publish(0, tree(0.3))
    (path,) = tmp_path.iterdir()
    wrong = bytearray(path.read_bytes())
    wrong[-1] ^= 1
    path.write_bytes(wrong)
    with pytest.raises(WeightsMissing, match="does not have the digest"):
        files.fetch(0)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(AssayError, match=r"version 2 of the weights cannot be written to .* No space left"):
        WeightFiles(tmp_path).publish(2, tree(0.3))
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------- shared memory
def test_a_sampler_reads_the_version_that_it_was_told_of() -> None:
    """The message alone goes to it; a version is overwritten by the one `keep` later."""
    memory = Fake()
    learner, sampler = SharedWeights(memory, keep=2), SharedWeights(memory)
    told = {}
    for version in (4, 5, 6):
        learner.publish(version, tree(float(version)))
        told[version] = learner.told(version)
        assert not difference(sampler.fetch(version, told[version]), tree(float(version)))
    assert not difference(sampler.fetch(5, told[5]), tree(5.0))
    with pytest.raises(WeightsMissing, match="version 4 of the weights is not there, 6 is in its place"):
        sampler.fetch(4, told[4])
    with pytest.raises(WeightsMissing, match="version 4 of the weights is not there"):
        learner.told(4)
    assert len(memory.there) == 2


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_a_version_that_changes_while_it_is_read_is_refused(
    place: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner has begun the next one (place 0), or the bytes are those of one that it has not finished (place 1);
    before or after the copy was made.
    """
    memory = Fake()
    weights = SharedWeights(memory)
    weights.publish(3, tree(0.3))

    def write(self: Fake) -> None:
        memory.there[0][:16].view(torch.int64)[place] = 4 if place == 0 else 2

    if late:
        monkeypatch.setattr(Fake, "wait", write)
    else:
        write(memory)
    with pytest.raises(WeightsMissing, match=r"version 3 of the weights is not there, \d is in its place"):
        weights.fetch(3)


def test_handles_survive_as_json() -> None:
    handle = [0, bytes(range(256)), 10**12, 0, b"/torch_1_2", 7, b"", True]
    assert from_json(json.loads(json.dumps(as_json(handle)))) == handle


def test_weights_that_grow_do_not_fit_a_buffer() -> None:
    weights = SharedWeights(Fake())
    weights.publish(0, {"actor": {"weight": torch.ones(4)}})
    with pytest.raises(AssayError, match=r"the weights have grown from 32 to 48 bytes\. Remove --ipc"):
        weights.publish(1, {"actor": {"weight": torch.ones(8)}})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gatherers": 1}, "--ipc shares the memory of a GPU, but the device is cpu. Add --device cuda"),
        ({}, "--ipc, but no process samples beside the training. Add --gatherers 1."),
        ({"gatherers": 1, "on_": "ray"}, "--ipc shares the memory of one GPU, and --on is ray"),
    ],
)
def test_ipc_without_a_shared_gpu_is_refused(options: Any, said: str) -> None:
    with pytest.raises(AssayError, match=said):
        make_plan("grpo", "bandit", options=RunOptions(gathering=GatherOptions(ipc=True, **options)))


def test_gatherers_share_a_gpu_on_this_machine_alone() -> None:
    recipe = make_plan("grpo", "bandit").recipe
    for options in (GatherOptions(pieces=2), GatherOptions(gatherers=1, on_="ray")):
        with pytest.raises(AssayError, match="the device is cuda, which only gatherers of this machine share"):
            check_gathering(options, recipe, Placement("cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_files_are_fetched_to_the_gpu_beside_graphs_that_are_recorded(tmp_path: Path) -> None:
    live = {"actor": {"weight": torch.arange(2.0**25, device="cuda"), "odd": torch.ones(3, device="cuda").bool()}}
    files, found = WeightFiles(tmp_path, device="cuda"), list[Any]()
    files.publish(0, live)
    thread = threading.Thread(target=lambda: found.extend(files.fetch(0) for _ in range(8)))
    thread.start()
    while thread.is_alive():
        with record_graph(torch.cuda.CUDAGraph()):
            torch.ones(64, device="cuda").mul_(2.0)
    assert len(found) == 8
    assert all(one["actor"]["weight"].is_cuda for one in found)
    assert not any(difference(live, one) for one in found)


def fetched(told: str, sent: Any) -> None:
    sent.send(float(SharedWeights(CudaMemory()).fetch(7, told)["actor"]["weight"].sum()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_another_process_reads_the_memory_of_the_gpu() -> None:
    weights = SharedWeights(CudaMemory())
    weights.publish(7, {"actor": {"weight": torch.arange(1000.0, device="cuda")}})
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=fetched, args=(weights.told(7), theirs))
    process.start()
    assert ours.poll(60.0)
    assert ours.recv() == 499500.0
    process.join(20.0)
    assert process.exitcode == 0
