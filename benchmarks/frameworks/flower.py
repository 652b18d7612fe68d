"""Flower's simulation: its FedAvg over client processes of one core each, which train with the bare loop.

A client process reads the data once and keeps it. The server evaluates the average after every round, as our runs do.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.frameworks import CLIENTS, PER_ROUND, SEED, bare
from qlocaladam.data.dataset import load
from qlocaladam.federated.partition import Partition, load_partition
from qlocaladam.streams import torch_stream

client_app = ClientApp()


@cache
def _client(data: str, partition: str) -> tuple[nn.Module, bare.Images, Partition]:
    torch.set_num_threads(1)
    dataset = load(data)
    return bare.make_model(dataset.classes), bare.load(dataset)[0], load_partition(partition)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    model, images, partition = _client(config["data"], config["partition"])
    client = int(context.node_config["partition-id"])
    indices = torch.tensor(partition.indices[client])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    bare.train(model, images, indices, torch_stream(SEED, "batches", config["server-round"], client))
    metrics = MetricRecord({"num-examples": len(indices)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


def run(data: Path, partition: Path, rounds: int) -> list[float]:
    dataset = load(data)
    test, model, ends = bare.load(dataset)[1], bare.make_model(dataset.classes), []
    server_app = ServerApp()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        if number == 0:
            return None
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy = bare.evaluate(model, test)
        ends.append(time.time())
        return MetricRecord({"accuracy": accuracy})

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        FedAvg(fraction_train=PER_ROUND / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS).start(
            grid,
            ArrayRecord(model.state_dict()),
            rounds,
            train_config=ConfigRecord({"data": str(data), "partition": str(partition)}),
            evaluate_fn=evaluate,
        )

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, CLIENTS, backend_config=resources)
    return ends
