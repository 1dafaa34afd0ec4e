"""`library_call`: an op of torch's with torch's own backward, where ours would not be faster.

    %y, %h, %kept = library_call[name='aten::gru.input', call=(...), types=(...)](%x, %h0, %w)
    %dx, %dh0, %dw = library_gradient[..., given=(True, False)](%kept, %y, %h, %x, %h0, %w, %dy)

`call` is the argument list, as of an `Opaque` node (`gradof.ops.opaque`); `given` says of which
results there are cotangents. An Opaque node runs its op again in each backward; here the forward's
run keeps what torch saves for its backward, and `kept`, an array of one number, stands for it, on
the CPU wherever the rest is (Note [What is kept] in `gradof.codegen.lowering.library`). The
gradient also reads the operands and results, which torch has saved, so that nobody writes over them
meanwhile. Second derivatives are Opaque nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import I64, DType, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.opaque import gradient_of, live_operands, numpy_has_none, types_of
from gradof.ops.registry import Family, op

KEPT = (1,)  # the shape of what stands for what is kept


def _types(like: Type, attrs: Mapping[str, Attr]) -> list[Type]:
    """The results, on the device of a tensor of the call's."""
    types = attrs["types"]
    if not isinstance(types, tuple) or not isinstance(like, TensorType):
        raise InferenceError("a library call has tensor operands and a tuple of result types")
    results: list[Type] = []
    for pair in types:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], DType):
            raise InferenceError(f"{pair!r} is not the dtype and shape of a result")
        results.append(TensorType(pair[0], tuple(pair[1]), like.device))  # type: ignore[arg-type]
    return results


def _infer_call(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return (*_types(inputs[0], attrs), TensorType(I64, KEPT))


def _infer_gradient(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return tuple(_types(inputs[1], attrs))  # of a result; what is kept is the CPU's


def _call_rule(
    g: list[Expr | None], xs: list[Expr], ys: list[Expr], name: str, call: Attr
) -> list[Expr | None]:
    *seeds, _ = g
    *results, kept = ys
    given = tuple(seed is not None for seed in seeds)
    live = live_operands(xs, call)
    grads = iter(F.library_gradient.multiple(
        kept, *results, *xs, *(seed for seed in seeds if seed is not None), name=name, call=call,
        given=given, types=types_of([x for x, wanted in zip(xs, live, strict=True) if wanted]),
    ))  # fmt: skip
    return [next(grads) if wanted else None for wanted in live]


def _gradient_rule(
    g: list[Expr | None], xs: list[Expr], name: str, call: Attr, given: tuple[bool, ...]
) -> list[Expr | None]:
    before = 1 + len(given)  # what is kept, and the results
    return [None] * before + gradient_of(g, xs[before:], name, call, (given,))


op("library_call(*xs; name, call, types) -> *ys", family=Family(_infer_call),
   numpy=numpy_has_none, vjp={"xs": _call_rule}, traits={"wirtinger"},
   doc="An op of torch whose backward is torch's; its last result stands for what that needs.")
op("library_gradient(*xs; name, call, given, types) -> *ys", family=Family(_infer_gradient),
   numpy=numpy_has_none, vjp={"xs": _gradient_rule}, traits={"wirtinger"},
   doc="The backward of a library_call.")  # fmt: skip
