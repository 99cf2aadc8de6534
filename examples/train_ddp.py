"""The smallest training program over Talweg:  talweg run -n 4 -- python examples/train_ddp.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import talweg.torch  # noqa: F401  (registers the backend "talweg")

dist.init_process_group("talweg")
torch.manual_seed(dist.get_rank())

model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(100):
    x = torch.randn(32, 10)  # every rank has its own data
    loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()  # gradients are averaged over all ranks here
    optimizer.step()

dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"loss after {step + 1} steps on {dist.get_world_size()} ranks: {loss.item():.4f}")
dist.destroy_process_group()
