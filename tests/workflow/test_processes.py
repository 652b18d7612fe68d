"""Training in processes of their own: killed at any moment, and no larger with more clients."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

from training_runs import results

from qlocaladam.cli import main
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated.partition import partition


def command(digits, parts_file, out, rounds):
    return [
        *(sys.executable, "-m", "qlocaladam", "train", "--data", str(digits), "--partition", str(parts_file)),
        *("--train-images", "200", "--test-images", "50", "--rounds", str(rounds), "--width", "4"),
        *("--image-size", "32", "--batch-size", "16", "--no-flip", "--out", str(out)),
    ]


def test_killed_at_random_moments_and_run_beside_others_gives_the_same_bytes(digits, tmp_path):
    """SIGKILL, six times, anywhere from start-up to the last round, with another run going on beside it."""
    parts_file = tmp_path / "parts.npz"
    partition(subset(load(digits), 200, 50).y_train, 10, 0.5, 42).save(parts_file)
    rounds = 12
    start = time.monotonic()
    straight = subprocess.Popen(command(digits, parts_file, tmp_path / "straight", rounds), stderr=subprocess.DEVNULL)
    assert straight.wait() == 0
    whole = time.monotonic() - start
    beside = subprocess.Popen(command(digits, parts_file, tmp_path / "beside", rounds), stderr=subprocess.DEVNULL)
    chance, kills = random.Random(0), 0
    while kills < 6:
        process = subprocess.Popen(command(digits, parts_file, tmp_path / "killed", rounds), stderr=subprocess.DEVNULL)
        try:
            process.wait(chance.uniform(0.3, 1.0) * whole)
            break  # it finished before it was killed
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills, "no kill came in time"
    subprocess.run(command(digits, parts_file, tmp_path / "killed", rounds), check=True, stderr=subprocess.DEVNULL)
    assert beside.wait() == 0
    assert results(tmp_path / "straight") == results(tmp_path / "killed") == results(tmp_path / "beside")


def test_memory_does_not_grow_with_clients(digits, tmp_path):
    """Peak memory of a whole process with 5 and with 50 clients a round of the same data."""
    code = """
import resource, sys
from qlocaladam.cli import main
main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for clients in (5, 50):
        part = tmp_path / f"{clients}.npz"
        main(["partition", "--data", str(digits), "--clients", str(clients), "--alpha", "iid", "--out", str(part)])
        arguments = ["train", "--data", str(digits), "--partition", str(part), "--out", str(tmp_path / str(clients))]
        arguments += ["--clients-per-round", str(clients), "--rounds", "1", "--epochs", "1", "--width", "16"]
        arguments += ["--image-size", "32", "--batch-size", "28", "--no-flip"]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        peaks.append(int(done.stdout.splitlines()[-1]))
    assert peaks[1] < 1.1 * peaks[0]
