"""Federated learning as the paper runs it: partitions, samples in batches, the one round, and whole runs with files."""
