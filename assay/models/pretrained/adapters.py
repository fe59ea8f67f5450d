"""Low-rank adapters on a pretrained network, by peft: the network's own weights are frozen, and the same for the model,
its copies and the sampler.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from assay.core.errors import AssayError
from assay.core.extras import require

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # before every name in a file of peft
UNWANTED = ("modules_to_save", "layer_replication", "trainable_token_indices", "alora_invocation_tokens")
"""Settings of peft that train more than adapters, or switch them on in the middle of a text."""


@dataclass(frozen=True)
class Lora:
    """LoRA (arXiv:2106.09685): y = W x + (alpha / rank) B A x, of which A and B are trained and W is not.

    Rank 0 is no adapter: all weights are trained. A is random and B is 0 at first, so that the policy begins as the
    network itself, and a reference that follows at rate 0 stays it. `targets` are ends of the names of layers;
    all-linear means every matrix but the output layer. There is no dropout: samples and gradients are of one network.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ("all-linear",)

    def attach(self, network: Any) -> Any:
        """The network with fresh adapters in it; AssayError where none can be attached."""
        if self.rank < 0 or not self.alpha > 0 or not self.targets:
            raise AssayError(f"{self}: rank must be 1 or more (0: no adapter), alpha more than 0, and targets some")
        peft = require("peft", "language", "LoRA adapters")
        targets = self.targets[0] if self.targets == ("all-linear",) else list(self.targets)
        config = peft.LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=targets, task_type="CAUSAL_LM")
        try:
            return peft.inject_adapter_in_model(config, network)
        except ValueError as error:
            raise AssayError(f"targets {', '.join(self.targets)} cannot be adapted: {first_line(error)}") from error


def adapter_settings(folder: Path) -> dict[str, Any]:
    """The settings of the adapter in a folder, checked to be one that can be trained here; none where there is none."""
    file = folder / CONFIG
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text())
        kind, base = settings.get("peft_type"), settings.get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise AssayError(f"{file} cannot be read: {error}") from None
    odd = [name for name in UNWANTED if settings.get(name)]
    odd += ["bias"] if settings.get("bias", "none") != "none" else []
    if kind != "LORA" or odd:
        what = f"is an adapter with {odd[0]} {settings[odd[0]]!r}" if odd else f"is an adapter of type {kind}"
        raise AssayError(f"'{folder}' {what}, which is not trained here; merge it into its base model and give that")
    if not base:
        raise AssayError(f"'{folder}' does not say what it adapts; set base_model_name_or_path in {CONFIG}")
    if not (folder / WEIGHTS).is_file():
        raise AssayError(f"'{folder}' has no {WEIGHTS}, and no pickle is read; save the adapter with save_pretrained")
    return dict(settings)


def attach_saved(network: Any, folder: Path) -> Any:
    """The network with the adapter of a folder in it, to be trained on; every weight of it must be there."""
    peft = require("peft", "language", "LoRA adapters")
    config = peft.LoraConfig.from_pretrained(str(folder))
    config.inference_mode, config.init_lora_weights = False, True
    try:
        network = peft.inject_adapter_in_model(config, network)
        weights = require("safetensors.torch", "language").load_file(folder / WEIGHTS)
        report = peft.set_peft_model_state_dict(network, {k.removeprefix(PREFIX): w for k, w in weights.items()})
    except (ValueError, RuntimeError) as error:
        raise AssayError(f"the adapter '{folder}' does not fit its base model: {first_line(error)}") from error
    missing = [name for name in report.missing_keys if ".lora_" in name]
    if missing or report.unexpected_keys:
        found = ", ".join([*missing, *report.unexpected_keys][:3])
        raise AssayError(f"the adapter '{folder}' does not fit its base model: {found}")
    return network


def first_line(error: Exception) -> str:
    """What an error says first."""
    return str(error).strip().partition("\n")[0]


# ---------------------------------------------------------------------------------------------------------- export
def has_adapter(network: nn.Module) -> bool:
    """Whether the network has adapters."""
    return "peft_config" in vars(network)


def save(network: Any, tokenizer: Any, folder: Path, base: str, revision: str | None) -> None:
    """Writes what was trained: an adapter as peft reads it, of `base` at a revision, or else the whole model; and the
    tokenizer.
    """
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    if not has_adapter(network):
        network.save_pretrained(folder)
        return
    peft = require("peft", "language", "LoRA adapters")
    config = next(iter(network.peft_config.values()))
    config.base_model_name_or_path, config.revision = base, revision
    config.save_pretrained(folder)
    weights = {PREFIX + name: tensor.contiguous() for name, tensor in peft.get_peft_model_state_dict(network).items()}
    require("safetensors.torch", "language").save_file(weights, folder / WEIGHTS, {"format": "pt"})
