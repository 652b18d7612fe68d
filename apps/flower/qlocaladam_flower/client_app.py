"""A client: the package's own local training on its part of the partition, and its states from round to round.

torch is imported when there is something to train: which client a node is, it says at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    import torch

app = ClientApp()


@app.query()
def which_client(message: Message, context: Context) -> Message:
    """The number of this client, and how many there are."""
    return Message(RecordDict({"client": MetricRecord(_place(context))}), reply_to=message)


def _place(context: Context) -> dict[str, int]:
    names = ("partition-id", "num-partitions")
    if missing := [name for name in names if name not in context.node_config]:
        raise ValueError(
            f"node config lacks {', '.join(missing)}: start the SuperNode with "
            "--node-config 'partition-id=0 num-partitions=10', each with a number of its own"
        )
    return {name: int(context.node_config[name]) for name in names}


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the global model and send the model back."""
    import torch

    from qlocaladam.federated.client import train_client
    from qlocaladam.federated.peers import held_bytes
    from qlocaladam.federated.server import load_state
    from qlocaladam_flower import states, task

    config, server = context.run_config, message.content["config"]
    torch.set_num_threads(int(config["threads"]))
    place = _place(context)
    client = place["partition-id"]
    indices = torch.tensor(task.deal(config, place["num-partitions"]).indices[client])
    model = task.new_model(config)
    load_state(model, message.content["arrays"].to_torch_state_dict())
    metrics = {"num-examples": len(indices), "train-loss": 0.0, "optimizer-bytes": 0}
    if len(indices):
        how, number = task.run_settings(config).local_training(), int(server["server-round"])
        saved = states.kept(how.make_optimizer(model.parameters(), number, client), context.state)
        if mu := float(server.get("proximal-mu", 0.0)):
            _pull_towards_global(model, mu)
        result = train_client(model, task.load_sets(config)[0], indices, how, number, client, saved)
        if how.persist:
            states.keep(result.optimizer, context.state)
        metrics |= {"train-loss": result.loss, "optimizer-bytes": held_bytes(result.optimizer)}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


def _pull_towards_global(model: torch.nn.Module, mu: float) -> None:
    """FedProx: mu / 2 times the squared distance from the global weights, as what it adds to every gradient."""

    def add_pull(param: torch.Tensor, start: torch.Tensor) -> None:
        assert param.grad is not None
        param.grad.add_(param.detach() - start, alpha=mu)

    for param in model.parameters():
        start = param.detach().clone()
        param.register_post_accumulate_grad_hook(lambda param, start=start: add_pull(param, start))
