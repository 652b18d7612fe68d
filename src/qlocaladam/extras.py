"""Packages that only some commands need: the extra that brings each of them, and the line that says so."""

from __future__ import annotations

EXTRA_OF = {
    **dict.fromkeys(("PIL", "sklearn", "torchao", "torchvision"), "federated"),
    "bitsandbytes": "benchmark",
    **dict.fromkeys(
        ("jinja2", "jsonschema", "matplotlib", "pandas", "scipy", "seaborn", "snakemake", "statsmodels", "yaml"),
        "paper",
    ),
}
"""By the name that is imported. What the extras hold stands in pyproject.toml."""


def how_to_install(module: str) -> str:
    """What to say of a module that is not there."""
    package = module.partition(".")[0]
    return f"{package} is not installed: pip install 'qlocaladam[{EXTRA_OF[package]}]'"
