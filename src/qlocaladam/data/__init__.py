"""Data sets: what one is, where they come from, and those that are made from what is installed."""
