"""torch's own table of ops, `op_db`, as programs to check.

    for entry in entries():                    # OpInfo of every op with a gradient for dense input
        for sample in samples(entry, "f32"):
            sample.run(sample.tensors)         # the op on these tensors, a list of results

`op_db` is what torch tests itself with: per op, sample inputs of all kinds of shapes and options,
and, where a result is only known up to a gauge (the vectors of an SVD), a function of the result
that is not. Needs torch's test dependency `expecttest`.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
}  # fmt: skip

SEED = 1234  # that of torch's own tests: samples are those they run on

# What is in the table but has no dense gradient to compare: op -> why.
LEFT_OUT = {
    "sparse_mm_reduce": "takes a sparse matrix",
    "sparse_sampled_addmm": "takes a sparse matrix",
    "to_sparse": "gives a sparse tensor",
    "empty": "its values are whatever memory holds",
    "empty_like": "its values are whatever memory holds",
    "empty_permuted": "its values are whatever memory holds",
    "empty_strided": "its values are whatever memory holds",
    "new_empty": "its values are whatever memory holds",
    "new_empty_strided": "its values are whatever memory holds",
}


# Of batches and channels, which an op treats all alike, this many are enough: the samples of one op
# have five million elements, two hundred times those of any other. Arrays of 60 thousand are left.
FEWER = {"grid_sampler_3d": ((2, 3), (2,))}


@dataclass
class Sample:
    """One call: `run(tensors)` gives the list of tensors it returns."""

    label: str
    tensors: list[torch.Tensor]
    run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    half: bool = False  # bfloat16 or float16

    def fresh(self, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """The tensors again, each over memory of its own; floating ones in `dtype` if given."""
        return [_copy(t, dtype) for t in self.tensors]


def entries() -> list[Any]:
    """The `OpInfo` of each op that has a gradient for dense real inputs, in torch's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's, of the table's own lines
        from torch.testing._internal.common_methods_invocations import op_db

    return [
        entry for entry in op_db
        if entry.supports_autograd and {torch.float32, torch.float64} & set(entry.dtypes)
        and entry.formatted_name not in LEFT_OUT
    ]  # fmt: skip


def samples(entry: Any, dtype: str, device: str = "cpu") -> Iterator[Sample]:
    """The sample calls of one op in one dtype; none where torch lacks the op in it."""
    if DTYPES[dtype] not in (entry.dtypes if device == "cpu" else entry.dtypesIfCUDA):
        return
    seed(0)
    # `entry.sample_inputs` seeds before each sample too, after looking for a unittest on the stack.
    given = iter(entry.sample_inputs_func(entry, device, DTYPES[dtype], True))
    for number, sample in enumerate(_seeded(given)):
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in places]
        fewer = FEWER.get(entry.formatted_name)
        if fewer is not None:
            tensors = [_first(t, counts) for t, counts in zip(tensors, fewer, strict=True)]
        if any(t.layout is not torch.strided for t in tensors) or not tensors:
            continue  # a sparse tensor, or a call of numbers alone, which is no gradient's business
        run = _runner(entry, sample.output_process_fn_grad, leaves, tree, places)
        label = f"{entry.formatted_name} #{number} {dtype}"
        yield Sample(label, tensors, run, half=dtype in ("f16", "bf16"))


def seed(number: int) -> None:
    """Seed torch's generators: of the CPU, and of CUDA devices where there are any.

    `torch.manual_seed` asks every kind of device there could be. Each that is absent keeps the call
    for later, with a traceback, which takes longer than a small sample does.
    """
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)


def _seeded(given: Iterator[Any]) -> Iterator[Any]:
    """Every sample is drawn from the same seed, so that it does not depend on those before."""
    while True:
        seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        try:
            sample = next(given)
        except StopIteration:
            return
        yield sample


def _first(tensor: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """The first elements along the leading dims, in memory of their own."""
    part = tensor.detach()[tuple(slice(n) for n in counts)].clone()
    return part.requires_grad_(tensor.requires_grad)


def _runner(
    entry: Any, process: Callable[[Any], Any], leaves: list[Any], tree: Any, places: list[int]
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    op, wrapper = entry.get_op(), entry.gradcheck_wrapper

    def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, tree)
        result = process(wrapper(op, first, *args, **kwargs))
        return [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

    return run


def _copy(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    # With the strides it has, overlapping ones too: set_ over a copy of the whole storage.
    source = tensor.detach()
    if dtype is not None and source.is_floating_point() and source.dtype != dtype:
        copy = source.to(dtype)
    else:
        memory = source.untyped_storage().clone()  # type: ignore[no-untyped-call]
        copy = torch.empty(0, dtype=source.dtype, device=source.device).set_(
            memory, source.storage_offset(), source.size(), source.stride()
        )
    return copy.requires_grad_(tensor.requires_grad)
