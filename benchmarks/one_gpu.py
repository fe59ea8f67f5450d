"""One GRPO step on one GPU: 64 prompts of 256 tokens x 8 samples, a Qwen3-0.6B with random weights, bfloat16.

(a) every response has 512 tokens; (b) lengths are drawn once from a log-normal (mean 512, at most 2,048). One update a
step, no reference model. Ours is `Loop.step` with the base grpo; the peer is TRL's GRPOTrainer with HF generate, where
it is installed. A last table has the log-probabilities of given tokens together with the output layer.

    python -m benchmarks.one_gpu                 # everything; tables, and JSON in --out
    python -m benchmarks.one_gpu logp a --steps 5
    python -m benchmarks.one_gpu first           # the first step with an empty cache of compiled kernels, and again
    python -m benchmarks.one_gpu a --deterministic
    python -m benchmarks.one_gpu trl-a trl-b --peer-steps 1 --peer-at-once 128
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.engine.caches import CACHE, COMPILER, TRITON
from assay.engine.machine import repeatable
from benchmarks.gpu_ours import ours
from benchmarks.gpu_output import logp_table
from benchmarks.gpu_peer import peer, rows_at_once
from benchmarks.gpu_work import TOY, Size

FLOPS, BYTES = 788e12, 4.3e12
"""A second, measured on an H200: bfloat16 products of large squares; bytes read and written by copies."""


def middle(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):8.2f} [{min(values):.2f}, {max(values):.2f}]" if values else "-"


def show(results: dict[str, Any]) -> None:
    """All tables, in plain text."""
    for case in ("a", "b"):
        for row in (row for row in results.get("steps", ()) if row["case"] == case):
            parts = f", {row['at_once']} rows at once" if "at_once" in row else ""
            print(f"\n({case}) {row['who']}{parts}: {row.get('error', '')}")
            for name, values in row.get("seconds", {}).items():
                print(f"  {name:12} {middle(values)} s over {len(values)} steps")
            if "peak_gib" in row:
                rate = row["response_tokens"] / statistics.median(row["seconds"]["whole step"])
                print(f"  {row['decode_tokens_per_second']:.0f} tokens/s decoded, {rate:.0f} in the whole step")
                print(f"  peak memory {row['peak_gib']:.1f} GiB, {row.get('peak_gib_of', '')}")
            if "update_work" in row:
                print(limits(row))
    for name, row in results.get("first", {}).items():
        told = ", ".join(f"{what} {value:.1f} s" for what, value in row.items() if what != "error")
        print(f"first step, {name} cache: {row.get('error') or told}")
    if "logp" in results:
        print("\nlog-probabilities with the output layer, forward and backward")
    for row in results.get("logp", ()):
        what = row.get("error") or f"{middle(row['milliseconds'])} ms, {row['gib']:.2f} GiB"
        print(f"  {row['tokens']:6} tokens  {row['way']:27} {what}")


def limits(row: dict[str, Any]) -> str:
    """The work of both phases against what the device can do at most."""
    update, decode = (statistics.median(row["seconds"][name]) for name in ("update", "decode"))
    work, reads = row["update_work"], row["decode_work"]
    pflop = sum(value for name, value in work.items() if name.endswith("_pflop"))
    parts = ", ".join(f"{name[:-6]} {value:.3f}" for name, value in work.items() if name.endswith("_pflop"))
    return (
        f"  update: {work['tokens']} tokens, {pflop:.3f} PFLOP ({parts}), {pflop * 1e3 / update:.0f} TFLOP/s, "
        f"{pflop * 1e15 / FLOPS / update:.0%} of the largest rate\n"
        f"  decode: {reads['tb']:.2f} TB and {reads['pflop']:.3f} PFLOP, at least "
        f"{max(reads['tb'] * 1e12 / BYTES, reads['pflop'] * 1e15 / FLOPS):.2f} s of {decode:.2f}"
    )


def attempt(function: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """The row, or what went wrong."""
    try:
        return function(*given)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def placement(size: Size, options: argparse.Namespace) -> Any:
    """What the options say."""
    from assay.engine.placement import Placement

    return Placement(
        size.device, tokens=options.tokens, compiled=not options.plain, recompute=options.recompute,
        packed=not options.padded, deterministic=options.deterministic,
    )  # fmt: skip


def first_steps(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds of a process that takes two steps of (a), of its first and of its second step: with an empty cache of
    compiled kernels, then with what that process has left in it.
    """
    hidden = (COMPILER, TRITON)
    found: dict[str, Any] = {}
    for name in ("cold", "warm"):
        out = folder / f"{name}.json"
        words = ["a", "--steps", "1", "--out", str(out), *["--toy"] * options.toy, *["--plain"] * options.plain]
        own = {key: value for key, value in os.environ.items() if key not in hidden}
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.one_gpu", *words], env=own | {CACHE: str(folder / "cache")}, check=False
        )
        whole, row = time.perf_counter() - begin, json.loads(out.read_text())["steps"][0] if out.is_file() else {}
        if done.returncode or "seconds" not in row:
            found[name] = {"error": row.get("error", f"status {done.returncode}")}
            continue
        first, second = row["seconds"]["first step"][0], row["seconds"]["whole step"][0]
        found[name] = {"first step": first, "next step": second, "process": whole}
    return found


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.one_gpu", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("names", nargs="*", help="logp, a, b, trl-a, trl-b, first (default: all but first)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, after one that is not")
    parser.add_argument("--peer-steps", type=int, default=2, help="measured steps of the peer")
    parser.add_argument("--peer-warm", type=int, default=1, help="steps of the peer before them that do not count")
    parser.add_argument("--peer-at-once", type=int, default=0, help="rows that the peer generates at once (0: all)")
    parser.add_argument("--tokens", type=int, default=0, help="through the network at once (0: as a placement chooses)")
    parser.add_argument("--plain", action="store_true", help="layers are not compiled")
    parser.add_argument("--deterministic", action="store_true", help="kernels that give the same bits again")
    parser.add_argument("--padded", action="store_true", help="rows are padded, not packed")
    parser.add_argument("--cache", type=float, default=0.0, help="GiB of keys and values (0: for all rows at once)")
    parser.add_argument("--recompute", action="store_true", help="layers run again in the backward pass")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters, which alone are trained (0: none)")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("one_gpu.json"))
    options = parser.parse_args()
    try:
        options.peer_at_once = rows_at_once(TOY if options.toy else Size(), options.peer_at_once)
    except ValueError as error:
        parser.error(f"argument --peer-at-once: {error}")
    if options.peer_warm < 0:
        parser.error(f"argument --peer-warm: {options.peer_warm} is less than 0")
    return options


def write(path: Path, results: dict[str, Any]) -> None:
    """Whole or not at all: a run may be killed at any time."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def main() -> None:
    """Runs what is named."""
    options = arguments()
    size, names = TOY if options.toy else Size(), options.names or ["logp", "a", "trl-a", "b", "trl-b"]
    results: dict[str, Any] = {"torch": torch.__version__, "steps": []}
    if torch.cuda.is_available():
        results["device"] = torch.cuda.get_device_name()

    def keep(row: dict[str, Any]) -> None:
        """What is known so far of the last row, so that an end before its time leaves the steps that were done."""
        results["steps"][-1] |= row
        write(options.out, results)

    for name in names:
        if name == "logp":
            results["logp"] = logp_table(size)
            write(options.out, results)
        elif name == "first":
            with tempfile.TemporaryDirectory() as scratch:
                results["first"] = first_steps(options, Path(scratch))
            write(options.out, results)
        elif name.startswith("trl"):
            results["steps"].append({"who": "TRL", "case": name[-1]})
            asked = options.peer_steps, options.peer_warm, options.peer_at_once
            keep(attempt(peer, name[-1], size, *asked, keep))
        else:
            results["steps"].append({"who": "assay", "case": name})
            how = placement(size, options), options.cache, options.lora
            with repeatable(options.deterministic):
                keep(attempt(ours, name, size, options.steps, *how))
        gc.collect()  # the peer's network is part of a cycle, and would count in the next peak
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    show(results)
    print(f"all numbers: {options.out}")


if __name__ == "__main__":
    main()
