"""`Opaque`: an op of torch without a rule of ours, run and differentiated by torch itself.

    %y : f32[3] = Opaque[name='aten::foo.default', call=(('t', 0), 2.0), types=((f32, (3,)),),
                         vjps=()](%x)

`call` is the argument list, with `('t', i)` where operand i stands, or `('c', i)` if no gradient is
asked of it (see `tracer.torch_opaque`).
With `vjps` empty the node is the op. Each entry of `vjps` makes it the vjp of the function before:
operands are that function's and then one cotangent for each of its results that the entry marks
True; results are the gradients of its floating-point operands. So the gradient of an Opaque node is
an Opaque node, to any order that torch has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from gradof.errors import CodegenError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.core import Node
from gradof.ir.types import DType, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.registry import Family, op

Types = tuple[tuple[DType, tuple[int, ...]], ...]


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    types = attrs["types"]
    first = inputs[0]
    if not isinstance(types, tuple) or not isinstance(first, TensorType):
        raise InferenceError("an Opaque node has tensor operands and a tuple of result types")
    results: list[Type] = []
    for pair in types:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], DType):
            raise InferenceError(f"{pair!r} is not the dtype and shape of a result")
        results.append(TensorType(pair[0], tuple(pair[1]), first.device))  # type: ignore[arg-type]
    return tuple(results)


def types_of(values: Sequence[Expr]) -> Types:
    """The `types` attribute for results like these."""
    return tuple((v.dtype, v.shape) for v in values)


def by_torch(name: str, *xs: Expr) -> Expr:
    """An op of torch's that takes these tensors; its result is of the type of the first."""
    call = (*(("t", i) for i in range(len(xs))), ("dict",))
    return F.Opaque(*xs, name=name, call=call, types=types_of(xs[:1]), vjps=())


def gradient_of(
    g: list[Expr | None], xs: list[Expr], name: str, call: Attr, vjps: Any
) -> list[Expr | None]:
    """The rule of an Opaque node: the vjp of what `vjps` says of the op, by torch."""
    given = tuple(seed is not None for seed in g)
    live = live_operands(xs, call)
    inexact = [x for x, wanted in zip(xs, live, strict=True) if wanted]
    grads = iter(F.Opaque.multiple(
        *xs, *(seed for seed in g if seed is not None),
        name=name, call=call, types=types_of(inexact), vjps=(*vjps, given),
    ))  # fmt: skip
    return [next(grads) if wanted else None for wanted in live]


def live_operands(xs: Sequence[Expr], call: Attr) -> list[bool]:
    """Which operands a gradient is asked of."""
    constant = constant_operands(call)
    return [x.dtype.is_inexact and i not in constant for i, x in enumerate(xs)]


def constant_operands(call: Attr) -> set[int]:
    """The operands of which no gradient is asked."""
    if not isinstance(call, tuple):
        return set()
    if len(call) == 2 and call[0] == "c":
        return {call[1]}  # type: ignore[arg-type]  # a place
    return {place for part in call for place in constant_operands(part)}


def ask_no_gradient(node: Node, unwanted: Collection[int]) -> None:
    """Ask torch for no gradient of these operands of an op: it may have none."""
    if node.attrs["vjps"] == () and unwanted:
        node.attrs["call"] = _constant(node.attrs["call"], unwanted)


def _constant(call: Attr, places: Collection[int]) -> Attr:
    if not isinstance(call, tuple):
        return call
    if len(call) == 2 and call[0] == "t" and call[1] in places:
        return ("c", call[1])
    return tuple(_constant(part, places) for part in call)


def numpy_has_none(*xs: Any, **attrs: Any) -> NoReturn:
    """The numpy lowering of an op that only torch can run: CodegenError."""
    raise CodegenError(
        f"{attrs['name']} is torch's own and cannot run without it",
        hint="call the function with torch tensors",
    )


op("Opaque(*xs; name, call, types, vjps) -> *ys", family=Family(_infer),
   numpy=numpy_has_none,
   vjp={"xs": gradient_of}, traits={"wirtinger"},
   doc="An op of torch, run and differentiated by torch.")  # fmt: skip
