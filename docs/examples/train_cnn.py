"""Trains a small CNN on images from Zarr, with plain DistributedDataParallel.

What is hpcplat's is marked with (1) to (6); all else is PyTorch as always.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hpcplat.run
from hpcplat.datasets import Augmentation, Cursor, ImageRows, Normalization
from hpcplat.datasets.cursor import share_of

STEPS, BATCH, SEED = 200, 64, 7


def network(classes: int, channels: int) -> nn.Module:
    """Return two convolutions, a pool, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * 16, classes),
    )


def device_of(run: hpcplat.run.Run) -> torch.device:
    """Return this rank's GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", run.local_rank)
    return torch.device("cpu")


def mean_over_ranks(loss: torch.Tensor) -> torch.Tensor:
    """Return the mean of all ranks' losses, on every rank."""
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def main(dataset: str | None = None, root: str | None = None) -> None:
    """Train, from the newest checkpoint if there is one."""
    run = hpcplat.run.current()  # (1) which rank, which job
    device = device_of(run)
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    torch.manual_seed(SEED + run.rank)  # dropout differs; DDP makes the weights equal

    version = run.dataset(dataset, root)  # (2) the data that the spec names
    images = ImageRows(
        version.split("train"),
        augmentation=Augmentation(SEED, shift=2),
        normalization=Normalization([0.5], [0.5]),
        channels_first=True,
    )
    order = Cursor(len(images), seed=SEED, dataset=version.digest)

    channels = images.rows([0])[0].shape[-1]
    model = DistributedDataParallel(
        network(len(images.class_names), channels).to(device)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    saver = run.saver(model, [optimizer], {"schedule": schedule})  # (3)

    for step in range(saver.resume(), STEPS):  # (4) 0, or where it stopped
        first, last = share_of(BATCH, run.rank, run.world_size)
        places = range(step * BATCH + first, step * BATCH + last)
        batch = images.batch(order.at(places), places)
        pictures = torch.from_numpy(batch["images"]).to(device)
        labels = torch.from_numpy(batch["labels"]).long().to(device)

        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        schedule.step()

        mean, done = mean_over_ranks(loss), step + 1
        run.log({"loss": mean, "rate": schedule.get_last_lr()[0]}, done)  # (5)
        if not saver.after(done, samples=done * BATCH, loss=mean.item()):  # (6)
            break
    saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
