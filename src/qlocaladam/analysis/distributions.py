"""How Adam's two states are distributed after a few steps, and what each codec would do to them.

The states are those of FP32 Adam trained centrally. The same settings and data give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from qlocaladam import RELEASED_FLOOR
from qlocaladam.checks import whole_number
from qlocaladam.codecs import ROUNDINGS, Codec, LogCodec
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated.batches import image_sets
from qlocaladam.federated.client import train_client
from qlocaladam.federated.rounds import make_model, prepare_device
from qlocaladam.federated.settings import RunSettings
from qlocaladam.optim import ARMS, MOMENTUM_CODECS, VARIANCE_CODECS, state_codecs
from qlocaladam.streams import stream_key, torch_stream

Values = NDArray[np.float64]
Row = dict[str, Any]
Number = TypeVar("Number", np.float64, np.bool_)

STATES = ("momentum", "variance")
USED = ("lr", "seed", "width", "stem", "image_size", "flip", "precision", "device")
"""The settings of a run that count here."""
LEVELS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
BOUNDS = (0.05, 0.1)
"""The paper has 95 % of momentum within the first and nearly all of it within the second."""
FEWEST = 20
"""Below this scipy calls its normality test inaccurate."""
BLOCK_SIZES = {"dynamic": (Codec.block_size, ARMS["dynamic-8bit"]["block_size"])}
"""Of codecs that have another size than the paper's to be seen at."""

HISTOGRAMS = ("state", "view", "left", "right", "count")
QUANTILES = (
    *("state", "layer", "numel", "min", *(f"q{level}" for level in LEVELS), "max", "mean", "std", "zero_fraction"),
    *("min_positive", "orders_of_magnitude", "below_offset", "reason"),
)
SHAPE = (
    *("what", "layer", "numel", "skewness", "excess_kurtosis", "normality_statistic", "normality_p", "ks_distance"),
    *(*(f"within_{bound}" for bound in BOUNDS), "reason"),
)
ERRORS = (
    *("state", "codec", "rounding", "block_size", "layer", "numel"),
    *("mean_relative_error", "median_relative_error", "max_relative_error", "mean_absolute_error", "zeroed_fraction"),
    *("step_error_median", "step_error_p99", "step_error_p99_floored", "step_error_max", "step_error_max_floored"),
    *("step_error_p99_idle", "reason"),
)


@dataclass(frozen=True)
class States:
    """Both states of every layer after `step` steps, and what Adam divides them by."""

    momentum: dict[str, Tensor]
    variance: dict[str, Tensor]
    step: int
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    log_offset: float = LogCodec.offset
    seed: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        return {layer: values.numel() for layer, values in self.momentum.items()}

    def values(self, state: str) -> Values:
        """A state of all layers together."""
        return joined(getattr(self, state).values())

    def by_layer(self, values: NDArray[Number]) -> dict[str, NDArray[Number]]:
        """Numbers for all layers together, then those of each layer."""
        ends = np.cumsum(list(self.sizes.values()))
        return {"all": values, **dict(zip(self.sizes, np.split(values, ends[:-1]), strict=True))}

    def denominator(self, variance: Values) -> Values:
        """What a momentum is divided by, with the variance's correction for a start at 0."""
        root: Values = np.sqrt(variance / (1 - self.betas[1] ** self.step)) + self.eps
        return root


class Distributions(NamedTuple):
    """The tables, with the columns named above, and the numbers that head them."""

    histograms: pd.DataFrame
    quantiles: pd.DataFrame
    shape: pd.DataFrame
    errors: pd.DataFrame
    summary: Row


def analyse(
    settings: RunSettings, dataset: Dataset, steps: int = 50, batch_size: int = 64, log_offset: float = LogCodec.offset
) -> Distributions:
    """Train with FP32 Adam, whatever arm the settings name, and take the states apart.

    `log_offset` is that of the log codec in the error table, and what `below_offset` compares the variance with.
    """
    states = train_states(settings, dataset, steps, batch_size, log_offset)
    quantiles, shape = quantile_table(states), shape_table(states)
    made: Row = {
        "dataset": dataset.name,
        "dataset_sha256": dataset.sha256,
        "dataset_training_images": len(dataset.y_train),
        "steps": steps,
        "batch_size": batch_size,
        "parameters": sum(states.sizes.values()),
        "settings": {name: getattr(settings, name) for name in USED},
        "log_offset": log_offset,
        **_headline(quantiles, shape),
        "layers": states.sizes,
    }
    return Distributions(histogram_table(states), quantiles, shape, error_table(states), made)


def train_states(
    settings: RunSettings, dataset: Dataset, steps: int = 50, batch_size: int = 64, log_offset: float = LogCodec.offset
) -> States:
    """Train one client on all images, each seen as often as any other give or take one; the states it ends with."""
    whole_number("steps", steps, 1)
    options = {"log_offset": log_offset}
    settings = replace(settings, arm="fp32", optimizer=options, epochs=1, batch_size=batch_size)
    device = prepare_device(settings.device)
    train, _ = image_sets(dataset, settings.image_size, device)
    model = make_model(settings, dataset.classes, device)
    draw = torch_stream(settings.seed, "distributions")
    passes = math.ceil(steps * batch_size / len(train))
    indices = torch.cat([torch.randperm(len(train), generator=draw) for _ in range(passes)])[: steps * batch_size]
    optimizer = train_client(model, train, indices, settings.local_training(), round_=0, client=0).optimizer

    momentum, variance = (
        {name: optimizer.state[param][state].cpu() for name, param in model.named_parameters()} for state in STATES
    )
    if not all(bool(values.isfinite().all()) for values in (*momentum.values(), *variance.values())):
        raise ValueError(f"lr must be one that training survives, got {settings.lr!r}: a state is not finite any more")
    group = optimizer.param_groups[0]
    return States(momentum, variance, steps, group["betas"], group["eps"], group["log_offset"], settings.seed)


def histogram_table(states: States) -> pd.DataFrame:
    """Counts over all layers together. Variances of 0 are not in the log10 view, nor momenta beyond the zoomed one."""
    momentum, variance = (states.values(state) for state in STATES)
    positive = variance[variance > 0]
    central = float(np.quantile(np.abs(momentum), 0.95))
    views = [
        ("variance", "linear", variance, 60, (0.0, variance.max())),
        ("variance", "log10", np.log10(positive), 60, None),
        ("momentum", "full", momentum, 80, None),
        ("momentum", "zoomed", momentum, 80, (-central, central)),
    ]
    tables = []
    for state, view, values, bins, limits in views:
        if len(values):
            counts, edges = np.histogram(values, bins, limits)
            columns = dict(zip(HISTOGRAMS, (state, view, edges[:-1], edges[1:], counts), strict=True))
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def quantile_table(states: States) -> pd.DataFrame:
    """One row a state and layer: where its values lie; of a variance also its span and its share below the offset."""
    rows = []
    for state in STATES:
        for layer, values in states.by_layer(states.values(state)).items():
            row = {"state": state, "layer": layer, **_quantiles(values)}
            rows.append(row if state == "momentum" else row | _span(values, states.log_offset))
    return pd.DataFrame(rows, columns=QUANTILES)


def _quantiles(values: Values) -> Row:
    levels = zip((f"q{level}" for level in LEVELS), np.quantile(values, LEVELS), strict=True)
    return {
        "numel": len(values),
        "min": values.min(),
        **dict(levels),
        "max": values.max(),
        "mean": values.mean(),
        "std": values.std(),
        "zero_fraction": (values == 0).mean(),
    }


def _span(variance: Values, offset: float) -> Row:
    below = {"below_offset": (variance < offset).mean()}
    positive = variance[variance > 0]
    if not len(positive):
        return {**below, "reason": "no positive value"}
    least = positive.min()
    return {**below, "min_positive": least, "orders_of_magnitude": np.log10(positive.max() / least)}


def shape_table(states: States) -> pd.DataFrame:
    """How far from normal are momentum and log10 of the positive variances, by layer."""
    momentum, variance = (states.by_layer(states.values(state)) for state in STATES)
    whats = {
        "log10 variance": {layer: np.log10(values[values > 0]) for layer, values in variance.items()},
        "momentum": momentum,
        # On small images most taps of the last kernels see nothing but padding: a spike at 0 that hides the rest.
        "nonzero momentum": {layer: values[values != 0] for layer, values in momentum.items()},
    }
    rows = []
    for what, layers in whats.items():
        for layer, values in layers.items():
            row = {"what": what, "layer": layer, "numel": len(values), **shape_of(values)}
            if what != "log10 variance" and len(values):
                row |= {f"within_{bound}": (np.abs(values) <= bound).mean() for bound in BOUNDS}
            rows.append(row)
    return pd.DataFrame(rows, columns=SHAPE)


def shape_of(values: Values) -> Row:
    """Skewness, excess kurtosis, the normality test of D'Agostino and Pearson, and how far off the nearest normal is.

    With 10^5 values any test rejects any data; the Kolmogorov-Smirnov distance to the fitted normal, between 0 and 1,
    means the same however many values there are.
    """
    if len(values) < FEWEST:
        return {"reason": f"fewer than {FEWEST} values"}
    if values.min() == values.max():
        return {"reason": "all values are equal"}
    test = stats.normaltest(values)
    fitted = (values.mean(), values.std())
    return {
        "skewness": stats.skew(values),
        "excess_kurtosis": stats.kurtosis(values),
        "normality_statistic": test.statistic,
        "normality_p": test.pvalue,
        "ks_distance": stats.kstest(values, "norm", args=fitted, method="asymp").statistic,
    }


def error_table(states: States) -> pd.DataFrame:
    """What storing a state by each codec the optimizer has for it would change, by layer.

    Relative errors are over the values that are not 0. A step error is how far off Adam's step would be if only that
    state had been stored so: of variance, relative to the step; of momentum, in units of the learning rate. It is over
    the weights that had a gradient; those that had none, and should not move, have their own column. The floored ones
    read a variance as at least the released code's floor.
    """
    live = states.by_layer(states.values("variance") > 0)
    rows = []
    for state in STATES:
        values = states.by_layer(states.values(state))
        for codec in codecs(state, states.log_offset):
            stored = _stored(states, state, codec)
            decoded, plain, floored = map(states.by_layer, (stored, *_step_errors(states, state, stored)))
            names = {"state": state, "codec": codec.name, "rounding": codec.rounding, "block_size": codec.block_size}
            for layer in values:
                row = {**names, "layer": layer, "numel": len(values[layer])}
                row |= relative_errors(values[layer], decoded[layer])
                row |= _step_row(plain[layer][live[layer]], floored[layer][live[layer]])
                if state == "momentum" and not live[layer].all():
                    row["step_error_p99_idle"] = np.quantile(plain[layer][~live[layer]], 0.99)
                rows.append(row)
    return pd.DataFrame(rows, columns=ERRORS)


def codecs(state: str, log_offset: float = LogCodec.offset) -> Iterator[Codec]:
    """Every codec that the optimizer has for a state, at each rounding, and at each block size it is to be seen at.

    Without the one that stores no state but the ratio of both: `analysis.step_errors` compares that.
    """
    for name in {"momentum": MOMENTUM_CODECS, "variance": VARIANCE_CODECS}[state]:
        options = {**ARMS["fp32"], state: name}
        for block_size in BLOCK_SIZES.get(name, (Codec.block_size,)):
            for rounding in ROUNDINGS:
                both = state_codecs(**options, block_size=block_size, rounding=rounding, log_offset=log_offset)
                codec = both[STATES.index(state)]
                if codec is not None and not codec.relative:
                    yield codec


def _stored(states: States, state: str, codec: Codec) -> Values:
    """The state as the optimizer would read it back: stored layer by layer, with its own random draws."""
    moment = STATES.index(state)
    return joined(
        codec.decode(codec.encode(values, key=stream_key(states.seed, states.step, index, moment)))
        for index, values in enumerate(getattr(states, state).values())
    )


def _step_errors(states: States, state: str, decoded: Values) -> tuple[Values, Values]:
    """For every value, without and with the floor on variance."""
    momentum, variance = (states.values(name) for name in STATES)
    if state == "variance":
        exact = states.denominator(variance)
        plain, floored = (exact / states.denominator(np.maximum(decoded, least)) - 1 for least in (0.0, RELEASED_FLOOR))
    else:
        error = (decoded - momentum) / (1 - states.betas[0] ** states.step)
        plain, floored = (error / states.denominator(np.maximum(variance, least)) for least in (0.0, RELEASED_FLOOR))
    return np.abs(plain), np.abs(floored)


def relative_errors(values: Values, decoded: Values) -> Row:
    """What became of the values; empty, with a reason, where there is nothing to be relative to."""
    absolute = np.abs(decoded - values)
    row: Row = {"mean_absolute_error": absolute.mean()}
    nonzero = values != 0
    if not nonzero.any():
        return {**row, "reason": "all values are 0"}
    relative = absolute[nonzero] / np.abs(values[nonzero])
    return {
        **row,
        "mean_relative_error": relative.mean(),
        "median_relative_error": np.median(relative),
        "max_relative_error": relative.max(),
        "zeroed_fraction": (decoded[nonzero] == 0).mean(),
    }


def _step_row(plain: Values, floored: Values) -> Row:
    if not len(plain):
        return {}
    median, p99 = np.quantile(plain, (0.5, 0.99))
    return {
        "step_error_median": median,
        "step_error_p99": p99,
        "step_error_p99_floored": np.quantile(floored, 0.99),
        "step_error_max": plain.max(),
        "step_error_max_floored": floored.max(),
    }


def _headline(quantiles: pd.DataFrame, shape: pd.DataFrame) -> dict[str, Row]:
    """What the paper says about both states, as measured over all layers."""
    of = quantiles[quantiles["layer"] == "all"].set_index("state").T
    bell = shape[shape["layer"] == "all"].set_index("what").T
    momentum, variance = of["momentum"], of["variance"]
    form, bounds = ["skewness", "excess_kurtosis", "ks_distance"], [f"within_{bound}" for bound in BOUNDS]
    span = ["orders_of_magnitude", "min_positive", "max", "zero_fraction", "below_offset"]
    numbers = {
        "variance": {**variance[span], **bell["log10 variance"][form].add_prefix("log10_")},
        "momentum": {
            "abs_max": max(-momentum["min"], momentum["max"]),
            "zero_fraction": momentum["zero_fraction"],
            **bell["momentum"][bounds + form],
            **bell["nonzero momentum"][form].add_prefix("nonzero_"),
        },
    }
    return {
        state: {name: None if pd.isna(value) else float(value) for name, value in row.items()}
        for state, row in numbers.items()
    }


def joined(tensors: Iterable[Tensor]) -> Values:
    """Every value, in logical order."""
    values: Values = torch.cat([tensor.reshape(-1) for tensor in tensors]).double().numpy()
    return values
