"""Exact bytes of optimizer state: what is held, and what the paper's own layout would take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qlocaladam.codecs import Codec

LAYOUTS = ("held", "published")
PUBLISHED_METADATA_BYTES = 12
"""A block's minimum, maximum and scale. The paper's text names two of them; only three give its figures."""


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")


def state_bytes(numel: int, codec: Codec | None, layout: str = "held") -> int:
    """Bytes of one state of a tensor of `numel` values.

    `held` is what this package stores. `published` is the layout behind the paper's figures: padded blocks with 12
    bytes of metadata each.
    """
    check_layout(layout)
    if codec is None:
        return 4 * numel
    if layout == "published":
        return codec.blocks(numel) * (codec.code_bytes(codec.block_size) + PUBLISHED_METADATA_BYTES)
    return codec.nbytes(numel)


def optimizer_bytes(numels: Iterable[int], momentum: Codec | None, variance: Codec | None, layout: str = "held") -> int:
    """Bytes of both states of tensors with these sizes, without making them."""
    return sum(state_bytes(n, momentum, layout) + state_bytes(n, variance, layout) for n in numels)


@dataclass(frozen=True)
class StateBytes:
    """One state of one tensor."""

    tensor: str
    state: str
    numel: int
    bytes: int


@dataclass(frozen=True)
class MemoryReport:
    """Bytes by tensor and state. Prints as a table; MB are 10^6 bytes, as in the paper."""

    layout: str
    rows: tuple[StateBytes, ...]

    @property
    def total(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def fp32_total(self) -> int:
        """What the same states would take in FP32."""
        return sum(4 * row.numel for row in self.rows)

    def __str__(self) -> str:
        width = max([len(row.tensor) for row in self.rows] + [len("tensor")])
        lines = [f"{'tensor':<{width}}  {'state':<8}  {'values':>12}  {'bytes':>12}"]
        lines += [f"{r.tensor:<{width}}  {r.state:<8}  {r.numel:>12,}  {r.bytes:>12,}" for r in self.rows]
        ratio = f", {self.fp32_total / self.total:.3f} times less than FP32" if self.total else ""
        return "\n".join([*lines, f"total {self.total / 1e6:.2f} MB ({self.layout} layout){ratio}"])
