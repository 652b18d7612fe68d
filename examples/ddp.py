"""Data parallel training with 8-bit states; every process keeps the same ones.

torchrun --standalone --nproc-per-node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
from digits import accuracy, dataset, network
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from qlocaladam import Adam8bit

dist.init_process_group("gloo")
model = DistributedDataParallel(network())
optimizer = Adam8bit(model.parameters(), lr=1e-3)
sampler = DistributedSampler(dataset(), seed=0)
for epoch in range(6):
    sampler.set_epoch(epoch)
    for images, labels in DataLoader(dataset(), 32, sampler=sampler):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
gathered = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, weights)
if dist.get_rank() == 0:
    same = all(torch.equal(one, weights) for one in gathered)
    print(f"{len(gathered)} processes, the same weights: {same}\naccuracy {accuracy(model):.1f} %")
dist.destroy_process_group()
