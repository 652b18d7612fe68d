"""Q-LocalAdam as a Flower app."""
