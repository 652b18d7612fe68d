"""What storing the states as each arm does costs single steps of real client training, in units of the learning rate.

A client of a federated run trains in FP32; at some of its steps the states are stored as by every arm and the step is
taken from what is read back. The same settings, data and partition give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from qlocaladam.analysis.distributions import joined
from qlocaladam.analysis.memory import Arms, options_of
from qlocaladam.checks import whole_number
from qlocaladam.codecs import Codec
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated.client import train_client
from qlocaladam.federated.partition import Partition
from qlocaladam.federated.rounds import Federation
from qlocaladam.federated.run import describe
from qlocaladam.federated.sampling import steps_per_round
from qlocaladam.federated.settings import RunSettings
from qlocaladam.optim import ARMS, CODEC_OPTIONS, QLocalAdam, state_codecs
from qlocaladam.streams import stream_key

Values = NDArray[np.float64]
Row = dict[str, Any]

EARLY_STEPS = (2, 10)
"""Steps that are looked at besides a client's last. The first starts from states of 0, which every arm has exactly."""
QUANTILES = {"p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
ERRORS = (*QUANTILES, "max", "over_ten", "under_ten", "over_ten_lr")
BY_LAYER = ("arm", "step", "layer", "dimensions", "numel", "live", *ERRORS, "idle_max")
BY_DECADE = ("arm", "step", "decade", "numel", *ERRORS)
ZERO = "zero"
"""The decade of a variance of 0."""


@dataclass(frozen=True)
class Moment:
    """A step that is about to be taken: both states in FP32 and the gradient, by layer."""

    step: int
    momentum: dict[str, Tensor]
    variance: dict[str, Tensor]
    gradient: dict[str, Tensor]


def analyse(
    settings: RunSettings, dataset: Dataset, partition: Partition, arms: Arms, after: int = 3
) -> tuple[pd.DataFrame, pd.DataFrame, Row]:
    """The tables by layer and by decade of the variance, and which client it is.

    The client is the one with the most samples of the round that follows `after` rounds.
    """
    options = {name: options_of(name, entry) for name, entry in arms.items()}
    moments, summary = observe(settings, dataset, partition, after)
    by_layer, by_decade = measure(moments, options, settings.seed)
    return by_layer, by_decade, {**summary, "arms": dict(arms), "looked_at": [moment.step for moment in moments]}


# Training.


def observe(settings: RunSettings, dataset: Dataset, partition: Partition, after: int) -> tuple[list[Moment], Row]:
    """Train `after` rounds in FP32, whatever arm the settings name, then record a client of the next one."""
    whole_number("after", after, 0)
    federation = Federation(replace(settings, arm="fp32", optimizer={}, rounds=after + 1), dataset, partition)
    for number in range(1, after + 1):
        for _ in federation.train_round(number):
            pass

    client = int(max(federation.sampled[-1], key=lambda each: partition.sizes[each]))
    indices = torch.tensor(partition.indices[client])
    settings, model = federation.settings, federation.model
    last = steps_per_round(len(indices), settings.epochs, settings.batch_size)
    if last < 2:
        raise ValueError(f"client {client} must take at least 2 steps, got {last}: it has {len(indices)} samples")
    recorder = _Recorder(model, {*EARLY_STEPS, last})
    with register_optimizer_step_pre_hook(recorder):
        train_client(model, federation.train, indices, settings.local_training(), after + 1, client)
    summary = {
        **describe(settings, dataset, partition),
        "round": after + 1,
        "client": client,
        "samples": len(indices),
        "steps": last,
        "parameters": sum(param.numel() for param in model.parameters()),
    }
    return recorder.moments, summary


class _Recorder:
    """Called before every step of an optimizer; keeps copies of what the wanted ones start from."""

    def __init__(self, model: nn.Module, wanted: set[int]) -> None:
        self.model, self.wanted = model, wanted
        self.step = 0
        self.moments: list[Moment] = []

    def __call__(self, optimizer: Optimizer, *_: Any) -> None:
        self.step += 1
        if self.step not in self.wanted:
            return
        params = dict(self.model.named_parameters())
        momentum, variance = (
            {name: optimizer.state[param][state].cpu().clone() for name, param in params.items()}
            for state in ("momentum", "variance")
        )
        gradient = {name: param.grad.cpu().clone() for name, param in params.items() if param.grad is not None}
        self.moments.append(Moment(self.step, momentum, variance, gradient))


# Steps.


def displacement(moment: Moment, options: Mapping[str, Any], seed: int = 0) -> Values:
    """How far the step moves each weight, in learning rates, if QLocalAdam with these options had stored the states."""
    params = {name: torch.zeros_like(gradient) for name, gradient in moment.gradient.items()}
    optimizer = QLocalAdam(params.values(), **{**options, "lr": 1.0, "seed": seed, "backend": "reference"})
    group = optimizer.param_groups[0]
    codecs = state_codecs(*(group[name] for name in CODEC_OPTIONS))
    for index, (name, param) in enumerate(params.items()):
        momentum, variance = moment.momentum[name], moment.variance[name]
        if codecs[0] is not None and codecs[0].relative:
            momentum = torch.where(variance == 0, 0.0, momentum / variance.sqrt())
        keys = [stream_key(seed, moment.step - 1, index, number) for number in (0, 1)]
        param.grad = moment.gradient[name]
        optimizer.state[param] = {
            "step": moment.step - 1,
            **_stored("momentum", momentum, codecs[0], keys[0]),
            **_stored("variance", variance, codecs[1], keys[1]),
        }
    optimizer.step()
    return joined(params.values())


def _stored(state: str, values: Tensor, codec: Codec | None, key: int) -> dict[str, Tensor]:
    """A state as the optimizer keeps it."""
    if codec is None:
        return {state: values.clone()}
    encoded = codec.encode(values, key=key)
    return {f"{state}_codes": encoded.codes, f"{state}_ranges": encoded.ranges}


def measure(
    moments: Iterable[Moment], arms: Mapping[str, Mapping[str, Any]], seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Step errors of each arm against exact FP32 at each moment: by layer, and by decade of the variance.

    `arms` gives the options of QLocalAdam for each name.
    The error is the distance of a weight's step from the exact one, in learning rates. Those by layer are over the
    weights whose variance is above 0; `idle_max` is the largest over the others.
    """
    layers, decades = [], []
    for moment in moments:
        exact, variance = displacement(moment, ARMS["fp32"]), joined(moment.variance.values())
        places = {"all": slice(None), **_places(moment.gradient)}
        dimensions = {layer: gradient.dim() for layer, gradient in moment.gradient.items()}
        decade = decade_of(variance)
        for arm, options in arms.items():
            moved = displacement(moment, options, seed)
            names = {"arm": arm, "step": moment.step}
            for layer, place in places.items():
                row = _layer_row(variance[place], exact[place], moved[place])
                layers.append({**names, "layer": layer, "dimensions": dimensions.get(layer), **row})
            decades += [
                {**names, "decade": _decade_name(value), **_counted(exact[decade == value], moved[decade == value])}
                for value in np.unique(decade)
            ]
    by_layer = pd.DataFrame(layers, columns=BY_LAYER).astype({"dimensions": "Int64"})
    return by_layer, pd.DataFrame(decades, columns=BY_DECADE)


def decade_of(variance: Values) -> Values:
    """The exponent of ten of each; minus infinity for 0."""
    with np.errstate(divide="ignore"):
        exponents: Values = np.floor(np.log10(variance))
    return exponents


def _decade_name(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else ZERO


def _places(tensors: Mapping[str, Tensor]) -> dict[str, slice]:
    """Where each layer stands when all are joined."""
    ends = np.cumsum([tensor.numel() for tensor in tensors.values()]).tolist()
    return dict(zip(tensors, map(slice, [0, *ends[:-1]], ends), strict=True))


def _layer_row(variance: Values, exact: Values, moved: Values) -> Row:
    live = variance > 0
    idle = np.abs(moved - exact)[~live]
    row = {**_counted(exact[live], moved[live]), "numel": len(variance), "live": live.mean()}
    return row | ({"idle_max": idle.max()} if len(idle) else {})


def _counted(exact: Values, moved: Values) -> Row:
    """How many steps, their errors, and the shares of them that are ten times too large, too small, or too far off.

    Steps that are exactly 0 are not compared by size.
    """
    if not len(exact):
        return {"numel": 0}
    error = np.abs(moved - exact)
    real, stored = (np.abs(steps[exact != 0]) for steps in (exact, moved))
    shares = {"over_ten": stored > 10 * real, "under_ten": 10 * stored < real}
    return {
        "numel": len(exact),
        **dict(zip(QUANTILES, np.quantile(error, list(QUANTILES.values())), strict=True)),
        "max": error.max(),
        **({name: share.mean() for name, share in shares.items()} if len(real) else {}),
        "over_ten_lr": (error > 10).mean(),
    }
