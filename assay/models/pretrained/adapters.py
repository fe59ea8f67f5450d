"""Low-rank adapters on a pretrained network, by peft. The base weights are frozen and shared by the model, its target
networks and the sampler.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.models.pretrained.settings_files import settings_in

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # before every name in a file of peft
UNWANTED = ("modules_to_save", "layer_replication", "trainable_token_indices", "alora_invocation_tokens")
"""Settings of peft that train more than adapters, or activate them in the middle of a text."""


@dataclass(frozen=True)
class Lora:
    """LoRA (arXiv:2106.09685): y = W x + (alpha / rank) B A x, with A and B trained and W frozen.

    Rank 0 means no adapter: all weights are trained. A starts random and B at 0, so the initial policy is the base
    network, and a reference at rate 0 stays it. `targets` are suffixes of layer names; all-linear means every matrix
    but the output layer. There is no dropout: samples and gradients use one network.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ("all-linear",)

    def attach(self, network: Any) -> Any:
        """Returns the network with fresh adapters; raises AssayError if none can be attached."""
        if self.rank < 0 or not self.alpha > 0 or not self.targets:
            raise AssayError(f"{self}is invalid. Use rank 1 or more (0: no adapter), alpha above 0, some targets")
        peft = require("peft", "language", "LoRA adapters")
        targets = self.targets[0] if self.targets == ("all-linear",) else list(self.targets)
        config = peft.LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=targets, task_type="CAUSAL_LM")
        try:
            return peft.inject_adapter_in_model(config, network)
        except ValueError as error:
            raise AssayError(f"targets {', '.join(self.targets)} cannot be adapted: {first_line(error)}") from error


def adapter_settings(folder: Path) -> dict[str, Any]:
    """Returns the settings of the adapter in a folder, checked to be trainable here; empty if there is no adapter."""
    file = folder / CONFIG
    if not file.is_file():
        return {}
    settings = settings_in(file, {"base_model_name_or_path": str, "revision": str, "bias": str})
    kind, base = settings.get("peft_type"), settings.get("base_model_name_or_path")
    odd = [name for name in UNWANTED if settings.get(name)]
    odd += ["bias"] if settings.get("bias", "none") != "none" else []
    if kind != "LORA" or odd:
        what = f"is an adapter with {odd[0]} {settings[odd[0]]!r}" if odd else f"is an adapter of type {kind}"
        raise AssayError(f"'{folder}' {what}, which cannot be trained. Merge it into its base model and use that")
    if not base:
        raise AssayError(f"'{folder}' does not name its base model. Set base_model_name_or_path in {CONFIG}")
    if not (folder / WEIGHTS).is_file():
        raise AssayError(f"'{folder}' has no {WEIGHTS}, and pickles are not read. Save it with save_pretrained")
    return settings


def attach_saved(network: Any, folder: Path) -> Any:
    """Returns the network with a folder's adapter, to be trained further; raises AssayError if weights are missing."""
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
    """Returns the first line of an error's text."""
    return str(error).strip().partition("\n")[0]


# ---------------------------------------------------------------------------------------------------------- export
def merged(network: Any) -> Any:
    """Returns a copy of the network with W + (alpha / rank) B A in place of every adapted matrix; AssayError without
    an adapter.
    """
    if "peft_config" not in vars(network):
        raise AssayError("--merge needs a LoRA adapter, and all weights of this model were trained. Leave it out")
    require("peft", "language", "LoRA adapters")
    kinds = require("peft.tuners.tuners_utils", "language", "LoRA adapters").BaseTunerLayer
    whole = copy.deepcopy(network)
    for name, module in list(whole.named_modules()):
        if isinstance(module, kinds):
            module.merge(safe_merge=True)
            above, _, own = name.rpartition(".")
            setattr(whole.get_submodule(above), own, module.get_base_layer())
    del whole.peft_config
    return whole


def save(network: Any, tokenizer: Any, folder: Path, base: str, revision: str | None) -> None:
    """Writes the tokenizer and what was trained: the model, or an adapter in peft's format with its base."""
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    if "peft_config" not in vars(network):
        network.save_pretrained(folder)
        return
    peft = require("peft", "language", "LoRA adapters")
    config = next(iter(network.peft_config.values()))
    config.base_model_name_or_path, config.revision = base, revision
    config.save_pretrained(folder)
    weights = {PREFIX + name: tensor.contiguous() for name, tensor in peft.get_peft_model_state_dict(network).items()}
    require("safetensors.torch", "language").save_file(weights, folder / WEIGHTS, {"format": "pt"})
