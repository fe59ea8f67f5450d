"""Device, sizes and processes of a run."""

from __future__ import annotations

from dataclasses import dataclass

from assay.runs.options.group import Group, option


@dataclass(frozen=True)
class PlacementOptions(Group):
    """The fields of a placement that are options; precision and packing are arguments in Python only."""

    device: str = option(
        "cpu",
        "cpu, cuda or cuda:N; with --ranks, cuda is a GPU for each and cuda:N one for all (default: cuda with --model "
        "where there is a GPU, else cpu)",
        metavar="DEVICE",
        chosen=True,
    )
    micro_batch: int = option(0, "maximum rows per forward pass (0: no limit); same result", metavar="ROWS")
    tokens: int = option(0, "maximum tokens per micro-batch, padding included (0: no limit)")
    recompute: bool = option(False, "gradient checkpointing: less memory, slower")
    compiled: bool = option(
        False,
        "torch.compile the layers: about a minute at the first start, then faster (default: with --model on a GPU)",
        chosen=True,
    )
    shards: int = option(1, "cut every batch into N parts, a power of two, and add them in a fixed order (default: 1)")
    ranks: int = option(1, "processes that share the shards; same result (default: 1)", decisive=False)
    sharded: bool = option(
        False,
        "split layers among the ranks while gradients are computed (FSDP2): less memory, slower, same result",
        decisive=False,
    )
    deterministic: bool = option(
        False, "only kernels that give the same bits again: two runs on one GPU are equal; slower"
    )
