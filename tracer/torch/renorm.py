"""Embeddings whose rows are scaled down in place before they are read, in sight of the tracer.

    F.embedding(i, weight, max_norm=1.0)      embedding_renorm_(weight.detach(), i, 1.0, 2.0), then
                                              F.embedding(i, weight)

torch does the first within the call, behind autograd's back. Taken out of it, `histories` sees
whose elements change and whose gradient stays, as it does where a user writes it so.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

RENORMS = {f: inspect.signature(f) for f in
           (torch.nn.functional.embedding, torch.nn.functional.embedding_bag)}  # fmt: skip


def renormed(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Scale the rows that a call of an embedding asks for, and return the call without that."""
    call = RENORMS[func].bind(*args, **kwargs)
    given = call.arguments
    if given.get("max_norm") is None:
        return args, kwargs
    index, weight = given["input"], given["weight"]
    if index.is_floating_point():  # embedding_bag still takes them the other way round
        index, weight = weight, index
    torch.embedding_renorm_(
        weight.detach(), index.reshape(-1), given["max_norm"], given.get("norm_type", 2.0)
    )
    given["max_norm"] = None
    return call.args, call.kwargs
