"""Named random streams: what is drawn depends on (seed, purpose, round, client) and on nothing drawn before."""

from __future__ import annotations

from zlib import crc32

import torch

from qlocaladam.keys import stream_key


def stream(seed: int, purpose: str, *place: int) -> torch.Generator:
    """A generator of its own for each name. It lives on the CPU, so that the device changes no draw."""
    name = (seed, crc32(purpose.encode()), *place)
    return torch.Generator().manual_seed(stream_key(0, *name) << 31 | stream_key(1, *name) >> 1)
