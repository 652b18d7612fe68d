"""Client sampling: the paper's recipe, the properties of any draw, and the steps a client takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlocaladam.analysis.participation import sampling
from qlocaladam.federated.sampling import sample_clients, steps_per_round

seeds = st.integers(0, 2**32 - 1)


def test_the_recipe_word_for_word():
    stream = np.random.RandomState(42)
    expected = [stream.choice(10, 5, replace=False).tolist() for _ in range(120)]
    assert sample_clients(42, 120, 10, 5).tolist() == expected


@given(seeds, st.integers(1, 20), st.integers(1, 50), st.data())
def test_rounds_hold_different_clients_and_repeat(seed, rounds, clients, data):
    per_round = data.draw(st.integers(1, clients))
    drawn = sample_clients(seed, rounds, clients, per_round)
    assert drawn.shape == (rounds, per_round)
    assert drawn.dtype == np.int64
    assert all(len(set(chosen)) == per_round for chosen in drawn.tolist())
    assert sum(sampling(seed, rounds, clients, per_round)["counts"]) == rounds * per_round
    assert np.array_equal(sample_clients(seed, rounds + 3, clients, per_round)[:rounds], drawn)


def test_full_participation_takes_everyone_every_round():
    assert sampling(42, 7, 5, 5) == {"counts": [7] * 5, "mean": 7.0, "std": 0.0, "min": 7, "max": 7}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((-1, 1, 1, 1), "seed must be a whole number from 0 to 4294967295, got -1"),
        ((42, 0, 10, 5), "rounds must be a whole number of at least 1, got 0"),
        ((42, True, 10, 5), "rounds must be a whole number of at least 1, got True"),
        ((42, 120, 0, 5), "clients must be a whole number of at least 1, got 0"),
        ((42, 120, 2.5, 2), "clients must be a whole number of at least 1, got 2.5"),
        ((42, 120, 10, 11), "per_round must be a whole number from 1 to 10, got 11"),
        ((42, 120, 10, 0), "per_round must be a whole number from 1 to 10, got 0"),
    ],
)
def test_nonsense_is_refused(arguments, fault):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        sample_clients(*arguments)
    assert str(error.value) == fault


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 300))
def test_steps_are_the_batches_of_every_epoch(samples, epochs, batch):
    assert steps_per_round(samples, epochs, batch) == epochs * len(range(0, samples, batch))


@pytest.mark.parametrize(
    ("arguments", "name"), [((-1, 2, 64), "samples"), ((10, -1, 64), "epochs"), ((10, 2, 0), "batch")]
)
def test_nonsense_steps_are_refused(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least"):
        steps_per_round(*arguments)
