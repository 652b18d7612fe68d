"""Every random stream: what is drawn depends on the names of its stream and on nothing drawn before.

torch is imported only for a stream of its own: partitions are drawn without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload
from zlib import crc32

import numpy as np

from qlocaladam.checks import whole_number

if TYPE_CHECKING:
    from torch import Generator, Tensor

    Int = TypeVar("Int", int, Tensor)


def mix(x: Int) -> Int:
    """Scramble the low 32 bits of an integer or of an int64 tensor: the whole random generator of the package."""
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


@overload
def stream_key(*names: int) -> int: ...  # type: ignore[overload-overlap]
@overload
def stream_key(*names: int | Tensor) -> Tensor: ...


def stream_key(*names: Any) -> Any:
    """A 32-bit key of its own for each sequence of names, such as (seed, step, tensor, state).

    A name that is a tensor of int64 stands for many, and so does the result.
    """
    key: Any = 0
    for name in names:
        key = mix((key + 0x9E3779B9 ^ name) & 0xFFFFFFFF)
    return key


def torch_stream(seed: int, purpose: str, *place: int) -> Generator:
    """A generator of its own for each name, such as (42, "batches", round, client). It is on the CPU, so that the
    device changes no draw."""
    from torch import Generator

    name = (seed, crc32(purpose.encode()), *place)
    return Generator().manual_seed(stream_key(0, *name) << 31 | stream_key(1, *name) >> 1)


def numpy_stream(seed: int, purpose: str | None = None) -> np.random.RandomState:
    """NumPy's legacy generator: the published numbers come from it, and its streams are frozen for good.

    A purpose has a stream of its own; without one it is the paper's, of the seed alone.
    """
    whole_number("seed", seed, 0, 2**32 - 1)
    return np.random.RandomState(seed if purpose is None else stream_key(seed, crc32(purpose.encode())))
