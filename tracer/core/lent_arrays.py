"""numpy arrays among the arguments of a torch function: tensors over their memory, in holders.

    loss(model, batch)      # batch = {"obs": np.ndarray}: a leaf torch.from_numpy(batch["obs"]),
                            # below a node of the structure that says that it was an array

So a call of torch's has tensors alone among its leaves. What the function is given for one while it
is traced is a `gradof.tracer.torch.numpy_arrays.TracedNumpy`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.tracer.core.pytree import LEAF, TreeDef, flatten
from gradof.tracer.core.sparse_matrices import Node


def _of_leaf(parts: list[Any], fixed: bool) -> Any:
    (part,) = parts
    is_array_already = part is None or hasattr(type(part), "gradof_node")
    return part if is_array_already else LentArray(part, fixed)


class LentArray:
    """A numpy array, as the tensor over its memory; None stands for no gradient.

    `fixed` is an array that cannot be written.
    """

    __slots__ = ("fixed", "tensor")
    gradof_node = Node(lambda lent: ([lent.tensor], lent.fixed), _of_leaf)

    def __init__(self, tensor: Any, fixed: bool) -> None:
        self.tensor = tensor
        self.fixed = fixed


class _Writable:
    """The memory of an array, for numpy to make another array of."""

    def __init__(self, array: Any) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self.array = array  # kept alive


def over_memory(array: Any) -> Any:
    """The tensor over the memory of an array; raises TypeError and ValueError as torch does.

    torch warns of memory that cannot be written where the function asks for none, as well.
    """
    there = array if array.flags.writeable else np.asarray(_Writable(array))
    return sys.modules["torch"].from_numpy(there)


def given_array(array: Any, fixed: bool) -> Any:
    """The tensor over the memory of an array of this kind; None where it is another, or none."""
    if type(array) is not np.ndarray or array.flags.writeable is fixed:
        return None
    try:
        return over_memory(array)
    except (TypeError, ValueError):
        return None


_NODES = {fixed: flatten(LentArray(None, fixed))[1] for fixed in (False, True)}


def with_nodes(tree: TreeDef, lent: Sequence[bool | None]) -> TreeDef:
    """The structure where leaves that are lent are below a node of their own.

    Of each leaf `lent` says whether it is an array that cannot be written; None where it is none.
    """
    return _with_nodes(tree, iter(lent))


def _with_nodes(tree: TreeDef, lent: Iterator[bool | None]) -> TreeDef:
    if tree.kind == "leaf":
        fixed = next(lent)
        return LEAF if fixed is None else _NODES[fixed]
    return replace(tree, children=tuple(_with_nodes(child, lent) for child in tree.children))


def lent_leaves(tree: TreeDef) -> dict[int, bool]:
    """The leaves of a structure that are arrays, by number, and whether they are fixed."""
    found = enumerate(_lent(tree))
    return {i: fixed for i, fixed in found if fixed is not None}


def _lent(tree: TreeDef) -> Iterator[bool | None]:
    if tree.kind == "leaf":
        yield None
    elif tree.type is LentArray:
        assert tree.context is not None
        yield tree.context.value
    else:
        for child in tree.children:
            yield from _lent(child)
