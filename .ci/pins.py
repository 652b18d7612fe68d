"""Writes down what is installed in the environment that runs this: envs/constraints.txt and envs/environment.yaml.

`make pins` calls it in an environment that holds nothing but what envs/*.txt name. Versions are written without local
labels such as +cpu: the same pin stands for every build of torch.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVS = Path(__file__).parents[1] / "envs"
TOOLS = {"pip"}
"""What an environment is made with."""


def named(file: Path) -> list[Requirement]:
    """The requirements that a file names itself."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def closure(wanted: list[Requirement], installed: dict[str, Distribution]) -> set[str]:
    """The names of these packages and of all that they need here."""
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(one.name), extra) for one in wanted for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found or name not in installed:
            continue
        found.add((name, extra))
        for line in installed[name].requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(need.name), wish) for wish in ("", *need.extras)]
    return {name for name, _ in found}


def main() -> None:
    installed = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    pins = {name: f"{name}=={re.sub('[+].*', '', one.version)}" for name, one in sorted(installed.items())}
    pins = {name: pin for name, pin in pins.items() if name not in TOOLS}
    heading = "# Made by `make pins`: every package that is installed from the files beside this one.\n"
    (ENVS / "constraints.txt").write_text(heading + "".join(f"{pin}\n" for pin in pins.values()))
    needed = closure(named(ENVS / "requirements.txt"), installed)
    listed = "".join(f"      - {pin}\n" for name, pin in pins.items() if name in needed)
    (ENVS / "environment.yaml").write_text(ENVIRONMENT + listed)


ENVIRONMENT = """# Made by `make pins`, for `snakemake --software-deployment-method conda`, which copies it alone:
# requirements.txt and all that it needs. The package itself is that of the Snakemake that runs the workflow.
channels: [conda-forge, nodefaults]
dependencies:
  - python=3.11
  - pip
  - pip:
"""

if __name__ == "__main__":
    main()
