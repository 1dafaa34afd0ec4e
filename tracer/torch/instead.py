"""Calls of aten's that are made in another way, whose ops are recorded.

    torch.sort(x, 0) of a 0-d x          of rows of one number (`rows`)
    x[mask]                              as many rows as the mask has now (`by_value`)
    x[:, i] in a scripted function       torch's interpreter gives `i` with its wrapper
    a gradient of nothing                ordinary zeros, and not torch's tensors without memory
    torch.autograd.forward_ad            refused, at the first question that it asks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from gradof.errors import UnsupportedOpError
from gradof.ir.core import Loc
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.by_value import BY_VALUE, reads_values
from gradof.tracer.torch.functional import inner, is_wrapper
from gradof.tracer.torch.rows import needs_rows, on_rows

_ATEN = torch.ops.aten
# Of their lists of tensors some may be None.
_LISTED = frozenset({
    _ATEN.index.Tensor, _ATEN.index_put.default, _ATEN._unsafe_index.Tensor,
    _ATEN._unsafe_index_put.default,
})  # fmt: skip
Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def instead(func: Any, args: tuple[Any, ...]) -> Call | None:
    """How these arguments' call is made, if not as it is."""
    if func in _LISTED and any(_is_wrapped(i) for i in args[1]):
        return _without_wrappers
    if needs_rows(func, args):
        return on_rows
    if func is _ATEN._efficientzerotensor.default:
        return _zeros
    if func is _ATEN._has_same_storage_numel.default:
        refuse_duals(user_loc())
    return _by_value if reads_values(func, args) else None


def _by_value(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return BY_VALUE[func](*args, **kwargs)


def refuse_duals(loc: Loc | None) -> NoReturn:
    """The error for tensors that carry a tangent."""
    raise UnsupportedOpError(
        "dual tensors (torch.autograd.forward_ad) inside a traced function", loc=loc,
        hint="use torch.func.jvp",
    )  # fmt: skip


def _zeros(_: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return torch.zeros(*args, **kwargs)


def _is_wrapped(index: Any) -> bool:
    return index is not None and is_wrapper(index)


def _without_wrappers(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    found = [inner(i) if _is_wrapped(i) else i for i in args[1]]
    return func(args[0], found, *args[2:], **kwargs)
