"""Flower's strategies in the paper's rounds: the paper's sampling of clients on top of any of them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from logging import INFO, WARNING
from types import SimpleNamespace
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid, strategy
from flwr.serverapp.strategy import FedAvg
from flwr.supercore import log

from qlocaladam.checks import whole_number
from qlocaladam.federated.sampling import sample_clients
from qlocaladam.federated.server import State, WeightedAverage
from qlocaladam_flower import task

STRATEGIES = {"FedAvg": False, "FedProx": False, "FedAdagrad": True, "FedAdam": True, "FedYogi": True}
"""Those of Flower whose clients send a model and its number of samples; whether the server takes a step of its own."""


class PaperRounds(FedAvg):
    """What the paper's rounds add to a strategy of Flower, which comes next in the order of classes.

    - The clients of a round are those that the package samples. One that is not connected is left out.
    - Models are averaged as the package does it, in the order of sampling and not of arrival: whole runs are those of
      `python -m qlocaladam train`, bit for bit. Flower's own sum differs in the last bit of float32, and 8-bit states
      make more of that from round to round.
    - A server's optimizer updates the weights. Statistics of batch normalisation are averaged with it, too: a step of
      Adam could make a variance negative.
    - Every array keeps the type that it has in the model.
    """

    seed: int
    rounds: int
    per_round: int
    model: State
    """Initial state: the names and types of all arrays."""
    trained: set[str]
    """Names of the arrays that have a gradient."""
    server_step: bool
    """Whether the strategy updates them, or averages."""

    def prepare(self, config: UserConfig) -> None:
        settings, model = task.run_settings(config), task.new_model(config)
        self.seed, self.rounds, self.per_round = settings.seed, settings.rounds, settings.clients_per_round
        self.model = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.trained = {name for name, _ in model.named_parameters()}
        self.server_step = STRATEGIES[str(config["strategy"])]
        self.clients = 0
        self.nodes: dict[int, int] = {}
        """Client of each node that has said which it is."""
        self.took_part: list[int] = []
        """Clients whose models went into the last round."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        node_of = self._connected(grid)
        if self.per_round > self.clients:  # as in Flower's own simulation, of two nodes unless it is told otherwise
            said = (
                "clients-per-round is %d and there are %d clients: all train in every round (num-supernodes adds some)"
            )
            log(WARNING, said, self.per_round, self.clients)
            self.per_round = self.clients
        drawn = sample_clients(self.seed, self.rounds, self.clients, self.per_round)[server_round - 1].tolist()
        self.order = [node_of[client] for client in drawn if client in node_of]
        self.took_part = []
        if absent := [client for client in drawn if client not in node_of]:
            log(INFO, "clients %s of round %d are not connected and are left out", absent, server_round)
        if not self.order:
            return []
        # The strategy of Flower samples all that it sees.
        return super().configure_train(server_round, arrays, config, SimpleNamespace(get_node_ids=lambda: self.order))

    def _connected(self, grid: Grid) -> dict[int, int]:
        """Nodes by client. Before the first round, wait until every client has one."""
        first = self.clients == 0
        while True:
            online = list(grid.get_node_ids())
            self._ask([node for node in online if node not in self.nodes], grid)
            node_of = {self.nodes[node]: node for node in online if node in self.nodes}
            if not first or (self.clients and len(node_of) == self.clients):
                return node_of
            log(INFO, "%d of %s clients are connected", len(node_of), self.clients or "?")
            time.sleep(1)

    def _ask(self, nodes: list[int], grid: Grid) -> None:
        """Which client each of these nodes is. A node that does not answer is asked again in the next round."""
        questions = [Message(RecordDict(), node, MessageType.QUERY) for node in nodes]
        for reply in grid.send_and_receive(questions) if questions else []:
            node = reply.metadata.src_node_id
            if reply.has_error():
                log(INFO, "node %d does not say which client it is: %s", node, reply.error.reason)
                continue
            said = reply.content["client"]
            client, clients = int(said["partition-id"]), int(said["num-partitions"])
            self.clients = self.clients or clients
            if clients != self.clients:
                raise ValueError(
                    f"num-partitions must be {self.clients} at every node, got {clients} at client {client}"
                )
            whole_number("partition-id", client, 0, clients - 1)
            online = set(grid.get_node_ids())
            if client in (other for at, other in self.nodes.items() if at in online):
                raise ValueError(f"partition-id must be another one at every node, got {client} twice")
            self.nodes[node] = client

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]  # the SuperLink answers for a node that is gone
        sent = [reply for reply in replies if not reply.has_error() and _samples(reply)]
        sent.sort(key=lambda reply: self.order.index(reply.metadata.src_node_id))
        stepped, metrics = super().aggregate_train(server_round, [*sent, *failed])
        if stepped is None:
            return None, None
        self.took_part = [self.nodes[reply.metadata.src_node_id] for reply in sent]
        average = WeightedAverage(sum(map(_samples, sent)))
        for reply in sent:
            average.add(reply.content["arrays"].to_torch_state_dict(), _samples(reply))
        arrays = {name: value.numpy() for name, value in average.result(self.model).items()}
        if self.server_step:
            arrays |= {name: stepped[name].numpy().astype(arrays[name].dtype) for name in self.trained}
        return ArrayRecord({name: Array(value) for name, value in arrays.items()}), metrics


def _samples(reply: Message) -> int:
    return int(reply.content["metrics"]["num-examples"])


def make_strategy(config: UserConfig) -> PaperRounds:
    """The strategy that the run config names, with those of its options that it has."""
    name = str(config["strategy"])
    if name not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")
    base: type[FedAvg] = getattr(strategy, name)
    options: dict[str, Any] = {
        "eta": float(config["server-lr"]),
        "tau": float(config["server-tau"]),
        "proximal_mu": float(config["proximal-mu"]),
    }
    options = {key: value for key, value in options.items() if key in inspect.signature(base).parameters}
    kind = type(name, (PaperRounds, base) if base is not FedAvg else (PaperRounds,), {})
    made: PaperRounds = kind(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, **options)
    made.prepare(config)
    return made
