"""Arguments of a torch function: what they may be (tensors, plain values), and their names."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.errors import DeviceError, LeafTypeError
from gradof.tracer.aten.types import from_torch_dtype
from gradof.tracer.core.pytree import Static, positional_names
from gradof.tracer.state.source import function_loc

STATIC_TYPES = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, enum.Enum, type, slice, range, type(Ellipsis),
    torch.Generator,
)  # fmt: skip


def check_leaves(leaves: Sequence[Any], paths: Sequence[str], fn: Callable[..., Any]) -> None:
    """Refuse leaves that are neither traceable tensors nor plain Python values."""
    for leaf, path in zip(leaves, paths, strict=True):
        if isinstance(leaf, torch.Tensor):
            check_tensor(leaf, path, fn)
        elif not isinstance(leaf, (*STATIC_TYPES, Static)) and not inspect.isroutine(leaf):
            raise LeafTypeError(
                f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}, neither a tensor "
                "nor a plain Python value",
                loc=function_loc(fn),
                hint="pass tensors (torch.as_tensor), or name the argument in static_argnames",
            )


def check_tensor(tensor: torch.Tensor, what: str, fn: Callable[..., Any]) -> None:
    """Refuse tensors that are not plain dense ones; LeafTypeError, DeviceError or DtypeError."""
    loc = function_loc(fn)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
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
