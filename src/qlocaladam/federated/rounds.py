"""The federated round: sampled clients train from the global model one after the other, and their average replaces it.

Training runs, analyses of clients and benchmarks all take their rounds from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from qlocaladam.checks import whole_number
from qlocaladam.data.dataset import WINDOW, Dataset
from qlocaladam.federated.batches import sample_sets
from qlocaladam.federated.client import ClientResult, train_client
from qlocaladam.federated.partition import Partition
from qlocaladam.federated.sampling import sample_clients
from qlocaladam.federated.server import State, WeightedAverage, load_state
from qlocaladam.federated.settings import RunSettings
from qlocaladam.models import ResNet18, Transformer
from qlocaladam.streams import torch_stream


class Federation:
    """A global model and the clients that train it."""

    def __init__(self, settings: RunSettings, dataset: Dataset, partition: Partition) -> None:
        if dataset.is_text:
            settings = replace(settings, flip=False)  # drawing flips that nobody uses would still change the batches
        partition.check(dataset.y_train)
        whole_number("clients_per_round", settings.clients_per_round, 1, partition.clients)
        if not partition.sizes.any():
            raise ValueError("the partition has no samples for anybody")
        self.settings, self.partition = settings, partition
        device = prepare_device(settings.device)
        self.train, self.test = sample_sets(dataset, settings.image_size, device)
        self.model = make_model(settings, dataset.outputs, device, dataset.is_text)
        self.sampled = sample_clients(settings.seed, settings.rounds, partition.clients, settings.clients_per_round)
        """The clients of each round."""
        self.state: State = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        """Of the global model."""
        self.client_states: dict[int, dict[str, Any]] = {}
        """Of the optimizers of clients that have trained, where they are kept from round to round."""

    def train_round(self, number: int) -> Iterator[tuple[int, ClientResult]]:
        """The clients of the round that hold anything, each when it has trained. Rounds count from 1.

        When all have been taken, the model is the new global one; until then it is that of the client.
        """
        how, sizes, clients = self.settings.local_training(), self.partition.sizes, self.sampled[number - 1]
        average = WeightedAverage(int(sizes[clients].sum()))
        for client in clients[sizes[clients] > 0].tolist():
            load_state(self.model, self.state)
            indices = torch.tensor(self.partition.indices[client])
            states = self.client_states.get(client)
            result = train_client(self.model, self.train, indices, how, number, client, states)
            if how.persist:
                self.client_states[client] = result.optimizer.state_dict()
            average.add(self.model.state_dict(), len(indices))
            yield client, result
        if average.sum:
            self.state = average.result(self.state)
        load_state(self.model, self.state)


def prepare_device(name: str) -> torch.device:
    """The device, set up so that results repeat: TF32 for speed, deterministic algorithms wherever torch has them."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be one that torch knows, such as cpu or cuda, got {name!r}") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device {name!r} is not there: torch sees no GPU")
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS does not repeat itself
        torch.use_deterministic_algorithms(True, warn_only=True)
    return device


def make_model(settings: RunSettings, outputs: int, device: torch.device, text: bool = False) -> nn.Module:
    """The initial model, from its own stream; the caller's generator is left as it was.

    Weights stay in logical order, which is that of the optimizer's blocks: only images are channels last. That is as
    fast as having both so, and spares the optimizer two copies a step.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_stream(settings.seed, "model").initial_seed())
        model: nn.Module
        if text:
            model = Transformer(outputs, WINDOW, settings.width)
        else:
            model = ResNet18(outputs, settings.width, settings.stem)
    return model.to(device)
