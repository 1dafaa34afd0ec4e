"""Arguments of a torch function: what they may be (tensors, plain values), and their names."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gradof.errors import DeviceError, LeafTypeError
from gradof.tracer.aten.types import from_torch_dtype
from gradof.tracer.core.pytree import positional_names, thaw
from gradof.tracer.state.renewable import has_attributes_alone
from gradof.tracer.state.source import function_loc

STATIC_TYPES = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, enum.Enum, type, slice, range, type(Ellipsis),
    torch.Generator, np.generic,
)  # fmt: skip


def check_leaves(leaves: Sequence[Any], paths: Sequence[str], fn: Callable[..., Any]) -> None:
    """Refuse tensors that cannot be traced, and what gives something else each time it is asked."""
    for leaf, path in zip(leaves, paths, strict=True):
        if isinstance(leaf, torch.Tensor):
            check_tensor(leaf, path, fn)
        elif isinstance(leaf, np.ndarray) or (
            type(leaf).__hash__ is None and not has_attributes_alone(thaw(leaf))
        ):
            raise LeafTypeError(
                f"{path} is a {type(leaf).__qualname__}", loc=function_loc(fn),
                hint="pass tensors (torch.as_tensor), in tuples, lists, dicts or dataclasses",
            )  # fmt: skip
        elif isinstance(leaf, Iterator):
            raise LeafTypeError(
                f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}, an iterator: what "
                "it gives next is not known before",
                loc=function_loc(fn), hint="take from it outside and pass what it gives",
            )  # fmt: skip


def objects_of(leaves: Sequence[Any]) -> list[Any]:
    """The leaves that are objects or functions, with state of their own."""
    values = (thaw(leaf) for leaf in leaves)
    return [x for x in values if not isinstance(x, (torch.Tensor, *STATIC_TYPES))]


def check_tensor(tensor: torch.Tensor, what: str, fn: Callable[..., Any]) -> None:
    """Refuse tensors that are not plain dense ones; LeafTypeError, DeviceError or DtypeError."""
    loc = function_loc(fn)
    if not is_plain(type(tensor)):
        raise LeafTypeError(
            f"{what} is a {type(tensor).__qualname__}, a subclass of torch.Tensor", loc=loc,
            hint="pass a plain tensor: x.as_subclass(torch.Tensor)",
        )  # fmt: skip
    if tensor.layout is not torch.strided:
        raise LeafTypeError(
            f"{what} is a {tensor.layout} tensor", loc=loc, hint="pass a dense one: x.to_dense()"
        )
    if tensor.device.type == "meta":
        raise DeviceError(f"{what} is on the meta device, without data", loc=loc)
    from_torch_dtype(tensor.dtype, loc)


def is_plain(cls: type) -> bool:
    """Whether tensors of a class compute as torch's own do.

    A subclass of Parameter does that says nothing of how it computes: results are torch.Tensors.
    One with slots has a layout of its own, which no other tensor can be given.
    """
    parameter = torch.nn.Parameter
    if cls in (torch.Tensor, parameter, torch.nn.Buffer):
        return True
    return issubclass(cls, parameter) and cls.__basicsize__ == parameter.__basicsize__ and all(
        getattr(cls, name) is getattr(parameter, name)
        for name in ("__torch_function__", "__torch_dispatch__")
    )


def name_of(fn: Any) -> str:
    """The name of a function in the IR."""
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return identifier(name) or "f"


def identifier(name: str) -> str | None:
    """The name itself, if the IR takes it."""
    return name if name.isidentifier() and name.isascii() else None


def names_of(fn: Callable[..., Any], paths: Sequence[str]) -> list[str | None]:
    """The name of each leaf in the IR: the parameter's, or the last key on the way to the leaf."""
    positional = positional_names(fn)
    names: list[str | None] = []
    for path in paths:
        root, _, rest = path.partition("[")
        key, _, inner = rest.partition("]")
        if root == "args" and key.isdigit():
            key = positional[int(key)] if int(key) < len(positional) else ""
        words = [w.strip("[]'\"") for w in inner.replace(".", "[").split("[")]
        named = [w for w in words if identifier(w)]
        names.append(identifier(named[-1] if named else key.strip("'\"")))
    return names
