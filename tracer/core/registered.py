"""Container classes that torch's own pytree registry knows.

    torch.utils._pytree.register_pytree_node(Batch, flatten_fn, unflatten_fn)

A class registered there, as transformers registers each of its `ModelOutput`s, is a container here
too: it is taken apart and put together by the functions that were registered. torch is never
imported for it: where torch is not loaded, nothing is registered.
"""

from __future__ import annotations

import sys
from typing import Any

from gradof.tracer.core import containers
from gradof.tracer.core.containers import STANDARD
from gradof.tracer.core.sparse_matrices import sparse_node


class Context:
    """What a class keeps beside its children; equal where the contexts are, and hashable.

    Contexts may be lists, dicts or objects of any class: those without a hash count as one.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context) and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )  # fmt: skip

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return hash(type(self.value))


def node_of(cls: type) -> Any:
    """What torch's registry says of a class, or we do; None where nobody says anything."""
    pytree = sys.modules.get("torch.utils._pytree")
    registered = None if pytree is None else pytree.SUPPORTED_NODES.get(cls)
    if registered is None or cls in STANDARD:  # the same whether torch is loaded or not
        return sparse_node(cls) or containers.node_of(cls) or registered
    return registered


def split(node: Any, tree: Any) -> tuple[tuple[Any, ...], list[Any], Context]:
    """Keys for paths, children and context of an instance of a registered class."""
    children, context = node.flatten_fn(tree)
    parts = list(children)
    keys: tuple[Any, ...] = tuple(range(len(parts)))
    if isinstance(context, (list, tuple)) and len(context) == len(parts):
        if all(type(key) is str for key in context):  # for nearly all: what they are called
            keys = tuple(context)
    return keys, parts, Context(context)


def join(cls: type, parts: list[Any], context: Context) -> Any:
    """An instance of a registered class, from its children."""
    return node_of(cls).unflatten_fn(parts, context.value)
