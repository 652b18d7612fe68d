"""A LightningModule with 8-bit states: bfloat16, clipped gradients, and a checkpoint to go on from."""

import tempfile
from pathlib import Path

import lightning
import torch
from digits import accuracy, loader, network
from torch import Tensor
from torch.nn.functional import cross_entropy

from qlocaladam import Adam8bit


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        images, labels = batch
        return cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return Adam8bit(self.parameters(), lr=1e-3)


def trainer(epochs: int, folder: str) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )


with tempfile.TemporaryDirectory() as folder:
    first = trainer(2, folder)
    first.fit(Classifier(), loader())
    first.save_checkpoint(Path(folder, "half.ckpt"))
    module = Classifier()
    trainer(4, folder).fit(module, loader(), ckpt_path=Path(folder, "half.ckpt"))

print(f"accuracy {accuracy(module.network):.1f} %")
