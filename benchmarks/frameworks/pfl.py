"""pfl-research: its simulated backend and federated averaging, in one process, or in two that share every round.

It is left its own ways: batches of a client are not shuffled, only parameters are averaged, and the first round is not
evaluated. Each of them saves it some work.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.frameworks import BATCH, EPOCHS, EVALUATION_BATCH, LEARNING_RATE, PER_ROUND, SEED, bare
from qlocaladam.data.dataset import load
from qlocaladam.federated.partition import load_partition


class Classifier(nn.Module):
    """The model with the two methods that pfl calls."""

    def __init__(self, model: nn.Module, data: bare.Images) -> None:
        super().__init__()
        self.model, self.data = model, data

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        self.train()
        return cross_entropy(self.model(self.data.prepare(images, torch.rand(len(images)) < 0.5)), labels)

    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Weighted]:
        self.eval()
        correct = self.model(self.data.prepare(images)).argmax(1) == labels
        return {"accuracy": Weighted(correct.sum().item(), len(labels))}


class Clock(TrainingProcessCallback):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.time())
        return False, Metrics()


def _clients(data: bare.Images, partition: Path) -> FederatedDataset:
    clients = [torch.tensor(held) for held in load_partition(partition).indices]

    def dataset(client: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset((data.images[clients[client]], data.labels[clients[client]]), user_id=client)

    return FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(len(clients)))))


def run(data: Path, partition: Path, rounds: int) -> list[float]:
    np.random.seed(SEED)  # noqa: NPY002, pfl draws clients from NumPy's global stream, the same in all its processes
    dataset = load(data)
    train, test = bare.load(dataset)
    module = Classifier(bare.make_model(dataset.classes), train)
    model = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.Adam(parameters, lr=lr, fused=True),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    clients, clock = _clients(train, partition), Clock()
    evaluation = NNEvalHyperParams(local_batch_size=EVALUATION_BATCH)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=2**31, train_cohort_size=PER_ROUND, val_cohort_size=0
        ),
        SimulatedBackend(clients, clients, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=EPOCHS, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH),
        evaluation,
        [CentralEvaluationCallback(PyTorchTensorDataset((test.images, test.labels)), evaluation), clock],
        send_metrics_to_platform=False,
    )
    return clock.ends
