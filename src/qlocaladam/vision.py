"""The one door to torchvision: import it from here, so that it also works beside a CPU-only torch.

torchvision's wheel is built for CUDA. Beside a torch without CUDA its operators do not load, and importing it fails
because it describes two of them that are not there. Nothing here uses them, so declaring them is enough.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

# Held for the life of the process: the operators disappear with it.
_declared: torch.library.Library | None = None

SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _load_operators() -> None:
    """Let torchvision's own library define its operators, if it loads here."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("torchvision is not installed: pip install torchvision (0.28.0 belongs to torch 2.13.0)")
    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        except OSError:
            continue


def declare_missing_operators() -> list[str]:
    """Declare what importing torchvision needs and its library did not bring. Returns the names declared."""
    global _declared
    _load_operators()
    missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    if missing:
        _declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in missing:
            _declared.define(SCHEMAS[name])  # type: ignore[no-untyped-call]
    return missing


declare_missing_operators()
import torchvision  # noqa: E402

__all__ = ["declare_missing_operators", "torchvision"]
