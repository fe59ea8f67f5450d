"""The probe with a chat model: what it remembers of a batch can be stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import assay


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_a_run_of_a_chat_model_is_saved_and_trains_on(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"prompt": f"{one} + 1?", "answer": str(one + 1)}) for one in range(20)))
    model = str(save_chat_model(tmp_path / "model", TEMPLATES["chatml"]))

    def even(completions: list[str]) -> list[float]:
        return [float(len(said) % 2 == 0) for said in completions]

    out = tmp_path / "run"
    settings = {"rollout.gather.num_starts": 2, "rollout.gather.group_size": 2}
    run = assay.train(
        "self-interference", rows, model=model, reward=even, settings=settings, max_tokens=3, steps=1, evaluations=0,
        eval_prompts=2, out=out, device="cpu",
    )  # fmt: skip
    assert run.after.value >= 0.0
    assert list((out / "checkpoints").iterdir()), "the prompts of its batch are in it"
