"""Ranks as processes that exchange tensors by gloo, over the loopback or a network; those of a GPU by NCCL if each rank
has a GPU of its own, else through the memory of the host.

No wait is without an end: every rank writes a beat into the store each second, and a rank that waits for the others
reads theirs. A rank that is silent for `SILENCE` seconds, or known to have died, ends all the others with `RankLost`.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import pickle
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.engine.batch_shards import Item, Ranks, part_size, tree_sum

BEAT, SILENCE = 1.0, 20.0
"""Seconds between two beats of a rank, and without a beat until it counts as lost."""
CONNECT, LONGEST = timedelta(seconds=120), timedelta(days=30)
"""How long ranks wait for each other to connect; and gloo's own limit later, since the beats are the deadline."""
FRAME = 8192
"""Bytes that are exchanged at once; longer items need a second exchange."""
REPEATED = 2**22
"""Bytes up to which each rank sends its own to every other: with two ranks gloo's gathering took longer up to there."""
POLL = 1e-4
"""Seconds between two looks at an exchange between GPUs."""
SIGNED = hashlib.sha256().digest_size
"""Bytes of a signature."""
RANKS_KEY = "ASSAY_RANKS_KEY"
"""Environment variable with the key of ranks on several machines; on one machine each run draws its own."""
GPU = torch.device("cuda")
"""A GPU without a number: each rank has its own."""
SHARE = "Use fewer ranks, or --device cuda:0, which all ranks then share"


class RankLost(AssayError):
    """A rank has died, failed, or does not answer."""


class Order(Enum):
    """What rank 0 tells the others to do next."""

    STEP = 0
    END = 1


class Gloo(Ranks):
    """One of `num` processes; `store` is shared by all, `host` is the address that gloo listens at; `local` is the
    number of the process on its machine, which is that of its GPU. Values are read only if they are signed with `key`.
    """

    def __init__(
        self, store: Any, rank: int, num: int, host: str | None = None, local: int | None = None, *, key: bytes = b""
    ) -> None:
        c10d, self.key = distributed(), key
        self.rank, self.num, self.signal = rank, num, 0
        self.local, self.kind = rank if local is None else local, "cpu"
        self.nccl: Any = None
        self.are_connected = False
        # Set by the run: which signal this process has received.
        self.received: Callable[[], int] = lambda: 0
        self.watch: Callable[[], None] = lambda: None
        self.store, self.closed = store.clone(), threading.Event()
        self.store.set_timeout(timedelta(seconds=SILENCE))
        options = c10d.ProcessGroupGloo._Options()
        device = c10d.ProcessGroupGloo.create_device
        options._devices = [device(hostname=host) if host else c10d.ProcessGroupGloo.create_default_device()]
        options._timeout = CONNECT
        self.group = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, num, options)
        # A slow step of another rank is no fault; a silent one is found by its beats.
        self.group._set_default_timeout(LONGEST)
        self.store.set(f"beat/{rank}", "begun")
        self.seen = [(b"", time.monotonic())] * num
        self.thread = threading.Thread(target=self.beat, args=(self.store.clone(),), daemon=True, name="beat")
        self.thread.start()

    # ------------------------------------------------------------------------------------------------ life
    def beat(self, store: Any) -> None:
        """Writes a beat each second, until the group is closed or its store has ended."""
        with suppress(RuntimeError):
            while not self.closed.wait(BEAT):
                store.set(f"beat/{self.rank}", str(time.monotonic()))

    def check(self) -> None:
        """Raises RankLost if another rank is known to have ended, or has been silent for too long."""
        self.watch()
        now = time.monotonic()
        try:
            if self.rank and self.store.check(["over"]):
                raise RankLost("rank 0 has ended the run")
            # One request for all ranks.
            beats = self.store.multi_get([f"beat/{rank}" for rank in range(self.num)])
        except RuntimeError as error:
            raise RankLost("rank 0 does not answer: it has died, or its machine has") from error
        for rank, beat in enumerate(beats):
            if beat != self.seen[rank][0]:
                self.seen[rank] = beat, now
            elif now - self.seen[rank][1] > SILENCE:
                raise RankLost(f"rank {rank} has not answered for {SILENCE:.0f} s: it has died or stopped")

    def wait(self, work: Any) -> None:
        """Waits for an exchange; raises RankLost if a rank is lost meanwhile."""
        while True:
            try:
                work.wait(timedelta(seconds=BEAT))
                return
            except RuntimeError as error:
                failure = error if work.is_completed() else None
            until = time.monotonic() + SILENCE + 2 * BEAT
            self.check()
            while failure is not None:  # a connection was closed; find out by which rank
                if time.monotonic() > until:
                    raise RankLost(f"the connection to another rank was closed ({failure})") from failure
                time.sleep(0.1)
                self.check()

    def close(self) -> None:
        """Ends the beats, before the interpreter ends; of rank 0, tells the others that the run is over."""
        if not self.rank:
            with suppress(RuntimeError):
                self.store.set("over", "")
        self.closed.set()
        self.thread.join(SILENCE)
        if self.nccl is not None:
            self.nccl.abort()  # at once: what a lost rank was to take part in would never end
        if "devices" in vars(self):
            distributed().destroy_process_group()

    # ------------------------------------------------------------------------------------------------ devices
    def place(self, device: str) -> None:
        """Computes on this device from now on: "cuda" is a GPU for each rank, "cuda:0" one for all. AssayError if this
        machine has too few.
        """
        self.kind = torch.device(device).type
        if torch.device(device) != GPU or self.nccl is not None:
            return
        if self.local >= (there := torch.cuda.device_count()):
            raise AssayError(f"rank {self.rank} needs GPU {self.local}, but its machine has {there}. {SHARE}")
        torch.cuda.set_device(self.local)  # which is what "cuda" means in this process
        c10d = distributed()
        store = self.store.clone()
        store.set_timeout(CONNECT)
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = LONGEST
        self.nccl = c10d.ProcessGroupNCCL(c10d.PrefixStore("nccl", store), self.rank, self.num, options)

    def exchange(self, call: Callable[[Any, Tensor, Tensor], Any], output: Tensor, sent: Tensor) -> None:
        """Waits for call(group, output, sent) with the group for these tensors; with gloo through the host's memory."""
        if not sent.is_cuda:
            self.wait(call(self.group, output, sent))
        # All ranks share one GPU, which NCCL refuses.
        elif self.nccl is None:
            there = torch.empty_like(output, device="cpu")
            self.wait(call(self.group, there, sent.cpu()))
            output.copy_(there)
        else:
            work = call(self.nccl, output, sent) if self.are_connected else self.begun(call, output, sent)
            due = time.monotonic() + BEAT
            while not work.is_completed():  # NCCL's own wait has no end, or ends the group
                time.sleep(POLL)
                if time.monotonic() > due:
                    self.check()
                    due += BEAT
            work.wait(CONNECT)  # it is over; raises what went wrong

    def begun(self, call: Callable[[Any, Tensor, Tensor], Any], output: Tensor, sent: Tensor) -> Any:
        """Begins the first exchange between GPUs, in which NCCL connects them. In a thread: that waits for every rank
        and has no deadline; raises RankLost if one is lost meanwhile.
        """
        found: Future[Any] = Future()

        def begin() -> None:
            try:
                torch.cuda.set_device(self.local)
                found.set_result(call(self.nccl, output, sent))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=begin, daemon=True, name="connect").start()
        while not found.done():
            wait([found], timeout=BEAT)
            self.check()
        self.are_connected = True
        return found.result(timeout=BEAT)

    # ------------------------------------------------------------------------------------------------ exchanges
    def meet(self, digest: Callable[[], int]) -> None:
        """Begins a step on all ranks; raises AssayError if their weights differ. A signal to any is seen by all."""
        if not self.rank:
            self.told(lambda: Order.STEP)
        # Signals travel with the digest: one exchange a step.
        found = self.shared([(digest(), self.received())])
        odd = [rank for rank, (one, _) in enumerate(found) if one != found[0][0]]
        if odd:
            raise AssayError(
                f"the weights of rank {odd[0]} differ from those of rank 0: a part or callback computes something else "
                "in each process. Make it a function of its arguments, or use --ranks 1"
            )
        self.signal = self.signal or next((number for _, number in found if number), 0)

    def shared(self, own: Sequence[Item]) -> list[Item]:
        """Returns the items of all ranks, those of rank 0 first."""
        blob = packed(list(own), self.key)
        # The size stands in the first frame: short items, nearly all, take one exchange.
        frames = self.frames(torch.cat([torch.tensor([len(blob)]).view(torch.uint8), blob[: FRAME - 8]]), FRAME)
        sizes = [int(frame[:8].view(torch.int64)) for frame in frames]
        parts = [frame[8 : 8 + size] for frame, size in zip(frames, sizes, strict=True)]
        if max(sizes) > FRAME - 8:
            rest = self.frames(blob[FRAME - 8 :], max(sizes) - FRAME + 8)
            parts = [
                torch.cat([part, more[: max(0, size - FRAME + 8)]])
                for part, more, size in zip(parts, rest, sizes, strict=True)
            ]
        return [item for part in parts for item in unpacked(part, self.key)]

    def frames(self, own: Tensor, size: int) -> Tensor:
        """Returns the bytes of every rank in a row, padded to `size`."""
        found = torch.empty(self.num, size, dtype=torch.uint8, device=own.device)
        sent = padded(own, size)
        if found.nbytes <= REPEATED:
            self.exchange(all_to_all, found.view(-1), sent.repeat(self.num))
        else:
            self.exchange(all_gather, found.view(-1), sent)
        return found

    def told(self, make: Callable[[], Item]) -> Item:
        """Returns make() as rank 0 computes it."""
        mine: Any = None if self.rank else make()
        blob = torch.empty(0, dtype=torch.uint8) if self.rank else packed(mine, self.key)
        size = torch.tensor([len(blob)])
        self.wait(self.group.broadcast([size], self.from_first()))
        if self.rank:
            blob = torch.empty(int(size), dtype=torch.uint8)
        self.wait(self.group.broadcast([blob], self.from_first()))
        found: Item = unpacked(blob, self.key) if self.rank else mine
        return found

    def from_first(self) -> Any:
        """Returns the options of a broadcast from rank 0."""
        options = distributed().BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        return options

    def alike(self, own: Tensor) -> list[Tensor]:
        """Returns the tensors of all ranks, which have one shape."""
        return [one.view(own.dtype) for one in self.frames(own.view(torch.uint8), own.nbytes)]

    def scattered(self, own: list[Tensor], shards: int) -> list[Tensor]:
        """Returns this rank's slice of the sum over all ranks: each adds one slice of every tensor."""
        found = []
        for flat in own:
            size = part_size(len(flat), shards) * shards
            sent = padded(flat, size)
            # Every rank sends each other one its slice, and adds in the fixed order of the ranks: gloo's own sum may
            # have another.
            slices = torch.empty_like(sent)
            self.exchange(all_to_all, slices, sent)
            (mine,) = tree_sum([one] for one in slices.split(size // self.num)) if size else (slices,)
            found.append(mine[: len(self.slice(flat, shards))])
        return found

    def fill(self, output: Tensor, own: Tensor) -> None:
        """Fills the output with the tensors of all ranks."""
        self.exchange(all_gather, output.view(torch.uint8), own.view(torch.uint8))

    @cached_property
    def devices(self) -> Any:
        """The ranks as a mesh of devices; makes them the default group of torch.distributed in this process."""
        c10d, store = distributed(), self.store.clone()
        store.set_timeout(CONNECT)
        c10d.init_process_group("gloo", store=c10d.PrefixStore("mesh", store), rank=self.rank, world_size=self.num)
        return c10d.init_device_mesh(self.kind, (self.num,))

    def mesh(self) -> Any:
        """Returns the mesh, which is made when it is first asked for."""
        return self.devices

    def gather(self, tensors: list[Tensor], shards: int) -> None:
        """Copies the slice of each rank into every other's tensors."""
        for flat in tensors:
            own, size = self.slice(flat, shards).view(torch.uint8), part_size(len(flat), shards) * shards // self.num
            flat.view(torch.uint8).copy_(self.frames(own, size * flat.itemsize).view(-1)[: flat.nbytes])


def padded(flat: Tensor, size: int) -> Tensor:
    """Returns the tensor with zeros up to `size`; itself if it has that size."""
    return flat if len(flat) == size else torch.nn.functional.pad(flat, (0, size - len(flat)))


def all_gather(group: Any, output: Tensor, own: Tensor) -> Any:
    """Begins to fill the output with the tensors of all ranks."""
    return group._allgather_base(output, own)


def all_to_all(group: Any, output: Tensor, own: Tensor) -> Any:
    """Begins to send slice k to rank k."""
    return group.alltoall_base(output, own, [], [])


def distributed() -> Any:
    """Returns torch.distributed, which is imported only by a run with ranks; most of what is used here has no types."""
    import torch.distributed as found

    return found


def connected(port: int, rank: int, num: int, listener: socket.socket | None = None, *, key: bytes = b"") -> Gloo:
    """Returns a rank on this machine. Rank 0 has the `listener` of the store, which only this machine can reach; all
    users of it can, so that values carry a signature with the `key` of this run.
    """
    given = {} if listener is None else {"master_listen_fd": listener.detach()}
    how = {"is_master": not rank, "timeout": CONNECT, "wait_for_workers": False, **given}
    store = distributed().TCPStore("127.0.0.1", port, **how)
    return Gloo(store, rank, num, "127.0.0.1", key=key)


# ---------------------------------------------------------------------------------------------------- bytes
class Packer(pickle.Pickler):
    """Pickles tensors by their own elements: a view does not take the tensor it is part of with it."""

    def reducer_override(self, value: Any) -> Any:
        """Returns how to make a tensor from its bytes; other values are pickled as usual."""
        if type(value) is not Tensor:
            return NotImplemented
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return rebuilt, (flat.numpy(), value.dtype, tuple(value.shape))


def rebuilt(content: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor from its bytes."""
    return torch.from_numpy(content).view(dtype).reshape(shape)


def packed(value: Any, key: bytes) -> Tensor:
    """Returns a value as bytes, after their signature: HMAC-SHA256 with the key of the run's ranks."""
    stream = io.BytesIO(bytes(SIGNED))
    stream.seek(SIGNED)
    Packer(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    content = stream.getbuffer()
    # Any process of this machine can reach the port, and a pickle may run any code.
    content[:SIGNED] = hmac.digest(key, content[SIGNED:], "sha256")
    return torch.frombuffer(content, dtype=torch.uint8)


def unpacked(blob: Tensor, key: bytes) -> Any:
    """Returns the value of `packed` bytes; RankLost if they are not signed with the key: a pickle may run any code, so
    one of another program is never read.
    """
    content = blob.numpy().tobytes()
    if not hmac.compare_digest(content[:SIGNED], hmac.digest(key, content[SIGNED:], "sha256")):
        raise RankLost(f"bytes arrived that no rank of this run has sent, or {RANKS_KEY} differs between its machines")
    return pickle.loads(memoryview(content)[SIGNED:])
