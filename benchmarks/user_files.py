"""Every method on what a user brings: a file of prompts with a chat model and rewards of three kinds, Hopper, and a
dataset in which Hopper falls.

    python -m benchmarks.user_files --workers 16           all cases; those that are in the file already are kept
    python -m benchmarks.user_files nsr oreal --fresh      some methods, again
    python -m benchmarks.user_files --table                docs/user_files.md, from the results in the file

A case is one command, `assay train METHOD` for five steps, in a process of its own; it is forked from one that has
imported the packages, so that a case costs its seconds and not the imports again. Language methods train a tiny chat
model with random weights and a chat template on rows of {"prompt", "answer"}, with rewards 0 and 1, -1 and 1 (declared
by `signed.range`), and graded ones. Methods for continuous actions train on Hopper-v5, and on a dataset of random
actions whose episodes end in falls. A case *trains* if all steps are made, every number is finite and a gradient is
not zero; *idle* is the same without any gradient, *unread* the same without the user's reward among the numbers. It is
*refused* if the command ends with one sentence before anything is trained. Everything else is *broke*, with the last
line that it wrote.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.cli.main import main as main_of_assay
from assay.core.settings import settings
from assay.core.store import write_text
from assay.engine.machine import describe_machine
from assay.recipes.presets import CONTINUOUS, LANGUAGE
from assay.runs import catalogue
from assay.runs.folder import read_metrics

RESULTS = Path(__file__).with_name("user_files.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "user_files.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
STEPS, PHASE_STEPS, PROMPTS, SECONDS = 5, 2, 8, 600.0
"""Steps of a run, of each of its phases, prompts of a step, and seconds after which a process is ended."""
IMPORTED = [
    "assay.runs.run",
    "matplotlib.figure",
    "transformers.models.llama.modeling_llama",
    "gymnasium.envs.mujoco.hopper_v5",
]
"""What is imported before a process is forked."""
REWARD_KINDS, CONTROL_KINDS = ("zero_one", "signed", "graded"), ("Hopper", "falls")
TRAINS, IDLE, UNREAD, REFUSED, BROKE = "trains", "idle", "unread", "refused", "broke"
REWARDS = '''"""Rewards of a user: an answer is good by the number of its characters."""


def zero_one(completions):
    return [float(len(said) % 2) for said in completions]


def signed(completions):
    return [1.0 if len(said) % 2 else -1.0 for said in completions]


signed.range = (-1, 1)


def graded(completions):
    return [len(said) % 5 / 4 for said in completions]
'''
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    method: str
    kind: str
    result: str
    sentence: str
    seconds: float


# ---------------------------------------------------------------------------------------------------- what a user has
def write_files(folder: Path) -> None:
    """Writes the prompts, the rewards, the chat model and the dataset that all cases share."""
    rows = [{"prompt": f"Which number is {k % 7} and {k // 7}?", "answer": str(k % 7 + k // 7)} for k in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "rewards.py").write_text(REWARDS)
    write_chat_model(folder / "chat", [row["prompt"] for row in rows])
    write_falls(folder / "falls.npz")


def write_chat_model(folder: Path, texts: Sequence[str]) -> None:
    """Writes a Llama of 2 layers with random weights, and a tokenizer of 300 words with a chat template."""
    import tokenizers
    import torch
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    special, letters = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    words.train_from_iterator(texts, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=words.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def write_falls(path: Path, episodes: int = 40) -> None:
    """Writes episodes of random actions in Hopper-v5; all of them end with a fall, which is terminal."""
    import gymnasium
    import torch

    from assay.datasets.dataset import NEEDED, Dataset
    from assay.datasets.files import write

    task, rows = gymnasium.make("Hopper-v5"), list[tuple[Any, ...]]()
    draw = np.random.default_rng(0)
    for seed in range(episodes):
        seen, _ = task.reset(seed=seed)
        is_over = False
        while not is_over:
            action = draw.uniform(-1.0, 1.0, 3).astype(np.float32)
            after, reward, terminal, truncated, _ = task.step(action)
            rows.append((seen, action, reward, terminal, truncated, after))
            seen, is_over = after, terminal or truncated
    task.close()
    columns = [torch.from_numpy(np.stack([np.asarray(row[place]) for row in rows])) for place in range(6)]
    numbers = [column.float() if column.is_floating_point() else column for column in columns]
    data = Dataset(**dict(zip(NEEDED, numbers, strict=True)), about={"made": "random actions in Hopper-v5"})
    write(data, path)


# ---------------------------------------------------------------------------------------------------- one case
def cases_of(methods: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yields (method, kind): rewards of three kinds for methods of language, Hopper and falls for those of continuous
    actions.
    """
    for key, method in sorted(catalogue.methods().items()):
        if methods and key not in methods:
            continue
        names = {preset.name for preset in method.presets}
        kinds = REWARD_KINDS * (LANGUAGE.name in names) + CONTROL_KINDS * (CONTINUOUS.name in names)
        yield from ((key, kind) for kind in kinds)


def command_of(method: str, kind: str, files: Path, out: Path) -> list[str]:
    """Returns the words of the command; phases and warm-ups before the method's own steps are short as well."""
    found = catalogue.find_method(method)[1]
    recipe = found.recipe(LANGUAGE if kind in REWARD_KINDS else CONTINUOUS)
    # What a pretrained model can do already is not taught with --model.
    phases = [phase for phase in recipe.before if kind in CONTROL_KINDS or not phase.from_scratch]
    short = [f"--set=before.{phase.name}.steps={PHASE_STEPS}" for phase in phases]
    own = settings(replace(recipe, before=()))
    short += [f"--set={'.'.join(path)}={STEPS}" for path, value in own.items() if path[-1] == "warmup" and value > 1]
    if kind in REWARD_KINDS:
        short += [
            f"--set={'.'.join(path)}={PROMPTS}"
            for path, value in own.items()
            if path[-1] == "num_starts" and value > PROMPTS
        ]
    words = ["train", method, "--steps", str(STEPS), "--evaluations", "0", *short]
    if kind in REWARD_KINDS:
        words += ["--task", str(files / "rows.jsonl"), "--model", str(files / "chat"), "--max-tokens", "12"]
        words += ["--reward", f"{files / 'rewards.py'}:{kind}", "--in-process", "--eval-prompts", "6"]
        words += ["--device", "cpu"]
    else:
        words += ["--task", "Hopper-v5", "--preset", "classic", "--eval-episodes", "2"]
        words += ["--data", str(files / "falls.npz")] * (kind == "falls")
    return [*words, "--out", str(out), "--json"]


def run_case(method: str, kind: str, files: Path, seconds: float = SECONDS) -> Result:
    """Runs one case in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        code, said = forked(command_of(method, kind, files, out), Path(place) / "said", seconds)
        if code is None:
            return Result(method, kind, BROKE, f"not finished after {seconds:g} seconds", seconds)
        rows = read_metrics(out) if (out / "metrics.jsonl").is_file() else []
        result, sentence = judged(code, said, rows, kind)
    return Result(method, kind, result, sentence.replace(str(files) + "/", ""), round(time.monotonic() - began, 1))


def forked(words: Sequence[str], said: Path, seconds: float) -> tuple[int | None, str]:
    """Runs a command in a process that has imported everything; returns its status, None if it took longer than it
    may, and what it wrote on stderr.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=command, args=(list(words), str(said)))
    process.start()
    process.join(seconds)
    is_late = process.is_alive()
    if is_late:
        process.kill()
        process.join()
    return None if is_late else process.exitcode, said.read_text() if said.is_file() else ""


def command(words: Sequence[str], said: str) -> None:
    """Runs `assay` with these words, as the command line does, and writes stderr to a file."""
    with open(said, "w") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(main_of_assay(words))


def judged(code: int, said: str, rows: Sequence[Mapping[str, Any]], kind: str) -> tuple[str, str]:
    """Returns the result of a command on this kind of data, and the sentence that explains it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line.removeprefix("assay: ") for line in lines if line.startswith("assay: ")]
    steps = [row for row in rows if row.get("step")]
    is_begun = bool(steps or (own and "assay resume" in own[-1]))
    if code == 2 and own and "Traceback" not in said and not is_begun:
        return REFUSED, own[-1]
    if code != 0 or "Traceback" in said:
        return BROKE, lines[-1] if lines else f"status {code}"
    if len(steps) != STEPS:
        return BROKE, f"{len(steps)} of {STEPS} steps"
    numbers = {name: value for row in steps for name, value in row.items() if isinstance(value, float)}
    odd = sorted(name for name, value in numbers.items() if not math.isfinite(value))
    if odd:
        return BROKE, f"{odd[0]} is {numbers[odd[0]]}"
    norms = [value for row in steps for name, value in row.items() if "gradient_norm" in name]
    if not any(norms):
        return IDLE, ""
    is_read = kind not in REWARD_KINDS or any(f"reward/{kind}" in row for row in steps)
    return (TRAINS if is_read else UNREAD), ""


# ---------------------------------------------------------------------------------------------------- all of them
def read_results(path: Path) -> dict[tuple[str, str], Result]:
    """Returns the results of a file, by method and kind."""
    found = json.loads(path.read_text())["rows"] if path.is_file() else []
    return {(row["method"], row["kind"]): Result(**row) for row in found}


def write_results(path: Path, results: Mapping[tuple[str, str], Result]) -> None:
    """Writes all results, sorted."""
    rows = [asdict(results[key]) for key in sorted(results)]
    write_text(path, json.dumps({"machine": describe_machine(), "rows": rows}, indent=1) + "\n")


def cell(result: Result | None) -> str:
    """Returns a result as a cell: one word, with the sentence where there is one."""
    if result is None:
        return ""
    safe = result.sentence.replace("|", "\\|").replace("<", "&lt;")
    return f"{result.result}: {safe}" if safe else result.result


def table(results: Mapping[tuple[str, str], Result], kinds: Sequence[str]) -> list[str]:
    """Returns the rows of the methods that have one of these kinds, and the counts of every result."""
    methods = sorted({method for method, kind in results if kind in kinds})
    lines = [f"| method | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    lines += [f"| {one} | {' | '.join(cell(results.get((one, kind))) for kind in kinds)} |" for one in methods]
    counts = {name: sum(one.result == name and one.kind in kinds for one in results.values())
              for name in (TRAINS, IDLE, UNREAD, REFUSED, BROKE)}  # fmt: skip
    return [*lines, "", ", ".join(f"{number} {name}" for name, number in counts.items()) + ".", ""]


def write_page(results: Mapping[tuple[str, str], Result], page: Path = PAGE) -> None:
    """Writes both tables between the marks of the page."""
    text = page.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    lines = ["## A file, a chat model and a reward", "", *table(results, REWARD_KINDS)]
    lines += ["## Hopper, and a dataset with falls", "", *table(results, CONTROL_KINDS)]
    write_text(page, before + "\n".join(lines) + "\n" + after)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases that have no result yet; 1 if one broke."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.user_files", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("methods", nargs="*", help="which (default: all)")
    parser.add_argument("--workers", type=int, default=1, help="cases side by side")
    parser.add_argument("--fresh", action="store_true", help="run cases again that have a result")
    parser.add_argument("--table", action="store_true", help="only write the page")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    results = read_results(options.out)
    if not options.table:
        left = [case for case in cases_of(options.methods) if options.fresh or case not in results]
        with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.workers) as pool:
            files = Path(place)
            if left:
                write_files(files)
            for done in as_completed([pool.submit(run_case, *case, files) for case in left]):
                one = done.result()
                results[one.method, one.kind] = one
                write_results(options.out, results)
                print(f"{one.method}, {one.kind}: {cell(one)} ({one.seconds:.0f} s)", flush=True)
    if options.out == RESULTS:
        write_page(results)
    return int(any(one.result == BROKE for one in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
