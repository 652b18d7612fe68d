"""Q-LocalAdam: Adam with block-wise 8-bit states, and the arms that its paper compares."""

from qlocaladam.codecs import Codec, DynamicCodec, Encoded, LinearCodec, LogCodec, UnsignedDynamicCodec
from qlocaladam.memory import MemoryReport, optimizer_bytes
from qlocaladam.optim import ARMS, QLocalAdam, state_codecs

__version__ = "0.1.0"
__all__ = [
    "ARMS",
    "Codec",
    "DynamicCodec",
    "Encoded",
    "LinearCodec",
    "LogCodec",
    "MemoryReport",
    "QLocalAdam",
    "UnsignedDynamicCodec",
    "optimizer_bytes",
    "state_codecs",
]
