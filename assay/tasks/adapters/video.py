"""Films held-out episodes of a policy. Axes: H height, W width."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.tasks.adapters.gymnasium import EnvironmentTask, Simulated
from assay.tasks.adapters.gymnasium_instances import Instances
from assay.tasks.control.frames import Framed, Frames
from assay.tasks.control.stepping import start_seeds

EXTRA = "pip install 'assay[video]'"


@torch.no_grad()
def film(task: Task, policy: Any, start: int) -> tuple[list[np.ndarray], float, float]:
    """Plays the held-out episode of a start as an evaluation does; returns its pictures [H, W, 3], its return, and the
    pictures per second.
    """
    if not isinstance(task, EnvironmentTask):
        raise AssayError(f"task '{task.name}' cannot be filmed: it has no pictures. Use a Gymnasium environment")
    framed = task.make if isinstance(task.make, Framed) else None
    simulated = task.make if framed is None else framed.make
    assert isinstance(simulated, Simulated)
    inner = Instances(partial(task.build, render_mode="rgb_array"), simulated.spec, simulated.port, 1)
    simulation: Any = inner if framed is None else Frames(inner, framed.num, framed.names)
    context, pictures, total = simulation.reset(start_seeds(1, np.array([start]))), [picture(inner)], 0.0
    for _ in range(task.spec.horizon):
        context, reward, terminal, truncated, _ = simulation.step(policy.act(context, None)[0])
        pictures.append(picture(inner))
        total += float(reward)
        if bool(terminal | truncated):
            break
    rate = float(inner.environment(0).metadata.get("render_fps") or 30)
    inner.close()
    return pictures, total, rate


def picture(instances: Instances) -> np.ndarray:
    """Returns the environment's picture; AssayError if it does not render one."""
    try:
        found = instances.environment(0).render()
    except (Exception, SystemExit) as error:
        raise AssayError(f"task '{instances.port.name}': render() raised {type(error).__name__}: {error}") from error
    array = np.asarray(found)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        what = f"render() returned {'nothing' if found is None else f'shape {array.shape}, {array.dtype}'}"
        raise AssayError(f"task '{instances.port.name}': {what}. With render_mode='rgb_array' return bytes [H, W, 3]")
    return array


def write_video(pictures: list[np.ndarray], path: Path, rate: float) -> Path:
    """Writes an mp4 if imageio and ffmpeg are there, else an animated gif with pillow; returns the file.

    AssayError names the extra if neither package is installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        ffmpeg, imageio = import_module("imageio_ffmpeg"), import_module("imageio.v2")
        ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return write_gif(pictures, path.with_suffix(".gif"), rate)
    target = path.with_suffix(".mp4")
    imageio.mimsave(target, pictures, fps=rate, macro_block_size=1)
    return target


def write_gif(pictures: list[np.ndarray], target: Path, rate: float) -> Path:
    """Writes an animated gif."""
    try:
        image = import_module("PIL.Image")
    except ImportError as error:
        raise AssayError(f"a video needs imageio-ffmpeg or pillow: {EXTRA}") from error
    frames = [image.fromarray(one) for one in pictures]
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=max(20, round(1000 / rate)), loop=0)
    return target
