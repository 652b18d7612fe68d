"""A plain training loop: Adam with 8-bit states where torch.optim.Adam stood."""

import io

import torch
from digits import accuracy, loader, network
from torch.nn.functional import cross_entropy

from qlocaladam import Adam8bit

model = network()
optimizer = Adam8bit(model.parameters(), lr=1e-3)  # was: torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
for _ in range(6):
    for images, labels in loader():
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    scheduler.step()

print(optimizer.memory_report())

# A checkpoint is what it is with any optimizer. The states in it have 8 bits, too.
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file, weights_only=True)
Adam8bit(network().parameters()).load_state_dict(saved["optimizer"])
print(f"accuracy {accuracy(model):.1f} %")
