"""Side-by-side speed and memory against peers: `python -m benchmarks [SUITE ...]`.

A suite is a module here with `run(quick: bool) -> list[Table]`, and a line in `__main__.SUITES`.
"""
