"""Matrix products and triangles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import ALL, broadcast_shapes, known_shape, tensor, unary
from gradof.ops.registry import Family, op


def _infer_product(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    a, b = tensor(inputs[0]), tensor(inputs[1])
    if a.dtype != b.dtype or a.device != b.device:
        raise InferenceError(f"a product of {a} and {b}; insert a cast")
    s, t = known_shape(a), known_shape(b)
    if min(len(s), len(t)) < 2 or s[-1] != t[-2]:
        raise InferenceError(f"shapes {list(s)} and {list(t)} cannot be multiplied")
    batch = broadcast_shapes(s[:-2], t[:-2])
    assert batch is not None
    return (TensorType(a.dtype, (*batch, s[-2], t[-1]), a.device),)


def _infer_mm(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    for t in inputs:
        if len(known_shape(tensor(t))) != 2:
            raise InferenceError(f"mm multiplies matrices, not {t}")
    return _infer_product(inputs, attrs)


op("mm(a, b) -> y", family=Family(_infer_mm), numpy="np.matmul", torch="torch.mm",
   vjp={"a": lambda g, b: g @ b.mT, "b": lambda g, a: a.mT @ g}, names=["aten.mm"])
op("bmm(a, b) -> y", family=Family(_infer_product), numpy="np.matmul", torch="torch.matmul",
   vjp={"a": lambda g, b: F.bmm(g, b.mT), "b": lambda g, a: F.bmm(a.mT, g)}, names=["aten.bmm"],
   doc="Matrix product over the last two dims; leading dims broadcast.")


def _mv(a: Expr, b: Expr) -> Expr:
    return F.mm(a, b.reshape((*b.shape, 1))).reshape((a.shape[0],))


def _infer_mv(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    a, b = tensor(inputs[0]), tensor(inputs[1])
    s, t = known_shape(a), known_shape(b)
    if len(s) != 2 or len(t) != 1 or s[1] != t[0] or a.dtype != b.dtype:
        raise InferenceError(f"mv cannot multiply {a} and {b}")
    return (a.with_shape((s[0],)),)


op("mv(a, b) -> y", family=Family(_infer_mv), expand=_mv, names=["aten.mv"])


def _dot(a: Expr, b: Expr) -> Expr:
    return F.mm(a.reshape((1, *a.shape)), b.reshape((*b.shape, 1))).reshape(())


def _infer_dot(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    a, b = tensor(inputs[0]), tensor(inputs[1])
    if a != b or len(known_shape(a)) != 1:
        raise InferenceError(f"dot takes two vectors of one length, not {a} and {b}")
    return (a.with_shape(()),)


op("dot(a, b) -> y", family=Family(_infer_dot), expand=_dot, names=["aten.dot"])

op("tril(x; diagonal) -> y", family=Family(unary(ALL).infer),
   traits={"linear"}, numpy="np.tril({x}, {diagonal})", torch="torch.tril({x}, {diagonal})",
   vjp={"x": lambda g, diagonal: F.tril(g, diagonal=diagonal)})
op("triu(x; diagonal) -> y", family=Family(unary(ALL).infer),
   traits={"linear"}, numpy="np.triu({x}, {diagonal})", torch="torch.triu({x}, {diagonal})",
   vjp={"x": lambda g, diagonal: F.triu(g, diagonal=diagonal)})
