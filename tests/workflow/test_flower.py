"""The Flower app: its rounds are our rounds, in one process, in Flower's simulation and over a real network."""

import csv
import logging
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from flower_processes import APP, Federation
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from qlocaladam_flower import strategy, task
from qlocaladam_flower.client_app import app as client_app
from qlocaladam_flower.server_app import app as server_app

from qlocaladam.federated import checkpoint
from qlocaladam.federated.client import train_client
from qlocaladam.federated.run import run
from qlocaladam.federated.server import WeightedAverage, load_state

CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
TINY = {"rounds": 3, "clients-per-round": 3, "width": 4, "train-images": 400, "test-images": 50, "seed": 44}
CLIENTS = 5


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Who sends messages, which Flower's own processes know."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def folder():
    """Its path is short enough for Ray's sockets, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="flower-") as path:
        yield Path(path)


class Nodes:
    """What the server sees of a network: here every client answers at once."""

    def __init__(self, config, clients=CLIENTS):
        places = [{"partition-id": client, "num-partitions": clients} for client in range(clients)]
        self.contexts = {100 + n: Context(1, 100 + n, place, RecordDict(), config) for n, place in enumerate(places)}

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        # Not in the order in which they were asked.
        return [client_app(message, self.contexts[message.metadata.dst_node_id]) for message in list(messages)[::-1]]


def configured(out, **changes):
    return {**CONFIG, **TINY, "out": str(out), **{key.replace("_", "-"): value for key, value in changes.items()}}


def serve(nodes, config):
    server_app(nodes, Context(1, 1, {}, RecordDict(), config))
    return result(Path(config["out"]))


def result(out):
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file)), torch.load(out / "model.pt", weights_only=True)


def our_run(config, folder, monkeypatch):
    """History and global weights of the same run without Flower."""
    monkeypatch.setattr(checkpoint, "remove", lambda path: None)  # the weights stand in the last checkpoint
    run(task.run_settings(config), task.load_dataset(config), task.deal(config, CLIENTS), folder)
    content, _ = checkpoint.load(folder / "checkpoint.pt")
    with (folder / "history.csv").open() as file:
        return list(csv.DictReader(file)), content["state"]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in expected.items())


@pytest.mark.parametrize(
    ("arm", "kept"),
    [("fp32", "reset"), ("q-localadam", "reset"), ("q-localadam", "persist"), ("normalised-4bit", "persist")],
)
def test_whole_runs_are_ours_bit_for_bit(arm, kept, tmp_path, monkeypatch):
    """States that persist are in the contexts of the clients there, and in the record of the run here."""
    config = configured(tmp_path / "flower", arm=arm, states=kept)
    history, weights = serve(Nodes(config), config)
    our_history, our_weights = our_run(config, tmp_path / "ours", monkeypatch)
    assert_same(weights, our_weights)
    for row, ours in zip(history, our_history, strict=True):
        assert all(row[name] == ours[name] for name in ("round", "clients"))
        assert float(row["accuracy"]) == pytest.approx(float(ours["accuracy"]), abs=1e-6)


def test_flowers_own_sum_agrees_to_the_order_of_summation(tmp_path, monkeypatch):
    """One round: from there on 8-bit states make more of a difference in the last bit."""
    config = configured(tmp_path / "flower", rounds=1)
    monkeypatch.setitem(strategy.STRATEGIES, "FedAvg", True)
    _, weights = serve(Nodes(config), config)
    _, ours = our_run(config, tmp_path / "ours", monkeypatch)
    for name, value in ours.items():
        # Three products and two sums, each rounded once, are of at most the largest value.
        torch.testing.assert_close(weights[name], value, rtol=0, atol=3 * 2**-23 * float(value.abs().max()))
    assert any(not torch.equal(weights[name], value) for name, value in ours.items()), "nothing was compared"


@pytest.mark.parametrize("name", ["FedAdam", "FedYogi", "FedAdagrad"])
def test_a_server_that_takes_steps_trains_quantized_clients(name, tmp_path):
    config = configured(tmp_path, strategy=name, rounds=6, server_lr=0.03)
    initial = task.new_model(config).state_dict()
    history, weights = serve(Nodes(config), config)
    assert max(float(row["accuracy"]) for row in history) > 25, "chance is 10"
    for key, value in weights.items():
        assert value.dtype == initial[key].dtype
        assert value.isfinite().all()
        assert "running_var" not in key or (value > 0).all(), "statistics are averaged, not stepped"


def test_fedadam_takes_adams_step_from_the_average_of_quantized_clients(tmp_path):
    config = configured(tmp_path / "average", rounds=1)
    initial = task.new_model(config).state_dict()
    _, average = serve(Nodes(config), config)
    config = configured(tmp_path / "adam", rounds=1, strategy="FedAdam")
    _, found = serve(Nodes(config), config)
    trained = {name for name, _ in task.new_model(config).named_parameters()}
    size = config["server-lr"] * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)  # Flower counts rounds from 2 here
    for name, start in initial.items():
        delta = average[name].double() - start.double()
        step = size * 0.1 * delta / (0.1 * delta.abs() + config["server-tau"])
        expected = (start.double() + step).float() if name in trained else average[name]
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


def test_fedprox_pulls_towards_the_global_weights(tmp_path):
    def distance(mu):
        config = configured(tmp_path / str(mu), rounds=1, strategy="FedProx", proximal_mu=mu)
        _, weights = serve(Nodes(config), config)
        start = task.new_model(config).named_parameters()
        return sum(float((weights[name] - value.detach()).square().sum()) for name, value in start), weights

    (none, weights), (some, _), (more, _) = distance(0.0), distance(0.1), distance(10.0)
    assert none > some > more > 0
    config = configured(tmp_path / "average", rounds=1)
    assert_same(weights, serve(Nodes(config), config)[1])


def ask(context, model, number):
    """Have a client train in a round, with the server's message made by hand."""
    record = {"arrays": ArrayRecord(model.state_dict()), "config": ConfigRecord({"server-round": number})}
    reply = client_app(Message(RecordDict(record), context.node_id, MessageType.TRAIN), context)
    return reply.content["arrays"].to_torch_state_dict()


@pytest.mark.parametrize("arm", ["fp32", "q-localadam", "normalised-4bit"])
def test_states_live_in_the_context_of_a_client(arm, tmp_path):
    config = configured(tmp_path, arm=arm, states="persist")
    (context, *_), model = Nodes(config).contexts.values(), task.new_model(config)
    found = [ask(context, model, number) for number in (1, 2)]

    # The same two rounds with one optimizer that is never thrown away.
    how, indices = task.run_settings(config).local_training(), torch.tensor(task.deal(config, CLIENTS).indices[0])
    local = task.new_model(config)
    kept = how.make_optimizer(local.parameters())

    class OneOptimizer(type(how)):
        def make_optimizer(self, params, round_=0, client=0):
            return kept

    for number in (1, 2):
        load_state(local, model.state_dict())
        train_client(local, task.load_sets(config)[0], indices, OneOptimizer(**vars(how)), number, 0)
        assert_same(found[number - 1], local.state_dict())

    saved = {name: array.numpy() for name, array in context.state.array_records["optimizer"].items()}
    held = sum(array.nbytes for name, array in saved.items() if not name.endswith(".step"))
    assert held == kept.memory_report().total, "states are kept as they are held, in 8 or 4 bits"
    assert {int(array) for name, array in saved.items() if name.endswith(".step")} == {
        2 * config["epochs"] * -(-len(indices) // config["batch-size"])
    }


def test_states_are_fresh_in_every_round_unless_they_are_asked_for(tmp_path):
    config = configured(tmp_path)
    (context, *_), model = Nodes(config).contexts.values(), task.new_model(config)
    ask(context, model, 1)
    assert not context.state


def test_clients_without_samples_take_no_part(tmp_path):
    config = configured(tmp_path, alpha="0.01", train_images=20, batch_size=4, clients_per_round=CLIENTS, rounds=1)
    sizes = task.deal(config, CLIENTS).sizes
    history, _ = serve(Nodes(config), config)
    assert 0 in sizes
    assert sorted(map(int, history[0]["clients"].split())) == np.flatnonzero(sizes).tolist()


def test_where_there_are_fewer_clients_than_a_round_has_all_of_them_train(tmp_path, caplog, monkeypatch):
    """As with `flwr run .` alone, for which Flower simulates two nodes."""
    config = configured(tmp_path, clients_per_round=5, rounds=2)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    history, _ = serve(Nodes(config, clients=2), config)
    assert [sorted(row["clients"].split()) for row in history] == [["0", "1"]] * 2
    assert caplog.text.count("clients-per-round is 5 and there are 2 clients: all train in every round") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"train_images": -3}, "train-images must be a whole number of at least 0, got -3"),
        ({"server_lr": 0.0}, "server-lr must be a finite number greater than 0, got 0.0"),
        ({"server_tau": -1.0}, "server-tau must be a finite number greater than 0, got -1.0"),
        ({"round_timeout": 0}, "round-timeout must be a finite number greater than 0, got 0"),
        ({"proximal_mu": -0.1}, "proximal-mu must be a finite number of at least 0, got -0.1"),
        ({"out": "/proc/out"}, "out must be a folder that can be made, got '/proc/out': No such file"),
        ({"strategy": "FedNova"}, "strategy must be one of FedAvg, FedProx, .*, got 'FedNova'"),
        ({"dataset": "cifar10"}, "dataset must be digits, .* or the path of a file .*, got 'cifar10'"),
        ({"alpha": "much"}, "alpha must be a number greater than 0 or the word 'iid', got 'much'"),
        ({"arm": "adam"}, "arm must be one of .*, got 'adam'"),
        ({"arm": "torchao-8bit", "states": "persist"}, "states must be reset for torchao-8bit"),
    ],
)
def test_mistakes_are_named(changes, message, tmp_path):
    config = configured(**{"out": tmp_path, **changes})
    with pytest.raises(ValueError, match=message):
        serve(Nodes(config), config)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"partition-id": 1, "num-partitions": CLIENTS}, "partition-id must be another one at every node, got 1 twice"),
        ({"partition-id": 0, "num-partitions": 7}, "num-partitions must be 5 at every node, got 7"),
        ({"partition-id": 5, "num-partitions": 5}, "partition-id must be a whole number from 0 to 4, got 5"),
        ({"partition-id": 0}, "node config lacks num-partitions: start the SuperNode with --node-config"),
    ],
)
def test_nodes_that_contradict_each_other_are_named(place, message, tmp_path):
    nodes = Nodes(config := configured(tmp_path))
    nodes.contexts[100].node_config = place
    with pytest.raises(ValueError, match=message):
        serve(nodes, config)


def replayed(config, history, clients=CLIENTS):
    """The weights after rounds in which just these trained, from the package's own parts."""
    model, how = task.new_model(config), task.run_settings(config).local_training()
    part, train = task.deal(config, clients), task.load_sets(config)[0]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for row in history:
        trained = [int(client) for client in row["clients"].split()]
        average = WeightedAverage(int(part.sizes[trained].sum()))
        for client in trained:
            load_state(model, state)
            train_client(model, train, torch.tensor(part.indices[client]), how, int(row["round"]), client)
            average.add(model.state_dict(), len(part.indices[client]))
        state = average.result(state)
    return state


def test_the_simulation_engine_trains_the_same(folder):
    config = configured(folder / "out", rounds=2)
    with Federation(folder, simulation=True) as federation:
        size = f"num-supernodes={CLIENTS} client-resources-num-cpus=1 init-args-num-cpus=1"
        number = federation.run({key: config[key] for key in (*TINY, "out")}, "--federation-config", size)
        assert federation.wait(number) == "finished:completed", federation.logs()
    assert federation.left() == []
    history, weights = result(folder / "out")
    assert [row["clients"] for row in history] == ["0 2 1", "1 2 0"]
    assert_same(weights, replayed(config, history))


def test_a_federation_outlives_the_death_of_a_node(folder):
    """A SuperLink and three SuperNodes; one is killed in the second round, which it had a part in."""
    out, clients = folder / "out", 3
    config = configured(out)
    with Federation(folder) as federation:
        nodes = [federation.start_node(client, clients) for client in range(clients)]
        number = federation.run({key: config[key] for key in (*TINY, "out")})
        federation.wait_for(out / "history.csv")
        federation.kill(nodes[2])
        assert federation.wait(number) == "finished:completed", federation.logs()
    assert federation.left() == []
    history, weights = result(out)
    assert [row["clients"] for row in history] == ["2 1 0", "0 1", "1 0"]
    assert_same(weights, replayed(config, history, clients))
