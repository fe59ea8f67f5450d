"""Trained control policies outside of their task: predict, export, video."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.spaces import Box, Discrete, Image, MultiDiscrete, Spec
from assay.engine.evaluation import scores
from assay.models.bodies.convolution import Convolution
from assay.models.bodies.standardised import Moments, Standardised
from assay.models.exported import Acting, export_policy, inputs_of
from assay.models.heads.bounded import SquashedGaussian
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.runs.deploy import with_predict
from assay.tasks.adapters.gymnasium import environment_task
from assay.tasks.adapters.video import film, write_gif
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.frames import with_frames

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
EYE = Convolution((4,), (3,), (1,), 8)
VECTOR = Box((-3.0,) * 3, (3.0,) * 3)
TORQUE = Box((-2.0, -1.0), (1.0, 3.0))

POLICIES = {
    "gaussian": (Policy(Standardised()), Spec(VECTOR, TORQUE, 9)),
    "squashed": (Policy(head=SquashedGaussian()), Spec(VECTOR, TORQUE, 9)),
    "categorical": (Policy(Standardised()), Spec(VECTOR, Discrete(3), 9)),
    "several choices": (Policy(), Spec(VECTOR, MultiDiscrete((2, 3)), 9)),
    "greedy on images": (Policy(EYE, Greedy()), Spec(Image(2, 6, 5, numbers=3), Discrete(3), 9)),
}


def built(name: str) -> tuple[Any, Spec, dict[str, torch.Tensor]]:
    """Returns a policy with some weights, its spec, and inputs of five observations."""
    model, spec = POLICIES[name]
    torch.manual_seed(0)
    policy = model.build(spec)
    for module in policy.modules():
        if isinstance(module, Moments):
            module.keep({"mean": torch.arange(3.0), "deviation": torch.tensor([1.0, 5.0, 0.1])})
    generator = torch.Generator().manual_seed(1)
    inputs = {}
    for key, example in inputs_of(spec).items():
        shape = (5, *example.shape[1:])
        drawn = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        inputs[key] = drawn if key == "image" else torch.randn(shape, generator=generator) * 3
    return policy, spec, inputs


@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")  # torch 2.11 reads its own files so
@pytest.mark.filterwarnings("ignore:.torch.jit.load. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("suffix", [".pt", ".pt2", ".onnx"])
def test_an_exported_policy_acts_as_the_policy_does(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
    policy, spec, inputs = built(name)
    export_policy(policy, spec, tmp_path / f"policy{suffix}")
    with torch.no_grad():
        action = Acting(policy, spec)(*inputs.values())
        if suffix == ".onnx":
            session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
            found = torch.from_numpy(session.run(None, {key: value.numpy() for key, value in inputs.items()})[0])
        elif suffix == ".pt2":
            found = torch.export.load(tmp_path / "policy.pt2").module()(*inputs.values())
        else:
            found = torch.jit.load(tmp_path / "policy.pt")(*inputs.values())
    assert torch.allclose(found, action, atol=1e-6)
    assert len(found) == 5


def test_continuous_actions_are_exported_inside_their_bounds() -> None:
    policy, spec, inputs = built("gaussian")
    with torch.no_grad():
        policy.body.inner.net[-1].bias += 10.0
        action = Acting(policy, spec)(*inputs.values())
    assert action.tolist() == [[1.0, 3.0]] * 5


def test_a_missing_package_and_a_wrong_suffix_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, spec, _ = built("gaussian")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(AssayError, match=r"onnx is needed for policies in ONNX.*assay\[export\]"):
        export_policy(policy, spec, tmp_path / "policy.onnx")
    with pytest.raises(AssayError, match=r"no known suffix. Use policy.pt"):
        export_policy(policy, spec, tmp_path / "policy.h5")


# ---------------------------------------------------------------------------------------------------- predict
class Arm(gymnasium.Env):  # type: ignore[misc]
    """An arm with named observations and actions, which can be drawn."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Dict({"angle": spaces.Box(-9, 9, (2,), np.float32), "mode": spaces.Discrete(3, start=1)})
    action_space = spaces.Dict({"left": spaces.Discrete(3), "right": spaces.MultiBinary(4)})

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.angle = 0, self.np_random.normal(size=2).astype(np.float32)
        return self.seen(), {}

    def seen(self) -> dict[str, Any]:
        return {"angle": self.angle.copy(), "mode": 1 + self.time % 3}

    def step(self, action: dict[str, Any]) -> Any:
        self.time += 1
        assert isinstance(action["left"], int)
        assert action["right"].shape == (4,)
        self.angle = self.angle + np.float32(0.1 * (action["left"] - 1) + 0.01 * action["right"].sum())
        return self.seen(), float(self.angle[0]), False, self.time >= 6, {}

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), 10 * self.time, np.uint8)


def test_named_spaces_are_vectors_and_one_numbered_choice() -> None:
    task = environment_task("arm", Arm, 9)
    assert task.spec.observation == Box((-9.0, -9.0, 0.0, 0.0, 0.0), (9.0, 9.0, 1.0, 1.0, 1.0))
    assert task.spec.action == Discrete(48)
    assert task.port.names() == ["['angle'][0]", "['angle'][1]", "['mode']", "['mode']", "['mode']"]
    context = task.simulate(1).reset(np.array([0]))
    assert context["observation"][0, 2:].tolist() == [1.0, 0.0, 0.0]
    left = [task.port.actions(torch.tensor([number]))[0] for number in (0, 16, 47)]
    assert [one["left"] for one in left] == [0, 1, 2]
    assert left[2]["right"].tolist() == [1, 1, 1, 1]


def test_predict_takes_and_returns_what_the_environment_does() -> None:
    task = environment_task("arm", Arm, 9)
    torch.manual_seed(0)
    policy = with_predict(Policy().build(task.spec), task)
    environment = Arm()
    seen, _ = environment.reset(seed=3)
    action = policy.predict(seen)
    environment.step(action)
    several = {"angle": np.stack([seen["angle"]] * 2), "mode": np.array([seen["mode"]] * 2)}
    first, second = policy.predict(several)
    assert first["left"] == second["left"] == action["left"]
    drawn = [policy.predict(several, deterministic=False, seed=seed)[0] for seed in (1, 1, 2, 3, 4)]
    assert drawn[0]["right"].tolist() == drawn[1]["right"].tolist()
    assert len({(one["left"], *one["right"]) for one in drawn}) > 1
    with pytest.raises(AssayError, match=r"observation\['angle'\]\[0\] is nan"):
        policy.predict({"angle": np.array([np.nan, 0.0], np.float32), "mode": 1})


def test_predict_of_a_built_in_task_checks_shapes() -> None:
    task = cartpole()
    policy = with_predict(Policy().build(task.spec), task)
    single, several = policy.predict(np.zeros(4)), policy.predict(np.zeros((3, 4)))
    assert single.shape == ()
    assert several.tolist() == [int(single)] * 3
    with pytest.raises(AssayError, match=r"observation has shape \(5,\). Use \(4,\)"):
        policy.predict(np.zeros(5))


# ---------------------------------------------------------------------------------------------------- video
@pytest.mark.parametrize("frames", [1, 3])
def test_a_film_shows_the_episode_that_evaluation_scores(frames: int, tmp_path: Path) -> None:
    task = environment_task("arm", Arm, 9)
    shown = with_frames(task, frames) if frames > 1 else task
    torch.manual_seed(0)
    policy = Policy().build(shown.spec)
    expected = scores(policy, shown, num=2)
    for start in range(2):
        pictures, total, rate = film(shown, policy, start)
        assert total == pytest.approx(expected[start])
        assert [int(one[0, 0, 0]) for one in pictures] == [0, 10, 20, 30, 40, 50, 60]
        assert rate == 10.0
    image = pytest.importorskip("PIL.Image")
    with image.open(write_gif(pictures, tmp_path / "film.gif", rate)) as written:
        assert written.n_frames == 7


def test_what_cannot_be_filmed_says_why() -> None:
    with pytest.raises(AssayError, match="'cartpole' cannot be filmed"):
        film(cartpole(), None, 0)

    class Blind(Arm):
        def render(self) -> Any:
            return None

    with pytest.raises(AssayError, match=r"render\(\) returned nothing"):
        film(environment_task("blind", Blind, 9), Policy().build(environment_task("arm", Arm, 9).spec), 0)
