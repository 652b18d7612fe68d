"""Who holds which samples: the paper's Dirichlet and IID partitions, and their files.

The recipes give all 80 rows of the paper's per-client tables. A partition knows which labels it was made for.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qlocaladam.checks import finite_number, whole_number
from qlocaladam.files import write_whole
from qlocaladam.streams import numpy_stream

Indices = NDArray[np.int64]

IID = "iid"

RECIPES = {"dirichlet": "dirichlet-1", "iid": "iid-1"}
"""Name and version of how a partition is drawn. Another way of drawing gets another version."""

METADATA_KEYS = {"alpha", "clients", "label_count", "labels_sha256", "recipe", "seed", "sha256"}


def checked_alpha(alpha: object) -> float | str:
    """The concentration as a float, or the word 'iid'."""
    if isinstance(alpha, str) and alpha == IID:
        return IID
    return finite_number("alpha", alpha, otherwise=" or the word 'iid'")


def _checked_labels(labels: ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            "labels must be a list of whole numbers, one a sample and at least one, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0:
        raise ValueError(f"labels must be 0 or greater, got {array.min()}")
    return array.astype(np.int64)


def labels_sha256(labels: ArrayLike) -> str:
    """A fingerprint of the labels and their order, the same whatever integer type holds them."""
    return hashlib.sha256(_checked_labels(labels).astype("<i8").tobytes()).hexdigest()


def _shares(stream: np.random.RandomState, clients: int, alpha: float) -> NDArray[np.float64]:
    """One class's shares, which sum to 1.

    NumPy draws them as gamma variates over their sum, which can underflow for an alpha below about 0.001 and
    overflow for one near the largest float. The draw then holds no shares. Only there the limit stands in:
    for a small alpha the whole class goes to one client, whom the same stream picks; for a huge one all get
    the same.
    """
    with np.errstate(all="ignore"):
        drawn = stream.dirichlet([alpha] * clients)
        shares: NDArray[np.float64] = drawn / drawn.sum()
    if np.isfinite(shares).all():
        return shares
    if alpha >= 1:
        return np.full(clients, 1 / clients)
    shares = np.zeros(clients)
    shares[stream.randint(clients)] = 1
    return shares


def dirichlet_partition(labels: ArrayLike, clients: int, alpha: float, seed: int) -> list[Indices]:
    """Each client's indices. Class after class: shuffle its samples, then draw the clients' shares of it.

    Shares are truncated to whole samples and dealt out in order; the remainder, at most one sample a class
    and client, goes to nobody, as in the paper. So clients may be empty, and where they outnumber the samples
    of a class, most of it may be left over. A class without samples draws nothing.
    """
    array, clients = _checked_labels(labels), whole_number("clients", clients, 1)
    concentration = checked_alpha(alpha)
    if isinstance(concentration, str):
        raise ValueError(f"alpha must be a finite number greater than 0 for a Dirichlet partition, got {alpha!r}")
    stream = numpy_stream(seed)
    dealt: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(array):
        members = np.flatnonzero(array == label).astype(np.int64)
        stream.shuffle(members)
        ends = (_shares(stream, clients, concentration) * len(members)).astype(np.int64).cumsum()
        for hand, part in zip(dealt, np.split(members, ends)[:-1], strict=True):
            hand.append(part)
    return [np.concatenate(hand) for hand in dealt]


def iid_partition(n: int, clients: int, seed: int) -> list[Indices]:
    """Each client's indices: one permutation of all samples, cut into runs.

    The paper's runs are equal, ten of 5,000. Where they cannot be, the first clients get one sample more and
    none is lost; with more clients than samples the last clients are empty.
    """
    n, clients = whole_number("n", n, 1), whole_number("clients", clients, 1)
    return np.array_split(numpy_stream(seed).permutation(n).astype(np.int64), clients)


@dataclass(frozen=True, eq=False)
class Partition:
    """A checked assignment of samples to clients. Its arrays are read-only; equality compares all of it."""

    recipe: str
    seed: int
    alpha: float | str
    """The Dirichlet concentration, or the word 'iid'."""
    indices: Sequence[Indices]
    """One int64 array a client, in the order in which its samples were dealt. May be empty."""
    label_count: int
    """Samples of the data set, held or not."""
    labels_sha256: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0, 2**32 - 1))
        object.__setattr__(self, "alpha", checked_alpha(self.alpha))
        object.__setattr__(self, "label_count", whole_number("label_count", self.label_count, 1))
        recipe = RECIPES["iid" if self.alpha == IID else "dirichlet"]
        if self.recipe != recipe:
            raise ValueError(f"recipe must be {recipe!r} for alpha={self.alpha!r}, got {self.recipe!r}")
        if not isinstance(self.labels_sha256, str) or not re.fullmatch("[0-9a-f]{64}", self.labels_sha256):
            raise ValueError(f"labels_sha256 must be 64 hexadecimal digits, got {self.labels_sha256!r}")
        whole_number("clients", len(self.indices), 1)
        flat = _checked_indices(np.concatenate(self.indices), self.label_count)
        flat.setflags(write=False)
        object.__setattr__(self, "indices", tuple(np.split(flat, self.sizes.cumsum()[:-1])))

    @property
    def clients(self) -> int:
        return len(self.indices)

    @property
    def sizes(self) -> Indices:
        """How many samples each client holds."""
        return np.array([len(held) for held in self.indices], dtype=np.int64)

    @property
    def dropped(self) -> int:
        """Samples that nobody holds."""
        return self.label_count - int(self.sizes.sum())

    @property
    def sha256(self) -> str:
        """A fingerprint of everything in the partition."""
        return _contents_sha256(self._metadata(), *self._arrays())

    def __eq__(self, other: object) -> bool:
        return self.sha256 == other.sha256 if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.sha256)

    def check(self, labels: ArrayLike) -> Indices:
        """The labels as int64, or a ValueError if the partition was made for other ones."""
        array = _checked_labels(labels)
        if len(array) != self.label_count:
            raise ValueError(f"labels must be the {self.label_count} that the partition was made for, got {len(array)}")
        if (sha256 := labels_sha256(array)) != self.labels_sha256:
            raise ValueError(
                "labels must be the ones that the partition was made for, in the same order: "
                f"SHA-256 {self.labels_sha256}, got {sha256}"
            )
        return array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz, whole or not at all. The same partition always gives the same bytes."""
        offsets, flat = self._arrays()
        metadata = np.array(json.dumps(self._metadata() | {"sha256": self.sha256}, sort_keys=True))
        write_whole(path, lambda file: np.savez(file, metadata=metadata, offsets=offsets, indices=flat))

    def _metadata(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "clients": self.clients,
            "label_count": self.label_count,
            "labels_sha256": self.labels_sha256,
            "recipe": self.recipe,
            "seed": self.seed,
        }

    def _arrays(self) -> tuple[Indices, Indices]:
        """Where each client's samples start and end, and all samples in one; little-endian everywhere."""
        offsets = np.concatenate(([0], self.sizes.cumsum()))
        return offsets.astype("<i8"), np.concatenate(self.indices).astype("<i8")


def _checked_indices(flat: Indices, label_count: int) -> Indices:
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        raise ValueError(f"indices must be whole numbers in one dimension, got {flat.dtype} of shape {flat.shape}")
    outside = flat[(flat < 0) | (flat >= label_count)]
    if outside.size:
        raise ValueError(f"indices must be from 0 to {label_count - 1}, got {outside[0]}")
    values, times = np.unique(flat, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"indices must belong to one client once, got {values[times > 1][0]} more than once")
    return flat.astype(np.int64)


def _contents_sha256(metadata: dict[str, Any], offsets: Indices, flat: Indices) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    digest.update(offsets.tobytes())
    digest.update(flat.tobytes())
    return digest.hexdigest()


def partition(labels: ArrayLike, clients: int, alpha: float | str, seed: int) -> Partition:
    """The paper's partition of these labels: Dirichlet with this concentration, or IID for the word 'iid'."""
    array, alpha = _checked_labels(labels), checked_alpha(alpha)
    if isinstance(alpha, str):
        recipe, indices = RECIPES["iid"], iid_partition(len(array), clients, seed)
    else:
        recipe, indices = RECIPES["dirichlet"], dirichlet_partition(array, clients, alpha, seed)
    return Partition(recipe, seed, alpha, indices, len(array), labels_sha256(array))


def load_partition(path: str | os.PathLike[str]) -> Partition:
    """Read what `Partition.save` wrote. A ValueError names a damaged or altered file and its fault."""
    content = Path(path).read_bytes()
    try:
        return _parsed(*_read_arrays(content))
    except Exception as error:  # zipfile, numpy and json raise a dozen kinds between them for damaged bytes
        raise ValueError(f"{os.fspath(path)} is not a whole partition file: {error}") from error


def _read_arrays(content: bytes) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        damaged = archive.testzip()  # numpy would trust an array's header before its checksum
        if damaged:
            raise ValueError(f"the checksum of {damaged} does not match")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        names = ("metadata", "offsets", "indices")
        if set(arrays.files) != set(names):
            raise ValueError(f"it must hold {', '.join(names)}, got {', '.join(arrays.files) or 'nothing'}")
        metadata, offsets, flat = (arrays[name] for name in names)
    return metadata, offsets, flat


def _parsed(metadata: NDArray[Any], offsets: NDArray[Any], flat: NDArray[Any]) -> Partition:
    for name, array in (("offsets", offsets), ("indices", flat)):
        if array.dtype != np.dtype("<i8") or array.ndim != 1:
            raise ValueError(f"{name} must be int64 in one dimension, got {array.dtype} of shape {array.shape}")
    described = json.loads(str(metadata))
    if not isinstance(described, dict) or set(described) != METADATA_KEYS:
        raise ValueError(f"metadata must be an object with {', '.join(sorted(METADATA_KEYS))}, got {described!r}")
    clients = whole_number("clients", described["clients"], 1)
    if len(offsets) != clients + 1:
        raise ValueError(f"offsets must be {clients + 1} for {clients} clients, got {len(offsets)}")
    if offsets[0] != 0 or offsets[-1] != len(flat) or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets must rise from 0 to {len(flat)}, got {offsets}")
    fields = {key: described[key] for key in ("recipe", "seed", "alpha", "label_count", "labels_sha256")}
    result = Partition(indices=np.split(flat, offsets[1:-1]), **fields)
    if result.sha256 != described["sha256"]:
        raise ValueError(f"the contents have SHA-256 {result.sha256}, the file says {described['sha256']}")
    return result
