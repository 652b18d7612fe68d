"""A loop with Accelerate and 4-bit states: accumulated and clipped gradients, state that is saved and loaded."""

import tempfile

import torch
from accelerate import Accelerator
from digits import accuracy, loader, network
from torch.nn.functional import cross_entropy

from qlocaladam import Adam4bit

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.utils.data.DataLoader) -> None:
    for images, labels in data:
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(images), labels))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


model = network()
model, optimizer, data = accelerator.prepare(model, Adam4bit(model.parameters(), lr=2e-3), loader(32))
for _ in range(3):
    train(model, optimizer, data)
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    train(model, optimizer, data)  # a try that is thrown away
    accelerator.load_state(folder)
for _ in range(2):
    train(model, optimizer, data)
print(f"accuracy {accuracy(accelerator.unwrap_model(model)):.1f} %")
