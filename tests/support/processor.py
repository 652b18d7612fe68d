"""Processors that say they have AMX and do not let it be used, as some virtual machines do.

oneDNN believes them, and any bfloat16 product in torch ends with an illegal instruction: nothing that is tested here.
"""

import os
import subprocess
import sys
from pathlib import Path

PRODUCT = "import torch; x = torch.ones(32, 32, dtype=torch.bfloat16); x @ x"


def avoid_broken_amx() -> None:
    """Before torch multiplies anything; processes that are started from here inherit it."""
    cpuinfo = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpuinfo.exists() or "amx_tile" not in cpuinfo.read_text():
        return
    if subprocess.run([sys.executable, "-c", PRODUCT], check=False).returncode:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
