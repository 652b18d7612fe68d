"""Federated learning as the paper runs it: who holds which samples, and who takes part in which round."""
