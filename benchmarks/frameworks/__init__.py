"""Federated learning in other people's hands: the bare loop, Flower and pfl-research on the workload of a run of ours.

`python -m benchmarks.frameworks NAME DATA PARTITION OUT ROUNDS` is one run of a framework, in a process of its own.
"""

CLIENTS, PER_ROUND = 10, 5
EPOCHS, BATCH = 2, 64
EVALUATION_BATCH = 500
WIDTH, SIZE = 16, 32
LEARNING_RATE = 1e-3
SEED = 42
