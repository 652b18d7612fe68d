"""Block codecs: a tensor becomes codes of 8 or 4 bits and a float32 range per block, and comes back.

A codec is a monotone map between the values of a block and the levels 0 to 255 (or 15), fixed by the block's range; how
a level that falls between two codes is rounded is the same for all of them.

What every codec promises:

* blocks run over the tensor in logical (row-major) order, whatever its memory layout; the last one may be short, and
  no code of what pads it is stored;
* only the codes and the ranges are kept: 1 byte a value, or half a byte, and 4 or 8 bytes a block;
* a block of equal values comes back exactly, zeros included;
* a NaN or an infinity anywhere in a block makes the range of that block NaN, so that the whole block decodes to NaN,
  and no other block changes. Codecs for non-negative values treat a negative one the same way.

The paper's released code differs in two details, which `pad_blocks` and `least_range` switch on: it pads a short last
block, so that the padding counts in its range, and it takes a narrow range for wider than it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qlocaladam.streams import mix

ROUNDINGS = ("nearest", "floor", "stochastic")
BITS = (8, 4)


class Encoded(NamedTuple):
    """What is left of a tensor: one code a value, and what its block's codec needs to read them."""

    codes: Tensor
    """uint8, in logical order: one entry a value, or one for two, the first of them in the lower half."""
    ranges: Tensor
    """float32, one row a block."""


NOISE_LANES = 64
"""Positions that share one of the two hashes behind their noise; see `noise_bits`."""


def noise_bits(key: int, first: int, count: int, device: torch.device | None = None) -> Tensor:
    """32 random bits each for the positions first to first + count, of nothing but the key and the position, as int32.

    The sum of a hash of the position in its run of 64 and of a hash of the run, without carry: two positions are
    independent of each other, which is all that rounding needs, and a kernel spends one addition on each.
    """
    runs = torch.arange(first // NOISE_LANES, -(-(first + count) // NOISE_LANES), device=device)
    of_run = mix((runs * 0x85EBCA6B + (key ^ 0x5BD1E995)) & 0xFFFFFFFF)
    of_lane = mix((torch.arange(NOISE_LANES, device=device) * 0x9E3779B9 + key) & 0xFFFFFFFF)
    bits = of_run.to(torch.int32)[:, None] + of_lane.to(torch.int32)
    start = first % NOISE_LANES
    return bits.view(-1)[start : start + count]


def fractions(noise: Tensor) -> Tensor:
    """Noise, which is overwritten, as numbers in [0, 1) of its upper 16 bits: with so few, a whole level plus such a
    number is exact, and a level that is exact stays what it is."""
    return noise.bitwise_right_shift_(16).bitwise_and_(0xFFFF).to(torch.float32).mul_(2.0**-16)


def noise_of_rows(keys: Tensor, block: Tensor, size: int) -> Tensor:
    """As `noise_bits` of each row: all positions of one block, of the stream that its key names."""
    position = block[:, None] * size + torch.arange(size, device=block.device)
    of_run = mix((position // NOISE_LANES * 0x85EBCA6B + (keys ^ 0x5BD1E995)[:, None]) & 0xFFFFFFFF)
    of_lane = mix((position % NOISE_LANES * 0x9E3779B9 + keys[:, None]) & 0xFFFFFFFF)
    return (of_run.to(torch.int32) + of_lane.to(torch.int32)).view(-1)


class Rows(NamedTuple):
    """The blocks of several tensors, one a row, a short one filled up with copies of its last value."""

    block: Tensor
    """Which block of its tensor a row is."""
    short: Tensor | None
    """Which rows were filled up; None if none was."""
    lone: tuple[int, ...]
    """How long the last rows are, each of which is a whole tensor, where that decides the last bit: see LogCodec."""
    filled: Tensor
    """Which place each place is a copy of: itself, or the last value of a row that was filled up."""


@dataclass(frozen=True)
class Codec(ABC):
    """Encode and decode block-wise. Subclasses say what a block's range is and how values and levels correspond."""

    block_size: int = 64
    rounding: str = "nearest"
    bits: int = field(default=8, kw_only=True)
    pad_blocks: bool = field(default=False, kw_only=True)
    """A short last block is padded with `padding`, which its range then includes."""
    least_range: float = field(default=0.0, kw_only=True)
    """A narrower range of a block counts as this wide. In units of the levels: of the value, or of its logarithm."""

    name: ClassVar[str]
    range_size: ClassVar[int] = 2
    """How many float32 numbers a block keeps."""
    signed: ClassVar[bool] = True
    relative: ClassVar[bool] = False
    """Whether the values are momenta divided by the root of their variance. The kernels divide and multiply."""
    released: ClassVar[bool] = False
    """Whether the paper's released code has it, with the details of that code."""

    def __post_init__(self) -> None:
        if isinstance(self.block_size, bool) or not isinstance(self.block_size, int) or self.block_size < 2:
            raise ValueError(f"block_size must be a whole number of at least 2, got {self.block_size!r}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {self.rounding!r}")
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or self.bits not in BITS:
            raise ValueError(f"bits must be one of {', '.join(map(str, BITS))}, got {self.bits!r}")
        if self.bits == 4 and self.block_size % 2:
            raise ValueError(f"block_size must be even at 4 bits, two codes to a byte, got {self.block_size!r}")
        if not self.released and (self.pad_blocks or self.least_range):
            raise ValueError(f"pad_blocks and least_range are not for the {self.name} code, which was not released")

    @property
    def top(self) -> int:
        """The highest level."""
        return (1 << self.bits) - 1

    @property
    def padding(self) -> float:
        """What the released code pads a short last block with."""
        return 0.0

    def blocks(self, numel: int) -> int:
        return -(-numel // self.block_size)

    def code_bytes(self, numel: int) -> int:
        """Bytes of the codes of `numel` values."""
        return -(-numel * self.bits // 8)

    def nbytes(self, numel: int) -> int:
        """Exact bytes that `numel` encoded values occupy."""
        return self.code_bytes(numel) + 4 * self.range_size * self.blocks(numel)

    def zeros(self, numel: int, device: torch.device | None = None) -> Encoded:
        """The encoding of `numel` zeros, without making them first."""
        codes = torch.zeros(self.code_bytes(numel), dtype=torch.uint8, device=device)
        ranges = torch.zeros(self.blocks(numel), self.range_size, dtype=torch.float32, device=device)
        return Encoded(codes, ranges)

    def encode(self, values: Tensor, *, key: int = 0, first: int = 0) -> Encoded:
        """Encode a tensor of any shape. Stochastic rounding draws from the stream `key` at position `first` on."""
        flat = values.detach().to(torch.float32).reshape(-1)
        blocks = self._in_blocks(flat)
        ranges = self._ranges_of(blocks)
        if self.pad_blocks and flat.numel() % self.block_size:
            self._include_padding(ranges[-1])
        levels = self._levels(blocks, ranges).reshape(-1)[: flat.numel()]
        noise = None
        if self.rounding == "stochastic":
            noise = noise_bits(key, first, flat.numel(), flat.device)
        codes = self._rounded(levels, noise)
        return Encoded(codes if self.bits == 8 else packed(codes), ranges)

    def encode_rows(self, blocks: Tensor, rows: Rows, keys: Tensor | None) -> Encoded:
        """As `encode` of each of several tensors, one block a row, with a code for every value of a row.

        `keys`: the stream of each row, for stochastic rounding.
        """
        ranges = self._ranges_of(blocks)
        if self.pad_blocks and rows.short is not None:
            padded = ranges.clone()
            self._include_padding(padded.T)
            ranges = torch.where(rows.short[:, None], padded, ranges)
        noise = None if keys is None else noise_of_rows(keys, rows.block, self.block_size)
        return Encoded(self._rounded(self._levels(blocks, ranges).reshape(-1), noise), ranges)

    def decode_rows(self, encoded: Encoded, rows: Rows) -> Tensor:
        """The flat values of several tensors, one block a row, of a code for every value of a row."""
        values = self._values(encoded.codes.view(-1, self.block_size), encoded.ranges, rows.lone).reshape(-1)
        return values[rows.filled] if rows.lone else values

    def _ranges_of(self, blocks: Tensor) -> Tensor:
        low, high = torch.aminmax(blocks, dim=1, keepdim=True)  # NaN wins, and infinity is an end
        usable = torch.maximum(-low, high) < torch.inf if self.signed else (low >= 0) & (high < torch.inf)
        return self._range(low, high).masked_fill_(~usable, torch.nan)

    def _rounded(self, levels: Tensor, noise: Tensor | None) -> Tensor:
        """Codes of levels, which are overwritten; `noise` is for stochastic rounding."""
        levels.nan_to_num_(nan=0.0)
        if noise is not None:
            levels += fractions(noise)
        elif self.rounding == "nearest":
            levels += 0.5
        return levels.clamp_(0, self.top).to(torch.uint8)

    def decode(self, encoded: Encoded, numel: int | None = None) -> Tensor:
        """The values as a flat float32 tensor in logical order.

        `numel`: how many there are; needed only for an odd number of 4-bit codes.
        """
        codes, ranges = encoded
        if self.bits == 4:
            codes = unpacked(codes)[:numel]
        return self._values(self._in_blocks(codes), ranges).reshape(-1)[: codes.numel()]

    def _in_blocks(self, flat: Tensor) -> Tensor:
        size = min(self.block_size, max(1, flat.numel()))  # a lone short block needs no padding
        padding = -flat.numel() % size
        if padding:
            flat = torch.cat((flat, flat[-1:].expand(padding)))  # a copy of a member changes no range
        return flat.view(-1, size)

    def _include_padding(self, ends: Tensor) -> None:
        ends[0].clamp_(max=self.padding)
        ends[1].clamp_(min=self.padding)

    def _per_level(self, span: Tensor) -> Tensor:
        """Levels per unit of a block's span, rounded up, so that the maximum is at the top even when it floors."""
        return torch.where(span > 0, self.top / span * (1 + 2.0**-22), span)

    @abstractmethod
    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        """One row a block, made of its least and its greatest values."""

    @abstractmethod
    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        """Where each value falls, as a real number in [0, top]. One outside of it stands for the end that is nearer."""

    @abstractmethod
    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        """What each code stands for. `lone`: as in `Rows`."""


def ones_where_equal(values: Tensor, others: Tensor | float) -> Tensor:
    """1.0 where they are equal, else 0.0. On a CPU torch takes several times as long to make truth values."""
    return values.clone().eq_(others)


def packed(codes: Tensor) -> Tensor:
    """Two codes to a byte; a last one alone leaves the upper half 0."""
    if len(codes) % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return torch.add(codes[::2], codes[1::2], alpha=16)


def unpacked(codes: Tensor) -> Tensor:
    return torch.stack((codes & 15, codes >> 4), 1).reshape(-1)


@dataclass(frozen=True)
class LinearCodec(Codec):
    """Evenly spaced levels from a block's minimum to its maximum (equations 1 to 4 of the paper).

    The error is at most half a level for `nearest`, range / 510 at 8 bits and range / 30 at 4, and less than one level
    for `floor` and `stochastic`. The minimum and the maximum come back exactly.
    """

    name: ClassVar[str] = "linear"
    released: ClassVar[bool] = True

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        return torch.cat((low, high), 1)

    def _scaled(self, ranges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A power of two that keeps denormal and huge blocks inside float32, and low and range times that power."""
        magnitude = ranges.abs().amax(1, keepdim=True)
        scale = torch.ones_like(magnitude)
        scale.masked_fill_(magnitude < 2.0**-60, 2.0**64).masked_fill_(magnitude > 2.0**125, 0.25)
        low = ranges[:, :1] * scale
        return scale, low, torch.maximum(ranges[:, 1:] * scale - low, self.least_range * scale)

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        scale, low, span = self._scaled(ranges)
        return (blocks * scale).sub_(low).mul_(self._per_level(span))

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        scale, low, span = self._scaled(ranges)
        step = span / self.top * (1 + 2.0**-21)  # rounded up, so that the last code reaches the maximum
        highest = torch.maximum(ranges[:, 1:], ranges[:, :1] + self.least_range)
        return codes.to(torch.float32).mul_(step).add_(low).div_(scale).clamp_(max=highest)


@dataclass(frozen=True)
class NormalisedCodec(Codec):
    """Momentum as m / sqrt(v), in levels evenly spaced on both sides of zero, up to a block's largest magnitude.

    Read back, it is multiplied by the root of v as v was stored. Adam bounds the ratio: by 7.27 for betas of 0.9 and
    0.999, whatever the gradients were. So a level, and less is lost of it, is at most 0.057 at 8 bits and 1.04 at 4;
    docs/method.md says what that does to a step. Zero and the largest magnitude come back exactly. A block in which
    nothing reaches 2^-60 is zero.
    """

    name: ClassVar[str] = "normalised"
    range_size: ClassVar[int] = 1
    relative: ClassVar[bool] = True

    @property
    def top(self) -> int:
        return (1 << self.bits) - 2  # an even number, so that zero is a level

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        largest = torch.maximum(-low, high)
        return largest.masked_fill_(largest < 2.0**-60, 0.0)

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        return (blocks * self._per_level(2 * ranges)).add_(self.top // 2)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        return codes.to(torch.float32).sub_(self.top // 2).mul_(ranges / (self.top // 2))


@dataclass(frozen=True)
class LogCodec(Codec):
    """Levels evenly spaced in log(value + offset), for values that are not negative (equations 5 to 9).

    The relative error of value + offset is at most exp(half a level) - 1 for `nearest`, a level being the range of the
    logarithm / 255 or 15, and the exponential of a whole level less one for the other roundings. The minimum comes
    back exactly, zero included, and so does the maximum unless float32 cannot tell their logarithms apart. Values far
    below the offset are lost in it.
    """

    offset: float = 1e-8

    name: ClassVar[str] = "log"
    released: ClassVar[bool] = True
    signed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        offset: object = self.offset
        if not isinstance(offset, float | int) or not 2.0**-126 <= offset < math.inf:
            raise ValueError(f"log_offset must be finite and at least 1.18e-38, got {self.offset!r}")

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        return torch.cat((low, high), 1)

    @property
    def padding(self) -> float:
        return self.offset

    def _log_range(self, ranges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """In powers of two: the lowest logarithm, the range of levels, and whether that is the range of values too."""
        low, high = (ranges + self.offset).log2().chunk(2, 1)
        span = high - low
        least = self.least_range / math.log(2)
        return low, span.clamp(min=least), span >= least

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        low, span, full = self._log_range(ranges)
        levels = (blocks + self.offset).log2_().sub_(low).mul_(self._per_level(span))
        # torch's logarithm of one number can differ in the last bit from that of many. The highest is lifted beyond the
        # top, which codes are clamped to.
        highest = ranges[:, 1:].masked_fill(~(full & (span > 0)), torch.nan)
        return levels.add_(ones_where_equal(blocks, highest), alpha=2 * self.top)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        low, span, full = self._log_range(ranges)
        # Beyond rounding error, so that clamping makes the ends exact.
        hair = 2.0**-19 + 2.0**-22 * torch.maximum(low.abs(), (low + span).abs())
        values = codes.to(torch.float32).mul_((span + 2 * hair) / self.top).add_(low - hair)
        values[: len(values) - len(lone)].exp2_()
        # On a CPU torch's power of the last few values of a tensor can differ in the last bit from that of others.
        for row, length in zip(values[len(values) - len(lone) :], lone, strict=True):
            row[:length].exp2_()
        values.sub_(self.offset)
        minimum, maximum = ranges.chunk(2, 1)
        # On a CPU one after the other takes a fifth of the time of both at once.
        return values.clamp_(min=minimum).clamp_(max=maximum.masked_fill(~full, torch.inf))


def _dynamic_values(signed: bool, bits: int) -> np.ndarray:
    """The values of the dynamic code of Dettmers et al., in order: 256, or 16 of 4 bits.

    Of its decades, 1e-6 to 1 or 1e-2 to 1, each holds twice as many values as the one below it: the centres of equal
    parts of [0.1, 1] times the decade. 0 and 1 complete the code.
    """
    centres = []
    for decade in range(bits - 1):
        edges = torch.linspace(0.1, 1, 2 ** (decade + (not signed)) + 1, dtype=torch.float32, device="cpu").numpy()
        centres.append((edges[:-1] + edges[1:]) / 2 * np.float32(10.0 ** (decade + 2 - bits)))
    positive = np.concatenate(centres)
    negative = -positive if signed else positive[:0]
    return np.sort(np.concatenate((negative, positive, np.array([0.0, 1.0], np.float32))))


DYNAMIC_VALUES = {(signed, bits): _dynamic_values(signed, bits) for signed in (True, False) for bits in BITS}
"""By whether one of the bits is a sign, and by their number."""


def dynamic_map(signed: bool, bits: int = 8, device: torch.device | None = None) -> Tensor:
    """`DYNAMIC_VALUES` as a tensor, which is never kept: it may be of a mode that ends."""
    return torch.from_numpy(DYNAMIC_VALUES[signed, bits]).to(device)


class LargestCodec(Codec):
    """Codes of values relative to their block's largest magnitude, all that is kept of its range."""

    range_size: ClassVar[int] = 1

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        return torch.maximum(-low, high)

    def _relative(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        return torch.where(ranges > 0, blocks / ranges, ranges)


@dataclass(frozen=True)
class DynamicCodec(LargestCodec):
    """The dynamic code of Dettmers et al. (ICLR 2022), relative to a block's largest magnitude.

    Precise near the largest magnitude, coarse below a millionth of it (a hundredth at 4 bits). Zero and the largest
    positive value come back exactly; the most negative one comes back as 0.993 of itself (0.888) where nothing positive
    is as large, as published.
    """

    name: ClassVar[str] = "dynamic"

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        values = dynamic_map(self.signed, self.bits, blocks.device)
        relative = self._relative(blocks, ranges)
        below = torch.searchsorted(values, relative, right=True).sub_(1).clamp_(0, self.top - 1)
        fraction = (relative - values[below]) / (values[below + 1] - values[below])
        return below + fraction.clamp_(0, 1)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        return dynamic_map(self.signed, self.bits, codes.device)[codes.int()] * ranges


@dataclass(frozen=True)
class UnsignedDynamicCodec(DynamicCodec):
    """The same code without a sign bit, for values that are not negative: every decade has twice the values."""

    signed: ClassVar[bool] = False


@dataclass(frozen=True)
class SoftsignCodec(LargestCodec):
    """Momentum companded as in FlashOptim (2026): evenly spaced levels of 2x / (1 + |x|), x relative to the largest.

    Levels are four times as dense at zero as at the largest magnitude. Both come back exactly.
    """

    name: ClassVar[str] = "softsign"

    @property
    def top(self) -> int:
        return (1 << self.bits) - 2  # an even number, so that zero is a level

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        relative = self._relative(blocks, ranges)
        return (relative / (1 + relative.abs()) + 0.5).mul_(self.top)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        companded = codes.to(torch.float32).sub_(self.top // 2).div_(self.top // 2)
        return companded.div_(2 - companded.abs()).mul_(ranges)


@dataclass(frozen=True)
class RootCodec(LargestCodec):
    """Variance companded as in FlashOptim (2026): evenly spaced levels of its root. Zero and the largest are exact."""

    name: ClassVar[str] = "root"
    signed: ClassVar[bool] = False

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        return self._relative(blocks, ranges).sqrt_().mul_(self.top)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        return codes.to(torch.float32).div_(self.top).square_().mul_(ranges)


@dataclass(frozen=True)
class NonzeroCodec(LargestCodec):
    """Variance in evenly spaced levels up to a block's largest, zero not among them (Li et al., NeurIPS 2023).

    What is below the first level, 1/256 or 1/16 of the largest, is read as that, so that no step is divided by zero.
    """

    name: ClassVar[str] = "nonzero"
    signed: ClassVar[bool] = False

    def _levels(self, blocks: Tensor, ranges: Tensor) -> Tensor:
        return self._relative(blocks, ranges).mul_(self.top + 1).sub_(1).clamp_(min=0)

    def _values(self, codes: Tensor, ranges: Tensor, lone: tuple[int, ...] = ()) -> Tensor:
        return codes.to(torch.float32).add_(1).div_(self.top + 1).mul_(ranges)


SIGNED_CODECS: dict[str, type[Codec]] = {
    codec.name: codec for codec in (LinearCodec, NormalisedCodec, DynamicCodec, SoftsignCodec)
}
UNSIGNED_CODECS: dict[str, type[Codec]] = {
    codec.name: codec for codec in (LogCodec, LinearCodec, UnsignedDynamicCodec, RootCodec, NonzeroCodec)
}
"""Those that can store momentum, and those that can store variance."""
