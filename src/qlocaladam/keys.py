"""Keys of random streams: one 32-bit number for each sequence of names, and the scrambling behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from torch import Tensor

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
