"""What a user gets from pip: a light import, types, a command, and metadata that agrees with itself."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    "control", "data", "language", "scale", "plots", "tasks", "peers", "docs", "dev", "all", "video", "export", "games",
    "ray", "verify", "sql", "mcp", "openenv", "warp", "worlds",
}  # fmt: skip
HARD = {"torch", "numpy", "safetensors", "rich"}
IMPORT_SECONDS = 2.5
OPTIONAL = (
    "gymnasium", "mujoco", "minari", "h5py", "transformers", "tokenizers", "huggingface_hub", "peft", "accelerate",
    "datasets", "ray", "vllm", "wandb", "tensorboard", "torch.utils.tensorboard", "matplotlib", "PIL", "reasoning_gym",
    "scipy", "pandas", "sklearn", "IPython", "hypothesis", "pytest",
)  # fmt: skip
# Package indexes, split so that this file does not hold what it looks for. Where packages come from is pip's business.
HOSTS = tuple(".".join(parts) for parts in (
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("deb", "debian", "org"),
    ("download", "pytorch", "org"), ("anaconda", "org"),
))  # fmt: skip


def fresh_import() -> tuple[float, set[str]]:
    """Seconds that `import assay` takes in a new interpreter, and every module that is loaded afterwards."""
    code = (
        "import sys, time; start = time.perf_counter(); import assay; seconds = time.perf_counter() - start\n"
        "print(seconds, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, *modules = done.stdout.split()
    return float(seconds), set(modules)


def test_import_is_quick_and_loads_no_optional_package() -> None:
    tries = [fresh_import() for _ in range(3)]
    assert [name for name in OPTIONAL if name in tries[0][1]] == []
    assert min(seconds for seconds, _ in tries) <= IMPORT_SECONDS


@pytest.mark.parametrize(
    ("name", "key"), [("PPO", "ppo"), ("GRPOTrainer", "grpo"), ("SACConfig", "sac"), ("dqn", "dqn")]
)
def test_a_class_of_another_library_leads_to_the_method_of_its_name(name: str, key: str) -> None:
    import assay

    with pytest.raises(
        AttributeError, match=rf"'{name}'\. Methods are given by name: assay\.train\('{key}', TASK\)\.$"
    ):
        getattr(assay, name)


@pytest.mark.parametrize("name", ["Nothing", "Trainer"])
def test_another_name_is_a_plain_error(name: str) -> None:
    import assay

    with pytest.raises(AttributeError, match=f"^module 'assay' has no attribute '{name}'$"):
        getattr(assay, name)


def test_every_public_name_is_found_where_it_is_said_to_live() -> None:
    import assay

    assert all(getattr(assay, name) is not None for name in assay.__all__)
    assert {"train", "resume", "load", "Recipe", "claims", "statistics"} <= set(assay.__all__) <= set(dir(assay))


def test_public_names_are_listed_and_nothing_else() -> None:
    import assay
    import assay.runs.run  # puts the folders of the package into its namespace

    assert assay.runs.run.train is assay.train
    assert [name for name in dir(assay) if not name.startswith("__")] == [
        name for name in assay.__all__ if not name.startswith("__")
    ]


def test_a_type_checker_sees_every_public_name() -> None:
    """A type checker reads the stub; a name in it is re-exported only if it is written `NAME as NAME`."""
    for flat in ("assay", "assay.method", "assay.parts", "assay.models", "assay.recipes", "assay.claims"):
        module = importlib.import_module(flat)
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
        names = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
        assert [alias.name for alias in names if alias.asname != alias.name] == []
        assert sorted(alias.name for alias in names) == sorted(module.__all__)
        assert all(getattr(module, alias.name) is not None for alias in names)


def test_version_is_the_same_everywhere() -> None:
    import assay

    assert assay.__version__ == PROJECT["version"]
    try:
        installed = importlib.metadata.version("assay")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("assay is not installed, only on the path")
    assert installed == PROJECT["version"]


def requirements(of: str | None = None) -> list[Requirement]:
    """The hard dependencies, or those of one extra."""
    lines = PROJECT["dependencies"] if of is None else PROJECT["optional-dependencies"][of]
    return [Requirement(line) for line in lines]


def test_hard_dependencies_and_extras_are_the_promised_ones() -> None:
    assert {requirement.name for requirement in requirements()} == HARD
    assert set(PROJECT["optional-dependencies"]) == EXTRAS
    (everything,) = requirements("all")
    assert everything.name == "assay"
    assert everything.extras == EXTRAS - {"all", "warp", "worlds"}  # which need a GPU, and Java


def test_metadata_has_ranges_and_constraints_has_exact_versions_inside_them() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in requirements() + [each for extra in EXTRAS - {"all"} for each in requirements(extra)]:
        assert all(part.operator in {">=", "<", "!=", "~="} for part in requirement.specifier), requirement
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_wheel_holds_every_module_the_types_marker_and_the_licence(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="building without isolation needs setuptools 77 or newer")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "assay", source / "assay", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")):
        if path.exists():
            shutil.copy(path, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path]
    build = [sys.executable, "-m", "pip", "wheel", *options, source]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("assay-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(source).as_posix() for path in (source / "assay").rglob("*.py")}
    assert modules | {"assay/py.typed"} <= names
    assert any(name.endswith("/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"assay", f"assay-{PROJECT['version']}.dist-info"}


def test_command_shows_its_help() -> None:
    command = Path(sys.executable).with_name("assay")
    if not command.exists():
        pytest.skip("assay is not installed, only on the path")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout


def tracked() -> list[Path]:
    """Every file of the checkout that git keeps or would keep; all files where there is no git."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return [path for name in ("assay", "tests") for path in (ROOT / name).rglob("*.py")]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_index() -> None:
    pattern = re.compile("|".join(map(re.escape, HOSTS)).encode())
    assert [path.relative_to(ROOT).as_posix() for path in tracked() if pattern.search(path.read_bytes())] == []
