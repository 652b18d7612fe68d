"""Every example runs as it stands, and trains."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "digits.py")
LAUNCHER = {"ddp.py": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}
# Transformers and Lightning import torchvision where it is installed, which fails beside a torch for CPUs only.
PREPARED = "import runpy, sys, qlocaladam.vision; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2])"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script, tmp_path):
    launcher = LAUNCHER.get(script, ["-c", PREPARED, str(EXAMPLES)])
    command = [sys.executable, *launcher, str(EXAMPLES / script)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (accuracy,) = re.findall(r"^accuracy ([\d.]+) %$", done.stdout, re.MULTILINE)
    assert float(accuracy) > 80, "chance is 10"
    assert "the same weights: False" not in done.stdout
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_every_example_is_listed():
    listed = re.findall(r"^\| `(\w+\.py)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == SCRIPTS
