"""What `assay evaluate` and `assay.evaluate` ask of a trained policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.cadence import MOST_STARTS
from assay.runs.options.group import Group, option
from assay.runs.options.language import PRECISIONS
from assay.runs.options.training import parse_settings

ESTIMATORS = ("fqe", "dr", "wis")
"""Those of `assay.datasets.ope`, which is imported, with torch, where something is estimated."""
MOST_VIDEOS = 100


@dataclass(frozen=True)
class ScoringOptions(Group):
    """What is asked of a trained policy: which starts, how many answers, which scores of them."""

    starts: int | None = option(None, "held-out starts (default: 256 prompts or 20 episodes; a row once)")
    samples: int = option(1, "samples per start (default: 1)")
    greedy: bool = option(False, "greedy actions instead of sampled ones (always in control)")
    temperature: float | None = option(None, "temperature (default: the policy's own)")
    task_: str | None = option(
        None, "another task or file to score on; all rows of one file are held out", metavar="TASK"
    )
    passk: str | None = option(None, "also pass@k for these k, unbiased, from --samples answers", metavar="K,K")
    majority: bool = option(False, "also the score of the majority of --samples answers")
    of: str | None = option(
        None, "count --passk and --majority by this reward alone, after training on several, and print its mean",
        metavar="REWARD",
    )  # fmt: skip
    votes: int | None = option(
        None, "also how often N judgements with their scores summed put the best response first (a judge's prompts)"
    )
    out: Path | None = option(None, "write one JSON line per prompt: answers and scores", metavar="FILE")
    reward: str | None = option(
        None, "reward of positions, for a policy that is inferred without training; runs this file",
        metavar="FILE.py:FUNCTION",
    )  # fmt: skip
    data: str | None = option(None, "infer it from this dataset instead of the run's own", metavar="FILE")
    ope: str | None = option(
        None, "estimate the policy's discounted return from --data and play nothing: fitted Q evaluation, doubly "
        "robust, weighted importance sampling",
        metavar="fqe|dr|wis",
    )  # fmt: skip
    video: int = option(0, "film N held-out episodes (Gymnasium environments)")
    checkpoint: str | None = option(
        None, "checkpoint to use: a step, or best, the one with the best held-out score (default: the newest)",
        metavar="best|STEP",
    )  # fmt: skip

    def check(self) -> None:
        """Refuses numbers out of range, and words that contradict each other."""
        for name in ("starts", "samples", "votes"):
            if (number := getattr(self, name)) is not None and not 1 <= number <= MOST_STARTS:
                rule = "at least 1" if number < 1 else f"at most {MOST_STARTS:,}"
                raise AssayError(f"--{name} is {number}. Use {rule}.")
        if not 0 <= self.video <= MOST_VIDEOS:
            raise AssayError(f"--video is {self.video}. Use a number of episodes from 0 to {MOST_VIDEOS}.")
        if self.greedy and (self.passk or self.majority or self.votes or self.temperature is not None):
            others = "--temperature, --passk, --majority and --votes"
            raise AssayError(f"--greedy always gives the same answer. Remove it, or {others}.")
        if self.ope is not None and self.ope not in ESTIMATORS:
            raise AssayError(f"--ope is '{self.ope}'. Use {', '.join(ESTIMATORS)}.")
        if self.ope is not None and (self.data is None or self.reward is not None):
            raise AssayError("--ope estimates a return from data. Add --data FILE, and remove --reward.")
        if self.ope is not None and (self.greedy or self.video or self.out is not None or self.starts is not None):
            raise AssayError("--ope plays nothing. Remove --greedy, --video, --out and --starts.")
        if self.data is not None and self.reward is None and self.ope is None:
            what = "--data names the data to infer a reward's policy from, or a return"
            raise AssayError(f"{what}. Add --reward FILE.py:FUNCTION, or --ope fqe.")
        if self.reward is not None and self.samples > 1:
            raise AssayError(f"--samples is {self.samples}, but a policy of --reward always acts with its mode")
        self.ks()

    def ks(self) -> list[int]:
        """Returns the k of --passk; refuses numbers out of range."""
        words = [] if self.passk is None else self.passk.split(",")
        if not all(word.strip().isdigit() and 1 <= int(word) <= self.samples for word in words):
            raise AssayError(
                f"--passk is '{self.passk}'. Use numbers from 1 to --samples ({self.samples}), e.g. --samples 16 "
                "--passk 1,8,16."
            )
        return [int(word) for word in words]


@dataclass(frozen=True)
class RebuiltOptions(Group):
    """How the models of a run are built again; what is not given is as it was in the run."""

    title: ClassVar[str] = "the run's own unless given"

    device: str | None = option(None, "device of the policy: cpu, cuda or cuda:N", metavar="DEVICE")
    compiled: bool | None = option(None, "torch.compile the layers", chosen=True)
    dtype: str | None = option(None, "numbers of a pretrained model: float32 or bfloat16", metavar="DTYPE")
    micro_batch: int | None = option(None, "maximum rows at a time; same result", metavar="ROWS")
    model: str | None = option(None, "where the pretrained model is now: a folder, or a hub id", metavar="PATH")
    set_: tuple[str, ...] = option((), "change a setting, as the weights allow; repeatable", metavar="PART.FIELD=VALUE")

    def check(self) -> None:
        """Refuses an unknown dtype and a negative number of rows."""
        if self.dtype is not None and self.dtype not in PRECISIONS:
            raise AssayError(f"--dtype is '{self.dtype}'. Use {' or '.join(PRECISIONS)}.")
        if self.micro_batch is not None and self.micro_batch < 0:
            raise AssayError(f"--micro-batch is {self.micro_batch}. Use 0 (all at once) or a number of rows.")

    def settings(self) -> Mapping[str, Any]:
        """Returns the settings of --set."""
        return parse_settings(self.set_)
