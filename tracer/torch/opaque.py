"""Calls of ops that gradof does not know, written as attributes of an `Opaque` node.

    foo(x, 2.0, [w, None], dim=1)   →   call=(('t', 0), 2.0, ('list', ('t', 1), None),
                                              ('dict', ('dim', 1)))    operands (%x, %w)

The last entry of `call` is the dict of keyword arguments. Tensors become `('t', position)`, or
`('c', position)` where no gradient can flow to them, lists
`('list', ...)`, dtypes, layouts and memory formats `('torch', name)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container
from typing import Any

import torch

from gradof.errors import OpaqueOpWarning, UnsupportedOpError
from gradof.ir.core import Loc, Node, Value
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter
from gradof.tracer.aten.types import type_of

# Arguments that torch refuses a gradient, though they are tensors of floats.
_WITHOUT_GRADIENT = {"aten::linalg_pinv.atol_rtol_tensor": frozenset({"atol", "rtol"})}
# Of an empty result of these torch's rule makes no gradient, where it would make zeros of others:
# the residuals of lstsq, which are left empty for systems of less than full rank.
_NO_GRADIENT_OF_EMPTY = frozenset({"aten::linalg_lstsq"})
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def emit_opaque(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[torch.Tensor],
    value_of: Callable[[torch.Tensor], Value], attached: Container[Value], emitter: Emitter,
    loc: Loc | None,
) -> Node:  # fmt: skip
    """An `Opaque` node for one call.

    Raises UnsupportedOpError for calls torch itself could not repeat or differentiate so: random
    draws, arguments that are no literals, and calls without tensors.
    """
    name = func.name()
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise refusal(name, "it draws random numbers, which its gradient would draw anew", loc)
    if func._schema.is_mutable:
        raise refusal(name, "it changes its arguments", loc)
    if not results:
        raise refusal(name, "it returns no tensor", loc)
    if any(r.layout is not torch.strided for r in results) or _is_sparse(func, args, kwargs):
        raise refusal(name, "its result or its gradient is a sparse tensor", loc)
    operands: list[Value] = []
    flat = _WITHOUT_GRADIENT.get(name, frozenset())

    def encode(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            operands.append(value_of(value))
            return ("t" if operands[-1] in attached else "c", len(operands) - 1)
        if isinstance(value, (list, tuple)):
            return ("list", *map(encode, value))
        if isinstance(value, dict):
            return ("dict", *((k, _constant(encode(v), k in flat)) for k, v in value.items()))
        if isinstance(value, torch.device):
            return ("device", str(value))
        if isinstance(value, _CONSTANTS):
            return ("torch", str(value).removeprefix("torch."))
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        raise refusal(name, f"an argument is a {type(value).__name__}", loc)

    call = (*map(encode, args), encode(kwargs))
    if not operands:
        raise refusal(name, "it has no tensor arguments", loc)
    types = tuple((type_of(r).dtype, tuple(r.shape)) for r in results)
    return emitter.body.emit_node("Opaque", *operands, name=name, call=call, types=types, vjps=())


def is_cut(name: str, result: Value) -> bool:
    """Whether no gradient comes from a result of such an op, though it requires one."""
    shape = result.type.shape if isinstance(result.type, TensorType) else None
    return name in _NO_GRADIENT_OF_EMPTY and shape is not None and 0 in shape


def _is_sparse(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the op was asked for a sparse gradient, as by nn.Embedding(sparse=True)."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return True in (given.get("sparse"), given.get("sparse_grad"))


def _constant(encoded: Any, wanted: bool) -> Any:
    return ("c", *encoded[1:]) if wanted and isinstance(encoded, tuple) else encoded


def refusal(name: str, why: str, loc: Loc | None) -> UnsupportedOpError:
    """The error for a call that gradof neither knows nor can leave to torch."""
    return UnsupportedOpError(
        f"torch calls {name.replace('::', '.')}, which gradof does not know"
        + (f"; {why}" if why else ""),
        loc=loc, hint="rewrite it with supported ops (`gradof ops` lists them)",
    )  # fmt: skip


def warn_opaque(name: str, loc: Loc | None) -> None:
    """Say, at the user's line, that torch's autograd runs an op."""
    message = (
        f"{name.replace('::', '.')} has no rule: it runs under torch's own autograd, correct but "
        "not compiled; strict=True makes this an error"
    )
    file, line = (loc.file, loc.line) if loc is not None else ("<unknown>", 0)
    warnings.warn_explicit(message, OpaqueOpWarning, file, line)


