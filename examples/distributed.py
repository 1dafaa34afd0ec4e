"""Data-parallel training: DistributedDataParallel around a differentiated module, two processes.

    torchrun --standalone --nproc-per-node 2 examples/distributed.py

Each process trains on its half of every batch, over gloo; gradients are averaged by DDP's hooks on
the parameters that the compiled module shares. After 20 steps the parameters are those of one
process that was given the whole batches, which process 0 checks and prints.
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradof import differentiate

STEPS, BATCH = 20, 32


def network() -> nn.Sequential:
    """The same parameters in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def batches() -> list[tuple[Tensor, Tensor]]:
    """The same data in every process."""
    torch.manual_seed(1)
    return [(torch.randn(BATCH, 8).double(), torch.randint(0, 3, (BATCH,))) for _ in range(STEPS)]


def train(model: nn.Module, rank: int, world: int) -> None:
    """Adam over this process's share of each batch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, labels in batches():
        optimizer.zero_grad()
        logits = model(x[rank::world])
        nn.functional.cross_entropy(logits, labels[rank::world]).backward()
        optimizer.step()


def main() -> float:
    """Train in this process group; the largest difference from one process, in process 0."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    compiled = differentiate(network(), strict=True)  # no turns with eager
    train(DistributedDataParallel(compiled), rank, world)
    assert compiled.cache_info().backward_runs == STEPS, "gradof's own df ran"
    apart = 0.0
    if rank == 0:
        alone = copy.deepcopy(network())
        train(alone, 0, 1)
        pairs = zip(compiled.parameters(), alone.parameters(), strict=True)
        apart = max((a - b).abs().max().item() for a, b in pairs)
        found = f"parameters differ from one process by {apart:.1e}"
        print(f"{world} processes, {STEPS} steps: {found}")
    # DDP of torch 2.13 keeps its group's threads until the interpreter ends, and one that frees the
    # last collective by then aborts the process; the threads of a group without DDP are joined.
    dist.barrier(dist.new_group())
    dist.destroy_process_group()
    return apart


if __name__ == "__main__":
    assert main() < 1e-9
