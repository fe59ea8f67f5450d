"""Given completions of a task's prompts as experience: what a reward is shown on, without a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from assay.core.record import Experience
from assay.playing import text
from assay.tasks.language.prompts import PromptTask, prompt_ids


def completed(
    task: PromptTask,
    completions: Sequence[str],
    starts: Sequence[int],
    *,
    cut: Sequence[int] = (),
    faults: Sequence[int] = (),
    prob: Sequence[float] = (),
) -> Experience:
    """One row for each (start, completion), not yet rewarded; rows of one start are a group, samples are numbered.

    Rows in `cut` stop without an end token, rows in `faults` have left training (mask false). Each decision of row b
    was taken with probability `prob[b]` (1 if `prob` is not given).
    """
    vocabulary, start_B = task.tokenizer.vocabulary, torch.tensor(starts)
    prompts = [prompt_ids(task.tokenizer, item.prompt, task.max_prompt) for item in task.items_of(start_B, 0)]
    ends = [[] if row in cut else [vocabulary.eos] for row in range(len(completions))]
    told = [[*task.tokenizer.encode(said), *end] for said, end in zip(completions, ends, strict=True)]
    record = text.written(prompts, told, start_B, vocabulary.pad)
    is_cut, is_there = (
        torch.tensor([(row in some) is so for row in range(len(told))]).unsqueeze(1)
        for some, so in ((cut, True), (faults, False))
    )
    logp = torch.tensor([*prob, *[1.0] * (len(told) - len(prob))]).log().unsqueeze(1) * record.mask
    samples = torch.tensor([list(starts[:row]).count(start) for row, start in enumerate(starts)])
    last = record.terminal & is_there
    record = replace(record, mask=record.mask & is_there, terminal=last & ~is_cut, truncated=last & is_cut)
    return replace(record, logp=logp, source=None).add({"sample": samples})
