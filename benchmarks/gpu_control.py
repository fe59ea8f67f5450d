"""Control on a GPU: worlds a second, trained decisions a second, seconds to a return, and agreement with the CPU.

    python -m benchmarks.gpu_control                              # all, on cuda, with MuJoCo Warp
    python -m benchmarks.gpu_control --parts speed --tasks warp:Ant --worlds 8192
    python -m benchmarks.gpu_control --tiny --device cpu          # seconds, without a GPU or MuJoCo Warp

One line of JSON for each result, also in --out. A part that fails says why, and the others run.

`speed`: the simulator alone takes random actions that are ready; then ppo with the task's preset trains, in the same
process and on as many worlds. Decisions are those of the policy, not steps of physics. `learn`: seconds from the first
step, compilation included, to a mean held-out return; they count evaluations, which begin when the training return,
with its exploration, is 0.8 of it. Whether compiled kernels were there before shows in `first_s`, the seconds to the
first decision.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.spaces import Box
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.runs.catalogue import find_task
from assay.runs.environments import changed_fragments
from assay.runs.plan import make_plan
from assay.tasks.control.stepping import SteppedTask

NATIVE = ("cartpole", "pendulum")
Row = dict[str, Any]


def wait(device: str) -> None:
    """Waits until the device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def timed(device: str, work: Callable[[], Any]) -> float:
    """Returns the seconds that some work takes, the device's included."""
    wait(device)
    begin = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - begin


def on(name: str, device: str) -> SteppedTask:
    """Returns the task with tensors on the device, also if that is the CPU."""
    found = find_task(name)
    assert isinstance(found, SteppedTask)
    return found.on(device)


def loop_of(name: str, args: argparse.Namespace, seed: int = 0, worlds: int | None = None) -> Loop:
    """Returns the method with the task's preset on the device; with other worlds or decisions of each than its own."""
    recipe = make_plan(args.method, name).recipe
    sizes = {"num_envs": worlds, "steps": args.decisions}
    changed = {name: value for name, value in sizes.items() if value}
    recipe = replace(recipe, rollout=changed_fragments(recipe.rollout, lambda one: replace(one, **changed)))
    for setting in args.set:
        path, _, text = setting.partition("=")
        recipe = recipe.set(path, json.loads(text))
    where = Placement(args.device, captured=not args.eager)
    return Loop(recipe, on(name, args.device), seed=seed, num_steps=recipe.steps, placement=where)


# ---------------------------------------------------------------------------------------------------- agreement
def agreement(args: argparse.Namespace) -> Iterator[Row]:
    """Yields the largest differences between device and CPU: of observations and rewards along episodes of the scripted
    expert, and of weights after three steps of ppo.
    """
    for name in NATIVE:
        task = find_task(name)
        assert isinstance(task, SteppedTask)
        assert task.expert is not None
        here, there = task.simulate(64), on(name, args.device).simulate(64)
        seeds = np.arange(64)
        mine, other = here.reset(seeds), there.reset(seeds)
        gaps, ends = [0.0, 0.0], 0
        for _ in range(20 if args.tiny else 450):
            gaps[0] = max(gaps[0], float((mine["observation"] - other["observation"].cpu()).abs().max()))
            action = task.expert(mine)  # of both: a rounding would turn an expert that is a threshold
            mine, reward, *flags, _ = here.step(action)
            other, rewarded, *marks, _ = there.step(action.to(args.device))
            gaps[1] = max(gaps[1], float((reward - rewarded.cpu()).abs().max()))
            ends += sum(int((one != two.cpu()).sum()) for one, two in zip(flags, marks, strict=True))
        plan = make_plan("ppo", name)
        cpu = Loop(plan.recipe, plan.task, seed=0, num_steps=9)
        gpu = Loop(plan.recipe, on(name, args.device), seed=0, num_steps=9, placement=Placement(args.device))
        for _ in range(1 if args.tiny else 3):
            cpu.step(), gpu.step()
        pairs = [(cpu.engine.flats[one].values, gpu.engine.flats[one].values.cpu()) for one in cpu.engine.flats]
        moved = max(float((one - two).abs().max()) for one, two in pairs)
        yield {"task": name, "observation": gaps[0], "reward": gaps[1], "ends_that_differ": ends, "weights": moved}


# ---------------------------------------------------------------------------------------------------- speed
def simulated(name: str, args: argparse.Namespace) -> Row:
    """Returns the decisions a second of the simulator alone, and the seconds of its first decisions."""
    task, begin = on(name, args.device), time.perf_counter()
    space = task.spec.action
    size = (args.worlds, space.size) if isinstance(space, Box) else (args.worlds,)
    drawn = [torch.rand(size, device=args.device) * 2 - 1 for _ in range(8 if args.tiny else 64)]
    actions = drawn if isinstance(space, Box) else [(one > 0).long() for one in drawn]
    simulation = task.simulate(args.worlds)
    simulation.step(actions[0])
    wait(args.device)
    first = time.perf_counter() - begin

    def alone() -> None:
        for action in actions:
            simulation.step(action)

    seconds = min(timed(args.device, alone) for _ in range(3))
    rate = round(args.worlds * len(actions) / seconds)
    return {"first_s": round(first, 2), "simulator_decisions_s": rate, "lost": lost(simulation)}


def trained(name: str, args: argparse.Namespace) -> Row:
    """Returns the decisions a second of training, and the shares of its phases."""
    loop, phases = loop_of(name, args, worlds=args.worlds), dict[str, float]()
    loop.step()  # the first one gathers twice, for the moments of observations
    while loop.engine.updates == 0:  # until replay holds what updates wait for
        loop.step()
    loop.step()  # graphs are captured
    wait(args.device)
    before, done, begin = loop.progress.decisions, loop.engine.updates, time.perf_counter()
    for _ in range(1 if args.tiny else args.steps):
        for phase, spent in loop.step().seconds.items():
            phases[phase] = phases.get(phase, 0.0) + spent
    wait(args.device)
    seconds = time.perf_counter() - begin
    shares = {phase: round(spent / seconds, 3) for phase, spent in phases.items()}
    rate = round((loop.progress.decisions - before) / seconds)
    updates = round((loop.engine.updates - done) / seconds)
    more = {} if args.method == "ppo" else {"updates_s": updates}
    each = round(seconds / (1 if args.tiny else args.steps), 4)
    return {"trained_decisions_s": rate, **more, "step_s": each, "of": shares}


def speed(args: argparse.Namespace) -> Iterator[Row]:
    """Yields decisions a second of the simulator alone and of training, for each task."""
    for name in args.tasks:
        row = {"task": name, "worlds": args.worlds, **simulated(name, args), **trained(name, args)}
        yield {
            **row,
            "share": round(row["trained_decisions_s"] / row["simulator_decisions_s"], 3),
            **memory(args.device),
        }


def lost(simulation: Any) -> int:
    """Returns how often a world's numbers were not finite."""
    count = getattr(simulation.dynamics, "lost", None)
    return 0 if count is None else int(count)


def memory(device: str) -> Row:
    """Returns the memory in use on a GPU, that of the simulator included."""
    if torch.device(device).type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"gib": round((total - free) / 2**30, 2)}


# ---------------------------------------------------------------------------------------------------- learning
def learn(args: argparse.Namespace) -> Iterator[Row]:
    """Yields the seconds to a mean held-out return, for each seed."""
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        begin, found, curve, seen, checked = time.perf_counter(), None, list[Any](), -np.inf, 0
        loop = loop_of(args.learn, args, seed, args.worlds)
        while (
            found is None and time.perf_counter() - begin < args.most and loop.progress.step < loop.progress.num_steps
        ):
            metrics = loop.step().metrics
            if "reward" in metrics:  # worlds that began together end together
                seen = metrics["reward"]
                curve.append([loop.progress.step, round(time.perf_counter() - begin, 1), round(seen, 1)])
            if seen >= 0.8 * args.target and loop.progress.step >= checked:
                held_out = float(evaluation.scores(loop.policy, loop.task, num=args.episodes).mean())
                checked = loop.progress.step + 5
                if held_out >= args.target:
                    found = held_out
        spent = time.perf_counter() - begin
        yield {
            "task": args.learn, "seed": seed, "target": args.target, "reached": found is not None, "held_out": found,
            "seconds": round(spent, 1), "decisions": loop.progress.decisions, "steps": loop.progress.step,
            "decisions_s": round(loop.progress.decisions / spent), "curve": curve,
        }  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "agreement": agreement, "speed": speed, "learn": learn,
}  # fmt: skip


def parsed() -> argparse.Namespace:
    """Returns the arguments; `--tiny` shrinks what was not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, without MuJoCo Warp")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--tasks", nargs="+", help="tasks of `speed`")
    parser.add_argument("--method", default="ppo", help="what trains: ppo, sac or td3")
    parser.add_argument("--eager", action="store_true", help="without graphs of updates")
    parser.add_argument("--worlds", type=int, help="worlds side by side")
    parser.add_argument("--decisions", type=int, help="decisions of each world in a step; else the preset's")
    parser.add_argument("--steps", type=int, default=10, help="training steps that are timed")
    parser.add_argument("--learn", help="task of `learn`")
    parser.add_argument("--target", type=float, help="mean held-out return to reach")
    parser.add_argument("--episodes", type=int, help="held-out episodes of an evaluation")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=240.0, help="seconds after which a seed is given up")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=NUMBER", help="a setting of the method")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.tasks = args.tasks or (["cartpole", "pendulum"] if args.tiny else ["warp:HalfCheetah", "warp:Ant"])
    args.worlds = args.worlds or (4 if args.tiny else {"ppo": 4_096}.get(args.method, 1_024))
    args.learn = args.learn or ("cartpole" if args.tiny else "warp:HalfCheetah")
    args.target = args.target if args.target is not None else 10.0 if args.tiny else 5_000.0
    args.episodes = args.episodes or (2 if args.tiny else 16)
    args.decisions = args.decisions or (24 if args.tiny else None)
    return args


def main() -> None:
    """Prints the results of the chosen parts."""
    args, rows = parsed(), list[Row]()

    def show(row: Row) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)
        if args.out is not None:
            args.out.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")

    place = torch.cuda.get_device_name(args.device) if torch.device(args.device).type == "cuda" else "cpu"
    show({"part": "machine", "device": place, "torch": str(torch.__version__), "worlds": args.worlds})
    for part in args.parts:
        try:
            for row in PARTS[part](args):
                show({"part": part, **row})
        except Exception as error:  # the other parts are still worth their time
            traceback.print_exc()
            show({"part": part, "error": f"{type(error).__name__}: {error}"[:400]})


if __name__ == "__main__":
    main()
