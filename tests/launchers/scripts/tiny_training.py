"""A tiny training with hpcplat.run: ``tiny_training.py plain|ddp|fsdp STEPS [FAULT]``."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hpcplat.run

BATCH = 8
mode, steps = sys.argv[1], int(sys.argv[2])
fault = sys.argv[3] if len(sys.argv) > 3 else ""

run = hpcplat.run.current()
if run.world_size > 1:
    dist.init_process_group("gloo")
torch.manual_seed(3)
model: nn.Module = nn.Sequential(
    nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Dropout(0.2), nn.Linear(10, 3)
)
if mode == "ddp":
    model = DistributedDataParallel(model)
elif mode == "fsdp":
    fully_shard(model)
torch.manual_seed(100 + run.rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
saver = run.saver(model, [optimizer], {"schedule": schedule}, every=4)


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    rows = torch.randn(BATCH, 6, generator=generator)
    share = BATCH // run.world_size
    return rows[run.rank * share : (run.rank + 1) * share]


begun = saver.resume()
if begun and fault == "forget the schedule":
    schedule.last_epoch = 0
    optimizer.param_groups[0]["lr"] = 1e-2
for step in range(begun, steps):
    optimizer.zero_grad()
    rows = batch(step)
    loss = (model(rows) - rows[:, :3]).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    mean = loss.detach().clone()
    if run.world_size > 1:
        dist.all_reduce(mean)
        mean /= run.world_size
    run.log({"loss": mean}, step + 1)
    if fault == "slow":
        time.sleep(0.05)
    if not saver.after(step + 1, (step + 1) * BATCH, loss=mean.item()):
        break
saver.finish()
if run.world_size > 1:
    dist.destroy_process_group()
