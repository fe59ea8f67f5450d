"""Steps as CUDA graphs, one for each shape and sampling mode; and clusters of rows that share a prompt.

Axes: C clusters, M members of one; places, rows and prompts have one entry a row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.ops.recording import record_graph

SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


class Graphs:
    """Recorded steps. Code that moves a tensor which a step knows by its address must `clear` them."""

    def __init__(self, step: Callable[[Tensor, Tensor, Tensor], None], device: torch.device, padding: int) -> None:
        self.step, self.device, self.padding = step, device, padding
        self.known: dict[Hashable, tuple[Any, tuple[Tensor, Tensor, Tensor]]] = {}
        self.pool: Any = None

    def clear(self) -> None:
        """Drops all graphs and their memory: a pool whose graphs are gone cannot be recorded into again."""
        self.known, self.pool = {}, None

    def replay(self, way: Hashable, place: Tensor, rows: Tensor, prompt: Tensor, num: int) -> None:
        """Runs `num` steps of the rows at `place`."""
        key = (len(place), len(rows), way)  # how tokens are drawn is code of the graph, not an input of it
        if key not in self.known:
            self.known[key] = self.record(place, rows, prompt)
        graph, inputs = self.known[key]
        for kept, value in zip(inputs, (place, rows, prompt), strict=True):
            kept.copy_(value, non_blocking=True)
        for _ in range(num):
            graph.replay()

    def record(self, place: Tensor, rows: Tensor, prompt: Tensor) -> tuple[Any, tuple[Tensor, Tensor, Tensor]]:
        """Warms up the kernels on the padding row, then captures the step."""
        # Warming up runs the step for real: at the place of the padding row it changes nothing that is read.
        padding = torch.full_like(place, self.padding), rows, torch.full_like(prompt, self.padding)
        inputs = tuple(some.to(self.device) for some in padding)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.pool = torch.cuda.graph_pool_handle() if self.pool is None else self.pool
        with record_graph(graph, self.pool):  # none of a graph's own memory outlives its replay
            self.step(*inputs)
        return graph, (inputs[0], inputs[1], inputs[2])


def clusters(prompts: Sequence[int], size: int, members: int, padding: int) -> tuple[Tensor, Tensor]:
    """Returns (places in the batch [C, members], -1 for none; prompt [C]) of neighbouring rows with one prompt;
    `prompts` has each row's prompt, rows beyond them up to `size` are padding.
    """
    found: list[tuple[int, list[int]]] = []
    for place, whose in enumerate(prompts):
        if found and found[-1][0] == whose and len(found[-1][1]) < members:
            found[-1][1].append(place)
        else:
            found.append((whose, [place]))
    num = next(some for some in (*SIZES, len(found)) if some >= len(found)) - len(found)
    places = [own + [-1] * (members - len(own)) for _, own in found] + [[-1] * members] * num
    rows, prompt = torch.tensor(places), torch.tensor([whose for whose, _ in found] + [padding] * num)
    if size > len(prompts):  # padding shares no prompt, but its parts must still be written
        spare = torch.arange(len(prompts), size)
        extra = torch.full((-(-len(spare) // members), members), -1)
        extra.view(-1)[: len(spare)] = spare
        rows = torch.cat([rows, extra])
        prompt = torch.cat([prompt, torch.full((len(extra),), padding)])
    return rows, prompt
