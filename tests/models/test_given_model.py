"""Language models that are given as Python objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay
from assay.core.errors import AssayError
from assay.runs.given_model import given_model
from assay.runs.plan import plan_of
from tests.models.test_transformers import save_llama, transformers


def test_a_model_and_its_tokenizer_are_given_as_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save_llama(tmp_path / "llama")
    both = (
        transformers.AutoModelForCausalLM.from_pretrained(path),
        transformers.AutoTokenizer.from_pretrained(path),
    )
    before = {name: value.clone() for name, value in both[0].state_dict().items()}
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(1, 21)]
    short = {"steps": 1, "max_tokens": 4, "settings": {"rollout.num_starts": 2, "rollout.group_size": 2}}
    run = assay.train("grpo", rows, model=both, out="run", **short)
    assert assay.train("grpo", rows, model=path, out="other", **short).after == run.after
    assert all(torch.equal(value, before[name]) for name, value in both[0].state_dict().items())
    folder = Path(str(plan_of(run.folder).model))
    assert Path(given_model(both) or "").resolve() == folder
    assert [one.name for one in folder.parent.iterdir() if one.is_dir()] == [folder.name]
    with pytest.raises(AssayError, match=r"model is a LlamaForCausalLM. Give a folder, a hub id, or"):
        assay.train("grpo", rows, model=both[0])
