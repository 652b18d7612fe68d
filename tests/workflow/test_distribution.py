"""What is published: a wheel for every Python 3 and an sdist, each in an environment with torch and nothing more."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

import qlocaladam
from qlocaladam.extras import EXTRA_OF

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta; import sys; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
STEPS = """
import torch
from qlocaladam import Adam8bit, QLocalAdam
from qlocaladam.kernels import fused
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
for optimizer in (Adam8bit(model.parameters()), QLocalAdam(model.parameters())):
    for _ in range(3):
        model(torch.randn(8, 64)).square().sum().backward()
        optimizer.step()
assert all(parameter.isfinite().all() for parameter in model.parameters())
print("reference" if fused.library() is None else "fused")
"""


@pytest.fixture(scope="session")
def published(once):
    """The wheel and the sdist, built from a copy of the sources."""
    folder, _ = once("published", build)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def build(out):
    source = out / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    commands = [[sys.executable, "-c", BUILD, f"build_{kind}", str(out)] for kind in ("wheel", "sdist")]
    done = [subprocess.run(command, cwd=source, capture_output=True, text=True) for command in commands]
    assert [one.returncode for one in done] == [0, 0], done
    return ""


def needed(names):
    """Distributions by name, and those that they need here."""
    found, waiting = {}, list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = distribution(name)
        for line in found[name].requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found.values()


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory):
    """A folder with torch, numpy and what they need, and setuptools to build an sdist with; from here, by links."""
    folder = tmp_path_factory.mktemp("borrowed")
    for package in needed(["torch", "numpy", "setuptools"]):
        for top in {file.parts[0] for file in package.files if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).symlink_to(package.locate_file(top))
    return folder


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request, published, borrowed, tmp_path_factory):
    """Runs a command in a clean environment in which the one or the other was installed without a compiler."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv")
    python = folder / "venv/bin/python"
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP"))}
    environment |= {"PATH": str(folder / "venv/bin"), "CC": "false", "HOME": str(folder)}
    assert not any(shutil.which(compiler, path=environment["PATH"]) for compiler in ("cc", "gcc", "clang"))

    def run(*arguments):
        return subprocess.run(
            [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*command, "--no-build-isolation", str(published[request.param])],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert str(folder) in run("-c", "import qlocaladam; print(qlocaladam.__file__)").stdout
    return request.param, run


def test_one_wheel_serves_every_python(published, tmp_path):
    _, version, _, tags = parse_wheel_filename(published["wheel"].name)
    assert str(version) == qlocaladam.__version__
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("py3", "none")}
    assert tags & set(sys_tags()), "it is for this machine"
    with zipfile.ZipFile(published["wheel"]) as wheel:
        names = wheel.namelist()
        kernels = [wheel.extract(name, tmp_path) for name in names if name.endswith(".so")]
    assert "_fused_default.so" in {Path(kernel).name for kernel in kernels}
    headers = subprocess.run(["readelf", "--dynamic", *kernels], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in headers
    assert "PATH" not in headers, "folders of the machine that built it"
    report = ROOT / "src/qlocaladam/report"
    assert {f"qlocaladam/report/{path.name}" for path in report.iterdir() if path.suffix in (".css", ".js")} <= {*names}


def test_the_sdist_holds_what_the_kernel_is_made_of(published):
    with tarfile.open(published["sdist"]) as archive:
        names = {Path(name).name for name in archive.getnames() if "/kernels/" in name}
    assert {path.name for path in (ROOT / "src/qlocaladam/kernels").glob("*.[ch]")} <= names


def test_the_optimizer_runs(installed):
    kind, run = installed
    done = run("-c", STEPS)
    assert done.stdout == ("fused\n" if kind == "wheel" else "reference\n"), done.stderr


def test_the_command_line_answers(installed):
    _, run = installed
    shown = run("-m", "qlocaladam", "--help")
    assert shown.returncode == 0
    assert "memory" in shown.stdout
    memory = run("-m", "qlocaladam", "memory")
    assert memory.returncode == 0, memory.stderr
    assert "26.67" in memory.stdout


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["data", "digits", "--out", "digits.npz"], "sklearn is not installed: pip install 'qlocaladam[federated]'"),
        (["analyse", "precision", "--out", "."], "pandas is not installed: pip install 'qlocaladam[paper]'"),
        (["check"], "is not installed: pip install 'qlocaladam[paper]'"),
    ],
)
def test_what_is_missing_is_named_in_one_line(installed, command, missing):
    _, run = installed
    done = run("-m", "qlocaladam", *command)
    assert done.returncode == 1
    assert done.stderr.startswith("qlocaladam: ")
    assert missing in done.stderr
    assert done.stderr.count("\n") <= 2, done.stderr


def test_every_extra_is_what_the_messages_say_and_is_documented():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
    for module, extra in EXTRA_OF.items():
        assert packages.get(module, module) in {Requirement(line).name for line in extras[extra]}
    documented = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(extras)


def test_the_version_is_the_same_everywhere():
    release = runpy.run_path(str(ROOT / ".ci/release.py"))
    assert set(release["versions"]().values()) == {qlocaladam.__version__}


def needs():
    """What each package that is installed here needs."""
    return {canonicalize_name(one.metadata["Name"]): one.requires or [] for one in distributions()}


def versions_in(file):
    pins = runpy.run_path(str(ROOT / ".ci/pins.py"))
    return {one.name: one.specifier for one in pins["named"](ROOT / "envs" / file)}


def test_everything_that_is_installed_is_pinned():
    """In files that stand alone, for torch's builds for CPUs and for CUDA alike. `make pins` renews them."""
    pins = runpy.run_path(str(ROOT / ".ci/pins.py"))
    named = [one for file in ("requirements", "development") for one in pins["named"](ROOT / f"envs/{file}.txt")]
    constraints = versions_in("constraints.txt")
    installed = pins["closure"](named, needs(), {})
    assert installed <= constraints.keys()
    for name in installed:
        assert constraints[name].contains(distribution(name).version, prereleases=True), name
    assert all(constraints[canonicalize_name(one.name)] == one.specifier for one in named)
    for build in ("2.13.0", "2.13.0+cpu", "2.13.0+cu130"):
        assert constraints["torch"].contains(build)
    assert any(name.startswith("nvidia-cudnn") for name in constraints), "what torch's build for CUDA needs"


def test_every_pin_has_a_hash():
    lines = (ROOT / "envs/hashed.txt").read_text().splitlines()
    assert versions_in("hashed.txt") == versions_in("constraints.txt")
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in lines if not line.startswith("#"))


def test_the_conda_environment_needs_no_other_file():
    """Snakemake copies it to a folder of its own."""
    pins = runpy.run_path(str(ROOT / ".ci/pins.py"))
    *_, by_pip = yaml.safe_load((ROOT / "envs/environment.yaml").read_text())["dependencies"]
    listed = {one.name: one.specifier for one in map(Requirement, by_pip["pip"])}
    named = pins["named"](ROOT / "envs/requirements.txt")
    assert listed.keys() == pins["closure"](named, needs(), pins["ANY_BUILD"])
    constraints = versions_in("constraints.txt")
    assert all(constraints[name] == specifier for name, specifier in listed.items())
