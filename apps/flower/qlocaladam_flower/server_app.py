"""The server: rounds of a Flower strategy, the global model evaluated after each of them on the test data."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from qlocaladam.federated.run import EVALUATION_BATCH
from qlocaladam.federated.server import evaluate, load_state
from qlocaladam.files import csv_text, write_text, write_whole
from qlocaladam_flower import task
from qlocaladam_flower.strategy import make_strategy

COLUMNS = ("round", "accuracy", "test_loss", "clients")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and leave `history.csv` and `model.pt` in the folder `out`, if one is named."""
    config = context.run_config
    task.check(config)
    torch.set_num_threads(int(config["threads"]))
    settings, strategy = task.run_settings(config), make_strategy(config)
    model, test = task.new_model(config), task.load_sets(config)[1]
    rows: list[tuple[object, ...]] = []

    def after_round(number: int, arrays: ArrayRecord) -> MetricRecord:
        load_state(model, arrays.to_torch_state_dict())
        accuracy, loss = evaluate(model, test, EVALUATION_BATCH, settings.precision == "bf16")
        if number:
            rows.append((number, accuracy, loss, " ".join(map(str, strategy.took_part))))
            if config["out"]:
                _write(Path(str(config["out"])), rows, model)
        return MetricRecord({"accuracy": accuracy, "test-loss": loss})

    strategy.start(
        grid,
        ArrayRecord(model.state_dict()),
        settings.rounds,
        timeout=float(config["round-timeout"]),
        evaluate_fn=after_round,
    )


def _write(folder: Path, rows: list[tuple[object, ...]], model: torch.nn.Module) -> None:
    write_whole(folder / "model.pt", lambda file: torch.save(model.state_dict(), file))
    write_text(folder / "history.csv", csv_text(COLUMNS, rows))
