"""MuJoCo's environments on a GPU by MuJoCo Warp: warp:HalfCheetah, thousands of worlds in one simulation.

Models are files of Gymnasium's package, which need not be importable; rules are in `warp_rules`. The physics of one
decision is captured as a CUDA graph. Contacts are added up in no fixed order on a GPU, so that a run there resumes to
rounding, not to the bit; on a CPU it resumes bitwise.

Axes: N worlds, Q positions, V velocities, M more numbers, S = Q + 2 V + M numbers of a state, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.spaces import Box, Context, Spec
from assay.tasks.adapters.warp_rules import RULES, Pose, Rules
from assay.tasks.control.stepping import SteppedTask
from assay.tasks.control.tensor_stepping import TensorSimulation

PREFIX = "warp:"
CONSTRAINTS = 256
"""Rows of constraints for which a world has room."""
GIB = 2**30


def need(name: str) -> tuple[Any, Any, Any]:
    """Returns mujoco, mujoco_warp and warp; AssayError if one is missing."""
    purpose = f"task '{name}'"
    warp = require("warp", "warp", purpose)
    warp.config.log_level = warp.LOG_ERROR
    warp.init()
    return require("mujoco", "warp", purpose), require("mujoco_warp", "warp", purpose), warp


def model_of(rules: Rules, name: str) -> Any:
    """Returns MuJoCo's model from the file in Gymnasium's package, with a solver that MuJoCo Warp has."""
    mujoco = need(name)[0]
    package = find_spec("gymnasium")  # its files are read, it is not imported
    if package is None or not package.submodule_search_locations:
        raise AssayError(f"gymnasium is needed for the model of '{name}'. Install it: pip install 'assay[warp]'")
    path = Path(package.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / rules.file
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise AssayError(f"task '{name}': {path} does not load ({error}). Use another version of gymnasium") from error
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


class Physics:
    """N worlds of a model on a device. It keeps nothing between calls: a state is given and returned."""

    def __init__(self, name: str, num: int, device: str) -> None:
        self.rules, self.num, self.device = RULES[name], num, torch.device(device)
        _, self.engine, self.warp = need(PREFIX + name)
        model = model_of(self.rules, PREFIX + name)
        self.seconds = float(model.opt.timestep) * self.rules.frame_skip
        self.qpos = torch.tensor(model.qpos0, device=device).view(-1, 1)
        self.qvel = torch.zeros(model.nv, 1, dtype=self.qpos.dtype, device=device)
        self.bodies = {model.body(place).name: place for place in range(model.nbody)}
        self.mass = torch.tensor(model.body_mass / model.body_mass.sum(), dtype=torch.float32, device=device)
        bounds = torch.tensor(model.actuator_ctrlrange, dtype=torch.float32, device=device)
        self.low, self.high = bounds[:, 0], bounds[:, 1]
        self.place = self.warp.device_from_torch(torch.zeros((), device=device).device)
        with self.warp.ScopedDevice(self.place):
            try:
                self.model = self.engine.put_model(model)
                self.data = self.engine.make_data(model, nworld=num, nconmax=self.rules.contacts, njmax=CONSTRAINTS)
            except NotImplementedError as error:
                raise AssayError(f"task '{PREFIX}{name}': MuJoCo Warp does not support its model ({error})") from error
        names = ("qpos", "qvel", "qacc_warmstart", "ctrl")
        self.inputs = [self.warp.to_torch(getattr(self.data, name)) for name in names]
        self.graphs: dict[str, Any] = {}

    def sizes(self) -> tuple[int, int]:
        """Returns the numbers of positions and velocities."""
        return len(self.qpos), len(self.qvel)

    def step(self, *inputs_N: Tensor) -> list[Tensor]:
        """Returns positions, velocities, the solver's warm start and what the rules read, after one decision from
        positions, velocities, warm start and actions, all [., N].
        """
        self.run(self.decide, inputs_N)
        return [array.T.clone() for array in (*self.inputs[:3], self.more())]

    def settle(self, qpos_QN: Tensor, qvel_VN: Tensor) -> Tensor:
        """Returns what the rules read [M, N] of worlds that have not moved yet, in which no force has acted."""
        self.run(self.look, (qpos_QN, qvel_VN))
        found = [READERS[name](self) * (name not in FORCES) for name in self.rules.reads]
        return torch.cat(found, 1).T

    def run(self, compute: Callable[[], None], inputs_N: Sequence[Tensor]) -> None:
        """Computes from inputs [., N]; on a GPU as a graph, which is captured at the first call."""
        name = compute.__name__
        with self.warp.ScopedDevice(self.place):
            if self.device.type == "cuda" and name not in self.graphs:
                compute()  # compiles and allocates, which a capture cannot
                with self.warp.ScopedCapture() as captured:
                    compute()
                self.graphs[name] = captured.graph
            for array, value in zip(self.inputs, inputs_N, strict=False):
                array.copy_(value.T)
            if name in self.graphs:
                self.launch(self.graphs[name])
            else:
                compute()

    def launch(self, graph: Any) -> None:
        """Replays a graph in the order of torch's work: on its stream, or on warp's, which waits for the default."""
        stream = torch.cuda.current_stream(self.device)
        is_default = stream == torch.cuda.default_stream(self.device)
        self.warp.capture_launch(graph, stream=None if is_default else self.warp.stream_from_torch(stream))

    def decide(self) -> None:
        """Takes the steps of a decision."""
        for _ in range(self.rules.frame_skip):
            self.engine.step(self.model, self.data)
        if "cfrc_ext" in self.rules.reads:
            self.engine.rne_postconstraint(self.model, self.data)

    def look(self) -> None:
        """Computes places, inertias and velocities of bodies."""
        for compute in (self.engine.kinematics, self.engine.com_pos, self.engine.com_vel):
            compute(self.model, self.data)

    def more(self) -> Tensor:
        """Returns what the rules read [N, M]."""
        found = [READERS[name](self) for name in self.rules.reads]
        return torch.cat(found, 1) if found else self.inputs[0].new_empty(self.num, 0)

    def array(self, name: str) -> Tensor:
        """Returns an array of the simulator, [N, ...]."""
        found: Tensor = self.warp.to_torch(getattr(self.data, name))
        return found.view(self.num, *found.shape[1:])


READERS: dict[str, Callable[[Physics], Tensor]] = {
    "torso": lambda physics: physics.array("xpos")[:, 1, :1],
    "fingertip": lambda physics: physics.array("xpos")[:, physics.bodies["fingertip"]],
    "target": lambda physics: physics.array("xpos")[:, physics.bodies["target"]],
    "mass_centre": lambda physics: (physics.array("xipos")[:, :, 0] * physics.mass).sum(1, keepdim=True),
    "cinert": lambda physics: physics.array("cinert").flatten(1),
    "cvel": lambda physics: physics.array("cvel").flatten(1),
    "qfrc_actuator": lambda physics: physics.array("qfrc_actuator"),
    "cfrc_ext": lambda physics: physics.array("cfrc_ext").flatten(1),
}
"""What rules may read after a decision, [N, ...] each."""
FORCES = ("qfrc_actuator", "cfrc_ext")
"""What is 0 before the first step of physics."""
KNOWN = ("torso", *FORCES)
"""What a start has without physics: the torso's place is the first position."""


@lru_cache(maxsize=8)
def physics_of(name: str, num: int, device: str) -> Physics:
    """Returns the physics of N worlds, the same for all simulations of that size: evaluations then compile nothing."""
    try:
        return Physics(name, num, device)
    except RuntimeError as error:
        if device.startswith("cuda") and "allocate" in str(error):
            room = torch.cuda.mem_get_info(device)[0] / GIB
            fix = "Lower --set rollout.num_envs"
            raise AssayError(f"{num} worlds of '{PREFIX}{name}' do not fit into {room:.1f} GiB. {fix}") from error
        raise


class WarpDynamics:
    """Dynamics whose step is MuJoCo Warp's. A world whose numbers are not finite ends its episode with reward 0; `lost`
    counts them.
    """

    has_chance: ClassVar[bool] = False

    def __init__(self, name: str, num: int, device: str) -> None:
        self.physics, self.rules = physics_of(name, num, device), RULES[name]
        self.lost = torch.zeros((), dtype=torch.int64, device=device)
        more = self.physics.more().shape[1]
        self.split = [*self.physics.sizes(), self.physics.sizes()[1], more]
        self.upright = self.start(torch.full((self.num_start_draws, 1), 0.5, dtype=torch.float64, device=device))

    @property
    def num_start_draws(self) -> int:
        """Returns one number for each position and velocity."""
        return sum(self.physics.sizes())

    @property
    def limit(self) -> int:
        """Returns the environment's time limit."""
        return self.rules.limit

    def start(self, uniform: Tensor) -> Tensor:
        """Returns states [S, n] without warm start; what else the rules read follows in `settle`."""
        qpos, qvel = self.rules.start(self.physics.qpos, self.physics.qvel, uniform)
        rest = qpos.new_zeros(sum(self.split[2:]), qpos.shape[1])
        if "torso" in self.rules.reads:
            rest[self.split[2]] = qpos[0]
        return torch.cat((qpos, qvel, rest)).float()

    def settle(self, state: Tensor, starting: Tensor) -> Tensor:
        """Returns the states [S, N] with what the rules read in the worlds that start now."""
        if set(self.rules.reads).issubset(KNOWN):
            return state
        qpos, qvel, warm, more = state.split(self.split)
        found = self.physics.settle(qpos, qvel)
        return torch.cat((qpos, qvel, warm, torch.where(starting, found, more)))

    def step(self, state: Tensor, action: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Takes one decision of every world; the reward is of the clipped action, as it acts."""
        qpos, qvel, warm, more = state.split(self.split)
        applied = action.float().clamp(self.physics.low, self.physics.high).T
        before = Pose(qpos, qvel, more)
        beginning = torch.cat((torch.zeros_like(qpos[: self.rules.moving]), qpos[self.rules.moving :]))
        found = self.physics.step(beginning, qvel, warm, applied)
        after = Pose(found[0], found[1], found[3])
        reward, terminal = self.rules.outcome(before, after, applied, self.physics.seconds)
        moved = torch.cat(found)
        lost = ~moved.isfinite().all(0)
        self.lost += lost.sum()
        moved = torch.where(lost, self.upright, moved)
        return moved, torch.where(lost, 0.0, reward), terminal | lost

    def observe(self, state: Tensor) -> Context:
        """Returns the observations, float32."""
        qpos, qvel, _, more = state.split(self.split)
        return {"observation": self.rules.observe(Pose(qpos, qvel, more)).T.contiguous()}


def simulation(num: int, device: str = "cpu", *, name: str) -> TensorSimulation:
    """Returns N worlds on a device."""
    return TensorSimulation(WarpDynamics(name, num, device), num, device)


def warp_task(address: str) -> SteppedTask:
    """Returns the task warp:NAME; AssayError if there is no such environment or a package is missing."""
    name = address.removeprefix(PREFIX)
    if name not in RULES:
        near = get_close_matches(name, RULES, n=1, cutoff=0.0)[0]
        raise AssayError(f"there is no task '{address}'. The nearest is --task {PREFIX}{near}")
    model, rules = model_of(RULES[name], address), RULES[name]
    need(address)
    bounds = model.actuator_ctrlrange.T.tolist()
    pose = Pose(*(torch.zeros(number, 1) for number in (model.nq, model.nv, more_size(rules, model))))
    size = len(rules.observe(pose))
    spec = Spec(Box((-float("inf"),) * size, (float("inf"),) * size), Box(*map(tuple, bounds)), rules.limit)
    make = partial(simulation, name=name)
    return SteppedTask(address, spec, make, on_device=make, preset="warp")


def more_size(rules: Rules, model: Any) -> int:
    """Returns how many numbers the rules read besides positions and velocities."""
    bodies = int(model.nbody)
    sizes = {"torso": 1, "fingertip": 3, "target": 3, "mass_centre": 1, "qfrc_actuator": int(model.nv)}
    sizes |= {"cinert": 10 * bodies, "cvel": 6 * bodies, "cfrc_ext": 6 * bodies}
    return sum(sizes[name] for name in rules.reads)
