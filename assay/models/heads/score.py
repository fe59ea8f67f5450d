"""A transformer that scores a text with one number, and its file format. Axes: B sequences, T tokens."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Body, CriticHead
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.hidden import Sequences, wide
from assay.models.bodies.transformer import Transformer

FORMAT = "assay score 1"


class TransformerScore(nn.Module):
    """score(tokens 0..t), from its own trunk."""

    def __init__(self, vocabulary: Vocabulary, body: Transformer) -> None:
        super().__init__()
        self.sizes = {"width": body.width, "layers": body.layers, "heads": body.heads}
        self.vocabulary = vocabulary
        self.trunk = body.states(Spec(vocabulary, vocabulary, 0))
        self.head = nn.Linear(body.width, 1, bias=False)
        nn.init.normal_(self.head.weight, std=body.width**-0.5)

    def forward(self, context: Context) -> Tensor:
        """Returns scores [B, T]."""
        return self.head(self.trunk.after(context)).squeeze(-1)


class StatesScore(nn.Module):
    """score(tokens 0..t), a linear layer on the states of any body of tokens, in float32 or wider; 0 at the start."""

    def __init__(self, body: Sequences, spec: Spec) -> None:
        super().__init__()
        states: Any = body.states(spec)
        self.states = states
        self.head = nn.Linear(states.width, 1, bias=False).to(wide(states.dtype))
        nn.init.zeros_(self.head.weight)

    def forward(self, context: Context) -> Tensor:
        """Returns scores [B, T]."""
        trunk: Any = self.states
        states: Tensor = trunk.after(context)
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.to(self.head.weight.dtype)).squeeze(-1)


@dataclass(frozen=True)
class TextScore(CriticHead):
    """A score of the text so far, its last token included."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the critic for this task."""
        if not isinstance(spec.observation, Vocabulary) or not isinstance(body, Sequences):
            what = f"got {body} and observations {spec.observation}"
            raise AssayError(f"TextScore needs a Transformer() body and a language task, {what}. Use Transformer()")
        return TransformerScore(spec.observation, body) if isinstance(body, Transformer) else StatesScore(body, spec)


def save_score(model: TransformerScore, path: str | Path) -> str:
    """Writes weights, sizes and vocabulary into one file; returns their hash."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(save(tensors, {"format": FORMAT, "facts": facts_of(model)}))
    return hash_of(model)


def facts_of(model: TransformerScore) -> str:
    """Returns sizes and vocabulary as JSON."""
    return json.dumps({"sizes": model.sizes, "vocabulary": vars(model.vocabulary)})


def hash_of(model: TransformerScore) -> str:
    """Returns sixteen hex digits of weights, sizes and vocabulary; the bytes of the file are not deterministic."""
    digest = hashlib.sha256(facts_of(model).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)};".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def load_score(path: str | Path, hash: str = "") -> TransformerScore:
    """Loads the model from a file; raises AssayError if the file is invalid or `hash` does not match."""
    if not Path(path).is_file():
        raise AssayError(f"there is no file '{path}' with the weights of a judge. Check the path")
    try:
        with safe_open(str(path), framework="pt") as file:
            words = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        facts = json.loads(words["facts"])
        model = TransformerScore(Vocabulary(**facts["vocabulary"]), Transformer(**facts["sizes"]))
        model.load_state_dict(tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise AssayError(f"{path} is not a judge ({str(error).splitlines()[0]}). Use save_score") from None
    if hash and (found := hash_of(model)) != hash:
        raise AssayError(f"the judge in {path} has hash {found}, not {hash}. Use the original weights")
    return model.requires_grad_(False)
