"""Two steps of language methods on a tiny pretrained model with long answers: does each run, and in how much memory?

    python -m benchmarks.long_answers               the family of policy gradients, 4,096 tokens, 32,768 words
    python -m benchmarks.long_answers grpo nsr --max-tokens 512
    python -m benchmarks.long_answers --device cuda --jobs 4
    python -m benchmarks.long_answers --table       prints the recorded runs

Each run is `assay train KEY --task FILE.jsonl --model FOLDER` in a process of its own; a random network hardly ever
ends an answer, so that answers reach the limit. `share` is the memory above that of a run with 64 tokens, in units of
one float32 tensor of [rows, tokens, words]: logits kept for all rows would make it 1 or more. Memory is that of the
process; with `--device cuda` the tensors of the GPU at their peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from assay.runs import catalogue

RESULTS = Path(__file__).with_suffix(".json")
FAMILY = "policy gradient"
SHORT = 64
REWARD = """def even(prompts, completions, **columns):
    return [float(len(one) % 2 == 0) for one in completions]
"""
ON_GPU = """import sys, torch
from assay.cli.main import main
status = main(sys.argv[1:])
print(f"peak {torch.cuda.max_memory_allocated() / 2**20}")
sys.exit(status)
"""
"""The command with the peak of the GPU's memory printed last."""
HEADER = """| method | tokens x words | peak | above 64 tokens | share of [rows, tokens, words] | cpu-s |
|---|---|---|---|---|---|"""


def save_model(folder: Path, words: int, max_tokens: int) -> None:
    """Saves a random Llama of two layers with a byte-level tokenizer; most of its words are never written."""
    import tokenizers
    import torch
    import transformers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], show_progress=False,
                                             initial_alphabet=alphabet)  # fmt: skip
    made.train_from_iterator(["What is two and two?"], trainer)
    made.add_tokens([f"word{place} " for place in range(words - made.get_vocab_size())])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=max_tokens + 64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def write_rows(path: Path) -> None:
    """Writes prompts whose answer is one frequent letter, so that some answers are right."""
    rows = [{"prompt": f"What is {one} and {one}?", "answer": str(2 * one)} for one in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_reward(path: Path) -> None:
    """Writes a reward that random answers reach about half of the time: right and wrong rows in every group."""
    path.write_text(REWARD)


def run(key: str, folder: Path, max_tokens: int, device: str) -> dict[str, Any]:
    """Runs two steps in a process of its own; returns exit status, peak memory in MB, cpu-seconds and the last line."""
    start = ["-m", "assay"] if device == "cpu" else ["-c", ON_GPU]
    command = [sys.executable, *start, "train", key, "--task", "rows.jsonl", "--model", "model", "--device", device]
    command += ["--max-tokens", str(max_tokens), "--group-size", "4", "--prompts", "1", "--steps", "2"]
    command += ["--eval-prompts", "2", "--reward", "rewards.py:even"]
    command += ["--dtype", "float32", "--no-compiled"]  # shares are of float32 tensors, on every device
    for phase in catalogue.find_method(key)[1].recipe().before:  # as short as the method itself
        command += [f"--set=before.{phase.name}.{one}" for one in ("steps=2", "rollout.num_starts=1")]
    name = f"{key.replace(':', '-')}-{max_tokens}"
    with open(folder / f"{name}.printed", "w+") as printed:
        child = subprocess.Popen([*command, "--out", f"runs/{name}"], cwd=folder, stdout=printed, stderr=printed)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)  # waited for already
        printed.seek(0)
        lines = [line.strip() for line in printed if line.strip()]
    said = lines[-1] if lines else ""
    peak = float(said.split()[1]) if device != "cpu" and not child.returncode else usage.ru_maxrss / 1024
    found = {"status": child.returncode, "peak_mb": peak, "cpu_s": usage.ru_utime, "device": device}
    return found | {"said": said if child.returncode else ""}


def measure(keys: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Runs each method with short and with long answers; writes the results after each."""
    out, words, max_tokens = options.out, options.words, options.max_tokens
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    full_mb = 4 * max_tokens * words * 4 / 2**20
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model", words, max_tokens)
        write_rows(folder / "rows.jsonl")
        write_reward(folder / "rewards.py")

        def both(key: str) -> dict[str, Any]:
            short, long = (run(key, folder, tokens, options.device) for tokens in (SHORT, max_tokens))
            share = (long["peak_mb"] - short["peak_mb"]) / full_mb
            return long | {"tokens": max_tokens, "words": words, "short_mb": short["peak_mb"], "share": share}

        with ThreadPoolExecutor(options.jobs) as pool:
            for key, row in zip(keys, pool.map(both, keys), strict=True):
                found[key] = row
                print(table({key: row}).splitlines()[-1], flush=True)
                out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def table(found: dict[str, Any]) -> str:
    """Returns the recorded runs as Markdown."""
    lines = [HEADER]
    for key, row in sorted(found.items()):
        size = f"{row['tokens']:,} x {row['words']:,}"
        above = f"{row['peak_mb'] - row['short_mb']:,.0f} MB"
        cells = f"{row['peak_mb']:,.0f} MB | {above} | {row['share']:.2f} | {row['cpu_s']:.0f}"
        lines.append(f"| {key} | {size} | {cells if row['status'] == 0 else row['said'] + ' | | |'} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", help=f"methods (default: the family '{FAMILY}')")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--words", type=int, default=32768, help="size of the vocabulary")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="methods at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the recorded runs and run nothing")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(json.loads(options.out.read_text())))
        return 0
    keys = options.keys or [key for key, one in catalogue.methods().items() if one.family == FAMILY]
    found = measure(keys, options)
    return int(any(found[key]["status"] for key in keys))


if __name__ == "__main__":
    raise SystemExit(main())
