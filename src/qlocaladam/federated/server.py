"""The server's part of a round: average what the clients send, weighted by their samples, and evaluate it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from qlocaladam.federated.batches import Samples

State = dict[str, Tensor]


class WeightedAverage:
    """A running sum of models, buffers too, so that memory does not grow with the number of clients."""

    def __init__(self, total: int) -> None:
        """`total`: the samples of all clients that will be added."""
        self.total = total
        self.sum: State = {}

    def add(self, state: State, samples: int) -> None:
        """Add a client's model with the weight of its samples."""
        for name, value in state.items():
            # Counters are averaged in double precision, which holds them exactly, and rounded in the end.
            value = value if value.is_floating_point() else value.double()
            if name not in self.sum:
                self.sum[name] = torch.zeros_like(value)
            self.sum[name].add_(value, alpha=samples / self.total)

    def result(self, like: State) -> State:
        """The average, each tensor in the type that it has in `like`."""
        return {
            name: value if like[name].is_floating_point() else value.round().to(like[name].dtype)
            for name, value in self.sum.items()
        }


@torch.no_grad()
def load_state(model: nn.Module, state: State) -> None:
    """Copy a state into the model, in place."""
    for name, value in model.state_dict().items():
        value.copy_(state[name])


@torch.no_grad()
def evaluate(model: nn.Module, data: Samples, batch_size: int, autocast: bool = False) -> tuple[float, float]:
    """Accuracy in percent and mean loss, over all images or over every place of all windows of text."""
    model.eval()
    device = data.labels.device
    correct = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    count = 0
    for first in range(0, len(data), batch_size):
        indices = torch.arange(first, min(first + batch_size, len(data)), device=device)
        inputs, targets = data.batch(indices)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(inputs)
        logits, targets = logits.float().flatten(0, -2), targets.flatten()
        loss += cross_entropy(logits, targets, reduction="sum").double()
        correct += (logits.argmax(1) == targets).sum()
        count += len(targets)
    return 100 * correct.item() / count, loss.item() / count
