"""What decides the numbers of a run, besides its data and its partition.

torch is imported only to make settings: what they are called and what their defaults are is known without it, so that
a workflow can plan without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qlocaladam.checks import finite_number, whole_number

if TYPE_CHECKING:
    from qlocaladam.federated.client import LocalTraining

PRECISIONS = ("fp32", "bf16")
STATES = ("reset", "persist")
PEERS = {
    "torchao-8bit": ("torchao.optim", "Adam8bit"),
    "torchao-4bit": ("torchao.optim", "Adam4bit"),
    "bitsandbytes-8bit": ("bitsandbytes.optim", "Adam8bit"),
    "laprop": ("qlocaladam.federated.laprop", "LaProp"),
}
"""Arms that are not Adams of ours, by module and class. torchao and bitsandbytes leave tensors of fewer than 4,096
values in FP32, torchao those too that are no whole number of blocks."""
OF_IMAGES = ("stem", "image_size", "flip")
"""Settings that mean nothing to text. There, `images` in the results are windows."""


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides the numbers of a run, besides its data and its partition. Defaults are the paper's."""

    arm: str = "q-localadam"
    optimizer: dict[str, Any] = field(default_factory=dict)
    """Options of QLocalAdam, or of a peer, on top of the arm's: block_size, rounding, eps or variance_floor."""
    lr: float = 1e-3
    seed: int = 42
    rounds: int = 120
    clients_per_round: int = 5
    epochs: int = 2
    batch_size: int = 64
    width: int = 64
    """Channels of the first stage of ResNet-18; of text, the transformer's width."""
    stem: str = "7x7"
    image_size: int = 224
    flip: bool = True
    loss_scale: float = 1.0
    """What clients multiply the loss by before they take its gradient."""
    states: str = "reset"
    """`reset`: every client starts every round with fresh optimizer states. `persist`: with those of its last round."""
    precision: str = "fp32"
    """`bf16` trains under autocast."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        import torch

        from qlocaladam.models import STEMS
        from qlocaladam.optim import ARMS

        words = {"arm": (*ARMS, *PEERS), "stem": STEMS, "states": STATES, "precision": PRECISIONS}
        for name, accepted in words.items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for name in ("rounds", "clients_per_round", "epochs", "batch_size", "width", "image_size"):
            whole_number(name, getattr(self, name), 1)
        whole_number("seed", self.seed, 0, 2**32 - 1)
        finite_number("loss_scale", self.loss_scale)
        if self.states == "persist" and self.arm in PEERS:
            raise ValueError(f"states must be reset for {self.arm}, whose states cannot be kept, got {self.states!r}")
        fixed = {"lr", "seed"} & self.optimizer.keys()
        if fixed:
            raise ValueError(f"optimizer must not set {', '.join(sorted(fixed))}: it is a setting of the run")
        try:
            self.local_training().make_optimizer([torch.zeros(1, requires_grad=True)])
        except TypeError as error:
            raise ValueError(f"optimizer has an option that QLocalAdam does not have: {error}") from None

    def local_training(self) -> LocalTraining:
        from qlocaladam.federated.client import LocalTraining
        from qlocaladam.optim import ARMS

        return LocalTraining(
            optimizer={"lr": self.lr, **ARMS.get(self.arm, {}), **self.optimizer},
            epochs=self.epochs,
            batch_size=self.batch_size,
            flip=self.flip,
            autocast=self.precision == "bf16",
            seed=self.seed,
            loss_scale=self.loss_scale,
            persist=self.states == "persist",
            peer=self.arm if self.arm in PEERS else None,
        )

    def optimizer_options(self) -> dict[str, Any]:
        """Every option of the optimizer as the arm stands for it now: an arm may mean something else one day."""
        import torch

        optimizer = self.local_training().make_optimizer([torch.zeros(1, requires_grad=True)])
        plain: dict[str, Any] = json.loads(json.dumps(optimizer.defaults, default=str))
        return {name: value for name, value in plain.items() if name != "seed"}  # every client has its own
