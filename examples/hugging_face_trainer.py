"""Hugging Face's Trainer with 8-bit states, stopped in the middle and resumed from its own checkpoint."""

import tempfile
from pathlib import Path

import torch
from digits import accuracy, dataset, network
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

from qlocaladam import Adam8bit


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(images)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def trainer(folder: str) -> Trainer:
    return Trainer(
        model=Classifier(),
        args=TrainingArguments(
            output_dir=folder,
            num_train_epochs=4,
            per_device_train_batch_size=64,
            save_strategy="epoch",
            weight_decay=0.01,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_pin_memory=False,
        ),
        train_dataset=[{"images": images, "labels": labels} for images, labels in dataset()],
        optimizer_cls_and_kwargs=(Adam8bit, {"lr": 1e-3}),
    )


with tempfile.TemporaryDirectory() as folder:
    straight = trainer(folder)
    straight.train()
    half = sorted(Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[1]
    resumed = trainer(folder)
    resumed.train(resume_from_checkpoint=str(half))

pairs = zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
print(f"resumed from {half.name}: the same weights: {all(torch.equal(one, other) for one, other in pairs)}")
print(f"accuracy {accuracy(resumed.model.network):.1f} %")
