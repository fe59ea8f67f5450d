"""Control policies as files for other programs: TorchScript, torch.export and ONNX. Axes: N observations."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.spaces import MASK, Box, Context, Discrete, Image, Spec, num_options

SUFFIXES = (".pt", ".pt2", ".onnx")


class Acting(nn.Module):
    """The deterministic action of a policy for N observations; continuous ones are clipped to their bounds."""

    def __init__(self, policy: Any, spec: Spec) -> None:
        super().__init__()
        self.policy, self.names = policy, tuple(inputs_of(spec))
        if isinstance(spec.action, Box):
            self.register_buffer("low", torch.tensor(spec.action.low))
            self.register_buffer("high", torch.tensor(spec.action.high))

    def forward(self, *columns: Tensor) -> Tensor:
        """Returns actions [N] or [N, A]."""
        context: Context = dict(zip(self.names, columns, strict=True))
        action: Tensor = self.policy.act(context, None)[0]
        bounds = dict(self.named_buffers(recurse=False))
        return torch.minimum(torch.maximum(action, bounds["low"]), bounds["high"]) if bounds else action


def inputs_of(spec: Spec) -> dict[str, Tensor]:
    """Returns an example of every input of a policy, for two observations."""
    if spec.masked:
        return inputs_of(replace(spec, masked=False)) | {
            MASK: torch.ones(2, num_options(spec.action), dtype=torch.bool)
        }
    space = spec.observation
    if isinstance(space, Discrete):
        return {"state": torch.zeros(2, dtype=torch.long)}
    if isinstance(space, Image):
        image = torch.zeros(2, space.channels, space.height, space.width, dtype=torch.uint8)
        return {"image": image} | ({"observation": torch.zeros(2, space.numbers)} if space.numbers else {})
    if isinstance(space, Box):
        goal = {} if spec.goal is None else {"goal": torch.zeros(2, spec.goal.size)}
        return {"observation": torch.zeros(2, space.size)} | goal
    raise AssayError(f"a policy of {space} is not a control policy. Use a folder as target for language models")


def export_policy(policy: Any, spec: Spec, target: Path) -> None:
    """Writes the deterministic policy, normalisation included, for any number N of observations.

    `.pt` is TorchScript (`torch.jit.load(path)`, LibTorch), `.pt2` is read by `torch.export.load(path).module()`,
    `.onnx` by any ONNX runtime. Inputs are the columns of a context, in the order of `inputs_of`.
    """
    if target.suffix not in SUFFIXES:
        raise AssayError(
            f"{target} has no known suffix. Use policy.pt (TorchScript), policy.pt2 (torch.export) or policy.onnx, or "
            "none for a folder with a model card"
        )
    if target.exists():
        raise AssayError(f"{target} exists already. Use a new file")
    if not target.parent.is_dir():
        raise AssayError(f"there is no folder '{target.parent}' for {target.name}. Make it first")
    module, inputs = Acting(policy, spec).eval(), inputs_of(spec)
    write = {".pt": write_script, ".pt2": write_program, ".onnx": write_onnx}[target.suffix]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(module, inputs, target)
    except AssayError:
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        what = f"this policy cannot be exported to {target.suffix} ({type(error).__name__}: {text:.120})"
        raise AssayError(f"{what}. Use assay.load(RUN)[0].predict(observation)") from error


def write_script(module: nn.Module, inputs: dict[str, Tensor], target: Path) -> None:
    """Writes TorchScript, traced and compared on its inputs."""
    with torch.no_grad():
        torch.jit.trace(module, tuple(inputs.values())).save(str(target))


def write_program(module: nn.Module, inputs: dict[str, Tensor], target: Path) -> None:
    """Writes a program of torch.export."""
    torch.export.save(program_of(module, inputs), target)


def write_onnx(module: nn.Module, inputs: dict[str, Tensor], target: Path) -> None:
    """Writes ONNX; AssayError without its packages."""
    for package in ("onnx", "onnxscript"):
        require(package, "export", "policies in ONNX")
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # what it does not need, and its steps, are no news
    try:
        program = program_of(module, inputs)
        made: Any = torch.onnx.export(program, dynamo=True, input_names=list(inputs), verbose=False)
        made.save(str(target))
    finally:
        log.setLevel(level)


def program_of(module: nn.Module, inputs: dict[str, Tensor]) -> Any:
    """Returns the program for any number of observations."""
    num = torch.export.Dim("N")
    shapes = (tuple({0: num} for _ in inputs),)
    return torch.export.export(module, tuple(inputs.values()), dynamic_shapes=shapes, strict=False)
