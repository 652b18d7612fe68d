"""From config.yaml to the grid of runs, and finished runs read back."""
