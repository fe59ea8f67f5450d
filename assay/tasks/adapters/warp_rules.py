"""Rules of Gymnasium's MuJoCo environments, version 5, on batches of states in torch.

Axes: N instances, Q positions, V velocities, M more numbers, A actions, D numbers of an observation.

What a rule calls `more` are numbers that MuJoCo leaves behind in its last step of physics and that the positions after
it do not give: forces of contacts, places of bodies, inertias. At the start of an episode they are those of the start.
Positions along which nothing changes (`moving`) are set to 0 before every decision, so that float32 keeps a velocity
as exact far away as at the origin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

INFINITE = (-math.inf, math.inf)


class Pose(NamedTuple):
    """States of N instances."""

    qpos_QN: Tensor
    qvel_VN: Tensor
    more_MN: Tensor


class Rules(Protocol):
    """An environment: its model, what is observed, paid and ended."""

    @property
    def file(self) -> str:
        """The model's file, in Gymnasium's folder."""

    @property
    def frame_skip(self) -> int:
        """Steps of physics in a decision."""

    @property
    def limit(self) -> int:
        """Decisions after which an episode is truncated."""

    @property
    def moving(self) -> int:
        """The leading positions that are set to 0 before every decision."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The numbers of the simulator that are `more`, by the names of its readers, in order."""

    @property
    def contacts(self) -> int:
        """Contacts for which a world has room."""

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Returns positions and velocities of starts from those of the model [., 1] and uniform numbers [Q + V, N]."""

    def observe(self, pose: Pose) -> Tensor:
        """Returns observations [D, N]."""

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Returns rewards [N] and whether the episode ends [N]."""


def spread(uniform: Tensor, scale: float) -> Tensor:
    """Returns numbers between -scale and scale."""
    return scale * (2.0 * uniform - 1.0)


def within(values: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Returns whether values are strictly between bounds."""
    return (values > bounds[0]) & (values < bounds[1])


@dataclass(frozen=True)
class Runner:
    """reward = velocity along x + alive * [healthy] - control * |a|^2; the end if it is not healthy.

    Healthy is: height and angle (the second and third position) and all other numbers of the state between their
    bounds. HalfCheetah is always healthy. `bound` clips the velocities that are observed.
    """

    file: str
    frame_skip: int
    noise: float
    control: float
    alive: float = 0.0
    height: tuple[float, float] = INFINITE
    angle: tuple[float, float] = INFINITE
    rest: tuple[float, float] = INFINITE
    bound: float = math.inf
    is_normal: bool = False
    limit: ClassVar[int] = 1000
    moving: ClassVar[int] = 1
    reads: ClassVar[tuple[str, ...]] = ()
    contacts: ClassVar[int] = 48

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Adds uniform noise to positions, and uniform or normal noise to velocities."""
        return noisy_start(qpos_QN, qvel_VN, uniform, self.noise, is_normal=self.is_normal)

    def observe(self, pose: Pose) -> Tensor:
        """Returns all but the place, and velocities."""
        return torch.cat((pose.qpos_QN[1:], pose.qvel_VN.clamp(-self.bound, self.bound)))

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Pays velocity, health and control."""
        qpos = after.qpos_QN
        healthy = within(qpos[1], self.height) & within(qpos[2], self.angle)
        healthy = healthy & within(torch.cat((qpos[2:], after.qvel_VN)), self.rest).all(0)
        # Places are relative to the decision's start.
        reward = qpos[0] / seconds + self.alive * healthy - self.control * action_AN.square().sum(0)
        return reward, ~healthy


def noisy_start(
    qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor, noise: float, *, is_normal: bool
) -> tuple[Tensor, Tensor]:
    """Returns the model's first state with noise on every number; that of velocities is normal if it says so."""
    place, speed = uniform.split([len(qpos_QN), len(qvel_VN)])
    shaken = noise * torch.special.ndtri(speed) if is_normal else spread(speed, noise)
    return qpos_QN + spread(place, noise), qvel_VN + shaken


@dataclass(frozen=True)
class Ant:
    """reward = velocity along x + [healthy] - 0.5 |a|^2 - 5e-4 |clip(forces)|^2; healthy is a height from 0.2 to 1.

    `more`: the torso's place as MuJoCo's last step has seen it, then forces on every body, the world first.
    """

    file: ClassVar[str] = "ant.xml"
    frame_skip: ClassVar[int] = 5
    limit: ClassVar[int] = 1000
    moving: ClassVar[int] = 2
    reads: ClassVar[tuple[str, ...]] = ("torso", "cfrc_ext")
    contacts: ClassVar[int] = 48

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Adds uniform noise to positions and normal noise to velocities."""
        return noisy_start(qpos_QN, qvel_VN, uniform, 0.1, is_normal=True)

    def observe(self, pose: Pose) -> Tensor:
        """Returns all but the place, velocities, and the forces of contacts."""
        return torch.cat((pose.qpos_QN[2:], pose.qvel_VN, pose.more_MN[7:].clamp(-1.0, 1.0)))

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Pays velocity, health, control and contacts."""
        height, forces = after.qpos_QN[2], after.more_MN[1:].clamp(-1.0, 1.0)
        healthy = (height >= 0.2) & (height <= 1.0)
        moved = after.more_MN[0] - (before.more_MN[0] - before.qpos_QN[0])
        costs = 0.5 * action_AN.square().sum(0) + 5e-4 * forces.square().sum(0)
        return moved / seconds + 1.0 * healthy - costs, ~healthy


@dataclass(frozen=True)
class InvertedPendulum:
    """reward = 1 while the pole is within 0.2 of upright, which ends the episode otherwise."""

    file: ClassVar[str] = "inverted_pendulum.xml"
    frame_skip: ClassVar[int] = 2
    limit: ClassVar[int] = 1000
    moving: ClassVar[int] = 0
    reads: ClassVar[tuple[str, ...]] = ()
    contacts: ClassVar[int] = 8

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Adds uniform noise."""
        return noisy_start(qpos_QN, qvel_VN, uniform, 0.01, is_normal=False)

    def observe(self, pose: Pose) -> Tensor:
        """Returns positions and velocities."""
        return torch.cat((pose.qpos_QN, pose.qvel_VN))

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Pays for every decision that does not end the episode."""
        fallen = after.qpos_QN[1].abs() > 0.2
        return (~fallen).float(), fallen


@dataclass(frozen=True)
class Reacher:
    """reward = -|fingertip - target| - |a|^2; the target lies anywhere within 0.2 of the centre.

    `more`: the places of fingertip and target as MuJoCo's last step has seen them.
    """

    file: ClassVar[str] = "reacher.xml"
    frame_skip: ClassVar[int] = 2
    limit: ClassVar[int] = 50
    moving: ClassVar[int] = 0
    reads: ClassVar[tuple[str, ...]] = ("fingertip", "target")
    contacts: ClassVar[int] = 8

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Adds uniform noise to the arm, and draws the target evenly from the disc."""
        place, speed = uniform.split([len(qpos_QN), len(qvel_VN)])
        radius, angle = 0.2 * place[2].sqrt(), 2.0 * math.pi * place[3]
        arm = qpos_QN[:2] + spread(place[:2], 0.1)
        qpos = torch.cat((arm, torch.stack((radius * angle.cos(), radius * angle.sin()))))
        return qpos, torch.cat((qvel_VN[:2] + spread(speed[:2], 0.005), 0.0 * speed[2:]))

    def observe(self, pose: Pose) -> Tensor:
        """Returns cosines and sines of the angles, the target, velocities of the arm, and the way to the target."""
        angle, gap = pose.qpos_QN[:2], pose.more_MN[:2] - pose.more_MN[3:5]
        return torch.cat((angle.cos(), angle.sin(), pose.qpos_QN[2:], pose.qvel_VN[:2], gap))

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Pays nearness and control."""
        gap = (after.more_MN[:3] - after.more_MN[3:]).square().sum(0).sqrt()
        return -gap - action_AN.square().sum(0), torch.zeros_like(gap, dtype=torch.bool)


@dataclass(frozen=True)
class Humanoid:
    """reward = 1.25 velocity of the centre of mass along x + 5 [healthy] - 0.1 |a|^2 - min(5e-7 |forces|^2, 10).

    Healthy is a height from 1 to 2. `more`: the centre of mass, and of every body, the world first, inertia, velocity
    and forces, with the forces of actuators before the last.
    """

    file: ClassVar[str] = "humanoid.xml"
    frame_skip: ClassVar[int] = 5
    limit: ClassVar[int] = 1000
    moving: ClassVar[int] = 2
    reads: ClassVar[tuple[str, ...]] = ("mass_centre", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    contacts: ClassVar[int] = 64

    def start(self, qpos_QN: Tensor, qvel_VN: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Adds uniform noise."""
        return noisy_start(qpos_QN, qvel_VN, uniform, 0.01, is_normal=False)

    def observe(self, pose: Pose) -> Tensor:
        """Returns all but the place, velocities, and what `more` holds of bodies and joints."""
        _, inertia, speed, actuator, forces = self.parts(pose)
        return torch.cat((pose.qpos_QN[2:], pose.qvel_VN, inertia[10:], speed[6:], actuator[6:], forces[6:]))

    def outcome(self, before: Pose, after: Pose, action_AN: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
        """Pays velocity, health, control and contacts."""
        centre, *_, forces = self.parts(after)
        moved = centre[0] - (before.more_MN[0] - before.qpos_QN[0])
        healthy = within(after.qpos_QN[2], (1.0, 2.0))
        costs = 0.1 * action_AN.square().sum(0) + (5e-7 * forces.square().sum(0)).clamp(max=10.0)
        return 1.25 * moved / seconds + 5.0 * healthy - costs, ~healthy

    def parts(self, pose: Pose) -> tuple[Tensor, ...]:
        """Returns `more` in its parts."""
        bodies = (len(pose.more_MN) - 1 - len(pose.qvel_VN)) // 22
        return pose.more_MN.split([1, 10 * bodies, 6 * bodies, len(pose.qvel_VN), 6 * bodies])


RULES: dict[str, Rules] = {
    "HalfCheetah": Runner("half_cheetah.xml", 5, noise=0.1, control=0.1, is_normal=True),
    "Ant": Ant(),
    "Hopper": Runner(
        "hopper.xml", 4, noise=5e-3, control=1e-3, alive=1.0, height=(0.7, math.inf), angle=(-0.2, 0.2),
        rest=(-100.0, 100.0), bound=10.0,
    ),
    "Walker2d": Runner(
        "walker2d_v5.xml", 4, noise=5e-3, control=1e-3, alive=1.0, height=(0.8, 2.0), angle=(-1.0, 1.0), bound=10.0
    ),
    "InvertedPendulum": InvertedPendulum(),
    "Reacher": Reacher(),
    "Humanoid": Humanoid(),
}  # fmt: skip
"""The environments, by the names that they have in Gymnasium."""
