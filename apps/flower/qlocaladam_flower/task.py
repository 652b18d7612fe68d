"""What server and clients share: settings, data, partition and model of a run, from the run config of the app."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import torch
from flwr.app.user_config import UserConfig

from qlocaladam.checks import finite_number, whole_number
from qlocaladam.data import sources
from qlocaladam.data.dataset import Dataset, load, subset
from qlocaladam.data.made import EMBEDDED
from qlocaladam.federated.batches import Samples, sample_sets
from qlocaladam.federated.partition import IID, Partition, partition
from qlocaladam.federated.rounds import make_model, prepare_device
from qlocaladam.federated.settings import RunSettings


def run_settings(config: UserConfig) -> RunSettings:
    """The settings of a run as the package knows them; each is checked there."""
    given = {key.replace("-", "_"): value for key, value in config.items()}
    return RunSettings(**{name: given[name] for name in RunSettings.__dataclass_fields__ if name in given})


def check(config: UserConfig) -> None:
    """The keys that only this app has. The others are checked where they are used, all before the first round."""
    whole_number("threads", config["threads"], 1)
    for name in ("train-images", "test-images"):
        whole_number(name, config[name], 0)
    for name in ("server-lr", "server-tau", "round-timeout", "proximal-mu"):
        finite_number(name, config[name], zero=name == "proximal-mu")
    if config["out"]:
        try:
            Path(str(config["out"])).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"out must be a folder that can be made, got {config['out']!r}: {error.strerror}"
            ) from None


def load_dataset(config: UserConfig) -> Dataset:
    """The data set by its name, where it needs no download, or by the .npz file that holds it."""
    return _dataset(str(config["dataset"]), int(config["train-images"]), int(config["test-images"]))


@cache
def _dataset(name: str, train: int, test: int) -> Dataset:
    if name in EMBEDDED:
        with tempfile.TemporaryDirectory() as folder:
            dataset = sources.prepare(name, Path(folder, f"{name}.npz"))
    elif name.endswith(".npz"):
        dataset = load(name)
    else:
        accepted = f"{', '.join(EMBEDDED)} or the path of a file that `python -m qlocaladam data` wrote (.npz)"
        raise ValueError(f"dataset must be {accepted}, got {name!r}")
    return subset(dataset, train or None, test or None) if train or test else dataset


def load_sets(config: UserConfig) -> tuple[Samples, Samples]:
    """Training and test data on the device that trains."""
    dataset, device = load_dataset(config), prepare_device(str(config["device"]))
    return sample_sets(dataset, int(config["image-size"]), device)


def deal(config: UserConfig, clients: int) -> Partition:
    """The paper's partition of the training data among so many clients."""
    text = str(config["alpha"])
    try:
        alpha = IID if text == IID else float(text)
    except ValueError:
        raise ValueError(f"alpha must be a number greater than 0 or the word 'iid', got {text!r}") from None
    return partition(load_dataset(config).y_train, clients, alpha, int(config["seed"]))


def new_model(config: UserConfig) -> torch.nn.Module:
    """The initial model, the same for server and clients."""
    dataset, settings = load_dataset(config), run_settings(config)
    return make_model(settings, dataset.outputs, prepare_device(settings.device), dataset.is_text)
