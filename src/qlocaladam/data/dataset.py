"""What a data set is: one checked file of uint8 arrays with its SHA-256 and origin beside it, and fixed subsets.

`sources.prepare` writes the file; `load` refuses what disagrees with what is beside it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qlocaladam.checks import whole_number
from qlocaladam.streams import numpy_stream

Images = NDArray[np.uint8]
Windows = NDArray[np.uint8]
Labels = NDArray[np.int64]
Arrays = Mapping[str, np.ndarray]
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
NPZ_FORM = (
    "an .npz with x_train, y_train, x_test and y_test: uint8 images (N, H, W, 3), or windows of text (N, 65), and "
    "whole-number labels (N,)"
)
INPUTS_FORM = "uint8 of shape (N, H, W, 3), or grey (N, H, W) or (N, H, W, 1), or of text (N, 65)"
MOST_CLASSES = 2**16
"""Far above any real data set: a greater label is damage, not a class."""
WINDOW = 64
"""Characters that a model of text sees at once. A window holds one more: the last one's successor."""
SYMBOLS = 97
"""The 95 printable characters of ASCII in their order, the end of a line, and one for all others."""


class DataUnavailable(RuntimeError):
    """The data could not be had anywhere. The text says what was tried and how to provide it."""


class DataInvalid(ValueError):
    """There is data, but it is damaged, changed or not of the accepted form."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as uint8 (N, H, W, 3), labels as int64 (N,), and where both came from.

    Or text, as uint8 (N, 65): windows of symbols below 97, whose labels are the sections that they stand in. Clients
    get their share of text by these labels, but a model predicts symbols.
    """

    name: str
    x_train: Images | Windows = field(repr=False)
    y_train: Labels = field(repr=False)
    x_test: Images | Windows = field(repr=False)
    y_test: Labels = field(repr=False)
    classes: int
    origin: str
    sha256: str
    """Of the file that holds the data; a subset keeps that of the file it was taken from."""

    @property
    def is_text(self) -> bool:
        return self.x_train.ndim == 2

    @property
    def outputs(self) -> int:
        """What a model chooses between: classes of images, symbols of text."""
        return SYMBOLS if self.is_text else self.classes

    @property
    def samples(self) -> str:
        """What its samples are called."""
        return "windows" if self.is_text else "images"


@dataclass(frozen=True)
class Cifar:
    """What is fixed about one of the two CIFAR sets, each 50,000 and 10,000 images of 32x32."""

    kind: str
    """torchvision's class."""
    folder: str
    archive: str
    classes: int
    labels_sha256: str
    """The training labels in their original order, one byte each."""


CIFAR = {
    "cifar10": Cifar(
        "CIFAR10",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        10,
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    ),
    "cifar100": Cifar(
        "CIFAR100",
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        100,
        "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
    ),
}
CIFAR_SIZES = (50_000, 10_000)


def load(path: str | os.PathLike[str]) -> Dataset:
    """The data set that `prepare` wrote to `path`; DataInvalid unless file and sidecar agree throughout."""
    path = Path(path)
    if not path.is_file():
        raise DataUnavailable(
            f"{path} does not exist; make it with `python -m qlocaladam data NAME --out {path}`, "
            "or in the project with `snakemake data`"
        )
    note, sidecar = read_sidecar(path), sidecar_of(path)
    again = _again(path, note["name"])
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != note["sha256"]:
            raise DataInvalid(f"{path}: SHA-256 is {sha256}, but {sidecar.name} says {note['sha256']!r}; {again}")
        file.seek(0)
        arrays = read_arrays(file, path)
    dataset = replace(checked(note["name"], arrays, note["origin"], path), sha256=sha256)
    for key, value in {"classes": dataset.classes, "arrays": form_of(arrays)}.items():
        if value != note[key]:
            raise DataInvalid(f"{path}: {key} are {value}, but {sidecar.name} says {note[key]!r}; {again}")
    return dataset


def subset(dataset: Dataset, train: int | None = None, test: int | None = None, seed: int = 0) -> Dataset:
    """So many training and test samples (None: all), class proportions kept, in their original order."""
    whole_number("seed", seed, 0, 2**32 - 1)
    parts: dict[str, Any] = {}
    for part, count in (("train", train), ("test", test)):
        inputs, labels = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        if count is None:
            continue
        whole_number(part, count, 1, len(labels))
        chosen = stratified(labels, count, numpy_stream(seed, f"subset {part}"))
        parts |= {f"x_{part}": inputs[chosen], f"y_{part}": labels[chosen]}
    sizes = f"{train or len(dataset.y_train)} training and {test or len(dataset.y_test)} test {dataset.samples}"
    return replace(dataset, origin=f"{sizes}, stratified, seed {seed}, of: {dataset.origin}", **parts)


def load_subset(path: str | os.PathLike[str], train: int | None, test: int | None) -> Dataset:
    """The prepared data set, or a part of it where a number is given."""
    dataset = load(path)
    return dataset if train is None and test is None else subset(dataset, train, test)


def training_labels(name: str) -> Labels:
    """The training labels of cifar10 or cifar100 in their original order; they ship with the package."""
    if name not in CIFAR:
        raise ValueError(f"training labels ship for {' and '.join(CIFAR)}, got {name!r}")
    path = Path(__file__).with_name("labels") / f"{name}.gz"
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataInvalid(f"{path}: cannot be read ({error}); install the package again") from error
    if hashlib.sha256(raw).hexdigest() != CIFAR[name].labels_sha256:
        raise DataInvalid(
            f"{path}: is not {name}'s training order, whose SHA-256 is {CIFAR[name].labels_sha256}; "
            "install the package again"
        )
    return np.frombuffer(raw, np.uint8).astype(np.int64)


def checked(name: str, arrays: Arrays, origin: str, where: Path) -> Dataset:
    """A data set from arrays in any accepted form, or DataInvalid."""
    parts: dict[str, Any] = {}
    for part in ("train", "test"):
        inputs = _checked_inputs(arrays[f"x_{part}"], f"{where}: x_{part}")
        labels = _checked_labels(arrays[f"y_{part}"], f"{where}: y_{part}")
        if len(inputs) != len(labels):
            raise DataInvalid(f"{where}: x_{part} has {len(inputs)} images but y_{part} {len(labels)} labels; one each")
        parts |= {f"x_{part}": inputs, f"y_{part}": labels}
    sizes = [parts[f"x_{part}"].shape[1:3] for part in ("train", "test")]
    if sizes[0] != sizes[1]:
        raise DataInvalid(f"{where}: training images are {sizes[0]} but test images {sizes[1]}; accepted is one size")
    classes = int(max(parts["y_train"].max(), parts["y_test"].max())) + 1
    dataset = Dataset(name=name, **parts, classes=classes, origin=origin, sha256="")
    if name in CIFAR:
        _check_cifar(dataset, where)
    return dataset


def _checked_inputs(inputs: np.ndarray, what: str) -> Images | Windows:
    if inputs.dtype != np.uint8:
        raise DataInvalid(f"{what} is {inputs.dtype}; accepted is {INPUTS_FORM}")
    return _checked_windows(inputs, what) if inputs.ndim == 2 else _checked_images(inputs, what)


def _checked_windows(windows: np.ndarray, what: str) -> Windows:
    if windows.shape[1] != WINDOW + 1 or windows.size == 0:
        raise DataInvalid(f"{what} has shape {windows.shape}; accepted is {INPUTS_FORM}, not empty")
    if windows.max() >= SYMBOLS:
        raise DataInvalid(f"{what} is text with symbols up to {windows.max()}; accepted are 0 to {SYMBOLS - 1}")
    return np.ascontiguousarray(windows)


def _checked_images(images: np.ndarray, what: str) -> Images:
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3) or images.size == 0:
        raise DataInvalid(f"{what} has shape {images.shape}; accepted is {INPUTS_FORM}, not empty")
    return np.ascontiguousarray(images if images.shape[3] == 3 else images.repeat(3, axis=3))


def _checked_labels(labels: np.ndarray, what: str) -> Labels:
    if labels.dtype.kind not in "iu":
        raise DataInvalid(f"{what} is {labels.dtype}; accepted is any integer type")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) == 0:
        raise DataInvalid(f"{what} has shape {labels.shape}; accepted is (N,) or (N, 1), not empty")
    if labels.min() < 0 or labels.max() >= MOST_CLASSES:
        raise DataInvalid(f"{what} runs from {labels.min()} to {labels.max()}; accepted are 0 to {MOST_CLASSES - 1}")
    return np.ascontiguousarray(labels, np.int64)


def _check_cifar(dataset: Dataset, where: Path) -> None:
    name, cifar = dataset.name, CIFAR[dataset.name]
    for part, count in zip(("train", "test"), CIFAR_SIZES, strict=True):
        shape = getattr(dataset, f"x_{part}").shape
        if shape != (count, 32, 32, 3):
            raise DataInvalid(f"{where}: x_{part} has shape {shape}; accepted for {name} is {(count, 32, 32, 3)}")
    # The order of the test images does not matter to anything, and some copies have another.
    counts = np.bincount(dataset.y_test, minlength=cifar.classes)
    if len(counts) != cifar.classes or (counts != 10_000 // cifar.classes).any():
        raise DataInvalid(
            f"{where}: y_test has {counts.min()} to {counts.max()} images of each of {len(counts)} classes; "
            f"accepted for {name} are {cifar.classes} classes of {10_000 // cifar.classes}"
        )
    labels = training_labels(name)
    different = np.flatnonzero(dataset.y_train != labels)
    if len(different):
        first = different[0]
        raise DataInvalid(
            f"{where}: y_train is not {name}'s original order: {len(different)} labels differ, the first at "
            f"{first}, which is {dataset.y_train[first]}; accepted is {labels[first]}"
        )


def stratified(labels: Labels, count: int, stream: np.random.RandomState) -> NDArray[np.intp]:
    """Positions of `count` samples, in order: shares by largest remainder, ties to the lower class."""
    sizes = np.bincount(labels)
    shares, remainders = np.divmod(count * sizes, len(labels))
    shares[np.argsort(-remainders, kind="stable")[: count - shares.sum()]] += 1
    # A class's order does not depend on how many are taken: with equal classes, subsets are nested.
    drawn = [stream.permutation(np.flatnonzero(labels == label))[:share] for label, share in enumerate(shares)]
    return np.sort(np.concatenate(drawn))


def read_arrays(file: BinaryIO, where: Path) -> Arrays:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in ARRAYS}
    except Exception as error:  # a damaged archive can fail in any layer: zip, zlib, NumPy's header, memory
        raise DataInvalid(f"{where}: cannot be read ({reason(error)}); accepted is {NPZ_FORM}") from error


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def sidecar_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def read_sidecar(path: Path) -> dict[str, Any]:
    sidecar = sidecar_of(path)
    kinds = {"name": str, "sha256": str, "origin": str, "classes": int, "arrays": dict}
    try:
        note = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        missing = f"{sidecar.name} is missing beside it, so it cannot be checked"
        raise DataInvalid(f"{path}: {missing}; {_again(path)}") from error
    except ValueError as error:
        raise DataInvalid(f"{sidecar}: is not JSON ({error}); {_again(path)}") from error
    for key, kind in kinds.items():
        if not isinstance(note, dict) or not isinstance(note.get(key), kind):
            raise DataInvalid(f"{sidecar}: {key} must be there as {kind.__name__}; {_again(path)}")
    return {**{key: note[key] for key in kinds}, "source": note.get("source")}


def form_of(arrays: Arrays) -> dict[str, str]:
    return {key: f"{array.dtype} {'x'.join(map(str, array.shape))}" for key, array in sorted(arrays.items())}


def _again(path: Path, name: str = "NAME") -> str:
    """What to type where a prepared file is not as it was."""
    return (
        f"make it again with `python -m qlocaladam data {name} --out {path}`, "
        "or delete it and run `snakemake data` in the project"
    )
