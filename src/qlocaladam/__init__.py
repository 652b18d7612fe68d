"""Q-LocalAdam: Adam with block-wise 8-bit states, and the arms that its paper compares."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qlocaladam.codecs import (
        Codec,
        DynamicCodec,
        Encoded,
        LinearCodec,
        LogCodec,
        NonzeroCodec,
        NormalisedCodec,
        RootCodec,
        SoftsignCodec,
        UnsignedDynamicCodec,
    )
    from qlocaladam.memory import MemoryReport, optimizer_bytes
    from qlocaladam.optim import ARMS, Adam4bit, Adam8bit, QLocalAdam, state_codecs

__version__ = "0.2.0"
ARITHMETIC_SINCE = "0.2.0"
"""The version since which the arms compute what they compute now. What older ones trained cannot be compared."""
RELEASED_FLOOR = 1e-8
"""What the released code of the paper reads every stored variance as, at least."""

__all__ = [
    "ARMS",
    "Adam4bit",
    "Adam8bit",
    "Codec",
    "DynamicCodec",
    "Encoded",
    "LinearCodec",
    "LogCodec",
    "MemoryReport",
    "NonzeroCodec",
    "NormalisedCodec",
    "QLocalAdam",
    "RootCodec",
    "SoftsignCodec",
    "UnsignedDynamicCodec",
    "optimizer_bytes",
    "state_codecs",
]

_HOMES = ("codecs", "memory", "optim")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: what needs no torch (partitions, tables) starts without it."""
    if name in __all__:
        for home in _HOMES:
            if name in vars(module := import_module(f"{__name__}.{home}")):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
