"""How analyses train that train a little themselves: as a run at the defaults, as far as they have its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qlocaladam import ARITHMETIC_SINCE
from qlocaladam.experiments import grid
from qlocaladam.experiments.grid import DEFAULTS, SUBSETS

if TYPE_CHECKING:
    from qlocaladam.results.layout import Layout


def run_options(layout: Layout, dataset: str, *left_out: str) -> dict[str, Any]:
    """Where clients train as those of a run do."""
    images = {name: layout.size["datasets"][dataset].get(name) for name in SUBSETS}
    chosen = {name: layout.config["defaults"][name] for name in ("lr", "seed")} | grid.training(layout.config, dataset)
    left_out = ("checkpoint_every", *left_out)
    return {**images, **{name: value for name, value in chosen.items() if name not in left_out}}


def run_request(layout: Layout, dataset: str, **settings: Any) -> dict[str, Any]:
    asked = grid.asked(layout.config, [dataset], []) | {"arms": {"fp32": {"arm": "fp32", "options": {}}}}
    place = layout.default_place(dataset)
    request = layout.with_data(grid.request(asked, place), place)
    return {**request, "settings": {**request["settings"], "optimizer": {}, **settings}}


def arm_settings(layout: Layout, dataset: str, *more: str) -> dict[str, Any]:
    """Where each arm trains by itself."""
    chosen = {**DEFAULTS, **layout.config["defaults"], **grid.training(layout.config, dataset)}
    return {name: chosen[name] for name in ("lr", "batch_size", "seed", "precision", "device", *more)}


def arm_request(layout: Layout, analysis: str, dataset: str, *known: str) -> dict[str, Any]:
    """Of the data, their hash and `known`, as far as these are known before they are made."""
    facts = {name: fact for name, fact in layout.data_facts(dataset).items() if name in ("sha256", *known)}
    data = {"name": layout.data_of(dataset), **facts}
    return {"arithmetic": ARITHMETIC_SINCE, "arms": layout.analysed_arms(analysis), "dataset": data}


def own_size(layout: Layout, analysis: str, **usual: Any) -> dict[str, Any]:
    """What a scale says of its size under `analyses`."""
    return {**usual, **layout.size.get("analyses", {}).get(analysis, {})}
