"""Data sets that are made from what is installed: digits, pairs of them, and text. None needs a download."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import numpy as np

from qlocaladam.data.dataset import (
    SYMBOLS,
    WINDOW,
    DataInvalid,
    Dataset,
    DataUnavailable,
    Images,
    Labels,
    checked,
    stratified,
)
from qlocaladam.extras import how_to_install
from qlocaladam.streams import numpy_stream

DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""scikit-learn's 1,797 images, then their labels, one byte a value."""
DIGITS = 1797
DIGITS_TEST = 360
PAIRS_PER_CLASS = {"train": 50, "test": 10}
SECTIONS = 10
"""Labels of text: which tenth of it a window stands in."""
EMBEDDED = {"digits": 10, "digit-pairs": 100, "text": SECTIONS}
"""Made from what is installed, without a download; and their classes."""


def digits(name: str) -> Dataset:
    images, labels = _read_digits()
    chosen = np.zeros(len(labels), bool)
    chosen[stratified(labels, DIGITS_TEST, numpy_stream(0, "digits test"))] = True
    parts: dict[str, tuple[Images, Labels]]
    parts = {"train": (images[~chosen], labels[~chosen]), "test": (images[chosen], labels[chosen])}
    origin = f"scikit-learn's load_digits, SHA-256 {DIGITS_SHA256}, {DIGITS_TEST} of 1,797 images kept for testing"
    if name == "digit-pairs":
        parts = {part: _pairs(*parts[part], PAIRS_PER_CLASS[part], numpy_stream(0, f"pairs {part}")) for part in parts}
        origin += "; side by side, training pairs of training digits and test pairs of test digits"
    arrays: dict[str, np.ndarray] = {f"x_{part}": pair[0] for part, pair in parts.items()}
    arrays |= {f"y_{part}": pair[1] for part, pair in parts.items()}
    return checked(name, arrays, origin, Path(name))


def _read_digits() -> tuple[Images, Labels]:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError as error:
        raise DataUnavailable(f"digits come with scikit-learn: {how_to_install('sklearn')}") from error
    bunch = load_digits()
    levels, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.uint8)
    sha256 = hashlib.sha256(levels.tobytes() + labels.tobytes()).hexdigest()
    if sha256 != DIGITS_SHA256:
        raise DataInvalid(f"scikit-learn's load_digits: SHA-256 is {sha256}; accepted is {DIGITS_SHA256}")
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


def text() -> Dataset:
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
    return checked("text", arrays, origin, Path("pydoc_data.topics"))


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
