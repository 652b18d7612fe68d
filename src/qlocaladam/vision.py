"""The one door to torchvision: import it from here, so that it also works beside a CPU-only torch.

torchvision's wheel is built for CUDA. Beside a torch without CUDA its operators do not load, and importing it fails
because it describes two of them that are not there. Nothing here uses them, so declaring them is enough.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

from qlocaladam.extras import how_to_install

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
        raise ModuleNotFoundError(how_to_install("torchvision"), name="torchvision")
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


@contextmanager
def _without_the_compiler() -> Iterator[None]:
    """torchvision asks torch's compiler, in an operator that nothing here uses, whether it supports a device, and loads
    all of it for that, which takes as long as loading torch. Unless somebody has loaded it, the answer is no."""
    name = "torch._dynamo.utils"
    if "torch._dynamo" in sys.modules:
        yield
        return
    package, module = (ModuleType(part) for part in ("torch._dynamo", name))
    module.__dict__["is_compile_supported"] = lambda device: False
    sys.modules |= {"torch._dynamo": package, name: module}
    try:
        yield
    finally:
        for part in ("torch._dynamo", name):
            del sys.modules[part]


declare_missing_operators()
with _without_the_compiler():
    import torchvision

__all__ = ["declare_missing_operators", "torchvision"]
