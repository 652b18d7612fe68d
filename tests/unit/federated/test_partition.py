"""Partitions: the published recipe, properties of any partition, damaged files. Printed rows are in the ledger."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qlocaladam.data.dataset import training_labels
from qlocaladam.federated import partition as module
from qlocaladam.federated.partition import (
    dirichlet_partition,
    iid_partition,
    labels_sha256,
    load_partition,
    partition,
)
from qlocaladam.federated.partition_statistics import class_counts, client_rows, heterogeneity_word, summary

SEED = 42

alphas = st.one_of(st.just("iid"), st.floats(1e-3, 100), st.floats(0, exclude_min=True, allow_infinity=False))
seeds = st.integers(0, 2**32 - 1)
label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=120)


@pytest.fixture(scope="module")
def labels():
    return {name: np.asarray(training_labels(name)) for name in ("cifar10", "cifar100")}


def test_published_indices_are_the_recipe_word_for_word(labels):
    stream = np.random.RandomState(SEED)
    expected = [[] for _ in range(10)]
    for label in range(10):
        members = np.where(labels["cifar10"] == label)[0]
        stream.shuffle(members)
        shares = stream.dirichlet([0.1] * 10)
        counts = [int(share) for share in shares / shares.sum() * len(members)]
        for client, count in enumerate(counts):
            expected[client] += members[:count].tolist()
            members = members[count:]
    part = partition(labels["cifar10"], 10, 0.1, SEED)
    assert [held.tolist() for held in part.indices] == expected
    runs = partition(labels["cifar10"], 10, "iid", SEED).indices
    assert np.array_equal(np.concatenate(runs), np.random.RandomState(SEED).permutation(50_000))


@given(label_lists, st.integers(1, 40), alphas, seeds)
def test_every_partition_is_disjoint_bounded_and_repeatable(labels, clients, alpha, seed):
    part = partition(labels, clients, alpha, seed)
    held = np.concatenate(part.indices)
    assert part.clients == len(part.indices) == clients
    assert all(indices.dtype == np.int64 for indices in part.indices)
    assert len(set(held.tolist())) == len(held)
    assert set(held.tolist()) <= set(range(len(labels)))
    left = np.bincount(np.delete(labels, held), minlength=1)
    assert left.max() <= (0 if alpha == "iid" else clients)
    assert part.dropped == left.sum()
    assert part == partition(np.array(labels, dtype=np.uint8), clients, alpha, seed)
    assert hash(part) == hash(partition(labels, clients, alpha, seed))
    assert part.check(labels).tolist() == labels


@given(label_lists, st.integers(1, 40), alphas, seeds)
def test_statistics_agree_with_counting_by_hand(labels, clients, alpha, seed):
    part = partition(labels, clients, alpha, seed)
    counts = class_counts(part, labels, classes=9)
    assert counts.shape == (clients, 9)
    for client, row in enumerate(client_rows(part, labels)):
        held = [labels[index] for index in part.indices[client]]
        assert counts[client].tolist() == [held.count(label) for label in range(9)]
        assert (row.client, row.samples, row.classes) == (client, len(held), len(set(held)))
        if held:
            dominant = max(sorted(set(held)), key=held.count)
            assert (row.dominant, row.dominant_percent) == (dominant, 100 * held.count(dominant) / len(held))
        else:
            assert (row.dominant, row.dominant_percent) == (None, None)
    json.dumps(vars(summary(part, labels)), allow_nan=False)


@given(st.integers(1, 200), st.integers(1, 300), seeds)
def test_iid_loses_nothing_and_is_even(n, clients, seed):
    parts = iid_partition(n, clients, seed)
    sizes = [len(part) for part in parts]
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_a_thousand_clients_some_empty(labels):
    part = partition(labels["cifar100"], 1_000, 0.01, SEED)
    found = summary(part, labels["cifar100"])
    assert part.clients == 1_000
    assert found.empty_clients == (part.sizes == 0).sum() > 0
    percents = [row.dominant_percent or 0 for row in client_rows(part, labels["cifar100"]) if row.samples]
    assert found.dominant_percent == pytest.approx(np.mean(percents))
    assert found.min_samples == 0
    assert found.samples + found.dropped == 50_000


def test_more_clients_than_samples_can_leave_everyone_empty():
    found = summary(partition([0, 0, 1], 1_000, 1e6, SEED), [0, 0, 1])
    assert (found.samples, found.dropped, found.empty_clients) == (0, 3, 1_000)
    assert found.dominant_percent is found.ratio is found.published_percent is found.published_ratio is None


def test_one_client_holds_everything():
    for alpha in (5e-324, 0.1, 1.7e308, "iid"):
        part = partition([3, 1, 1], 1, alpha, SEED)
        assert part.dropped == 0
        assert summary(part, [3, 1, 1]).sample_std is None


@pytest.mark.parametrize("alpha", [1e-6, 1e-100, 5e-324])
def test_tiny_alpha_gives_each_class_to_one_client(alpha):
    labels = np.repeat(np.arange(50), 20)
    with warnings.catch_warnings(action="error"):
        part = partition(labels, 10, alpha, SEED)
    counts = class_counts(part, labels)
    assert part.dropped == 0
    assert ((counts > 0).sum(axis=0) == 1).all()
    assert ((counts > 0).any(axis=1)).sum() > 5  # the one client differs from class to class


@pytest.mark.parametrize("alpha", [1e12, 1e200, 1.7e308])
def test_huge_alpha_gives_equal_shares(alpha):
    labels = np.repeat(np.arange(5), 1_000)
    with warnings.catch_warnings(action="error"):
        counts = class_counts(partition(labels, 10, alpha, SEED), labels)
    assert ((counts == 100) | (counts == 99)).all()


def test_stand_ins_are_used_only_where_numpy_has_no_shares():
    alpha, seen = 1e-3, set()
    for seed in range(40):
        stream, parts = np.random.RandomState(seed), dirichlet_partition([0] * 100, 2, alpha, seed)
        stream.shuffle(np.arange(100))
        shares = stream.dirichlet([alpha] * 2)
        seen.add(bool(np.isfinite(shares).all()))
        sizes = [len(part) for part in parts]
        if np.isfinite(shares).all():
            assert sizes == [int(share) for share in shares / shares.sum() * 100]
        else:
            assert sorted(sizes) == [0, 100]
    assert seen == {True, False}


NONSENSE = {
    "alpha": [0, 0.0, -1, float("nan"), float("inf"), "foo", "IID", "0.1", "", True, None, [1]],
    "clients": [0, -3, 2.5, 2.0, True, "2", None],
    "seed": [-1, 2**32, 1.0, True, None],
    "labels": [[], [[0, 1]], [0.0, 1.0], ["cat"], [True], 3, [0, -1]],
}
ACCEPTED = {
    "alpha": "a finite number greater than 0 or the word 'iid', got",
    "clients": "a whole number of at least 1, got",
    "seed": "a whole number from 0 to 4294967295, got",
    "labels": "",
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NONSENSE.items() for value in values])
@pytest.mark.parametrize("alpha", [0.1, "iid"])
def test_nonsense_is_refused_by_name(name, value, alpha):
    given = {"labels": [0, 1], "clients": 2, "alpha": alpha, "seed": SEED, name: value}
    with pytest.raises(ValueError, match=f"{name} must be {ACCEPTED[name]}") as error:
        partition(**given)
    assert name == "labels" or str(error.value).endswith(repr(value))


def test_dirichlet_alone_refuses_iid_and_iid_alone_refuses_no_samples():
    with pytest.raises(ValueError, match="alpha must be a finite number greater than 0 for a Dirichlet"):
        dirichlet_partition([0, 1], 2, "iid", SEED)
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, got 0"):
        iid_partition(0, 2, SEED)


def test_numpy_numbers_are_numbers():
    clients = np.int32(2)
    seed = np.uint8(7)
    assert partition([0, 1], clients, np.float64(0.5), seed) == partition([0, 1], 2, 0.5, 7)


def test_too_few_classes_are_refused():
    with pytest.raises(ValueError, match="classes must be a whole number of at least 6, got 5"):
        class_counts(partition([0, 5], 2, "iid", SEED), [0, 5], 5)


def test_heterogeneity_words_between_and_beyond_the_published_alphas():
    assert [heterogeneity_word(alpha) for alpha in (0.01, 0.3, 0.7, 10)] == ["Extreme", "High", "Moderate", "Low"]


def test_other_labels_are_refused():
    part = partition([0, 1, 2], 2, 0.5, SEED)
    with pytest.raises(ValueError, match="labels must be the 3 that the partition was made for, got 2"):
        part.check([0, 1])
    with pytest.raises(ValueError, match=r"in the same order: SHA-256 \w{64}, got \w{64}$"):
        client_rows(part, [1, 0, 2])


def test_arrays_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        partition([0, 1, 2], 2, "iid", SEED).indices[0][0] = 1


def test_partitions_that_differ_in_anything_are_not_equal():
    made = [partition([0, 1], 2, "iid", 1), partition([0, 1], 2, "iid", 2), partition([1, 0], 2, "iid", 1)]
    assert len(set(made)) == 3
    assert made[0] != "a partition"


# Files


def example():
    return partition([0, 1, 2, 0, 1, 2, 0, 1] * 4, 5, 0.5, SEED)


@given(label_lists, st.integers(1, 40), alphas, seeds)
def test_files_round_trip_with_the_same_bytes(tmp_path_factory, labels, clients, alpha, seed):
    folder = tmp_path_factory.mktemp("files")
    part = partition(labels, clients, alpha, seed)
    part.save(folder / "a.npz")
    loaded = load_partition(str(folder / "a.npz"))
    assert loaded == part
    assert [held.tolist() for held in loaded.indices] == [held.tolist() for held in part.indices]
    assert (loaded.recipe, loaded.seed, loaded.alpha) == (part.recipe, part.seed, part.alpha)
    loaded.check(labels)
    loaded.save(folder / "deeper" / "b.npz")
    assert (folder / "a.npz").read_bytes() == (folder / "deeper" / "b.npz").read_bytes()


@settings(max_examples=300)
@given(st.data())
def test_a_changed_byte_is_refused_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("files") / "damaged.npz"
    example().save(path)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        assert load_partition(path) == example()  # a time stamp in the archive says nothing about the partition
    except ValueError as error:
        assert f"{path} is not a whole partition file: " in str(error)  # noqa: PT017


@given(st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, kept):
    path = tmp_path_factory.mktemp("files") / "short.npz"
    example().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"short\.npz is not a whole partition file: "):
        load_partition(path)


OFFSETS, FLAT = example()._arrays()


def rewritten(path, *, reseal=True, **changes):
    """The example's file with other contents; its checksum is made to fit unless told otherwise."""
    arrays = {name: changes.pop(name, array) for name, array in (("offsets", OFFSETS), ("indices", FLAT))}
    metadata = example()._metadata() | changes
    seal = module._contents_sha256(metadata, *arrays.values()) if reseal else example().sha256
    np.savez(path, metadata=np.array(json.dumps(metadata | {"sha256": seal})), **arrays)
    return path


def replaced(array, position, value):
    array = array.copy()
    array[position] = value
    return array


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"indices": replaced(FLAT, 0, 32)}, "indices must be from 0 to 31, got 32"),
        ({"indices": replaced(FLAT, 0, -1)}, "indices must be from 0 to 31, got -1"),
        ({"indices": replaced(FLAT, 0, FLAT[-1])}, f"got {FLAT[-1]} more than once"),
        ({"indices": FLAT.astype(float)}, "indices must be int64 in one dimension, got float64"),
        ({"indices": FLAT[:-1]}, f"offsets must rise from 0 to {len(FLAT) - 1}"),
        ({"offsets": replaced(OFFSETS, 1, 99)}, "offsets must rise from 0 to"),
        ({"offsets": replaced(OFFSETS, 0, 1)}, "offsets must rise from 0 to"),
        ({"offsets": OFFSETS[:-1]}, "offsets must be 6 for 5 clients, got 5"),
        ({"offsets": OFFSETS[None]}, "offsets must be int64 in one dimension"),
        ({"clients": 0}, "clients must be a whole number of at least 1, got 0"),
        ({"recipe": "dirichlet-9"}, "recipe must be 'dirichlet-1' for alpha=0.5, got 'dirichlet-9'"),
        ({"alpha": "iid"}, "recipe must be 'iid-1' for alpha='iid', got 'dirichlet-1'"),
        ({"alpha": -1}, "alpha must be a finite number greater than 0"),
        ({"seed": "42"}, "seed must be a whole number"),
        ({"label_count": 0}, "label_count must be a whole number of at least 1, got 0"),
        ({"labels_sha256": "beef"}, "labels_sha256 must be 64 hexadecimal digits, got 'beef'"),
        ({"extra": 1}, "metadata must be an object with alpha, clients"),
        ({"seed": 43, "reseal": False}, "the contents have SHA-256"),
        ({"indices": FLAT[::-1].copy(), "reseal": False}, "the contents have SHA-256"),
    ],
)
def test_altered_files_are_refused_by_their_fault(tmp_path, changes, fault):
    path = rewritten(tmp_path / "altered.npz", **changes)
    with pytest.raises(ValueError, match=r"altered\.npz is not a whole partition file: ") as error:
        load_partition(path)
    assert fault in str(error.value)


def test_the_rewriting_of_these_tests_alone_is_accepted(tmp_path):
    assert load_partition(rewritten(tmp_path / "same.npz")) == example()


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, labels=np.arange(3))
    with pytest.raises(ValueError, match="it must hold metadata, offsets, indices, got labels"):
        load_partition(path)
    np.savez(path, metadata=np.array(None), offsets=OFFSETS, indices=FLAT)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_partition(path)
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        load_partition(tmp_path / "absent.npz")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "part.npz"
    example().save(path)

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        partition([0, 1], 2, "iid", SEED).save(path)
    assert load_partition(path) == example()
    assert list(tmp_path.iterdir()) == [path]


def test_the_fingerprint_of_labels_is_fixed_for_good():
    assert labels_sha256(np.array([1, 2], dtype=np.uint8)) == labels_sha256([1, 2])
    assert labels_sha256([0]) == "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc"
