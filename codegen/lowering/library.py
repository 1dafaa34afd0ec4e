"""Running `library_call` and `library_gradient`: torch's op, and later its own backward.

`library_call` and `library_gradient` are for numpy arrays over torch's memory, `call_on_tensors`
and `gradient_on_tensors` for tensors. Imported only where torch's arrays are run.

Note [What is kept]
torch's autograd records the op on leaves of its own, and what it saves lives in a `_Kept`. The
number that the call gives beside its results lives in the memory of that object, so it is kept as
long as an array, or a tensor, over that memory: until the backward has let go of what was saved.
The gradient finds it by that number. Where a hook of the user's has saved a copy of the number in
its place and the object is gone, the op runs once more, on the operands, which are saved as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradof.codegen.lowering.half import held_dtype
from gradof.codegen.lowering.opaque import leaf_of, readable, run_call
from gradof.ir.core import Node
from gradof.ops.opaque import constant_operands

_number = itertools.count(1)


class _Kept(ctypes.c_int64):
    """Operands and results of a call under torch's autograd, with what it saved."""

    leaves: list[Any]
    results: list[Any]

    def array(self) -> Any:
        """The number, as an array that keeps this object alive."""
        return np.frombuffer(memoryview(self).cast("B"), np.int64)


_LIVE: weakref.WeakValueDictionary[int, _Kept] = weakref.WeakValueDictionary()


def told(node: Node) -> str:
    """What a numpy statement says beside operands and attributes: dtypes that numpy has not, and
    which results somebody reads."""
    if node.kind == "Opaque":
        held = {k: d.name for k, v in enumerate(node.inputs) if (d := held_dtype(v))}
        return f"held={held}" if held else ""
    return read_of(node) if node.kind.startswith("library_") else ""


def read_of(node: Node) -> str:
    """Which results of a library call, or of its gradient, somebody reads, as an argument."""
    if node.kind == "library_call":
        return f"keep={bool(node.outputs[-1].uses)}"
    return f"wanted={tuple([bool(v.uses) for v in node.outputs])}"


def library_call(
    *arrays: Any, name: str, call: tuple[Any, ...], types: Any, keep: bool
) -> tuple[Any, ...]:
    """The results of the op, and the number of what is kept; zero where nothing is to be."""
    import torch

    tensors = [torch.from_numpy(readable(a)) for a in arrays]
    *results, kept = call_on_tensors(tensors, name, call, keep)
    return (*(r.numpy() for r in results), kept.numpy())


def library_gradient(
    *arrays: Any, name: str, call: tuple[Any, ...], given: tuple[bool, ...], types: Any,
    wanted: tuple[bool, ...],
) -> Any:  # fmt: skip
    """The gradients of the operands that have one; None for those that are not wanted."""
    import torch

    tensors = [torch.from_numpy(readable(a)) for a in arrays]
    found = gradient_on_tensors(tensors, name, call, given, wanted)
    grads = tuple([None if g is None else g.numpy() for g in found])
    return grads[0] if len(grads) == 1 else grads


def call_on_tensors(
    tensors: Sequence[Any], name: str, call: tuple[Any, ...], keep: bool
) -> list[Any]:
    """The results as tensors, then the number."""
    import torch

    with _alone(keep):
        if not keep:
            return [*run_call(name, call, tensors), torch.zeros(1, dtype=torch.int64)]
        made = _recorded(tensors, name, call)
    number = next(_number)
    made.value = number
    _LIVE[number] = made
    return [*(r.detach() for r in made.results), torch.from_numpy(made.array())]


def gradient_on_tensors(
    tensors: Sequence[Any], name: str, call: tuple[Any, ...], given: tuple[bool, ...],
    wanted: tuple[bool, ...],
) -> list[Any]:  # fmt: skip
    """The same on tensors: what is kept, results, operands, and one cotangent for each given."""
    import torch

    first = 1 + len(given)
    count = len(tensors) - sum(given)
    with _alone(True):
        made = _LIVE.get(int(tensors[0][0]))
        if made is None:
            made = _recorded(tensors[first:count], name, call)
        outputs = [r for r, there in zip(made.results, given, strict=True) if there]
        pairs = [(r, seed) for r, seed in zip(outputs, tensors[count:], strict=True)
                 if r.requires_grad]  # fmt: skip
        live = [leaf for leaf in made.leaves if leaf.requires_grad]
        asked = [leaf for leaf, want in zip(live, wanted, strict=True) if want]
        if not asked:
            return [None] * len(live)
        grads = iter(
            torch.autograd.grad(
                [r for r, _ in pairs], asked, [seed for _, seed in pairs], retain_graph=True,
                allow_unused=True,
            ) if pairs else [None] * len(asked)
        )  # fmt: skip
    return [_own(next(grads), leaf, tensors) if want else None
            for leaf, want in zip(live, wanted, strict=True)]  # fmt: skip


def _own(grad: Any, leaf: Any, tensors: Sequence[Any]) -> Any:
    """A gradient in memory of its own; zero where torch has none."""
    import torch

    if grad is None:
        return torch.zeros_like(leaf, requires_grad=False)
    memory = grad.untyped_storage().data_ptr()
    shared = any(t.untyped_storage().data_ptr() == memory for t in tensors)
    return grad.clone() if shared else grad


def _recorded(tensors: Sequence[Any], name: str, call: tuple[Any, ...]) -> _Kept:
    constant = constant_operands(call)
    made = _Kept()
    made.leaves = [t.detach() if i in constant else leaf_of(t) for i, t in enumerate(tensors)]
    made.results = run_call(name, call, made.leaves)
    return made


@contextlib.contextmanager
def _alone(grad: bool) -> Iterator[None]:
    """Without the caller's autocast, whose casts are in the graph, and without hooks of theirs."""
    import torch

    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        if not torch.is_autocast_enabled("cpu"):
            yield
            return
        with torch.autocast("cpu", enabled=False):
            yield
