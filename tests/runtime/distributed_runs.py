"""Two processes train one model in several ways; one line of JSON for each, of process 0.

    torchrun --standalone --nproc-per-node 2 tests/runtime/distributed_runs.py

`apart` is the largest difference of a parameter from those of one process without gradof.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gradof import differentiate

STEPS = 4


class Net(nn.Module):
    """Blocks in a list, a part that is not always used, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(2)
        )
        self.rest = nn.ModuleDict({"last": nn.Linear(16, 3), "unused": nn.Linear(3, 3)})
        self.extra = False

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        h = self.rest["last"](h)
        found: Tensor = self.rest["unused"](h) if self.extra else h
        return found


def network() -> Net:
    """The same parameters in every process."""
    torch.manual_seed(0)
    return Net().double()


def train(
    model: Any, rank: int, world: int, extra: bool = True,
    unsynced: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> None:  # fmt: skip
    """SGD over this process's share of each batch, two batches a step."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, Net):
            module.extra = extra
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for context in (unsynced(), contextlib.nullcontext()):
            x, labels = torch.randn(8, 8).double(), torch.randint(0, 3, (8,))
            with context:
                loss: Any = nn.functional.cross_entropy(model(x[rank::world]), labels[rank::world])
                loss.backward()
        optimizer.step()


def _ddp_around() -> tuple[Any, Any, dict[str, Any]]:
    ours = differentiate(network())
    ddp = DistributedDataParallel(ours)
    return ddp, ours, {"unsynced": ddp.no_sync}


def _ddp_inside() -> tuple[Any, Any, dict[str, Any]]:
    ddp = DistributedDataParallel(network())
    ours = differentiate(ddp)
    return ours, ours, {"unsynced": ddp.no_sync}  # of either: they share their state


def _ddp_inside_unused() -> tuple[Any, Any, dict[str, Any]]:
    ours = differentiate(DistributedDataParallel(network(), find_unused_parameters=True))
    return ours, ours, {"extra": False}


def _fsdp_of_blocks() -> tuple[Any, Any, dict[str, Any]]:
    net = network()
    for i, block in enumerate(net.blocks):
        net.blocks[i] = differentiate(block)
        fully_shard(net.blocks[i])
    fully_shard(net)
    return net, net.blocks[0], {}


def _fsdp_of_ours() -> tuple[Any, Any, dict[str, Any]]:
    ours: Any = differentiate(network())
    fully_shard(ours)
    return ours, ours, {}


def _fsdp_inside() -> tuple[Any, Any, dict[str, Any]]:
    net: Any = network()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    ours = differentiate(net)
    ours.set_requires_gradient_sync(True)  # its state is found for both
    return ours, ours, {}


WAYS = (_ddp_around, _ddp_inside, _ddp_inside_unused, _fsdp_of_blocks, _fsdp_of_ours, _fsdp_inside)


def _whole(parameter: Any) -> Tensor:
    found: Tensor = parameter.detach()
    return found.full_tensor() if hasattr(found, "full_tensor") else found


def main() -> None:
    """Run all ways in this process group."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for way in WAYS:
        start = time.perf_counter()
        model, ours, settings = way()
        train(model, rank, world, **settings)
        alone = network()
        train(alone, 0, 1, extra=settings.get("extra", True))
        apart = max(
            (_whole(a) - b).abs().max().item()
            for a, b in zip(model.parameters(), alone.parameters(), strict=True)
        )
        if rank == 0:
            info = ours.cache_info()
            names = [n.removeprefix("module.") for n in model.state_dict()]
            row = {"way": way.__name__, "apart": apart, "traces": info.misses,
                   "backwards": info.backward_runs, "same_names": names == [*alone.state_dict()],
                   "seconds": time.perf_counter() - start}  # fmt: skip
            print(json.dumps(row), flush=True)
    # see examples/distributed.py
    dist.barrier(dist.new_group())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
