"""Writes down what pip chose: envs/constraints.txt, envs/hashed.txt and envs/environment.yaml.

`make pins` has pip resolve what envs/*.txt name for an empty environment, and calls this with pip's report. It asks for
the build of torch without a local label such as +cpu: that for CUDA, where there is one. Constraints on packages that
only this build needs do no harm beside another.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVS = Path(__file__).parents[1] / "envs"
ANY_BUILD = {"platform_system": "any"}
"""Where markers are evaluated with this, torch needs what all of its builds need."""


def named(file: Path) -> list[Requirement]:
    """The requirements that a file names itself."""
    lines = (line.split(" --hash")[0].strip() for line in file.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def closure(wanted: list[Requirement], needs: Mapping[str, list[str]], where: Mapping[str, str]) -> set[str]:
    """The names of these packages and of all that they need, from what each of them needs."""
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(one.name), extra) for one in wanted for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found or name not in needs:
            continue
        found.add((name, extra))
        for line in needs[name]:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra, **where}):
                waiting += [(canonicalize_name(need.name), wish) for wish in ("", *need.extras)]
    return {name for name, _ in found}


def main(report: str) -> None:
    chosen: list[dict[str, Any]] = json.loads(Path(report).read_text())["install"]
    packages = {canonicalize_name(one["metadata"]["name"]): one for one in chosen}
    pins = {name: f"{name}=={one['metadata']['version']}" for name, one in sorted(packages.items())}
    (ENVS / "constraints.txt").write_text(CONSTRAINTS + "".join(f"{pin}\n" for pin in pins.values()))

    hashes = {name: one["download_info"]["archive_info"]["hashes"]["sha256"] for name, one in packages.items()}
    machine = f"Python {sys.version_info.major}.{sys.version_info.minor}, {platform.system()}, {platform.machine()}"
    lines = "".join(f"{pin} --hash=sha256:{hashes[name]}\n" for name, pin in pins.items())
    (ENVS / "hashed.txt").write_text(HASHED.format(machine=machine) + lines)

    needs = {name: one["metadata"].get("requires_dist", []) for name, one in packages.items()}
    needed = closure(named(ENVS / "requirements.txt"), needs, ANY_BUILD)
    listed = "".join(f"      - {pin}\n" for name, pin in pins.items() if name in needed)
    (ENVS / "environment.yaml").write_text(ENVIRONMENT + listed)


CONSTRAINTS = "# Made by `make pins`: every package that is installed from the files beside this one.\n"
HASHED = """# Made by `make pins`: everything in constraints.txt with the hash of its file, for {machine}.
"""
ENVIRONMENT = """# Made by `make pins`, for `snakemake --software-deployment-method conda`, which copies it alone:
# requirements.txt and all that it needs. The package itself is that of the Snakemake that runs the workflow.
channels: [conda-forge, nodefaults]
dependencies:
  - python=3.11
  - pip
  - pip:
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
